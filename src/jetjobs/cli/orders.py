"""`jetjobs jobs pause|resume|override`: what people order for a job in use."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import socket
from datetime import UTC, datetime

from jetjobs._core.controls import JobControl, JobInfo, limiting, pausing
from jetjobs._core.descriptors import takers
from jetjobs.cli.failures import ExitCode, Mistake
from jetjobs.cli.options import Parser, add_connection, add_json, open_client, print_json, project_of, say_where
from jetjobs.cli.shapes import job_document
from jetjobs.cli.table import ago
from jetjobs.client import JobClient


def add_job(parser: Parser) -> None:
    """The job meant."""
    parser.add_argument("job", metavar="MODULE.JOB", help="the job; the name after the last dot is the job's own")


def add_actor(parser: Parser) -> None:
    """`--actor`."""
    parser.add_argument("--actor", metavar="NAME", help="who does it, kept and shown (default: you, at this machine)")


def add_pause(parser: Parser) -> None:
    """The options of `jobs pause`."""
    _add_order(parser)
    parser.set_defaults(command=order, verb="pause")


def add_resume(parser: Parser) -> None:
    """The options of `jobs resume`."""
    _add_order(parser)
    parser.set_defaults(command=order, verb="resume")


def add_override(parser: Parser) -> None:
    """The options of `jobs override`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--max-concurrency", type=int, metavar="N", help="at most so many runs at once, over all hosts")
    what.add_argument("--remove", action="store_true", help="the limit that the code declares holds again")
    _add_order(parser)
    parser.set_defaults(command=order, verb="override")


def _add_order(parser: Parser) -> None:
    add_job(parser)
    add_actor(parser)
    add_json(parser)
    add_connection(parser)


def actor_of(args: argparse.Namespace) -> str | None:
    """Who does it: as given, else the user of this machine; `None` where that can't be found out."""
    if args.actor is not None:
        return str(args.actor)
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError, ImportError):  # a user without a name, as in some containers
        return None


def order(args: argparse.Namespace) -> int:
    """Order it, and print what holds then."""
    if args.verb == "override" and not args.remove and args.max_concurrency < 1:
        raise Mistake("--max-concurrency must be 1 or more; to keep all runs from starting, `jetjobs jobs pause`")
    say_where(args)
    before, after, live = asyncio.run(_order(args))
    if args.json:
        print_json({"project": project_of(args), "changed": before != after, "job": job_document(after, live)})
        return ExitCode.OK
    print(f"{after.address} {'is' if before != after else 'was already'} {orders_text(after)}")
    if not live:
        print(f"no live host takes {after.address}; it holds when one starts")
    return ExitCode.OK


async def _order(args: argparse.Namespace) -> tuple[JobInfo, JobInfo, int]:
    async with open_client(args) as client:
        before = await client.jobs.get(args.job)
        after = await _ordered(client, args)
        live = takers(await client.hosts.list())[after.address]
    return before, after, live


async def _ordered(client: JobClient, args: argparse.Namespace) -> JobInfo:
    actor = actor_of(args)
    match args.verb:
        case "pause":
            return await client.jobs.pause(args.job, actor=actor)
        case "resume":
            return await client.jobs.resume(args.job, actor=actor)
        case _:
            limit = None if args.remove else args.max_concurrency
            return await client.jobs.override(args.job, max_concurrency=limit, actor=actor)


def orders_text(job: JobInfo, now: datetime | None = None) -> str:
    """What holds for a job, and who said so."""
    now, orders = now or datetime.now(UTC), (job.inherited, job.control)
    pause, limit = pausing(*orders), limiting(*orders)
    said = [_as(pause, job), "" if pause is None else _who(pause.switched_by, pause.switched_at, now)]
    switched = ", ".join(filter(None, said))
    changed = limit is not None and limit.max_concurrency is not None
    limited = [
        f"instead of {job.max_concurrency}" if changed else "declared",
        _as(limit, job),
        "" if limit is None else _who(limit.limited_by, limit.limited_at, now),
    ]
    state = "paused" if job.paused else "not paused"
    return f"{state}{f' ({switched})' if switched else ''}, limit {job.limit} ({', '.join(filter(None, limited))})"


def _as(control: JobControl | None, job: JobInfo) -> str:
    return "" if control is None or control.address == job.address else f"as {control.address}"


def _who(actor: str | None, at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{actor or 'somebody'}, {ago(at, now)}"
