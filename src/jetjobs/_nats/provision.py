"""Make the stream, the buckets and the consumers exist, as often as anybody likes.

What exists is compared with what is needed. *Needed* fields decide whether jetjobs works at all and are
brought about in place wherever the server allows. *Settings* (age, replicas) are applied when something is
created, and later only together with a higher configuration version, which the metadata keeps: of two
hosts with different settings none undoes the other's for ever, and an older host never a newer one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from jetjobs._core import names, payload_subjects
from jetjobs._core.bodies import MAX_PAYLOAD
from jetjobs._core.models import JobAddress
from jetjobs._core.policy import ACK_WAIT, MAX_AGE
from jetjobs._log import get_logger
from jetjobs._nats.faults import CONSUMER_EXISTS, STREAM_EXISTS, Mismatch, NotFound, Refused
from jetjobs._nats.link import Link
from jetjobs._nats.mending import edited, mend_consumer
from jetjobs._nats.pausing import FOR_GOOD, switch_consumer
from jetjobs._nats.versions import VERSION_KEY, version_of
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, StreamMismatch

_log = get_logger("jetjobs.nats")

CONFIG_VERSION: Final = 1

# A stream that has no leader (yet) doesn't answer at all, and every call here may be repeated.
_ANSWER_WITHIN: Final = 2.5
_PATIENCE: Final = 10.0
_POLL: Final = 0.1
_RACES: Final = 5
_HOSTS_MAX_AGE: Final = timedelta(days=1)  # entries carry their own, shorter TTL
# The broker never lets these change; everything else is tried.
_IMMUTABLE: Final = frozenset({"retention", "storage"})
# Over these the broker drops the oldest messages; to refuse new ones instead, a stream with schedules isn't allowed.
_DROPS: Final = ("max_bytes", "max_msgs", "max_msgs_per_subject")

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProvisionSettings:
    """What a host's settings say about streams and consumers."""

    ack_wait: timedelta = ACK_WAIT
    max_age: timedelta = MAX_AGE
    replicas: int = 1
    max_payload: int = MAX_PAYLOAD


@dataclass(frozen=True, slots=True)
class Wanted:
    """A stream as it should be."""

    name: str
    needed: Config
    settings: Config = field(default_factory=dict[str, Any])

    @property
    def config(self) -> Config:
        """The whole configuration to create it with."""
        return {"name": self.name, **self.needed, **self.settings, "metadata": {VERSION_KEY: str(CONFIG_VERSION)}}


def nanoseconds(span: timedelta) -> int:
    """A span as the broker writes it."""
    return span // timedelta(microseconds=1) * 1000


def wanted_streams(project: str, settings: ProvisionSettings) -> list[Wanted]:
    """Everything a project consists of; the jobs stream first."""
    replicas = {"num_replicas": settings.replicas}
    aged = {**replicas, "max_age": nanoseconds(settings.max_age)}
    jobs = Wanted(
        names.stream(project),
        {
            "subjects": [names.all_triggers(project), names.all_schedules(project)],
            "retention": "workqueue",
            "storage": "file",
            "allow_msg_schedules": True,
            "allow_msg_ttl": True,
            "allow_direct": True,
            "allow_atomic": True,
        },
        aged,
    )
    payloads = Wanted(
        payload_subjects.payload_stream(project),
        {
            "subjects": [payload_subjects.all_payloads(project)],
            "retention": "limits",
            "storage": "file",
            "allow_direct": True,
            "allow_msg_ttl": True,
        },
        aged,
    )
    buckets = [names.runs_bucket(project), names.schedules_bucket(project), names.jobs_bucket(project)]
    hosts = _bucket(names.hosts_bucket(project), {**replicas, "max_age": nanoseconds(_HOSTS_MAX_AGE)})
    return [jobs, *(_bucket(bucket, replicas) for bucket in buckets), hosts, payloads]


def _bucket(bucket: str, settings: Config) -> Wanted:
    """A bucket as other KV clients know it, history 1, with a TTL per key.

    No `subject_delete_marker_ttl`: its markers would make a later create with expected 0 fail.
    """
    needed = {
        "subjects": [names.bucket_subject(bucket, ">")],
        "retention": "limits",
        "storage": "file",
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "deny_delete": True,  # as every KV client sets it; removing by purge stays allowed
    }
    return Wanted(names.bucket_stream(bucket), needed, settings)


