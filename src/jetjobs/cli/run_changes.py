"""`jetjobs runs cancel|retry|delete`: by id, or all that filters choose."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from jetjobs.cli.failures import ExitCode, Mistake, exit_code, message_of
from jetjobs.cli.options import (
    Parser,
    add_connection,
    add_json,
    open_client,
    print_json,
    project_of,
    read_json,
    say_where,
)
from jetjobs.cli.run_filters import add_filters, filters_of
from jetjobs.cli.runs import terminal_width
from jetjobs.cli.table import table
from jetjobs.client import JobClient, RunChange

_HEAD = ("RUN", "JOB", "OUTCOME", "STATUS", "NEW RUN")
_SHOWN = 20


def add_cancel(parser: Parser) -> None:
    """The options of `runs cancel`."""
    _add_common(parser, "cancel")


def add_retry(parser: Parser) -> None:
    """The options of `runs retry`."""
    parser.add_argument("--payload", metavar="JSON", help="instead of the payload each had; - reads it from stdin")
    _add_common(parser, "retry")


def add_delete(parser: Parser) -> None:
    """The options of `runs delete`."""
    parser.add_argument(
        "--forget-keys", action="store_true", help="leave no stub for a key either: the same key makes a new run then"
    )
    _add_common(parser, "delete")


def _add_common(parser: Parser, verb: str) -> None:
    parser.add_argument("run_ids", nargs="*", metavar="RUN", help="ids of runs; without any, the filters choose")
    add_filters(parser)
    parser.add_argument("--limit", type=int, metavar="N", help=f"{verb} at most so many of those the filters choose")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and tell what would come of it")
    parser.add_argument("--yes", action="store_true", help=f"really {verb} what the filters choose")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=change, verb=verb)


def change(args: argparse.Namespace) -> int:
    """Change the runs named, or those the filters choose; the exit code tells whether all went well."""
    filters = filters_of(args)
    if not args.run_ids and not set(filters) - {"include_skipped"}:
        raise Mistake(f"name the runs to {args.verb}, or choose them with filters such as --job and --status")
    if args.run_ids and (set(filters) - {"module", "job"} or args.limit is not None):
        raise Mistake("with ids of runs only --module and --job say something more; leave the other filters out")
    options = _options(args)
    say_where(args)
    return asyncio.run(_change(args, filters, options))


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """What only this verb takes."""
    if args.verb == "retry" and args.payload is not None:
        return {"payload": read_json(args.payload)}
    return {"forget_keys": args.forget_keys} if args.verb == "delete" else {}


async def _change(args: argparse.Namespace, filters: dict[str, Any], options: dict[str, Any]) -> int:
    async with open_client(args) as client:
        dry_run = bool(args.dry_run or not (args.run_ids or args.yes))
        changes = await _asked(client, args, filters, {**options, "dry_run": dry_run})
    if dry_run and not args.dry_run and changes:
        print(_table(changes[:_SHOWN]), file=sys.stderr)
        raise Mistake(f"the filters choose {len(changes)} runs; add --yes to {args.verb} them")
    return _tell(args, changes)


async def _asked(
    client: JobClient, args: argparse.Namespace, filters: dict[str, Any], options: dict[str, Any]
) -> Sequence[RunChange]:
    named = args.run_ids or None
    limit = args.limit
    match args.verb:
        case "cancel":
            return await client.runs.cancel(named, limit=limit, **options, **filters)
        case "delete":
            return await client.runs.delete(named, limit=limit, **options, **filters)
        case _:
            return await client.runs.retry(named, limit=limit, **options, **filters)


def _tell(args: argparse.Namespace, changes: Sequence[RunChange]) -> int:
    if args.json:
        told = [_document(each) for each in changes]
        print_json({"project": project_of(args), "dry_run": args.dry_run, "runs": told})
    elif found := [each for each in changes if each.run_key is not None]:
        print(_table(found))
    elif not changes:
        print("no runs match", file=sys.stderr)
    failed = [each.error for each in changes if each.error is not None]
    for error in failed[:_SHOWN]:
        print(f"error: {message_of(error)}", file=sys.stderr)
    if failed:
        return exit_code(failed[0])
    return ExitCode.OK if all(each.ok for each in changes) else ExitCode.FAILED


def _table(changes: Sequence[RunChange]) -> str:
    rows = [
        (
            each.run_id,
            f"{each.module}.{each.job}",
            each.outcome.value,
            each.status.value if each.status is not None else "-",
            each.new_run_id or "-",
        )
        for each in changes
    ]
    columns = len(_HEAD) - all(each.new_run_id is None for each in changes)
    return table(_HEAD[:columns], [row[:columns] for row in rows], width=terminal_width())


def _document(each: RunChange) -> dict[str, Any]:
    return {
        "run_id": each.run_id,
        "module": each.module,
        "job": each.job,
        "outcome": each.outcome.value,
        "ok": each.ok,
        "status": None if each.status is None else each.status.value,
        "new_run_id": each.new_run_id,
        "error": None if each.error is None else message_of(each.error),
    }
