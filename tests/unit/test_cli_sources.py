import os
import sys
from pathlib import Path

import pytest

from jetjobs.cli.sources import changed, look, project_files


def test_what_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "pkg"
    package.mkdir()
    for name in ("jobs.py", "__init__.py", "beside.py"):
        (package / name).touch()
    (tmp_path / "top.py").touch()
    (tmp_path / "notes.txt").touch()
    files = project_files(["pkg.jobs:shop"])
    assert str(package / "jobs.py") in files
    assert not any(file.startswith(str(Path(os.__file__).parent)) for file in files)
    assert not any(f"{os.sep}jetjobs{os.sep}cli{os.sep}" in file for file in files)
    seen = {Path(file).name for file in look([str(package / "jobs.py")])}
    assert seen == {"jobs.py", "__init__.py", "beside.py", "top.py"}


def test_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    file.write_text("x = 1\n")
    before = look([str(file)])
    assert changed(before, look(before)) == []
    file.write_text("x = 22\n")
    other.touch()
    assert changed(before, look(before)) == [str(file), str(other)]
    file.unlink()
    assert str(file) in changed(before, look(before))


def test_this_process_itself_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    assert __file__ in project_files([])
    monkeypatch.setitem(sys.modules, "no_file", type(sys)("no_file"))
    project_files([])
