"""Where a child process finds a job, and which jobs it could never find.

A child is a new interpreter: nothing of this process is in it. It imports the handler's module again, and the module
that holds the `Module` instance; by that instance and the job's name it has the same job. What can't be reached so is
refused when the host starts.
"""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from jetjobs.errors import ConfigError
from jetjobs.module import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jetjobs.job import Job

MAIN = "__main__"
_child = [False]


@dataclass(frozen=True, slots=True)
class Target:
    """A job's place: import `imports`, take `attribute` of the last; call it first when it is a `Module` class.

    `main_file` is the script that stands for `__main__` among the imports.
    """

    imports: tuple[str, ...]
    attribute: str
    is_class: bool
    job: str
    main_file: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Jobs with the same key can share a warm child."""
        return (*self.imports, self.main_file or "")


def mark_child() -> None:
    """This process is a child: hosts are refused in it."""
    _child[0] = True


def check_isolation(served: Iterable[tuple[Module, Iterable[Job[Any, Any]]]]) -> None:
    """Refuse jobs that no child process could find.

    Raises:
        ConfigError: names the job and what to write instead.
    """
    if _child[0]:
        raise ConfigError(
            "a host was about to start inside a child process, which imported its program to find a handler; "
            'write `if __name__ == "__main__":` above the lines that start the host'
        )
    for module, jobs in served:
        for job in jobs:
            if is_isolated(job):
                find_target(module, job)


def is_isolated(job: Job[Any, Any]) -> bool:
    """Whether the job's handler runs in a process of its own."""
    return job.policy.isolation == "process" and not job.is_async


def find_target(module: Module, job: Job[Any, Any]) -> Target:
    """Where a child finds the job; looked for once.

    Raises:
        ConfigError: nowhere.
    """
    found = _targets.get(job)
    if found is None:
        found = _targets[job] = _look(module, job)
    return found


_targets: WeakKeyDictionary[Job[Any, Any], Target] = WeakKeyDictionary()


def _look(module: Module, job: Job[Any, Any]) -> Target:
    function: Any = getattr(job.handler, "__func__", job.handler)
    if "<locals>" in function.__qualname__:
        raise _refused(job, "it is defined inside a function; define it at the top of a file, or in a class there")
    of_handler = _import_name(function.__module__)
    if of_handler is None:
        raise _refused(job, f"{function.__module__} is no file that can be imported; put the job into one")
    found = _instance(module, function.__module__) or _class_of(module)
    if found is None:
        kind = type(module).__name__
        raise _refused(
            job,
            f"no imported file holds this {kind} in a variable of its own; write `{module.name.replace('.', '_')} = "
            f"{kind}(…)` at the top of a file and give that to the host",
        )
    holder, attribute, is_class = found
    imports = tuple(dict.fromkeys((of_handler, holder)))
    main_file = getattr(sys.modules.get(MAIN), "__file__", None) if MAIN in imports else None
    return Target(
        imports,
        attribute,
        is_class,
        job.name,
        None if main_file is None else os.path.abspath(main_file),  # noqa: PTH100 - a str is what travels
    )


def _refused(job: Job[Any, Any], why: str) -> ConfigError:
    return ConfigError(
        f'job {job.address} ({job.where}): isolation="process" runs the handler in another process, which has to '
        f'import it, but {why}; or write isolation="thread"'
    )


def _import_name(name: str) -> str | None:
    """What a new interpreter imports for the module of that name here."""
    found = sys.modules.get(name)
    if found is None:
        return None
    spec = getattr(found, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    if name == MAIN and (file := getattr(found, "__file__", None)) is not None and os.path.exists(file):  # noqa: PTH110
        return MAIN
    return None


def _instance(module: Module, first: str) -> tuple[str, str, bool] | None:
    for name, python_module in _modules(first):
        for attribute, value in list(vars(python_module).items()):
            if value is module and (imported := _import_name(name)) is not None:
                return imported, attribute, False
    return None


def _modules(first: str) -> Iterator[tuple[str, ModuleType]]:
    """The imported modules, the likeliest first."""
    ours = __name__.partition(".")[0] + "."
    for name in (first, *list(sys.modules)):
        found = sys.modules.get(name)
        if isinstance(found, ModuleType) and not name.startswith(ours):
            yield name, found


def _class_of(module: Module) -> tuple[str, str, bool] | None:
    """The module's class, where an instance made without arguments is the same as this one."""
    kind = type(module)
    imported = _import_name(kind.__module__)
    if kind is Module or imported is None or kind.name != module.name:
        return None
    if vars(sys.modules[kind.__module__]).get(kind.__qualname__) is not kind:
        return None
    try:
        inspect.signature(kind).bind()
    except TypeError:
        return None
    return imported, kind.__qualname__, True
