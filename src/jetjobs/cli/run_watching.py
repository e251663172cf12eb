"""`jetjobs runs watch` and `jetjobs runs logs`: what happens to runs, as it happens."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jetjobs._core.models import LogLine, RunRecord
from jetjobs.cli.failures import ExitCode
from jetjobs.cli.options import Parser, add_connection, add_json_lines, open_client
from jetjobs.cli.run_filters import add_filters, add_one_run, filters_of, names_of
from jetjobs.cli.runs import log_text
from jetjobs.cli.shapes import instant, plain, run_summary
from jetjobs.cli.table import one_line

_LOOK_EVERY = 1.0
_NEVER = "3650d"  # of heartbeats only the first is of use: it tells that the watch has begun


def add_watch(parser: Parser) -> None:
    """The options of `runs watch`."""
    add_filters(parser)
    parser.add_argument("--existing", action="store_true", help="first those that are there already, newest first")
    add_json_lines(parser)
    add_connection(parser)
    parser.set_defaults(command=watch)


def add_logs(parser: Parser) -> None:
    """The options of `runs logs`."""
    add_one_run(parser)
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the run has ended")
    add_json_lines(parser)
    add_connection(parser)
    parser.set_defaults(command=logs)


def watch(args: argparse.Namespace) -> int:
    """Print a line for each change, until Ctrl-C."""
    asyncio.run(_watch(args, filters_of(args)))
    return ExitCode.OK


async def _watch(args: argparse.Namespace, filters: dict[str, Any]) -> None:
    async with open_client(args) as client:
        async for record in client.runs.watch(heartbeat=_NEVER, existing=args.existing, **filters):
            if record is None:
                print("watching; Ctrl-C ends it", file=sys.stderr, flush=True)
            else:
                print(json.dumps(run_summary(record)) if args.json else _changed(record), flush=True)


def _changed(record: RunRecord) -> str:
    at = record.finished_at or record.heartbeat_at or record.started_at or datetime.now(UTC)
    attempt = f" attempt {record.attempt}/{record.max_attempts}" if record.attempt else ""
    reason = record.error or record.skip_reason
    why = f": {one_line(str(reason))}" if reason else ""
    return f"{at:%H:%M:%S} {record.status.value:<9} {record.run_key}{attempt}{why}"


def logs(args: argparse.Namespace) -> int:
    """Print what a run has logged; with `--follow` also what it still does."""
    asyncio.run(_logs(args))
    return ExitCode.OK


async def _logs(args: argparse.Namespace) -> None:
    module, job = names_of(args)
    async with open_client(args) as client:
        record = await client.runs.get(args.run_id, module=module, job=job)
        printed: Sequence[LogLine] = ()
        while True:
            for line in unseen(printed, record.logs):
                print(json.dumps(_document(line)) if args.json else log_text(line), flush=True)
            if record.status.is_terminal or not args.follow:
                return
            printed = record.logs or printed
            await asyncio.sleep(_LOOK_EVERY)
            record = await client.runs.get(record.run_id, module=record.module, job=record.job)


def unseen(printed: Sequence[LogLine], now: Sequence[LogLine]) -> list[LogLine]:
    """The lines that have come since; the oldest of a record may have been cut off meanwhile.

    >>> from datetime import UTC, datetime
    >>> a, b = (LogLine(datetime(2030, 1, n, tzinfo=UTC), "info", str(n)) for n in (1, 2))
    >>> [line.message for line in unseen([a], [a, b])]
    ['2']
    """
    if not printed:
        return list(now)
    last = printed[-1]
    places = [place for place, line in enumerate(now) if line == last]
    return list(now[places[-1] + 1 :]) if places else [line for line in now if line.at > last.at]


def _document(line: LogLine) -> dict[str, Any]:
    return {"at": instant(line.at), "level": line.level, "message": line.message, "fields": plain(line.fields)}
