"""What every port of this package shares: one connection, one writer, one way to call the JetStream API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetjobs._nats.connection import Connection
from jetjobs._nats.faults import from_api_error, no_responders
from jetjobs._nats.writer import PipelinedWriter
from jetjobs.errors import BrokerError

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
