"""The embedded nats-server: run one, and be sure that it ends.

For `jetjobs dev`, `jetjobs demo` and tests. Which program it is decides `server_binary.py`; the process
that keeps the promise "gone with its parent" is `supervisor.py`, whose docstring draws the picture.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jetjobs._nats.server_binary import NEEDED as NEEDED
from jetjobs._nats.server_binary import ServerBinary as ServerBinary
from jetjobs._nats.server_binary import find_server as find_server
from jetjobs.errors import ServerStartError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_HOST = "127.0.0.1"
_START_WITHIN = 10.0
_STOP_GRACE = 3.0
_LOG_LINES = 12


class EmbeddedServer:
    """A nats-server with JetStream on loopback, which ends with this process, however that ends.

    `port=None` lets the server choose a free one. `config` is a nats-server configuration file and
    `extra_args` more of its options; address, port and store given here win over the file's. Data
    and log (`nats-server.log`) lie in `data_dir` and stay there; a second server on the same folder
    is refused. `start`/`stop` and `start_blocking`/`stop_blocking` are the same, may be called from
    any thread, and `stop` of a server that isn't running does nothing.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] = ".jetjobs",
        *,
        port: int | None = None,
        config: str | os.PathLike[str] | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._wanted_port = port
        self._config = config
        self._extra_args = tuple(extra_args)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._port = 0

    @property
    def url(self) -> str:
        """Where clients connect, as in `nats://127.0.0.1:4222`."""
        return f"nats://{_HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._known(self._port)

    @property
    def pid(self) -> int:
        """The nats-server's own process id."""
        return self._known(self._pid)

    @property
    def running(self) -> bool:
        """Whether the server is up: started, not stopped, and not ended by itself."""
        return self._process is not None and self._process.poll() is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Return when clients can connect and JetStream is enabled.

        Raises:
            ServerBinaryNotFound: no usable nats-server on this machine.
            ServerStartError: another process has the folder open (names its pid), or the server was
                not ready within 10 s (shows its last log lines).
        """
        try:
            await asyncio.to_thread(self.start_blocking)
        except BaseException:
            # Cancelled while the thread goes on: the lock makes this wait for its end.
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server: SIGTERM, after 3 s SIGKILL. Its process is gone on return."""
        stopping = asyncio.ensure_future(asyncio.to_thread(self.stop_blocking))
        cancelled: asyncio.CancelledError | None = None
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError as error:
                cancelled = error  # A process left behind is worse than a late cancellation.
        if cancelled is not None:
            raise cancelled
        stopping.result()

    def start_blocking(self) -> None:
        """`start` for callers without an event loop."""
        with self._lock:
            if self.running:
                raise ServerStartError(f"the nats-server of {self.data_dir} is already started")
            binary = find_server()
            self._prepare_folder()
            self._launch(binary)
            try:
                self._await_ready()
            except BaseException:
                self._end()
                raise

    def stop_blocking(self) -> None:
        """`stop` for callers without an event loop."""
        with self._lock:
            self._end()

    def _known(self, number: int) -> int:
        if not number:
            raise ServerStartError(f"the nats-server of {self.data_dir} is not started")
        return number

    def _prepare_folder(self) -> None:
        if not self.data_dir.exists():
            self.data_dir.mkdir(parents=True)
            (self.data_dir / ".gitignore").write_text("*\n")

    def _launch(self, binary: ServerBinary) -> None:
        server = [str(binary.path), "-a", _HOST, "-p", str(self._wanted_port or -1), "-js"]
        server += ["-sd", str(self.data_dir), "--ports_file_dir", str(self.data_dir)]
        server += ["-c", os.fspath(self._config)] if self._config else []
        server += self._extra_args
        supervisor = [sys.executable, "-I", "-S", str(_SUPERVISOR)]
        supervisor += [str(os.getpid()), str(self.data_dir), str(_STOP_GRACE)]
        self._process = subprocess.Popen(
            [*supervisor, *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_WITHIN
        process = self._process
        assert process is not None
        self._pid = self._supervisors_answer(process)
        while time.monotonic() < deadline:
            port = self._written_port()  # a wanted port could be answered by somebody else's server
            if port and _has_jetstream(port):
                self._port = port
                self._tidy()
                return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)  # the pause; a server that ends is noticed at once
                raise self._failure("ended before it was ready")
        raise self._failure(f"was not ready within {_START_WITHIN:g} s")

    def _supervisors_answer(self, process: subprocess.Popen[bytes]) -> int:
        # Ends by itself: the supervisor speaks within its 5 s of patience for the lock, or is gone.
        assert process.stdout is not None
        answer: dict[str, Any] = json.loads(process.stdout.readline() or b"{}")
        if "locked_by" in answer:
            holder = f"process {answer['locked_by']}" if answer["locked_by"] else "another process"
            raise ServerStartError(
                f"{self.data_dir} is in use by {holder}. Stop that one first, or choose another data folder"
            )
        if "pid" not in answer:
            raise ServerStartError(f"nats-server could not be run: {answer.get('error', 'no reason given')}")
        return answer["pid"]

    def _written_port(self) -> int | None:
        # The server writes the file when it listens; read too early it is empty or missing.
        for path in self.data_dir.glob(f"*_{self._pid}.ports"):
            with suppress(OSError, ValueError, LookupError):
                return int(json.loads(path.read_text())["nats"][0].rpartition(":")[2])
        return None

    def _tidy(self) -> None:
        for path in self.data_dir.glob("*.ports"):  # the folder is ours now: others were killed
            if not path.stem.endswith(f"_{self._pid}"):
                path.unlink(missing_ok=True)

    def _failure(self, what: str) -> ServerStartError:
        log = self.data_dir / "nats-server.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return ServerStartError("\n  ".join([f"nats-server {what}. Its log ({log}) ends with:", *lines[-_LOG_LINES:]]))

    def _end(self) -> None:
        process, self._process = self._process, None
        self._pid = self._port = 0
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # tells the supervisor
        try:
            process.wait(_STOP_GRACE + 2)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel then ends the server, see supervisor.py
            process.wait()
        process.stdout.close()


def _has_jetstream(port: int) -> bool:
    """Whether a server there greets with INFO and says that JetStream is on."""
    try:
        with socket.create_connection((_HOST, port), timeout=1) as connection, connection.makefile("rb") as lines:
            word, _, info = lines.readline().partition(b" ")
    except OSError:
        return False
    return word == b"INFO" and bool(json.loads(info).get("jetstream"))