class Provisioner:
    """Creates and adapts what a project needs."""

    def __init__(self, link: Link, project: str, settings: ProvisionSettings) -> None:
        self._link = link
        self._project = project
        self.settings = settings
        self._stream = names.stream(project)

    async def _api(self, suffix: str, payload: Config | None = None) -> Config:
        """A call that is repeated while nobody answers: on a cluster, leaders are elected meanwhile."""
        clock = asyncio.get_running_loop().time
        until = clock() + _PATIENCE
        while True:
            try:
                return await self._link.api(suffix, payload, timeout=_ANSWER_WITHIN)
            except (AnswerUnknown, BrokerUnavailable):
                if clock() >= until:
                    raise
            await asyncio.sleep(_POLL)

    # -- streams

    async def ensure_project(self) -> None:
        """The stream and all buckets, as they should be.

        Raises:
            StreamMismatch: one exists in a way that can't be changed; names the difference.
        """
        jobs, *others = wanted_streams(self._project, self.settings)
        # The first look tells a fresh project from a known one, so that neither takes two calls a stream.
        found = await self._info(jobs.name)
        await self._ensure(jobs, found)
        fresh = found is None
        try:
            async with asyncio.TaskGroup() as group:
                for wanted in others:
                    group.create_task(self._ensure_known(wanted, fresh=fresh))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None  # callers know our errors, and one is enough to act on

    async def _ensure_known(self, wanted: Wanted, *, fresh: bool) -> None:
        await self._ensure(wanted, None if fresh else await self._info(wanted.name))

    async def _ensure(self, wanted: Wanted, found: Config | None) -> None:
        for _ in range(_RACES):
            if found is None:
                try:
                    answer = await self._api(f"STREAM.CREATE.{wanted.name}", wanted.config)
                except Mismatch as refused:
                    found = await self._after_race(wanted.name, refused)
                    continue
                await self._wait_for_leader(wanted.name, answer)
                return
            await self._adapt(wanted, found)
            return
        raise BrokerUnavailable(f"stream {wanted.name} was created and removed again while this host started")

    async def _after_race(self, stream: str, refused: Mismatch) -> Config | None:
        """What somebody else created meanwhile; when nobody did, the refusal was about something else."""
        found = await self._info(stream)
        if found is None and refused.code != STREAM_EXISTS:
            raise refused
        return found

    async def _adapt(self, wanted: Wanted, found: Config) -> None:
        existing: Config = found["config"]
        version = version_of(existing)
        differing = _differing(wanted.needed, existing)
        if version < CONFIG_VERSION:
            differing += _differing(wanted.settings, existing)
        elif version == CONFIG_VERSION:
            _warn_of_settings(wanted, existing)
        fixed = [name for name in differing if name in _IMMUTABLE]
        if fixed:
            raise _mismatch(wanted, existing, fixed, "the broker never changes that")
        _refuse_drops(wanted, existing)
        if not differing and version >= CONFIG_VERSION:
            return
        if version > CONFIG_VERSION:
            raise _mismatch(wanted, existing, differing, "a newer jetjobs configured it so; upgrade this host")
        await self._update(wanted, existing, differing)

    async def _update(self, wanted: Wanted, existing: Config, differing: list[str]) -> None:
        asked = {**wanted.needed, **wanted.settings}
        changed = {name: asked[name] for name in differing}
        if "subjects" in changed:
            changed["subjects"] = [*existing["subjects"], *(set(asked["subjects"]) - set(existing["subjects"]))]
        kept = {key: value for key, value in existing.get("metadata", {}).items() if not key.startswith("_nats.")}
        config = {**existing, **changed, "metadata": {**kept, VERSION_KEY: str(CONFIG_VERSION)}}
        try:
            await self._api(f"STREAM.UPDATE.{wanted.name}", config)
        except (StreamMismatch, Refused) as refused:
            raise _mismatch(wanted, existing, differing, str(refused)) from None
        _log.info("stream adapted", stream=wanted.name, changed=differing)

    async def _info(self, stream: str) -> Config | None:
        try:
            return await self._api(f"STREAM.INFO.{stream}")
        except NotFound:
            return None

    async def _wait_for_leader(self, stream: str, info: Config) -> None:
        """On a cluster a new stream takes no message before it has elected a leader."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while "cluster" in info and not info["cluster"].get("leader"):
            if asyncio.get_running_loop().time() > deadline:
                raise BrokerUnavailable(f"stream {stream} has no leader after {_PATIENCE:.0f} s")
            await asyncio.sleep(_POLL)
            try:
                info = await self._link.api(f"STREAM.INFO.{stream}", timeout=1.0)
            except (AnswerUnknown, BrokerUnavailable, NotFound):
                continue

    # -- consumers

    async def ensure_consumer(
        self, job: JobAddress, max_concurrency: int, *, paused: bool = False, update: bool = True
    ) -> None:
        """The job's durable consumer; one call to the broker where nothing differs.

        Raises:
            StreamMismatch: it exists with other subjects, or the broker won't change it.
            PermissionMissing: this user may not pause it, or have it go on, and that is needed.
        """
        config = self._consumer_config(job, max_concurrency)
        if paused:
            config["pause_until"] = FOR_GOOD
        try:
            answer = await self._put_consumer(config, "create")
        except Mismatch as refused:
            if refused.code != CONSUMER_EXISTS:
                raise
            if not update:
                return
            answer = await self._update_consumer(config)
        if update:
            await switch_consumer(self._api, self._stream, answer, paused=paused)

    async def mend_consumer(self, job: JobAddress) -> None:
        """Put right what somebody edited at the job's consumer; one that a newer host made is left as it is."""
        await mend_consumer(self._link.api, self._stream, names.consumer(job), newest=CONFIG_VERSION)

    def _consumer_config(self, job: JobAddress, max_concurrency: int) -> Config:
        return {
            "durable_name": names.consumer(job),
            "name": names.consumer(job),
            "filter_subjects": list(names.consumer_filters(self._project, job)),
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "max_deliver": -1,
            "ack_wait": nanoseconds(self.settings.ack_wait),
            "max_ack_pending": max_concurrency,
            "max_waiting": 2048,
            "metadata": {VERSION_KEY: str(CONFIG_VERSION)},
        }

    async def _put_consumer(self, config: Config, action: str) -> Config:
        # nats-py's add_consumer upserts, so an older host would undo a newer one in silence.
        request = {"stream_name": self._stream, "config": config, "action": action}
        return await self._api(f"CONSUMER.CREATE.{self._stream}.{config['name']}", request)

    async def _update_consumer(self, config: Config) -> Config:
        answer = await self._api(f"CONSUMER.INFO.{self._stream}.{config['name']}")
        existing: Config = answer["config"]
        if version_of(existing) > CONFIG_VERSION:
            _log.info("consumer left as a newer host made it", consumer=config["name"])
            return answer
        filters = existing.get("filter_subjects") or [existing.get("filter_subject", "")]
        if set(filters) != set(config["filter_subjects"]):
            # Changing them strands messages that lie before the consumer's cursor.
            raise StreamMismatch(
                f"consumer {config['name']} of {self._stream} takes {sorted(filters)}, jetjobs needs "
                f"{sorted(config['filter_subjects'])}: remove it, it will be made again"
            )
        changed = {"ack_wait": config["ack_wait"], "max_ack_pending": config["max_ack_pending"], **edited(existing)}
        kept = {key: value for key, value in existing.get("metadata", {}).items() if not key.startswith("_nats.")}
        return await self._put_consumer({**existing, **changed, "metadata": {**kept, **config["metadata"]}}, "update")


