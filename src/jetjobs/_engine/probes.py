"""`GET /live` and `GET /ready` over HTTP, for whoever starts and stops processes.

An answer is a status and a word: 200 or 503. What is wrong is in the log and in `JobHost.health()`, not here, where
anybody may ask.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from jetjobs.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from jetjobs._engine.health import HostHealth

_ASK_WITHIN = 5.0
_AT_ONCE = 32  # connections; each takes a descriptor that the broker's connection may need


class Probes:
    """Answers at an address, `HOST:PORT`, while its block lasts; without one it does nothing.

    An empty host means all of the machine's addresses.

    Raises:
        ConfigError: the address is taken, or not this machine's.
    """

    def __init__(self, address: str | None, health: Callable[[], HostHealth]) -> None:
        self._address = address
        self._health = health
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def __aenter__(self) -> Self:
        if self._address is None:
            return self
        host, _, port = self._address.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._serve, host.strip("[]") or None, int(port))
        except OSError as error:
            raise ConfigError(f"probes can't be answered at {self._address}: {error.strerror or error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who asks is answered at once; who came and says nothing makes room, or a crowd of them would be an outage.
        while len(self._open) >= _AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        # A line over the reader's limit is a ValueError.
        with suppress(TimeoutError, OSError, ValueError):
            async with asyncio.timeout(_ASK_WITHIN):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(self._answer(request))
                await writer.drain()
        self._open.pop(writer, None)
        writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.decode("latin-1").partition(" ")
        status, said = self._judge(rest.partition(" ")[0].partition("?")[0])
        if method not in {"GET", "HEAD"}:
            status, said = "405 Method Not Allowed", "only GET and HEAD"
        body = f"{said}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        return f"{head}\r\n".encode() + (b"" if method == "HEAD" else body)

    def _judge(self, path: str) -> tuple[str, str]:
        health = self._health()
        match path:
            case "/live":
                good = health.live
            case "/ready":
                good = health.ready
            case _:
                return "404 Not Found", "there are /live and /ready"
        return ("200 OK", path[1:]) if good else ("503 Service Unavailable", f"not {path[1:]}")
