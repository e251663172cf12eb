"""A real nats-server that a test may kill, freeze and bring back."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from jetjobs._nats.server import EmbeddedServer
from tests.support.processes import freeze

COMPOSE = Path(__file__).parents[2] / "compose"
NATS_CONF = COMPOSE / "nats.conf"

_PORTS = 1_000  # of each worker
_given: deque[int] = deque(maxlen=_PORTS // 2)  # the last ones, which may belong to servers that are down


class RealServer:
    """One server with a folder of its own; what comes back after `restart` has its port and its store.

    Up on entering, removed on leaving.

    The methods block for as long as the server needs (well under a second). In an async test whose
    own client must go on meanwhile: `await asyncio.to_thread(server.restart)`.

    `extra_conf` is text appended to the configuration, as in `authorization { … }`; `extra_args`
    are options of nats-server.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: Path | None = NATS_CONF,
        extra_conf: str = "",
        extra_args: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.config = config
        self.extra_args = tuple(extra_args)
        if extra_conf:
            base = config.read_text() if config else ""
            self.config = folder / "server.conf"
            self.config.write_text(f"{base}\n{extra_conf}\n")
        self._server: EmbeddedServer | None = None

    @property
    def url(self) -> str:
        """Known before the start, and the same after each restart."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def log(self) -> str:
        """What the server has written since its last start."""
        return (self.store / "nats-server.log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def start(self) -> None:
        """Return when it takes connections and has JetStream."""
        server = EmbeddedServer(self.store, port=self.port, config=self.config, extra_args=self.extra_args)
        server.start_blocking()
        self._server = server

    def sigterm(self) -> None:
        """A clean stop; gone on return."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """A crash; gone on return."""
        self._end(signal.SIGKILL)

    def sigstop(self) -> None:
        """Freeze: connections stay open and nothing answers."""
        freeze(self.pid)

    def sigcont(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Up again, after a clean stop if it was still running."""
        self.sigterm()
        self.start()

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.sigterm()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _running(self) -> EmbeddedServer:
        assert self._server is not None, "the server is not running"
        return self._server

    def _end(self, how: signal.Signals) -> None:
        if self._server is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
            os.kill(self.pid, signal.SIGCONT)  # a frozen one would hear SIGTERM never
        self._server.stop_blocking()
        self._server = None


def free_port() -> int:
    """A port that is free and stays so while a server is down: no other worker's, and none that was given before.

    Below the range that systems give to outgoing connections: a client that knocks at a closed port
    of that range can be given the same port and connect to itself.
    """
    first = 20_000 + _PORTS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 12)
    while True:
        port = first + secrets.randbelow(_PORTS)  # `random` is seeded alike in every worker
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.append(port)
            return port
