"""`jetjobs trigger`: ask for a run, and if wanted wait for its end."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from typing import Any, get_args

from jetjobs._core.models import RunRecord
from jetjobs._core.triggering import OnDuplicate
from jetjobs.cli.failures import ExitCode, Mistake
from jetjobs.cli.hiding import shown
from jetjobs.cli.options import (
    Parser,
    add_connection,
    add_json,
    open_client,
    print_json,
    read_instant,
    read_json,
    read_seconds,
    say_where,
)
from jetjobs.cli.shapes import body, run_document
from jetjobs.client import JobRun


def add_trigger(parser: Parser) -> None:
    """The options of `trigger`."""
    parser.add_argument("job", metavar="MODULE.JOB", help="the job; the name after the last dot is the job's own")
    parser.add_argument("payload", nargs="?", metavar="JSON", help="its payload; - reads it from stdin")
    parser.add_argument("--key", metavar="KEY", help="at most one run for this key")
    parser.add_argument(
        "--on-duplicate",
        choices=get_args(OnDuplicate),
        default="return",
        help="when the key has a run: name it, refuse, or run it again if it failed",
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--delay", metavar="SPAN", help="not before so long from now, as in 30s, 5m, 2h")
    when.add_argument("--at", metavar="INSTANT", help="not before 2030-01-31T12:00Z, or epoch seconds")
    parser.add_argument("--start-within", metavar="SPAN", help="missed if it hasn't started so long after that")
    parser.add_argument("--expires-in", metavar="SPAN", help="neither started nor retried so long after that")
    parser.add_argument(
        "--wait", nargs="?", const="inf", metavar="SECONDS", help="wait for the end, at most so long; print the result"
    )
    parser.add_argument("--allow-unknown", action="store_true", help="trigger a job that no host has described yet")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=trigger)


def trigger(args: argparse.Namespace) -> int:
    """Store the trigger; with `--wait` the exit code is the run's."""
    payload = None if args.payload is None else read_json(args.payload)
    options: dict[str, Any] = {
        "idempotency_key": args.key,
        "on_duplicate": args.on_duplicate,
        **{name: _span(args, name) for name in ("delay", "start_within", "expires_in")},
        "at": None if args.at is None else read_instant(args.at, "--at"),
        "allow_unknown": args.allow_unknown,
    }
    patience = None if args.wait is None else _patience(args.wait)
    say_where(args)
    return asyncio.run(_trigger(args, payload, options, patience))


def _span(args: argparse.Namespace, name: str) -> float | None:
    text: str | None = getattr(args, name)
    return None if text is None else read_seconds(text, f"--{name.replace('_', '-')}")


def _patience(text: str) -> float:
    if text.lstrip().startswith(("{", "[", '"')):
        raise Mistake(f"--wait takes seconds, and {text[:20]!r} follows it; write the payload before --wait")
    seconds = math.inf if text == "inf" else read_seconds(text, "--wait")
    if seconds <= 0:
        raise Mistake("--wait: write more than zero seconds, or leave the number out to wait as long as it takes")
    return seconds


async def _trigger(args: argparse.Namespace, payload: Any, options: dict[str, Any], patience: float | None) -> int:
    async with open_client(args) as client:
        run = await client.get_job(args.job).trigger(payload, **options)
        _warn(run)
        if patience is None:
            _show_triggered(run, args.json)
            return ExitCode.OK
        record = await shown(client, await _wait(run, patience))
    _show_ended(run, record, args.json)
    return ExitCode.OK if record.ok else ExitCode.FAILED


async def _wait(run: JobRun[Any], patience: float) -> RunRecord:
    print(f"run {run.key}; waiting for its end (Ctrl-C stops waiting, not the run)", file=sys.stderr)
    try:
        return await run.wait(None if math.isinf(patience) else patience)
    except TimeoutError:
        status = await run.status()
        raise Mistake(
            f"run {run.key} is {status} after {patience:g} s; it goes on. See `jetjobs runs show {run.run_id}`",
            ExitCode.FAILED,
        ) from None


def _warn(run: JobRun[Any]) -> None:
    if run.payload_differs:
        print("warning: the key already has a run, with another payload", file=sys.stderr)
    elif run.duplicate:
        print("note: the key already had this run", file=sys.stderr)
    if run.paused:
        print(f"warning: {run.key.address} is paused; it waits until `jetjobs jobs resume` is told", file=sys.stderr)
    if run.no_host:
        print(f"warning: no live host takes runs of {run.key.address}; it waits until one starts", file=sys.stderr)


def _show_triggered(run: JobRun[Any], as_json: bool) -> None:  # noqa: FBT001 - one use
    if as_json:
        print_json(_told(run))
    else:
        print(run.run_id)


def _show_ended(run: JobRun[Any], record: RunRecord, as_json: bool) -> None:  # noqa: FBT001 - one use
    if as_json:
        print_json({**_told(run), "run": run_document(record)})
        return
    print(f"{record.status} {record.run_id}")
    reason = record.error or record.skip_reason
    if reason:
        print(str(reason))
    if record.result_body is not None:
        print(json.dumps(body(record.result_body), indent=2, ensure_ascii=False, allow_nan=False))


def _told(run: JobRun[Any]) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "module": run.module,
        "job": run.job,
        "duplicate": run.duplicate,
        "payload_differs": run.payload_differs,
        "no_host": run.no_host,
        "paused": run.paused,
    }
