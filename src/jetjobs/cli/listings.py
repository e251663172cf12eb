"""`jetjobs jobs list` and `jetjobs hosts list`."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from jetjobs._core.models import HostPresence, JobDescriptor
from jetjobs.cli.failures import ExitCode
from jetjobs.cli.options import Parser, add_connection, add_json, open_client, print_json, project_of
from jetjobs.cli.runs import terminal_width
from jetjobs.cli.shapes import host_document, job_document
from jetjobs.cli.table import ago, span, table


def add_jobs(parser: Parser) -> None:
    """The options of `jobs list`."""
    parser.add_argument("--module", metavar="NAME", help="jobs of this module")
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=list_jobs)


def add_hosts(parser: Parser) -> None:
    """The options of `hosts list`."""
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=list_hosts)


def list_jobs(args: argparse.Namespace) -> int:
    """Print the jobs hosts have described."""
    jobs, hosts = asyncio.run(_catalog(args))
    live = Counter(job for host in hosts for job in host.jobs)
    shown = [job for job in jobs if args.module is None or job.module == args.module]
    if args.json:
        documents = [job_document(job, live[str(job.address)]) for job in shown]
        print_json({"project": project_of(args), "jobs": documents})
        return ExitCode.OK
    rows = [
        (
            str(job.address),
            str(live[str(job.address)]),
            str(job.max_concurrency),
            str(job.max_attempts),
            span(job.timeout),
            ", ".join(str(trigger.get("kind", "?")) for trigger in job.triggers) or "-",
            job.description,
        )
        for job in shown
    ]
    head = ("JOB", "HOSTS", "LIMIT", "ATTEMPTS", "TIMEOUT", "TRIGGERS", "DESCRIPTION")
    print(table(head, rows, width=terminal_width()))
    return ExitCode.OK


def list_hosts(args: argparse.Namespace) -> int:
    """Print the hosts that live."""
    _, hosts = asyncio.run(_catalog(args))
    if args.json:
        print_json({"project": project_of(args), "hosts": [host_document(host) for host in hosts]})
        return ExitCode.OK
    now = datetime.now(UTC)
    rows = [
        (
            host.host_id,
            str(host.pid),
            host.version or "-",
            "draining" if host.draining else "up",
            str(host.running),
            ago(host.started_at, now),
            ago(host.seen_at, now),
            ", ".join(host.jobs),
        )
        for host in hosts
    ]
    head = ("HOST", "PID", "VERSION", "STATE", "RUNNING", "STARTED", "SEEN", "JOBS")
    print(table(head, rows, width=terminal_width()))
    return ExitCode.OK


async def _catalog(args: argparse.Namespace) -> tuple[Sequence[JobDescriptor], Sequence[HostPresence]]:
    async with open_client(args) as client:
        return await client.jobs.list(), await client.hosts.list()
