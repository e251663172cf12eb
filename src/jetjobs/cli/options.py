"""Options that many commands share, and what they mean."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from jetjobs._core.durations import duration, instant
from jetjobs.cli.failures import ExitCode, Mistake, hide_logins
from jetjobs.cli.shown import shown
from jetjobs.client import JobClient
from jetjobs.config import connect_options, resolve_project, surroundings
from jetjobs.errors import ConfigError

CALL_TIMEOUT = 6.0
"""Seconds a single call may take: with everything around it a command ends within ten."""

# flag, option of `connect_options`, variable, meaning
_CONNECTION = (
    ("--nats", "servers", "NATS_URL", "where the broker is (default nats://localhost:4222)"),
    ("--user", "user", "NATS_USER", "user name"),
    ("--password", "password", "NATS_PASSWORD", "its password; the variable keeps it out of the process list"),
    ("--token", "token", "NATS_TOKEN", "token instead of a user; better as a variable too"),
    ("--creds", "user_credentials", "NATS_CREDS", "credentials file"),
    ("--nkey", "nkeys_seed", "NATS_NKEY", "file with an nkey seed"),
    ("--tls-ca", "tls_ca", "NATS_CA", "CA certificates to trust"),
    ("--tls-cert", "tls_cert", "NATS_CERT", "client certificate"),
    ("--tls-key", "tls_key", "NATS_KEY", "its key"),
    ("--inbox", "inbox_prefix", "NATS_INBOX", "prefix of the subjects on which answers come in (default _INBOX)"),
)


class Parser(argparse.ArgumentParser):
    """argparse with our manner of failing: one line, no credentials, exit code 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """End the process over a command line that means nothing."""
        self.exit(ExitCode.USAGE, f"error: {shown(hide_logins(_without_values(message)))}; see `{self.prog} --help`\n")


def _without_values(message: str) -> str:
    """The complaint without what follows an unknown flag: the flag may be a misspelt --password.

    >>> _without_values("unrecognized arguments: --pasword s3cr3t")
    'unrecognized arguments: --pasword …'
    """
    head, colon, words = message.partition("unrecognized arguments: ")
    if not colon:
        return message
    shown = [word.partition("=")[0] if word.startswith("-") else word for word in words.split(" ")]
    after_flag = [False, *(word.startswith("-") for word in shown[:-1])]
    hidden = ["…" if follows and word[:1] != "-" else word for word, follows in zip(shown, after_flag, strict=True)]
    return f"{head}{colon}{' '.join(hidden)}"


def add_project(parser: argparse.ArgumentParser) -> None:
    """`--project`."""
    parser.add_argument("--project", metavar="NAME", help="the project (JETJOBS_PROJECT)")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """`--project` and all that says where the broker is and who we are."""
    add_project(parser)
    group = parser.add_argument_group("connection", "each also from the environment variable named")
    for flag, option, variable, meaning in _CONNECTION:
        metavar = "URL" if option == "servers" else "VALUE"
        group.add_argument(flag, dest=f"nats_{option}", metavar=metavar, help=f"{meaning} ({variable})")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def add_json_lines(parser: argparse.ArgumentParser) -> None:
    """`--json` of a command that goes on."""
    parser.add_argument("--json", action="store_true", help="print a JSON document a line")


def connection_of(args: argparse.Namespace) -> Mapping[str, Any] | None:
    """The connection options given as flags; what is left out comes from environment and file."""
    given = {option: getattr(args, f"nats_{option}", None) for _, option, _, _ in _CONNECTION}
    found = {option: value for option, value in given.items() if value is not None}
    return found or None


def project_of(args: argparse.Namespace) -> str:
    """The project meant.

    Raises:
        Mistake: it is given nowhere.
    """
    around = surroundings()
    if not (args.project or around.environ.get("JETJOBS_PROJECT") or around.file.get("project")):
        raise Mistake(
            "no project is given; add --project NAME, set JETJOBS_PROJECT, or put project = … under [tool.jetjobs] "
            "in pyproject.toml"
        )
    return resolve_project(args.project, around)


