"""The public names as text: what users may import, and how it is called. `python -m tests.support.public_names`."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SNAPSHOT = Path(__file__).parents[1] / "unit" / "public_names.txt"
MODULES = (
    "jetjobs",
    "jetjobs.embedded",
    "jetjobs.errors",
    "jetjobs.outcomes",
    "jetjobs.pytest_plugin",
    "jetjobs.sync",
    "jetjobs.testing",
)


def public_names() -> str:
    """A line for each name: its module, and how it is called; constructors and public methods of classes too."""
    return "".join(f"{line}\n" for module in MODULES for line in _module(module))


def _module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield name
    for each in sorted(_offered(module)):
        yield from _thing(each, getattr(module, each))


def _offered(module: Any) -> set[str]:
    """What the module says is its own: `X as X`, `__all__`, or defined in it."""
    tree = ast.parse(inspect.getsource(module))
    kept = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    made = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return {name for name in kept | made if name is not None and (not name.startswith("_") or name == "__version__")}


def _thing(name: str, value: Any) -> Iterator[str]:
    yield f"    {name}{_call(value)}"
    if inspect.isclass(value) and not issubclass(value, BaseException):
        for member in sorted(vars(value)):
            if not member.startswith("_"):
                yield f"        {member}{_call(inspect.getattr_static(value, member))}"


def _call(value: Any) -> str:
    """The parameters' names and kinds; not their types, which checkers look after, nor defaults, which docs show."""
    function: Any = getattr(value, "__func__", value)  # what a classmethod or staticmethod holds
    if inspect.isclass(value) and not _is_made_by_its_own(value):
        return ""
    if not callable(function) or isinstance(function, property):
        return ""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    plain = inspect.Signature([each.replace(annotation=each.empty, default=_shown(each)) for each in parameters])
    return str(plain)


def _is_made_by_its_own(kind: type[Any]) -> bool:
    """Whether its constructor is ours; what Python's enums, exceptions and protocols take depends on its version."""
    makers = (each for each in kind.__mro__ if "__init__" in vars(each))
    return next(makers).__module__.startswith("jetjobs") and not getattr(kind, "_is_protocol", False)


def _shown(parameter: inspect.Parameter) -> Any:
    return parameter.default if parameter.default is parameter.empty else _GIVEN


class _Given:
    def __repr__(self) -> str:
        return "…"


_GIVEN = _Given()

if __name__ == "__main__":
    SNAPSHOT.write_text(public_names(), encoding="utf-8")
