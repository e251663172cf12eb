"""The reference of the public names is that of the code, nothing public goes untold, and what it shows is so."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
from collections.abc import Iterator

import griffe
import pytest

import jetjobs
from tests.docs.api.shelf import Thing, members, public_names, shelves
from tests.docs.api.written import FOLDER, texts


def test_the_reference_is_that_of_the_code():
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    stale = [name for name in {*there, *texts()} if there.get(name) != texts().get(name)]
    assert stale == [], "run `make reference`"


def test_every_public_name_is_on_a_page():
    told = {thing.path for things in shelves().values() for thing in things}
    assert {path for path, thing in public_names().items() if thing.path not in told} == set()


def test_what_is_importable_is_what_is_told():
    importable = {
        name for name in dir(jetjobs) if getattr(getattr(jetjobs, name), "__module__", "").startswith("jetjobs")
    }
    told = {path.rpartition(".")[2] for path in public_names()}
    assert importable - told == {"job", "_Package"}  # the decorator is told as `jetjobs.declaring.job`


def _told() -> Iterator[Thing]:
    for things in shelves().values():
        for thing in things:
            yield thing
            if isinstance(thing, griffe.Class):
                # A view, or a method made of another class's, shows the docstring of that.
                yield from (each for each in members(thing) if each.is_function or "property" in each.labels)


def test_every_public_name_has_a_docstring():
    # In one test: finding the names takes a second, which no other test run should wait for.
    assert [thing.path for thing in _told() if not _is_sentence(_summary(thing))] == []


def _summary(thing: Thing) -> str:
    return "" if thing.docstring is None else thing.docstring.value.strip().partition("\n\n")[0]


def _is_sentence(text: str) -> bool:
    return text.endswith((".", ":")) and (text[0].isupper() or text[0] == "`")


def test_examples_in_docstrings_are_python():
    fences = [found for text in texts().values() for found in re.findall(r"```py\n(.*?)```", text, re.DOTALL)]
    examples = [text for text in fences if re.match(r"(async with |with |client = )", text)]
    assert len(examples) >= 3
    for example in examples:
        compile(example, "docstring", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


_MODULES = [
    found.name
    for found in pkgutil.walk_packages(jetjobs.__path__, "jetjobs.")
    if not found.name.endswith(("__main__", "supervisor", "child_main"))
]


@pytest.mark.parametrize("name", _MODULES)
def test_doctests(name: str):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
