"""Things on a port that are no usable broker: one that only listens, an old server, one without JetStream."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_connection, socket

from jetjobs._nats.server import find_server
from tests.support.servers import free_port


@contextmanager
def black_hole() -> Generator[str]:
    """The URL of something that takes connections and never says a word."""
    with socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)
        yield f"nats://127.0.0.1:{hole.getsockname()[1]}"


@contextmanager
def bare_server(folder: Path, *options: str, conf: str = "", under: Sequence[str] = ()) -> Generator[str]:
    """The URL of a nats-server with just these options; it listens on return. `under`: the program that executes it."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bare.conf").write_text(conf)
    command = [*under, str(find_server().path), "-a", "127.0.0.1", "-p", str(port), "-l", str(folder / "log")]
    with subprocess.Popen([*command, "-c", str(folder / "bare.conf"), *options]) as process:
        try:
            _wait_for(port, process)
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1500):
        with suppress(OSError), create_connection(("127.0.0.1", port), timeout=1):
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            break
    raise AssertionError("the server did not come up")


class OldServer:
    """Greets as a server of that version does, answers PING, and has nothing behind it.

    Runs in a thread with a loop of its own, so that a blocking caller can be answered too.
    """

    def __init__(self, version: str) -> None:
        greeting = {"server_id": "OLD", "version": version, "proto": 1, "max_payload": 1048576, "headers": True}
        self._greeting = b"INFO " + json.dumps({**greeting, "jetstream": True}).encode() + b"\r\n"
        self._loop = asyncio.new_event_loop()
        self._port = free_port()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        assert self._up.wait(30)
        return f"nats://127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self._port))
        self._up.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        self._loop.run_until_complete(asyncio.sleep(0))  # what was closed is let go in the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self._greeting)
            with suppress(ConnectionError):
                while line := await reader.readline():
                    if line.startswith(b"PING"):
                        writer.write(b"PONG\r\n")
                        await writer.drain()
        finally:
            writer.close()
