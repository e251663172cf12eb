"""`jetjobs runs list|show|cancel`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from jetjobs._core.models import RunRecord
from jetjobs.cli.failures import ExitCode, Mistake
from jetjobs.cli.hiding import shown
from jetjobs.cli.options import (
    Parser,
    add_connection,
    add_json,
    open_client,
    print_json,
    project_of,
    read_instant,
    say_where,
)
from jetjobs.cli.shapes import body, run_document, run_summary
from jetjobs.cli.table import ago, one_line, span, table
from jetjobs.client import CancelOutcome, JobClient

_HEAD = ("RUN", "JOB", "STATUS", "ATTEMPT", "AGE", "TOOK", "ERROR")
_ACTIVE = ("RUNNING", "RETRYING")


def add_list(parser: Parser) -> None:
    """The options of `runs list`."""
    _add_filters(parser)
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="at most so many, newest first (50)")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=list_runs)


def add_show(parser: Parser) -> None:
    """The options of `runs show`."""
    parser.add_argument("run_id", metavar="RUN", help="a run's id")
    parser.add_argument("--module", metavar="NAME", help="where several jobs have a run of this id")
    parser.add_argument("--job", metavar="NAME", help="the same; module.job names both")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=show)


def add_cancel(parser: Parser) -> None:
    """The options of `runs cancel`."""
    parser.add_argument("run_ids", nargs="*", metavar="RUN", help="ids of runs; without any, the filters choose")
    _add_filters(parser)
    parser.add_argument("--yes", action="store_true", help="really cancel what the filters choose")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=cancel)


def _add_filters(parser: Parser) -> None:
    group = parser.add_argument_group("filters")
    group.add_argument("--module", metavar="NAME", help="runs of this module")
    group.add_argument("--job", metavar="NAME", help="runs of this job; module.job names both")
    group.add_argument("--status", action="append", metavar="STATUS", help="in this status, in any case; repeatable")
    group.add_argument("--since", metavar="WHEN", help="created then or later: 1h (ago), 2030-01-31T12:00Z, epoch")
    group.add_argument("--until", metavar="WHEN", help="created before then")
    group.add_argument("--error-type", metavar="NAME", help="failed with this exception, as in ValueError")
    group.add_argument("--text", metavar="TEXT", help="with this text in id, key, error, reason or logs")
    group.add_argument("--include-skipped", action="store_true", help="skipped runs too")


def _filters(args: argparse.Namespace) -> dict[str, Any]:
    now = datetime.now(UTC)
    module, job = _names(args)
    given = {
        "module": module,
        "job": job,
        "status": None if args.status is None else [part for each in args.status for part in each.split(",")],
        "since": None if args.since is None else read_instant(args.since, "--since", now=now),
        "until": None if args.until is None else read_instant(args.until, "--until", now=now),
        "error_type": args.error_type,
        "text": args.text,
        "include_skipped": args.include_skipped or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _names(args: argparse.Namespace) -> tuple[str | None, str | None]:
    if args.module is None and args.job is not None and "." in args.job:
        module, _, job = args.job.rpartition(".")
        return module, job
    return args.module, args.job


# ------------------------------------------------------------------ list


def list_runs(args: argparse.Namespace) -> int:
    """Print the newest runs that match."""
    filters = _filters(args)
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
    record = asyncio.run(_get(args))
    if args.json:
        print_json(run_document(record))
    else:
        print("\n".join(_described(record)))
    return ExitCode.OK


async def _get(args: argparse.Namespace) -> RunRecord:
    module, job = _names(args)
    async with open_client(args) as client:
        return await shown(client, await client.runs.get(args.run_id, module=module, job=job))


def _described(record: RunRecord) -> Iterator[str]:
    now = datetime.now(UTC)
    facts = {
        "run": record.run_id,
        "job": str(record.run_key.address),
        "status": record.status.value + (" (cancel asked)" if record.cancel_asked else ""),
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
        yield from (
            f"  {line.at:%H:%M:%S} {line.level:<7} {one_line(line.message)}{_fields(line.fields)}"
            for line in record.logs
        )
    if record.error is not None and record.error.traceback:
        yield "traceback"
        yield from (f"  {line}" for line in record.error.traceback.splitlines())


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


# ------------------------------------------------------------------ cancel


def cancel(args: argparse.Namespace) -> int:
    """Cancel runs by id, or those the filters choose."""
    filters = _filters(args)
    if not args.run_ids and not filters:
        raise Mistake("name the runs to cancel, or choose them with filters such as --job and --status")
    if args.run_ids and set(filters) - {"module", "job"}:
        raise Mistake("with ids of runs only --module and --job say something more; leave the other filters out")
    say_where(args)
    return asyncio.run(_cancel(args, filters))


async def _cancel(args: argparse.Namespace, filters: dict[str, Any]) -> int:
    async with open_client(args) as client:
        if args.run_ids:
            found = [await client.runs.get(run_id, **filters) for run_id in args.run_ids]
        else:
            found = await _chosen(client, filters)
            if found and not args.yes:
                print(runs_table(found[:20]), file=sys.stderr)
                raise Mistake(f"the filters choose {len(found)} runs; add --yes to cancel them")
        results = [(record, await client.run(*record.run_key).cancel()) for record in found]
    if args.json:
        told = [{**run_summary(record), "outcome": done.outcome, "status": done.status} for record, done in results]
        print_json({"project": project_of(args), "cancelled": told})
    elif results:
        rows = [(r.run_id, str(r.run_key.address), done.outcome, done.status) for r, done in results]
        print(table(("RUN", "JOB", "OUTCOME", "STATUS"), rows, width=terminal_width()))
    else:
        print("no active runs match; one that is queued or scheduled is cancelled by its id", file=sys.stderr)
    late = any(done.outcome is CancelOutcome.ALREADY_FINISHED for _, done in results)
    return ExitCode.FAILED if late else ExitCode.OK


async def _chosen(client: JobClient, filters: dict[str, Any]) -> list[RunRecord]:
    wanted: dict[str, Any] = {"status": _ACTIVE, **filters}
    return [record async for record in client.runs.iter(**wanted) if not record.status.is_terminal]
