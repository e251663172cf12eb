"""From `pkg.mod:attr` to modules; the messages themselves are under test in tests/integration/test_cli_failures.py."""

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jetjobs.cli.failures import Mistake, UserCodeError
from jetjobs.cli.load import load
from jetjobs.module import Module

Write = Callable[[str], str]

CODE = """
from jetjobs import Job, JobContext, JobHost, Module, job

one = Module("one")
two = Module("two")

class Three(Module):
    name = "three"

class Needs(Module):
    name = "needs"

    def __init__(self, what):
        super().__init__()

def both():
    return [one, Three]

def broken():
    raise RuntimeError("no database")

def endless():
    return both

def host():
    return JobHost([one], project="p")

made = [one, two]
empty = []
number = 7
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a Python file into the working folder and gives the name to import it by."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)

    def file(code: str) -> str:
        name = f"cli_{secrets.token_hex(6)}"
        (tmp_path / f"{name}.py").write_text(code)
        return name

    yield file
    for name in set(sys.modules) - before:
        if name.startswith("cli_"):
            del sys.modules[name]


def names(modules: tuple[Module, ...]) -> list[str]:
    return [module.name for module in modules]


@pytest.mark.parametrize(
    "attribute, found",
    [("one", ["one"]), ("Three", ["three"]), ("made", ["one", "two"]), ("both", ["one", "three"])],
)
def test_an_attribute(write: Write, attribute: str, found: list[str]):
    assert names(load([f"{write(CODE)}:{attribute}"]).modules) == found


def test_a_function_that_makes_a_host(write: Write):
    host = load([f"{write(CODE)}:host"]).host
    assert host is not None
    assert names(host.modules) == ["one"]


def test_all_modules_of_a_file_and_classes_nobody_made_an_instance_of(write: Write):
    name = write('from jetjobs import Module\none = Module("one")\nclass B(Module):\n    name = "b"\nb = B()\n')
    assert names(load([name]).modules) == ["one", "b"]
    name = write('from jetjobs import Module\nclass B(Module):\n    name = "b"\n')
    assert names(load([name]).modules) == ["b"]


def test_one_module_named_twice_is_one(write: Write):
    name = write(CODE)
    assert names(load([f"{name}:one", f"{name}:made"]).modules) == ["one", "two"]


def test_a_file_with_one_host_means_the_host(write: Write):
    name = write('from jetjobs import JobHost, Module\nm = Module("m")\nhost = JobHost([m], project="p")\n')
    assert load([name]).host is not None
    with pytest.raises(Mistake, match="is run alone"):
        load([name, f"{name}:m"])


@pytest.mark.parametrize("attribute", ["empty", "number", "endless"])
def test_what_can_not_be_run(write: Write, attribute: str):
    with pytest.raises(Mistake, match="must be a Module"):
        load([f"{write(CODE)}:{attribute}"])


@pytest.mark.parametrize("attribute, word", [("broken", "no database"), ("Needs", "missing 1 required")])
def test_a_function_that_fails_shows_its_own_frames(write: Write, attribute: str, word: str):
    name = write(CODE)
    with pytest.raises(UserCodeError, match=word) as caught:
        load([f"{name}:{attribute}"])
    assert "load.py" not in caught.value.report


def test_a_file_without_jobs_says_what_it_needs(write: Write):
    with pytest.raises(Mistake, match=r"has no jobs; it needs a module such as billing = Module"):
        load([write("x = 1\n")])


def test_a_module_that_ends_the_process_when_imported(write: Write):
    name = write("import sys\nsys.exit(3)\n")
    with pytest.raises(UserCodeError, match="ended the process"):
        load([name])


def test_a_cause_is_shown_without_our_frames_too(write: Write):
    name = write("try:\n    import nothing_like_this\nexcept ImportError as e:\n    raise RuntimeError('why') from e\n")
    with pytest.raises(UserCodeError) as caught:
        load([name])
    assert "nothing_like_this" in caught.value.report
    assert "direct cause" in caught.value.report
    assert "importlib" not in caught.value.report
