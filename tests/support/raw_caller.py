"""A caller that speaks NATS by hand: one request and its answer over a socket, as any language can."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

_INBOX = "_INBOX.by-hand"


class NoResponders(Exception):
    """The broker's word that nobody hears the subject."""


class RawCaller:
    """`async with RawCaller(port) as caller`: `call` gives the answer's JSON; `refused` what the server refused."""

    def __init__(self, port: int, **credentials: str) -> None:
        self._port = port
        self._credentials = credentials
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._calls = 0
        self.refused: list[str] = []

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert (await self._reader.readline()).startswith(b"INFO ")
        options = {"verbose": False, "headers": True, "no_responders": True, **self._credentials}
        self._writer.write(b"CONNECT %b\r\n" % json.dumps(options).encode())
        await self.sent(b"SUB %b.* 1\r\n" % _INBOX.encode())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, subject: str, body: bytes = b"", head: bytes = b"") -> Any:
        """The answer to a request, decoded.

        Raises:
            NoResponders: nobody hears the subject.
        """
        self._calls += 1
        self.publish(subject, body, head, reply=f"{_INBOX}.{self._calls}")
        async with asyncio.timeout(45):
            return await self._answer()

    def publish(self, subject: str, body: bytes = b"", head: bytes = b"", *, reply: str = "") -> None:
        """Send without waiting."""
        where = f"{subject} {reply}".encode()
        if not head:
            self._writer.write(b"PUB %b %d\r\n%b\r\n" % (where, len(body), body))
            return
        block = b"NATS/1.0" + head + b"\r\n\r\n"
        self._writer.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (where, len(block), len(block) + len(body), block, body))

    async def sent(self, command: bytes = b"") -> None:
        """Return when the server has taken in everything sent so far."""
        self._writer.write(command + b"PING\r\n")
        async with asyncio.timeout(45):
            while (line := await self._reader.readline()) != b"PONG\r\n":
                self._hear(line)

    async def _answer(self) -> Any:
        while not (line := await self._reader.readline()).startswith((b"MSG ", b"HMSG ")):
            self._hear(line)
        size = int(line.split()[-1])
        frame = (await self._reader.readexactly(size + 2))[:-2]
        if line.startswith(b"HMSG "):
            if frame.startswith(b"NATS/1.0 503"):
                raise NoResponders
            frame = frame[int(line.split()[-2]) :]
        return json.loads(frame)

    def _hear(self, line: bytes) -> None:
        if line.startswith(b"-ERR"):
            self.refused.append(line.decode().strip())
        elif line.startswith(b"PING"):
            self._writer.write(b"PONG\r\n")
        else:
            assert line.startswith((b"INFO", b"+OK")), line
