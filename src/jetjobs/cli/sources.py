"""Which files a reload watches, and whether one of them changed."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_FOREIGN = ("stdlib", "platstdlib", "purelib", "platlib")
_ITSELF = str(Path(__file__).parents[1])

Seen = Mapping[str, tuple[int, int]]
"""Time of change in nanoseconds and size of each file."""


def project_files(paths: Sequence[str]) -> list[str]:
    """The files of the project this process has imported, and those the paths name even if importing failed."""
    imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {str(Path(file).absolute()) for file in imported if file and file.endswith(".py")}
    foreign = tuple(f"{folder.rstrip(os.sep)}{os.sep}" for folder in (*map(sysconfig.get_path, _FOREIGN), _ITSELF))
    return sorted({file for file in files if not file.startswith(foreign)} | set(_named(paths)))


def _named(paths: Sequence[str]) -> Iterable[str]:
    """Where the modules of the paths lie, found without running them."""
    for path in paths:
        name = path.partition(":")[0]
        for base in dict.fromkeys([str(Path.cwd()), *sys.path]):
            file = Path(base, *name.split("."))
            for candidate in (file.with_suffix(".py"), file / "__init__.py"):
                if candidate.exists():
                    yield str(candidate.absolute())


def look(files: Iterable[str]) -> Seen:
    """What the files, and all Python files beside them and in the working folder, look like now."""
    folders = {Path(file).parent for file in files} | {Path.cwd()}
    watched = set(files)
    for folder in folders:
        watched.update(str(path) for path in folder.glob("*.py"))
    seen: dict[str, tuple[int, int]] = {}
    for file in watched:
        try:
            found = Path(file).stat()
        except OSError:
            continue  # gone, or being replaced by an editor: that is a change too
        seen[file] = (found.st_mtime_ns, found.st_size)
    return seen


def changed(before: Seen, after: Seen) -> list[str]:
    """The files that differ, came or went.

    >>> changed({"a.py": (1, 1), "b.py": (1, 1)}, {"a.py": (2, 1), "c.py": (1, 1)})
    ['a.py', 'b.py', 'c.py']
    """
    return sorted(file for file in {*before, *after} if before.get(file) != after.get(file))