def open_client(args: argparse.Namespace) -> JobClient:
    """A client of the project and broker meant, not connected yet."""
    return JobClient(connection_of(args), project=project_of(args), timeout=CALL_TIMEOUT)


def say_where(args: argparse.Namespace) -> None:
    """Print `project @ server` on stderr, as every command does that changes something."""
    servers = connect_options(connection_of(args)).shown_servers
    print(f"{project_of(args)} @ {servers}", file=sys.stderr)


def data_folder(text: str) -> Path:
    """Where an embedded broker keeps its data.

    Raises:
        Mistake: nothing can be written there.
    """
    folder = Path(text).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise Mistake(f"--data {text}: {there} is a file; name a folder")
    if not os.access(there, os.W_OK):
        raise Mistake(f"--data {text}: {there} can't be written; name another folder")
    return folder


def print_json(document: Any) -> None:
    """Print one strict JSON document."""
    print(json.dumps(document, indent=2, allow_nan=False))


def read_instant(text: str, option: str, *, now: datetime | None = None) -> datetime:
    """The instant a user wrote: ISO 8601 with a zone, or epoch seconds; a span such as `1h` is so long before `now`.

    >>> read_instant("2030-01-01T00:00Z", "--at").isoformat()
    '2030-01-01T00:00:00+00:00'

    Raises:
        Mistake: it is none of these, or has no zone.
    """
    span = None
    try:
        return instant(float(text), option)
    except ValueError:  # ConfigError is one too: no number, or one outside the calendar
        pass
    if now is not None:
        try:
            span = duration(text, option)
        except ConfigError:
            span = None
    if now is not None and span is not None:
        return _before(now, span, option)
    return _iso(text, option, spans=now is not None)


def _before(now: datetime, span: timedelta, option: str) -> datetime:
    try:
        return now - span
    except OverflowError:
        raise Mistake(f"{option}: that is before the year 1") from None


def _iso(text: str, option: str, *, spans: bool) -> datetime:
    also = ", or a span such as 1h (so long ago)" if spans else ""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Mistake(f"{option}: {text!r} is no instant; write 2030-01-31T12:00Z, or epoch seconds{also}") from None
    if found.utcoffset() is None:
        raise Mistake(f"{option}: {text!r} has no zone; write {text}Z for UTC, or {text}+02:00")
    return found.astimezone(UTC)


def read_json(text: str) -> Any:
    """The value a user wrote as JSON; `-` reads it from stdin.

    Raises:
        Mistake: it isn't JSON; says where.
    """
    try:
        source = sys.stdin.read() if text == "-" else text
        return json.loads(source, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        hint = " (a text needs quotes of its own: '\"text\"')" if error.pos == 0 else ""
        raise Mistake(
            f"the payload is no JSON: {error.msg} at line {error.lineno} column {error.colno}{hint}"
        ) from None
    except UnicodeDecodeError as error:
        raise Mistake(f"the payload is no JSON: {error.reason} at byte {error.start}, it must be UTF-8") from None
    except ValueError:
        raise Mistake("the payload can't be stored: it has a number of thousands of digits; write it as text") from None
    except RecursionError:
        raise Mistake("the payload is no JSON that can be read: it is nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise Mistake(f"the payload is no JSON: {name} is not part of it")


def read_seconds(text: str, option: str) -> float:
    """A span a user wrote, in seconds: `30`, `1.5`, `2m`.

    Raises:
        Mistake: it isn't a span.
    """
    try:
        seconds = float(text)
    except ValueError:
        return duration(text, option).total_seconds()
    if not math.isfinite(seconds) or seconds < 0:
        raise Mistake(f"{option}: {text!r} is no span of time; write seconds, or 250ms, 30s, 5m, 2h")
    return seconds