def _refuse_drops(wanted: Wanted, existing: Mapping[str, Any]) -> None:
    limits = {name: existing[name] for name in _DROPS if existing.get(name, -1) > 0}
    if limits and wanted.needed["retention"] == "workqueue" and existing.get("discard") != "new":
        told = ", ".join(f"{name} of {value}" for name, value in limits.items())
        raise StreamMismatch(
            f"stream {wanted.name} has a limit ({told}), and beyond it the broker would drop triggers it accepted: set "
            "it to -1 and limit the storage of the account instead, which makes the broker refuse new ones"
        )


def _differing(asked: Mapping[str, Any], existing: Mapping[str, Any]) -> list[str]:
    return [name for name, value in asked.items() if not _satisfied(name, value, existing.get(name))]


def _satisfied(name: str, asked: Any, existing: Any) -> bool:
    if name == "subjects":
        return set(asked) <= set(existing or ())
    return asked == existing or (asked is False and existing is None)


def _warn_of_settings(wanted: Wanted, existing: Mapping[str, Any]) -> None:
    for name in _differing(wanted.settings, existing):
        _log.warning(
            "stream setting differs",
            stream=wanted.name,
            setting=name,
            has=existing.get(name),
            mine=wanted.settings[name],
        )


def _mismatch(wanted: Wanted, existing: Mapping[str, Any], differing: list[str], why: str) -> StreamMismatch:
    asked = {**wanted.needed, **wanted.settings}
    told = ", ".join(f"{name} is {existing.get(name)!r} and must be {asked[name]!r}" for name in differing)
    return StreamMismatch(
        f"stream {wanted.name} exists, but {told}: {why}. Change or remove it, or choose another project name"
    )
