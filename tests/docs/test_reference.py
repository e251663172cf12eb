"""The tables of the reference are those of the code."""

from __future__ import annotations

import inspect
import re
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from jetjobs import Backoff, Every, JobPolicy, errors
from jetjobs._core.connect_options import FILE_KEYS, VARIABLES
from jetjobs._core.durations import format_duration
from jetjobs._core.models import RunStatus
from jetjobs._core.settings import ClientSettings, HostSettings
from jetjobs.cli.entry import parser
from jetjobs.cli.failures import ExitCode
from jetjobs.config import JobRetention
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
_MEBI = 1024 * 1024


def rows(page: Path, table: str) -> list[list[str]]:
    """The cells of the table under `<!-- table: name -->`, without its head."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"<!-- table: {table} -->\n")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def said(value: object) -> str:
    match value:
        case None:
            return "none"
        case timedelta():
            return format_duration(value)
        case int() if value >= _MEBI:
            return f"{value // _MEBI}MiB"
        case _:
            return str(value)


@pytest.mark.parametrize(
    "table, settings, prefix",
    [
        ("host", HostSettings, "JETJOBS_"),
        ("retention", JobRetention, "JETJOBS_RETENTION_"),
        ("client", ClientSettings, "JETJOBS_"),
    ],
)
def test_settings(table: str, settings: type[HostSettings | JobRetention | ClientSettings], prefix: str):
    made = settings()
    names = [field.name for field in fields(settings) if field.name != "given"]
    wanted = [[name, f"{prefix}{name.upper()}", said(getattr(made, name))] for name in names]
    found = [row[:3] for row in rows(REFERENCE / "settings.md", table)]
    assert [row for row in found if row[0] != "retention"] == [row for row in wanted if row[0] != "retention"]


def test_connection():
    keys = {option: key for key, option in FILE_KEYS.items()}
    secret = {"password", "token"}
    wanted = [[name, "refused" if option in secret else keys[option]] for name, option in VARIABLES.items()]
    found = rows(REFERENCE / "settings.md", "connection")
    assert [[row[0], row[2]] for row in found] == wanted
    assert all(row[1] in parser_text() for row in found)


def test_policies():
    names = [field.name for field in fields(JobPolicy)]
    assert [row[0] for row in rows(ROOT / "docs" / "how-to" / "write-jobs.md", "policy")] == names


@pytest.mark.parametrize(
    "page,table,made",
    [("write-jobs", "policy", JobPolicy), ("schedules", "occurrences", partial(Every, "20s"))],
    ids=["policy", "occurrences"],
)
def test_defaults(page: str, table: str, made: Callable[..., Any]):
    """What the table says is given explicitly: it is the same."""
    default = made()
    for names, shown, *_ in rows(ROOT / "docs" / "how-to" / f"{page}.md", table):
        for name in re.findall(r"\w+", names):
            if shown in {"none", "the host's"} or name == "expires_in":
                assert getattr(default, name) is None, name
            else:
                assert made(**{name: eval(shown, {"Backoff": Backoff})}) == default, name


def test_exit_codes():
    wanted = [[str(code.value), code.name] for code in ExitCode]
    assert [row[:2] for row in rows(REFERENCE / "exit-codes.md", "exit codes")] == wanted


def test_commands():
    found = [
        re.findall(r"[a-z]+", row[0].partition("[")[0].removeprefix("jetjobs "))[:2]
        for row in rows(REFERENCE / "cli.md", "commands")
    ]
    nouns = {"runs", "jobs", "hosts"}
    assert sorted(" ".join(words[: 2 if words[0] in nouns else 1]) for words in found) == sorted(commands())


def test_options():
    """Each is told of, and each that is told of exists."""
    pages = [(REFERENCE / name).read_text(encoding="utf-8") for name in ("cli.md", "settings.md")]
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"```.*?```", "", " ".join(pages), flags=re.DOTALL)))
    actions = [action for _, leaf in _leaves(parser(), "") for action in leaf._actions if action.help != SUPPRESS]
    taken = {name for action in actions for name in action.option_strings if name.startswith("--")}
    assert told - {"--help"} == taken - {"--help"}


def test_errors_are_one_tree():
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    tree = page.partition("<!-- tree: errors -->")[2].split("```")[1]
    shown = {(len(line) - len(line.lstrip("│├└─ ")), line.lstrip("│├└─ ").split()[0]) for line in tree.splitlines()[1:]}
    assert shown == set(_tree(errors.JetJobsError, 0))
    groups = {"JetJobsError", "BrokerError", "ClientError"}
    explained = {name for _, name in shown if f"| `{name}`" in page}
    assert explained | groups | {kind.__name__ for kind in errors.RunEnded.__subclasses__()} == {
        name for _, name in shown
    }


def _tree(kind: type[BaseException], depth: int) -> Iterator[tuple[int, str]]:
    yield depth, kind.__name__
    for each in kind.__subclasses__():
        if inspect.getmodule(each) is errors:
            yield from _tree(each, depth + 4)


def parser_text() -> str:
    return " ".join(leaf.format_help() for _, leaf in _leaves(parser(), ""))


def commands() -> list[str]:
    return [name for name, _ in _leaves(parser(), "")]


def _leaves(top: ArgumentParser, path: str) -> Iterator[tuple[str, ArgumentParser]]:
    """The commands below a parser; argparse has no public way to ask."""
    below = [cast("object", action.choices) for action in top._actions]
    nested = [cast("dict[str, ArgumentParser]", choices) for choices in below if isinstance(choices, dict)]
    if not nested:
        yield path.strip(), top
    for choices in nested:
        for name, each in choices.items():
            yield from _leaves(each, f"{path} {name}")


def test_every_status_is_in_the_glossary():
    told = [(row[0], "ended" in row[1]) for row in rows(ROOT / "docs" / "glossary.md", "statuses")]
    assert told == [(status.value, status.is_terminal) for status in RunStatus]
