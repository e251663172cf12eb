"""`jetjobs hosts list|drain`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from jetjobs._core.descriptors import HostPresence
from jetjobs._ports import DrainAnswer
from jetjobs.cli.failures import ExitCode, Mistake, exit_code, message_of
from jetjobs.cli.options import Parser, add_connection, add_json, open_client, print_json, project_of, say_where
from jetjobs.cli.orders import actor_of, add_actor
from jetjobs.cli.runs import terminal_width
from jetjobs.cli.shapes import host_document
from jetjobs.cli.table import ago, table
from jetjobs.errors import AnswerUnknown, HostNotFound, JetJobsError


def add_hosts(parser: Parser) -> None:
    """The options of `hosts list`."""
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=list_hosts)


def add_drain(parser: Parser) -> None:
    """The options of `hosts drain`."""
    parser.add_argument("host_ids", nargs="+", metavar="HOST", help="ids of hosts, as `hosts list` shows them")
    parser.add_argument("--yes", action="store_true", help="really drain more than one")
    add_actor(parser)
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=drain)


def list_hosts(args: argparse.Namespace) -> int:
    """Print the hosts that live."""
    hosts = asyncio.run(_hosts(args))
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


def drain(args: argparse.Namespace) -> int:
    """Ask hosts to take no more runs, and print what they answer; the code is that of the first that didn't."""
    host_ids = list(dict.fromkeys(args.host_ids))
    say_where(args)
    if len(host_ids) > 1 and not args.yes:
        raise Mistake(f"that would drain {len(host_ids)} hosts; add --yes to do it")
    asked = asyncio.run(_drain(args, host_ids))
    if args.json:
        print_json({"project": project_of(args), "hosts": [_document(host, said) for host, said in asked]})
    failed = [said for _, said in asked if isinstance(said, JetJobsError)]
    for error in failed:
        print(f"error: {message_of(error)}", file=sys.stderr)
    if not args.json:
        for host, said in asked:
            if isinstance(said, DrainAnswer):
                print(f"{host} {_text(said)}")
    return exit_code(failed[0]) if failed else ExitCode.OK


def _text(said: DrainAnswer) -> str:
    begun = "drains already" if said.again else "drains"
    end = "its process ends when they have" if said.closes else "its program goes on, and may close it"
    return f"{begun}: {said.running} running, {end}"


def _document(host: str, said: DrainAnswer | JetJobsError) -> dict[str, object]:
    if isinstance(said, JetJobsError):
        return {"host_id": host, "draining": False, "error": message_of(said)}
    return {"host_id": host, "draining": True, "running": said.running, "closes": said.closes, "again": said.again}


async def _drain(args: argparse.Namespace, host_ids: Sequence[str]) -> list[tuple[str, DrainAnswer | JetJobsError]]:
    asked: list[tuple[str, DrainAnswer | JetJobsError]] = []
    async with open_client(args) as client:
        for host in host_ids:
            try:
                asked.append((host, await client.hosts.drain(host, actor=actor_of(args))))
            except (HostNotFound, AnswerUnknown) as error:
                asked.append((host, error))
    return asked


async def _hosts(args: argparse.Namespace) -> Sequence[HostPresence]:
    async with open_client(args) as client:
        return await client.hosts.list()
