"""What a host or client is given as modules, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import cast

from jetjobs._core.renames import Named, collision
from jetjobs.errors import ConfigError, DuplicateJobError
from jetjobs.job import Job
from jetjobs.module import Module


def modules_given(given: object, taker: str) -> tuple[Module, ...]:
    """One module or several, for `taker` ("JobHost").

    Raises:
        ConfigError: there is something else among them.
    """
    if isinstance(given, Module):
        return (given,)
    if isinstance(given, (str, type, Job, ModuleType)) or not isinstance(given, Iterable):
        raise _refused(cast("object", given), taker)
    found: list[Module] = []
    for each in cast("Iterable[object]", given):
        if not isinstance(each, Module):
            raise _refused(each, taker)
        found.append(each)
    return tuple(found)


def refuse_collisions(modules: Sequence[Module]) -> None:
    """Refuse jobs that are called alike; modules of one name may share it.

    Raises:
        DuplicateJobError: names both places, or the module that is given twice.
    """
    seen: dict[str, list[Named]] = {}
    for place, module in enumerate(modules):
        if any(module is other for other in modules[:place]):
            raise DuplicateJobError(f"module {module.name} is given twice; leave one of them out")
        others = seen.setdefault(module.name, [])
        mine = [job.named for job in module.jobs.values()]
        for each in mine if others else ():
            if (problem := collision(each, others)) is not None:
                raise DuplicateJobError(problem)
        others += mine


def _refused(value: object, taker: str) -> ConfigError:
    match value:
        case Job():
            job = cast("Job[object, object]", value)
            why = f"the job {job.address}; give it the module that declares the job"
        case ModuleType():
            names = [f"{value.__name__}.{name}" for name, each in vars(value).items() if isinstance(each, Module)]
            why = (
                f"the Python module {value.__name__}; give it the Module in there, as {' or '.join(names) or 'billing'}"
            )
        case type() if issubclass(value, Module):
            why = f"the class {value.__name__}; make one of it: {value.__name__}()"
        case _:
            why = f"{value!r}; write {taker}([billing], …)"
    return ConfigError(f"{taker} takes modules, not {why}")
