"""What every port of this package shares: one connection, one writer, one way to call the JetStream API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nats import errors as nats_errors
from nats.aio.subscription import Subscription

from jetjobs._log import get_logger
from jetjobs._nats.connection import Connection
from jetjobs._nats.faults import STREAM_NOT_FOUND, NotFound, from_api_error, no_responders
from jetjobs._nats.tuned import end_interest
from jetjobs._nats.writer import PipelinedWriter
from jetjobs.errors import BrokerError

_log = get_logger("jetjobs.nats")

API_PREFIX = "$JS.API."


@dataclass(frozen=True, slots=True)
class Link:
    """A connection with its writer."""

    connection: Connection
    writer: PipelinedWriter

    def nobody_answers(self, subject: str) -> BrokerError:
        """The error of a read from a stream that isn't there, told to whoever makes streams again."""
        if self.writer.on_nobody is not None:
            self.writer.on_nobody(subject)
        return no_responders(subject, "read")

    async def round_trip(self, stream: str) -> None:
        """Return when the server has done everything sent before; any stream's name does.

        Not nats-py's `flush`: its PING overtakes the commands that still wait for the socket, and a message that came
        after it would be dropped.
        """
        with suppress(NotFound):  # an answer too
            await self.api(f"STREAM.INFO.{stream}")

    async def leave(self, subscriptions: Sequence[Subscription], stream: str) -> None:
        """End subscriptions once everything the server had sent for them was heard."""
        connection = self.connection
        try:
            if subscriptions and connection.is_connected:
                for sub in subscriptions:
                    await end_interest(connection.client, sub)
                await self.round_trip(stream)
        except (BrokerError, nats_errors.Error) as failure:
            subjects = [sub.subject for sub in subscriptions[:10]]
            _log.info("subscriptions not ended cleanly", subjects=subjects, error=str(failure))
        finally:
            for sub in subscriptions:
                connection.abandon(sub)

    async def ask_stream(
        self, action: str, stream: str, wanted: Mapping[str, Any] | None = None, *, about: str, timeout: float = 5.0
    ) -> dict[str, Any]:
        """The answer of a stream to an API request. A missing one is no empty one: nothing may be concluded from it.

        Raises:
            ProjectNotPrepared: there is no such stream; names what was asked `about`.
            NotFound: the message isn't there.
        """
        try:
            return await self.api(f"{action}.{stream}", wanted, timeout=timeout)
        except NotFound as missing:
            if missing.code == STREAM_NOT_FOUND:
                raise self.nobody_answers(about) from None
            raise

    async def api(
        self, suffix: str, payload: Mapping[str, Any] | None = None, *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """The answer to a JetStream API request on `$JS.API.<suffix>`.

        Raises:
            NotFound: the stream, consumer or message isn't there (`jetjobs._nats.faults`).
            BrokerError: what else the broker refused, by the table in `faults`.
        """
        body = json.dumps(payload).encode() if payload else b""
        answer: dict[str, Any] = json.loads(await self.writer.request(API_PREFIX + suffix, body, timeout=timeout))
        error = answer.get("error")
        if error is not None:
            raise from_api_error(error, f"JetStream API {suffix}")
        return answer
