"""A TCP proxy between one client and the broker, for networks that hold, lose or cut what passes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

from tests.support.servers import free_port


class Lane:
    """One direction. `hold` keeps bytes back until `go`; `drop` swallows them, which only a cut can heal."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.dropping = False
        self.dropped = 0
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def go(self) -> None:
        self.dropping = False
        self._open.set()

    def drop(self) -> None:
        self.dropping = True

    async def passes(self, data: bytes) -> bool:
        """Whether bytes may go on, once they may."""
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._open.wait()
        if self.dropping:
            self.dropped += len(data)
        return not self.dropping


class _Loss:
    def __init__(self, pattern: bytes, what: str, skip: int) -> None:
        self.pattern = pattern
        self.what = what
        self.left = skip + 1


class Proxy:
    """`async with Proxy(port) as proxy`: connect to `proxy.url` instead of the broker."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.to_broker = Lane()
        self.to_client = Lane()
        self.lost = asyncio.Event()
        self._target = target
        self._loss: _Loss | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def black_hole(self) -> None:
        """Nothing passes either way, connections stay open, and new ones get no answer; `heal` ends it."""
        self.to_broker.hold()
        self.to_client.hold()

    def heal(self) -> None:
        self.to_broker.go()
        self.to_client.go()

    def cut(self) -> None:
        """Reset every connection; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def lose_answer(self, pattern: bytes, skip: int = 0) -> None:
        """The next request with `pattern` (after `skip` others) arrives, its answer doesn't, and the line is cut."""
        self.lost.clear()
        self._loss = _Loss(pattern, "answer", skip)

    def lose_request(self, pattern: bytes, skip: int = 0) -> None:
        """The next request with `pattern` doesn't arrive, and the line is cut."""
        self.lost.clear()
        self._loss = _Loss(pattern, "request", skip)

    # ------------------------------------------------------------- inside

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._start(self._connect(reader, writer))  # which ends with the proxy, too

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        if writer.transport.is_closing():  # cut meanwhile
            far_writer.transport.abort()
            return
        self._start(self._pump(reader, far_writer, self.to_broker))
        self._start(self._pump(far_reader, writer, self.to_client))

    def _start(self, pump: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(pump)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lane: Lane) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                loss = self._strikes(data) if lane is self.to_broker else None
                if loss == "request":
                    self._cut_now()
                    return
                if loss == "answer":
                    self.to_client.drop()
                if await lane.passes(data):
                    writer.write(data)
                    await writer.drain()
                if loss == "answer":
                    # The broker has it once it answered: wait for the answer that is being swallowed.
                    before = self.to_client.dropped
                    for _ in range(200):
                        if self.to_client.dropped > before:
                            break
                        await asyncio.sleep(0.01)
                    self.to_client.go()
                    self._cut_now()
                    return
        writer.transport.abort()

    def _strikes(self, data: bytes) -> str | None:
        loss = self._loss
        if loss is None or loss.pattern not in data:
            return None
        loss.left -= 1
        if loss.left > 0:
            return None
        self._loss = None
        return loss.what

    def _cut_now(self) -> None:
        self.cut()
        self.lost.set()
