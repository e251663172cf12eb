"""`jetjobs doctor`: is all there that jobs need, and if not, what to do. Reads only."""

from __future__ import annotations

import argparse
import asyncio
import platform
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Literal

from jetjobs._core.controls import JobInfo
from jetjobs._core.descriptors import HostPresence, takers
from jetjobs._core.models import JobAddress
from jetjobs.cli.failures import ExitCode, exit_code, message_of
from jetjobs.cli.options import (
    Parser,
    add_connection,
    add_json,
    connection_of,
    open_client,
    print_json,
    project_of,
)
from jetjobs.cli.orders import orders_text
from jetjobs.cli.table import span, table
from jetjobs.config import connect_options
from jetjobs.diagnosis import BrokerFacts, StreamFacts, count_waiting, look_at_broker
from jetjobs.errors import BrokerError, JetJobsError

_CLOCK_WARNING = timedelta(seconds=1)
_NEARLY_FULL = 0.9
_ASK = 3.0
_MOST_QUEUES = 20  # of jobs nobody hosts: there may be hundreds
_NOT_FOUND = 10059  # what JetStream answers for a stream that isn't there

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: `found` says what there is, `advice` what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Jobs and hosts of the project, or why they can't be read."""

    jobs: Sequence[JobInfo] = ()
    hosts: Sequence[HostPresence] = ()
    waiting: Mapping[JobAddress, int] = field(default_factory=dict[JobAddress, int])
    error: JetJobsError | None = None

    @property
    def unhosted(self) -> list[JobAddress]:
        """The jobs that no live host takes."""
        hosted = takers(self.hosts)
        return sorted(job.address for job in self.jobs if job.address not in hosted)


def add_doctor(parser: Parser) -> None:
    """The options of `doctor`."""
    add_json(parser)
    add_connection(parser)
    parser.set_defaults(command=doctor)


def doctor(args: argparse.Namespace) -> int:
    """Print each check; 1 when one failed, 3 when the broker couldn't be asked at all."""
    project = project_of(args)
    servers = connect_options(connection_of(args)).shown_servers
    try:
        facts, catalog = asyncio.run(_ask(args, project))
    except BrokerError as error:
        checks, code = [Check("broker", "fail", message_of(error))], int(exit_code(error))
    else:
        checks = [*_of_broker(facts), *_of_streams(facts.streams), *_of_rights(facts), *_of_catalog(catalog)]
        code = int(ExitCode.FAILED if any(check.state == "fail" for check in checks) else ExitCode.OK)
    checks += _of_this_machine()
    if args.json:
        print_json({"project": project, "servers": servers, "checks": [asdict(check) for check in checks]})
    else:
        print(f"{project} @ {servers}")
        print(table(("CHECK", "STATE", "FOUND"), [(each.name, each.state, _text(each)) for each in checks]))
    return code


def _text(check: Check) -> str:
    return f"{check.found}. {check.advice}" if check.advice else check.found


async def _ask(args: argparse.Namespace, project: str) -> tuple[BrokerFacts, Catalog | None]:
    facts = await look_at_broker(connection_of(args), project=project)
    if any(stream.error is not None for stream in facts.streams):
        return facts, None  # told once, by the streams
    async with open_client(args) as client:
        try:
            found = Catalog(await client.jobs.list(timeout=_ASK), await client.hosts.list(timeout=_ASK))
            if asked := found.unhosted[:_MOST_QUEUES]:
                waiting = await count_waiting(connection_of(args), project=project, jobs=asked)
                return facts, replace(found, waiting=waiting)
            return facts, found
        except JetJobsError as error:
            return facts, Catalog(error=error)


def _of_broker(facts: BrokerFacts) -> Iterator[Check]:
    yield Check("broker", "ok", f"nats-server {facts.version} with JetStream")
    offset = facts.clock_offset
    if offset is None:
        yield Check("clock", "warn", "the broker's clock could not be asked", "It can be once the project exists")
    elif abs(offset) > _CLOCK_WARNING:
        side = "ahead of" if offset > timedelta(0) else "behind"
        advice = "Deadlines are judged by the broker's clock; let NTP set both"
        yield Check("clock", "warn", f"the broker is {span(abs(offset))} {side} this machine", advice)
    else:
        yield Check("clock", "ok", f"within {max(1, abs(offset) // timedelta(milliseconds=1))} ms of the broker's")
    limit = facts.storage_limit
    if limit is not None:
        used = facts.storage_used / limit
        advice = "Prune runs, or raise the account's limit" if used > _NEARLY_FULL else ""
        yield Check("storage", "warn" if advice else "ok", f"{used:.0%} of the account's limit used", advice)


