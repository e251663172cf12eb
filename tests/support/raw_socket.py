"""A publisher that speaks NATS by hand: bytes on a socket, as any program in any language could send them."""

from __future__ import annotations

import asyncio
import json
from typing import Self


class RawPublisher:
    """`async with RawPublisher(port) as raw`: each `pub` returns when the server has taken it in."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert (await self._reader.readline()).startswith(b"INFO ")
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "none"}
        await self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def pub(self, subject: str | bytes, body: bytes = b"", head: bytes | None = None) -> None:
        """Publish; `head` are header lines as they are to stand there, without the first and the last empty one."""
        name = subject.encode() if isinstance(subject, str) else subject
        if head is None:
            await self._send(b"PUB %b %d\r\n%b\r\n" % (name, len(body), body))
            return
        block = b"NATS/1.0" + head + b"\r\n\r\n"
        await self._send(b"HPUB %b %d %d\r\n%b%b\r\n" % (name, len(block), len(block) + len(body), block, body))

    async def _send(self, command: bytes) -> None:
        self._writer.write(command + b"PING\r\n")
        async with asyncio.timeout(45):
            while (line := await self._reader.readline()) != b"PONG\r\n":
                assert line.startswith((b"INFO", b"PING")), line


def head(**headers: str) -> bytes:
    """Header lines: `Jetjobs_Turn="2"` becomes `Jetjobs-Turn: 2`."""
    return b"".join(b"\r\n" + f"{name.replace('_', '-')}: {value}".encode() for name, value in headers.items())
