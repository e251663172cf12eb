"""From what a user writes on the command line, `pkg.mod[:attr]`, to modules or a host.

What goes wrong inside the user's own code is shown as their traceback, without a frame of ours; what goes wrong
in the path itself is one line with what comes close.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from types import ModuleType
from typing import Any, cast

from jetjobs.cli.failures import Mistake, UserCodeError
from jetjobs.host import JobHost
from jetjobs.job import Job
from jetjobs.module import Module

_OURS = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the paths named: modules for a host of ours, or a host of the user's own."""

    modules: tuple[Module, ...] = ()
    host: JobHost | None = None


def load(paths: Sequence[str]) -> Loaded:
    """The modules or the host that the paths name; the working folder is on the path.

    Raises:
        Mistake: a path names nothing that can be run.
        UserCodeError: the user's module raised while it was imported.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: list[Module | JobHost] = []
    for path in paths:
        found += _targets(path)
    hosts = [each for each in found if isinstance(each, JobHost)]
    if not hosts:
        modules = [each for each in found if isinstance(each, Module)]
        return Loaded(modules=tuple({id(module): module for module in modules}.values()))
    if len(found) > 1:
        raise Mistake(f"{' '.join(paths)} names a JobHost and something else; a JobHost is run alone")
    return Loaded(host=hosts[0])


def _targets(path: str) -> list[Module | JobHost]:
    _refuse_file(path)
    name, colon, attribute = path.partition(":")
    module = _import(name, path)
    if not colon:
        return _all_of(module, path)
    return _resolve(_attribute(module, attribute, path), path)


def _refuse_file(path: str) -> None:
    file, _, attribute = path.rpartition(":") if path.rpartition(":")[2].isidentifier() else (path, "", "")
    if file.endswith(".py") or "/" in file or "\\" in file:
        dotted, folder = _as_imported(file)
        where = f", from the folder {folder}" if folder else ""
        raise Mistake(
            f"'{path}' is a file; write the module as it is imported{where}: {dotted}{attribute and f':{attribute}'}"
        )
    if not all(part.isidentifier() for part in path.replace(":", ".").split(".")):
        raise Mistake(f"{path!r} is no module path; write pkg.mod or pkg.mod:attr")


def _as_imported(file: str) -> tuple[str, str]:
    """The dotted name of a file below the working folder; for another its own name, and the folder it lies in.

    Both slashes separate: a path of Windows is one here, too.
    """
    parts = [part for part in file.removesuffix(".py").replace("\\", "/").split("/") if part not in {"", "."}]
    if (Path(file).is_absolute() or PureWindowsPath(file).is_absolute() or ".." in parts) and parts:
        return parts[-1], file[: max(file.rfind("/"), file.rfind("\\"))] or "/"
    return ".".join(parts), ""


# ------------------------------------------------------------------ importing


def _import(name: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise _missing(name, error.name, path) from None
        raise _broken(name, error) from None
    except SystemExit as error:
        raise UserCodeError(_user_frames(error), f"importing {name} ended the process ({error})") from None
    except Exception as error:  # noqa: BLE001 - the fence around user code: importing runs whatever is there
        raise _broken(name, error) from None


def _broken(name: str, error: Exception) -> UserCodeError:
    return UserCodeError(_user_frames(error), f"{name} can't be imported: {type(error).__name__}: {error}")


def _user_frames(error: BaseException) -> str:
    """The traceback from the first frame of the user's on."""
    shown = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = shown
    while each is not None:
        kept = [frame for frame in each.stack if not _is_ours(frame.filename)]
        each.stack = traceback.StackSummary.from_list(kept)
        each = each.__cause__ or each.__context__
    return "".join(shown.format()).rstrip()


def _is_ours(file: str) -> bool:
    return file.startswith((_OURS, "<frozen importlib")) or f"{os.sep}importlib{os.sep}" in file


