from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKER = Path(sys.executable).with_name("basedpyright")


@pytest.mark.skipif(not CHECKER.exists() and shutil.which("basedpyright") is None, reason="basedpyright not installed")
def test_a_checker_accepts_and_refuses_what_it_must() -> None:
    checker = str(CHECKER) if CHECKER.exists() else "basedpyright"
    done = subprocess.run(
        [checker, "--pythonpath", sys.executable, "--project", str(HERE.parents[1]), *map(str, HERE.glob("*es.py"))],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_checker_accepts_can_also_be_declared() -> None:
    declared = runpy.run_path(str(HERE / "accepts.py"))
    assert [*declared["billing"].jobs] == ["send", "count", "close_day", "thank"]
    assert [*declared["Shop"]().jobs] == ["mail", "sweep"]