def _of_streams(streams: Sequence[StreamFacts]) -> Iterator[Check]:
    if all(getattr(stream.error, "code", None) == _NOT_FOUND for stream in streams):
        advice = "Start a host, or run `jetjobs init PATH`"
        yield Check("project", "warn", "no host has prepared this project yet", advice)
        return
    for stream in streams:
        if stream.error is None:
            leader = f", leader {stream.leader}" if stream.replicas > 1 else ""
            found = f"{stream.messages} messages, {stream.size} bytes, {stream.replicas} replica(s){leader}"
            yield Check(stream.name, "ok", found)
        elif getattr(stream.error, "code", None) == _NOT_FOUND:
            yield Check(stream.name, "fail", "missing", "Run `jetjobs init PATH`, or restart a host")
        else:
            yield Check(stream.name, "fail", message_of(stream.error))


def _of_rights(facts: BrokerFacts) -> Iterator[Check]:
    match facts.may_trigger:
        case True:
            yield Check("trigger", "ok", "this user may store triggers")
        case False:
            yield Check("trigger", "warn", "this user may not store triggers", "Right for a viewer, not for callers")
        case None:
            yield Check("trigger", "warn", "the server doesn't tell this user's rights", "Trigger something to see")


def _of_catalog(catalog: Catalog | None) -> Iterator[Check]:
    if catalog is None:
        return
    if catalog.error is not None:
        yield Check("jobs", "warn", f"jobs and hosts can't be read: {message_of(catalog.error)}")
        return
    nobody = [str(job) for job in catalog.unhosted]
    if not catalog.hosts:
        yield Check("hosts", "warn", "no host lives", "Start one with `jetjobs run PATH`; triggers wait meanwhile")
    else:
        draining = sum(host.draining for host in catalog.hosts)
        yield Check("hosts", "ok", f"{len(catalog.hosts)} live" + (f", {draining} draining" if draining else ""))
    if nobody:
        advice = "Start a host that has them; their triggers wait meanwhile"
        yield Check("jobs", "warn", f"nobody hosts {', '.join(nobody)}", advice)
    else:
        yield Check("jobs", "ok", f"{len(catalog.jobs)} described, each with a live host")
    yield from _queues(catalog.waiting)
    yield from _ordered(catalog.jobs)
    yield from _zones_used(catalog.jobs)


def _queues(waiting: Mapping[JobAddress, int]) -> Iterator[Check]:
    """What was left of removed jobs, and what came for jobs whose host isn't there."""
    left = [f"{count} of {job}" for job, count in waiting.items() if count]
    if left:
        advice = "A removed job's runs need a host of the release that had it; start one, or cancel them"
        yield Check("queues", "warn", f"runs wait that nobody takes: {', '.join(left)}", advice)


def _ordered(jobs: Sequence[JobInfo]) -> Iterator[Check]:
    """What people ordered and may have forgotten."""
    for job in jobs:
        if job.control is not None and job.control.paused:
            advice = f"What is triggered waits; `jetjobs jobs resume {job.address}` lets it go on"
            yield Check("paused", "warn", f"{job.address} is {orders_text(job)}", advice)
        elif job.control is not None and job.control.max_concurrency is not None:
            yield Check("limit", "ok", f"{job.address} is {orders_text(job)}")


def _zones_used(jobs: Sequence[JobInfo]) -> Iterator[Check]:
    known = zoneinfo.available_timezones()
    used = {str(zone) for job in jobs for trigger in job.triggers if (zone := trigger.get("timezone"))}
    missing = sorted(used - known)
    if missing:
        yield Check("zones", "fail", f"this machine doesn't know {', '.join(missing)}", "pip install -U tzdata")


def _of_this_machine() -> Iterator[Check]:
    yield Check("python", "ok", platform.python_version())
    if "Europe/Paris" in zoneinfo.available_timezones():
        yield Check("zone data", "ok", f"{len(zoneinfo.available_timezones())} zones on this machine")
    else:
        yield Check("zone data", "fail", "this machine has no time zone data", "pip install tzdata")