def _missing(name: str, missing: str, path: str) -> Mistake:
    """The message for a module that isn't there; `missing` is the part of `name` that wasn't found."""
    parent, _, last = missing.rpartition(".")
    if parent and missing == name:
        module = importlib.import_module(parent)
        if isinstance(getattr(module, last, None), (Module, JobHost)):
            return Mistake(f"there is no module {name!r}, but {last} in {parent}: did you mean {parent}:{last}?")
    hint = _did_you_mean(last, _modules_beside(parent), f"{parent}." if parent else "")
    if not parent and not hint:
        hint = "; go to the folder it lies in, install its package, or name its folder in PYTHONPATH"
    where = f"in package {parent!r}" if parent else f"from {Path.cwd()}"
    named = f" ({path})" if path != missing else ""
    return Mistake(f"no module {missing!r} can be found {where}{named}{hint}")


def _modules_beside(parent: str) -> Iterator[str]:
    folders = [str(Path.cwd())]
    if parent:
        spec = importlib.util.find_spec(parent)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        for entry in Path(folder).glob("*"):
            if entry.suffix == ".py" or (entry / "__init__.py").exists():
                yield entry.stem


# ------------------------------------------------------------------ attributes


def _attribute(module: ModuleType, attribute: str, path: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_")]
            owner = module.__name__ if found is module else f"{module.__name__}:{attribute.rpartition('.')[0]}"
            raise Mistake(f"{owner} has no {part!r} ({path}){_did_you_mean(part, names, f'{module.__name__}:')}")
        found = getattr(found, part)
    return found


def _did_you_mean(wanted: str, names: Iterable[str], prefix: str) -> str:
    close = difflib.get_close_matches(wanted, sorted(set(names)), n=3)
    return f"; did you mean {' or '.join(prefix + name for name in close)}?" if close else ""


def _all_of(module: ModuleType, path: str) -> list[Module | JobHost]:
    """A module's one host, else all its jetjobs modules, made from their classes where only those are there."""
    values = list(vars(module).values())
    hosts = [value for value in values if isinstance(value, JobHost)]
    if len(hosts) == 1:
        return [hosts[0]]
    if hosts:
        raise Mistake(f"{path} has several hosts; name one of them, as in {path}:host")
    instances = [value for value in values if isinstance(value, Module)]
    made = {type(instance) for instance in instances}
    classes = [value for value in values if _is_module_class(value) and value not in made and value.name]
    found: list[Module | JobHost] = [*instances, *(_make(value, path) for value in classes)]
    if not found:
        raise Mistake(f'{path} has no jobs; it needs a module such as billing = Module("billing"), or name one with :')
    return found


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Module) and value is not Module


def _resolve(value: Any, path: str) -> list[Module | JobHost]:
    """What an attribute stands for: a module, its class, a host, several of them, or a function that makes one."""
    maker: Any = value
    if isinstance(value, (Module, JobHost)):
        return [value]
    if isinstance(value, ModuleType):
        return _all_of(value, path)
    if _is_module_class(value):
        return [_make(value, path)]
    if isinstance(value, Job):
        raise _a_job(cast("Job[Any, Any]", value), path)
    if isinstance(value, (list, tuple, set, frozenset)) and value:
        members = cast("Iterable[Any]", value)
        return [target for member in members for target in _resolve_member(member, path)]
    if callable(maker) and not isinstance(maker, type):
        return _resolve_made(_make(maker, path), path)
    raise _not_runnable(maker, path)


def _resolve_member(value: Any, path: str) -> list[Module | JobHost]:
    if isinstance(value, (Module, JobHost)) or _is_module_class(value):
        return _resolve(value, path)
    raise _not_runnable(value, path)


def _resolve_made(value: Any, path: str) -> list[Module | JobHost]:
    if callable(value) and not isinstance(value, (Module, JobHost)):
        raise _not_runnable(value, path)
    return _resolve(value, path)


def _make(maker: Any, path: str) -> Any:
    try:
        return maker()
    except Exception as error:  # noqa: BLE001 - the fence around user code
        name = getattr(maker, "__name__", path)
        raise UserCodeError(
            _user_frames(error), f"{name}() of {path} failed: {type(error).__name__}: {error}"
        ) from None


def _a_job(job: Job[Any, Any], path: str) -> Mistake:
    return Mistake(
        f"{path} is the job {job.address}, and a host runs whole modules; name the module, as in "
        f"{path.partition(':')[0]}, and leave jobs out with --disable"
    )


def _not_runnable(value: object, path: str) -> Mistake:
    return Mistake(
        f"{path} is a {type(value).__name__}; it must be a Module, a Module class, a list of them, a JobHost, "
        "or a function without arguments that returns one"
    )
