"""`jetjobs runs list|show`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jetjobs._core.models import LogLine, RunRecord
from jetjobs.cli.failures import ExitCode
from jetjobs.cli.hiding import shown
from jetjobs.cli.options import Parser, add_connection, add_json, open_client, print_json, project_of
from jetjobs.cli.queueing import queued_because
from jetjobs.cli.run_filters import add_filters, add_one_run, filters_of, names_of
from jetjobs.cli.shapes import body, run_document, run_summary
from jetjobs.cli.table import ago, one_line, span, table

_HEAD = ("RUN", "JOB", "STATUS", "ATTEMPT", "AGE", "TOOK", "ERROR")


def add_list(parser: Parser) -> None:
    """The options of `runs list`."""
    add_filters(parser)
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many, newest first (50)")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=list_runs)


def add_show(parser: Parser) -> None:
    """The options of `runs show`."""
    add_one_run(parser)
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=show)


# ------------------------------------------------------------------ list


def list_runs(args: argparse.Namespace) -> int:
    """Print the newest runs that match."""
    filters = filters_of(args)
    records = asyncio.run(_list(args, filters))
    if args.json:
        print_json({"project": project_of(args), "runs": [run_summary(record) for record in records]})
    elif records:
        print(runs_table(records))
        if len(records) == args.limit:
            print(f"the newest {args.limit}; more with --limit", file=sys.stderr)
    else:
        print("no runs match" if filters else "no runs yet", file=sys.stderr)
    return ExitCode.OK


async def _list(args: argparse.Namespace, filters: dict[str, Any]) -> list[RunRecord]:
    async with open_client(args) as client:
        return await client.runs.list(**filters, limit=args.limit)


def runs_table(records: list[RunRecord]) -> str:
    """The runs as a table as wide as the terminal."""
    now = datetime.now(UTC)
    return table(_HEAD, [_row(record, now) for record in records], width=terminal_width())


def terminal_width() -> int | None:
    """Columns of the terminal; what goes into a file or pipe isn't cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _row(record: RunRecord, now: datetime) -> tuple[str, ...]:
    attempt = f"{record.attempt}/{record.max_attempts}" if record.attempt else "-"
    return (
        record.run_id,
        str(record.run_key.address),
        record.status.value,
        attempt,
        ago(record.created_at, now),
        _took(record, now),
        str(record.error or record.skip_reason or ""),
    )


def _took(record: RunRecord, now: datetime) -> str:
    if record.started_at is None:
        return "-"
    end = record.finished_at or (None if record.status.is_terminal else now)
    return "-" if end is None else span(max(end - record.started_at, end - end))


# ------------------------------------------------------------------ show


def show(args: argparse.Namespace) -> int:
    """Print everything known of one run."""
    record, waits = asyncio.run(_get(args))
    if args.json:
        print_json(run_document(record))
    else:
        print("\n".join(_described(record, waits)))
    return ExitCode.OK


async def _get(args: argparse.Namespace) -> tuple[RunRecord, str | None]:
    module, job = names_of(args)
    async with open_client(args) as client:
        record = await shown(client, await client.runs.get(args.run_id, module=module, job=job))
        return record, None if args.json else await queued_because(client, record)


def _described(record: RunRecord, waits: str | None) -> Iterator[str]:
    now = datetime.now(UTC)
    facts = {
        "run": record.run_id,
        "job": str(record.run_key.address),
        "status": record.status.value + (" (cancel asked)" if record.cancel_asked else ""),
        "waits for": waits,
        "attempt": f"{record.attempt} of {record.max_attempts}" if record.attempt else None,
        "key": record.key,
        "trigger": record.trigger.kind,
        "created": ago(record.created_at, now),
        "due": ago(record.scheduled_for, now) if record.scheduled_for else None,
        "started": ago(record.started_at, now) if record.started_at else None,
        "took": _took(record, now) if record.finished_at else None,
        "retry": ago(record.retry_at, now) if record.retry_at else None,
        "host": record.host_id,
        "progress": _progress(record),
        "payload": _json(record.payload_body),
        "result": _json(record.result_body),
        "reason": record.skip_reason,
        "error": None if record.error is None else str(record.error),
    }
    yield from (f"{name:<9} {one_line(text)}" for name, text in facts.items() if text)
    if record.logs:
        yield "logs"
        yield from (f"  {log_text(line)}" for line in record.logs)
    if record.error is not None and record.error.traceback:
        yield "traceback"
        yield from (f"  {line}" for line in record.error.traceback.splitlines())


def log_text(line: LogLine) -> str:
    """What a run logged, in one line."""
    return f"{line.at:%H:%M:%S} {line.level:<7} {one_line(line.message)}{_fields(line.fields)}"


def _json(stored: Any) -> str | None:
    return None if stored is None else json.dumps(body(stored), ensure_ascii=False, allow_nan=False)


def _fields(fields: Any) -> str:
    return "".join(f" {name}={one_line(str(value))}" for name, value in fields.items())


def _progress(record: RunRecord) -> str | None:
    said = record.progress
    if said is None:
        return None
    of = f" of {said.total:g}" if said.total is not None else ""
    return f"{said.done:g}{of}{f': {said.message}' if said.message else ''}"
