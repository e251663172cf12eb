"""How a trigger gets into the stream: its id is chosen first, so that it can be sent again when its answer is lost.

A run without key or delay takes one round trip. With a key, what is already there is read first, then the message
is stored on the condition that none is on its subject: of callers at once exactly one stores it, the others find it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from jetjobs._client.calls import Deadline, Pauses, read, unanswered
from jetjobs._client.reading import Reader
from jetjobs._client.scope import Scope
from jetjobs._core import codec, headers, names
from jetjobs._core.bodies import INLINE_LIMIT, Body
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import RunKey, RunRecord, TriggerInfo
from jetjobs._core.run_ids import fresh_run_id, run_id_for_key, run_id_for_retry
from jetjobs._core.triggering import (
    AT_ONCE,
    PLAIN,
    REPEAT_FOR,
    Asked,
    Existing,
    Publish,
    Refuse,
    Retry,
    Target,
    Timing,
    differs,
    is_asked_by,
    judge,
    timing,
)
from jetjobs.errors import (
    AnswerUnknown,
    BrokerUnavailable,
    DuplicateRun,
    PayloadTooLargeError,
    ProjectNotPrepared,
    WrongRevision,
)

_REPEAT_FOR = REPEAT_FOR.total_seconds()
_TRIES = 3
_MOST_RETRIES = 10_000


class Triggered(NamedTuple):
    """What a trigger came to. A tuple, because a frozen dataclass takes four times as long to make."""

    run: RunKey
    duplicate: bool = False
    payload_differs: bool = False
    no_host: bool = False
    paused: bool = False


class Composed(NamedTuple):
    """A trigger without options, and what it comes to once its message is stored."""

    triggered: Triggered
    message: Outgoing


class _Stored(NamedTuple):
    """What storing a message came to: its sequence, 0 where there was one."""

    sequence: int = 0
    unclear: bool = False  # after an unanswered try of this call: what is there, or came and went, is probably its own


@dataclass(frozen=True)
class _Call:
    """One call with options, from its encoded payload to its end."""

    data: bytes
    options: Asked
    when: Timing
    deadline: Deadline

    @cached_property
    def digest(self) -> str:
        """What tells this payload from another one under the same key."""
        return codec.digest(codec.decode(self.data))


class Publisher:
    """Triggers runs of one job."""

    def __init__(self, scope: Scope, target: Target) -> None:
        self._scope = scope
        self._target = target
        self._broker = scope.backend.broker
        self._reader = Reader(scope)
        self._is_paused = scope.lookup.is_paused
        # A lost answer must leave time to send again within the call's timeout.
        self._one_try_seconds = scope.timeout / _TRIES
        self._one_try = timedelta(seconds=self._one_try_seconds)
        plain = RunKey(*target.address, "")
        self._prefix = names.trigger_subject(scope.project, plain)
        # What most triggers carry is the same for all of them: made once, never changed.
        self._headers, self._bare_headers = (
            compose(scope.project, plain, body, when=AT_ONCE, info=TriggerInfo(), schema=target.schema).headers
            for body in (Body(b"-"), None)
        )

    async def trigger(self, payload: Any, options: Asked, deadline: Deadline) -> Triggered:
        """Have the run stored.

        Raises:
            PayloadError, UnknownJobError, DuplicateRun: nothing was stored.
            BrokerUnavailable: nothing was sent.
            TriggerUnconfirmed: sent, and not answered in time.
        """
        address = self._target.address
        data = self._encode(payload)
        hosted = self._scope.lookup.known_hosted(address) or await self._look(options, deadline)
        if options is PLAIN and len(data) <= INLINE_LIMIT and deadline.left >= self._one_try_seconds:
            run, message = self._plain(data)
            try:  # here and not in `_store`: nearly every trigger ends with this one await
                await self._broker.store(message, expected=0, timeout=self._one_try)
            except (AnswerUnknown, BrokerUnavailable) as error:
                await self._store(run, message, deadline, sent=isinstance(error, AnswerUnknown))
            return Triggered(run, False, False, not hosted, self._is_paused(address))
        triggered = await self._by_options(data, options, deadline)
        return triggered._replace(no_host=not hosted, paused=self._is_paused(address))

    def compose(self, payload: Any, deadline: Deadline) -> Composed | None:
        """A trigger without options, to be stored; `None` if it takes more than its one message.

        Raises:
            PayloadError: it can't be stored.
        """
        hosted = self._scope.lookup.known(self._target.address)
        if hosted is None or deadline.left < self._one_try_seconds:
            return None
        data = self._encode(payload)
        if len(data) > INLINE_LIMIT:
            return None
        run, message = self._plain(data)
        return Composed(Triggered(run, False, False, not hosted, self._is_paused(run.address)), message)

    def send(self, composed: Composed) -> asyncio.Future[int]:
        """Have it stored, a first time."""
        return asyncio.ensure_future(self._broker.store(composed.message, expected=0, timeout=self._one_try))

    async def send_together(self, composed: Sequence[Composed]) -> None:
        """Have triggers of any jobs stored, a first time: all of them or none."""
        await self._broker.store_together([each.message for each in composed], timeout=self._one_try)

    async def finish(self, composed: Composed, stored: Awaitable[Any], deadline: Deadline) -> Triggered:
        """What a trigger came to whose first sending `stored` is; it is sent again where need be.

        Raises:
            As `trigger`.
        """
        try:
            await stored
        except (AnswerUnknown, BrokerUnavailable) as error:
            run = composed.triggered.run
            await self._store(run, composed.message, deadline, sent=isinstance(error, AnswerUnknown))
        return composed.triggered

    def _plain(self, data: bytes) -> tuple[RunKey, Outgoing]:
        run = RunKey(*self._target.address, _fresh_id())
        return run, Outgoing(self._prefix + run.run_id, self._headers if data else self._bare_headers, data)

    async def trigger_named(
        self, run: RunKey, info: TriggerInfo, payload: Any, *, asked: Asked, deadline: Deadline
    ) -> Triggered:
        """Have one certain run stored, under an id its asker derived; what is there already is that run.

        Raises:
            As `trigger`.
        """
        data = self._encode(payload)
        hosted = self._scope.lookup.known_hosted(run.address) or await self._look(asked, deadline)
        call = _Call(data, asked, timing(asked, await self._now(asked, deadline)), deadline)
        seen = await self._reader.snapshot(run, deadline)
        if seen is not None:
            triggered = Triggered(run, duplicate=True, payload_differs=differs(seen.payload_digest, call.digest))
        else:
            message = await self._message(run, call, replace(info, scheduled_for=call.when.scheduled_for))
            triggered = await self._settle(run, await self._store(run, message, deadline), call)
        return triggered._replace(no_host=not hosted, paused=self._is_paused(run.address))

    async def look_up(self, deadline: Deadline) -> None:
        """Have known what `compose` must know.

        Raises:
            UnknownJobError, BrokerUnavailable: as `trigger`.
        """
        if self._scope.lookup.known(self._target.address) is None:
            await self._look(PLAIN, deadline)

    async def _look(self, options: Asked, deadline: Deadline) -> bool:
        return await self._scope.lookup.look(self._target.address, deadline, allow_unknown=options.allow_unknown)

    def _encode(self, payload: Any) -> bytes:
        if payload is None:
            return b""
        data = codec.encode(payload)
        if len(data) > self._scope.max_payload:
            raise PayloadTooLargeError(
                f"the payload takes {len(data)} bytes, at most {self._scope.max_payload} are allowed (max_payload)"
            )
        return data

    async def _by_options(self, data: bytes, options: Asked, deadline: Deadline) -> Triggered:
        call = _Call(data, options, timing(options, await self._now(options, deadline)), deadline)
        if options.idempotency_key is not None:
            return await self._keyed(call, options.idempotency_key)
        run = RunKey(*self._target.address, _fresh_id())
        await self._store(run, await self._message(run, call, call.when.info), deadline)
        return Triggered(run)

    async def _now(self, options: Asked, deadline: Deadline) -> datetime:
        """Broker time, measured where an instant is made of it: a delay from a wrong clock would be off by as much."""
        if options.delay is None and options.at is None and options.start_within is None:
            return self._broker.now()
        return await self._scope.time.now(self._broker, deadline)

    async def _keyed(self, call: _Call, key: str) -> Triggered:
        address = self._target.address
        first = run = RunKey(*address, run_id_for_key(*address, key))
        info = call.when.info
        for retries in range(1, _MOST_RETRIES):
            seen = await self._reader.snapshot(run, call.deadline)
            match judge(seen, call.digest, call.options.on_duplicate):
                case Publish():
                    message = await self._message(run, call, info)
                    return await self._settle(run, await self._store(run, message, call.deadline), call)
                case Existing(payload_differs):
                    return Triggered(run, duplicate=True, payload_differs=payload_differs)
                case Refuse():
                    raise _refused(run, key)
                case Retry():
                    run = RunKey(*address, run_id_for_retry(first, retries))
                    info = TriggerInfo("retry", scheduled_for=call.when.scheduled_for, retry_of=first.run_id)
        raise DuplicateRun(f"key {key!r} of {address} was retried {_MOST_RETRIES} times", run.run_id)

    async def _settle(self, run: RunKey, stored: _Stored, call: _Call) -> Triggered:
        """What a store under a key came to, once it is known whose message is there."""
        seen = await self._seen(run, stored, call.deadline)
        payload_differs = seen is not None and differs(seen.payload_digest, call.digest)
        if not payload_differs and (stored.unclear or is_asked_by(seen, stored.sequence, call.when)):
            return Triggered(run)
        if call.options.on_duplicate == "raise":
            raise _refused(run, call.options.idempotency_key or "")
        return Triggered(run, duplicate=True, payload_differs=payload_differs)

    async def _seen(self, run: RunKey, stored: _Stored, deadline: Deadline) -> RunRecord | None:
        try:
            if not stored.sequence:
                return await self._reader.snapshot(run, deadline)
            # Between the look before and now a message may have come, run and gone: only its record tells of it.
            found = await self._reader.stored(run, deadline)
        except BrokerUnavailable as error:
            if stored.sequence:
                return None  # what is stored is stored
            if stored.unclear:
                raise unanswered(run, deadline, error, sent=True, unprepared=False) from error
            raise
        return found.record if found is not None else None

    async def _message(self, run: RunKey, call: _Call, info: TriggerInfo) -> Outgoing:
        return compose(
            self._scope.project,
            run,
            await self._body(run, call),
            when=call.when,
            info=info,
            key=call.options.idempotency_key,
            schema=self._target.schema,
        )

    async def _body(self, run: RunKey, call: _Call) -> Body | None:
        """The bytes as they go into the message: large ones are put away first, under their digest."""
        data = call.data
        if len(data) <= INLINE_LIMIT:
            return Body(data) if data else None
        name = hashlib.sha256(data).hexdigest()
        payloads = self._scope.backend.payloads
        claim = await read(lambda: payloads.put(run.run_id, "in", name, data), call.deadline, "storing the payload")
        return Body(claim=claim)

    async def _store(self, run: RunKey, message: Outgoing, deadline: Deadline, *, sent: bool = False) -> _Stored:
        """Store a message whose subject must be empty, again and again until it is answered or time is up."""
        pauses: Pauses | None = None
        while True:
            left = deadline.left
            if left <= 0 and not sent:
                raise BrokerUnavailable(f"run {run} was not sent: the time was up before that")
            one_try = self._one_try if left >= self._one_try_seconds else timedelta(seconds=left)
            try:
                return _Stored(await self._broker.store(message, expected=0, timeout=one_try), sent)
            except WrongRevision:
                return _Stored(unclear=sent)
            except AnswerUnknown as error:
                sent = True
                cause: Exception = error
            except BrokerUnavailable as error:
                cause = error
            if pauses is None:
                pauses = Pauses(deadline.within(_REPEAT_FOR))
            if not await pauses.another_try(cause):
                break
        unprepared = isinstance(cause, ProjectNotPrepared) and not pauses.stands
        raise unanswered(run, deadline, cause, sent=sent, unprepared=unprepared) from cause


def compose(
    project: str,
    run: RunKey,
    body: Body | None,
    *,
    when: Timing,
    info: TriggerInfo,
    key: str | None = None,
    schema: str | None = None,
) -> Outgoing:
    """The message that asks for a run: its trigger, or the schedule that will fire it."""
    described: dict[str, Any] = {
        "info": info,
        "key": key,
        "scheduled_for": when.scheduled_for,
        "start_deadline": when.start_deadline,
        "expires_in": when.expires_in,
        "payload_schema": schema,
    }
    if when.due_at is None:
        return headers.trigger_message(project, run, body, **described)
    return headers.delayed_message(project, run, when.due_at, body, **described)


def _fresh_id() -> str:
    return fresh_run_id(time.time_ns() // 1_000_000, os.urandom(10))


def _refused(run: RunKey, key: str) -> DuplicateRun:
    return DuplicateRun(f"key {key!r} already has run {run.run_id} of {run.address}", run.run_id)
