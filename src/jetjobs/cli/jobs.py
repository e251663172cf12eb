"""`jetjobs jobs list|show`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence

from jetjobs._core.controls import JobInfo, limiting
from jetjobs._core.descriptors import HostPresence, takers
from jetjobs.cli.failures import ExitCode
from jetjobs.cli.options import Parser, add_connection, add_json, open_client, print_json, project_of
from jetjobs.cli.orders import add_job, orders_text
from jetjobs.cli.runs import terminal_width
from jetjobs.cli.shapes import job_document
from jetjobs.cli.table import span, table


def add_jobs(parser: Parser) -> None:
    """The options of `jobs list`."""
    parser.add_argument("--module", metavar="NAME", help="jobs of this module")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=list_jobs)


def add_show_job(parser: Parser) -> None:
    """The options of `jobs show`."""
    add_job(parser)
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=show_job)


def list_jobs(args: argparse.Namespace) -> int:
    """Print the jobs hosts have described."""
    jobs, hosts = asyncio.run(_catalog(args))
    live = takers(hosts)
    shown = [job for job in jobs if args.module is None or job.module == args.module]
    if args.json:
        documents = [job_document(job, live[job.address]) for job in shown]
        print_json({"project": project_of(args), "jobs": documents})
        return ExitCode.OK
    rows = [
        (
            str(job.address),
            str(live[job.address]),
            "paused" if job.paused else "-",
            limit_text(job),
            str(job.max_attempts),
            span(job.timeout),
            _triggers(job),
            job.description,
        )
        for job in shown
    ]
    head = ("JOB", "HOSTS", "STATE", "LIMIT", "ATTEMPTS", "TIMEOUT", "TRIGGERS", "DESCRIPTION")
    print(table(head, rows, width=terminal_width()))
    return ExitCode.OK


def show_job(args: argparse.Namespace) -> int:
    """Print what is known of one job."""
    job, hosts = asyncio.run(_one(args))
    if args.json:
        document = job_document(job, takers(hosts)[job.address])
        print_json({"project": project_of(args), "job": document, "hosts": [host.host_id for host in hosts]})
        return ExitCode.OK
    for name, value in _lines(job, hosts):
        print(f"{name:<12}{value}")
    return ExitCode.OK


def limit_text(job: JobInfo) -> str:
    """The limit in force, and the declared one where it is another."""
    order = limiting(job.inherited, job.control)
    ordered = order is not None and order.max_concurrency is not None
    return f"{job.limit} (not {job.max_concurrency})" if ordered else str(job.limit)


def _lines(job: JobInfo, hosts: Sequence[HostPresence]) -> Iterator[tuple[str, str]]:
    yield "job", str(job.address)
    if job.description:
        yield "description", job.description
    yield "orders", orders_text(job)
    yield "attempts", str(job.max_attempts)
    yield "timeout", span(job.timeout)
    yield "triggers", _triggers(job)
    yield "release", job.version or "-"
    those = ", ".join(f"{host.host_id}{' (draining)' if host.draining else ''}" for host in hosts)
    waits = "" if takers(hosts)[job.address] else "none takes it; triggers wait"
    yield "hosts", "; ".join(filter(None, (those, waits)))


def _triggers(job: JobInfo) -> str:
    return ", ".join(str(trigger.get("kind", "?")) for trigger in job.triggers) or "-"


async def _one(args: argparse.Namespace) -> tuple[JobInfo, Sequence[HostPresence]]:
    async with open_client(args) as client:
        job = await client.jobs.get(args.job)
        return job, [host for host in await client.hosts.list() if str(job.address) in host.jobs]


async def _catalog(args: argparse.Namespace) -> tuple[Sequence[JobInfo], Sequence[HostPresence]]:
    async with open_client(args) as client:
        return await client.jobs.list(), await client.hosts.list()
