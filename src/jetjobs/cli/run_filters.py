"""The options by which commands on runs choose among them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from jetjobs.cli.options import Parser, read_instant


def add_filters(parser: Parser) -> None:
    """The filters of every command that takes some."""
    group = parser.add_argument_group("filters")
    group.add_argument("--module", metavar="NAME", help="runs of this module")
    group.add_argument("--job", metavar="NAME", help="runs of this job; module.job names both")
    group.add_argument("--status", action="append", metavar="STATUS", help="in this status, in any case; repeatable")
    group.add_argument("--since", metavar="WHEN", help="created then or later: 1h (ago), 2030-01-31T12:00Z, epoch")
    group.add_argument("--until", metavar="WHEN", help="created before then")
    group.add_argument("--schedule", metavar="NAME", help="of this schedule, as in billing.close_day/cron, or its id")
    group.add_argument("--error-type", metavar="NAME", help="failed with this exception, as in ValueError")
    group.add_argument("--text", metavar="TEXT", help="with this text in id, key, error, reason or logs")
    group.add_argument("--include-skipped", action="store_true", help="skipped runs too")


def add_one_run(parser: Parser) -> None:
    """The run of a command on one."""
    parser.add_argument("run_id", metavar="RUN", help="a run's id")
    parser.add_argument("--module", metavar="NAME", help="the run's module, where several jobs have a run of this id")
    parser.add_argument("--job", metavar="NAME", help="the run's job; module.job names both")


def filters_of(args: argparse.Namespace, now: datetime | None = None) -> dict[str, Any]:
    """The filters given, as `client.runs` takes them.

    Raises:
        Mistake: an instant that is none.
    """
    now = datetime.now(UTC) if now is None else now
    module, job = names_of(args)
    given = {
        "module": module,
        "job": job,
        "status": None if args.status is None else [part for each in args.status for part in each.split(",")],
        "since": None if args.since is None else read_instant(args.since, "--since", now=now),
        "until": None if args.until is None else read_instant(args.until, "--until", now=now),
        "schedule": args.schedule,
        "error_type": args.error_type,
        "text": args.text,
        "include_skipped": args.include_skipped or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def names_of(args: argparse.Namespace) -> tuple[str | None, str | None]:
    """Module and job as given; `--job module.job` names both."""
    if args.module is None and args.job is not None and "." in args.job:
        module, _, job = args.job.rpartition(".")
        return module, job
    return args.module, args.job
