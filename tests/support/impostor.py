"""Something that listens where a broker should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def impostor(first: bytes, *, answer: bytes = b"") -> AsyncGenerator[int]:
    """Something that listens, says `first` and answers everything with `answer`; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        with suppress(ConnectionError):
            while await reader.read(4096):
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
