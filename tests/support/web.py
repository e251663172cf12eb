"""Web applications under their real servers, and what they said until they ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

Answer = tuple[int, Any]


class WebServer:
    """`python -m …` that serves HTTP on a port; ready on entering, ended by SIGTERM on leaving.

    `stderr` is what it wrote there from start to end.
    """

    def __init__(self, module: Sequence[str], *, port: int, folder: Path, env: Mapping[str, str]) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.stderr = ""
        self._process = subprocess.Popen(
            # What is left open is told, at the exit too.
            [sys.executable, "-W", "default::ResourceWarning", "-m", *module],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, path: str, data: Mapping[str, str] | None = None, *, as_json: bool = False) -> Answer:
        """Status and decoded body; with `data` a POST, as a form or as JSON."""
        body, headers = None, {}
        if data is not None:
            body = (json.dumps(data) if as_json else urllib.parse.urlencode(data)).encode()
            headers = {"Content-Type": "application/json"} if as_json else {}
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _decoded(refused.read())

    def wait_until(self, path: str, status: int, within: float = 30) -> None:
        """Return when a GET is answered so; until then there may be nobody."""

        def is_so(answer: Answer) -> bool:
            return answer[0] == status

        self.wait_for(path, is_so, within)

    def wait_for(self, path: str, wanted: Callable[[Answer], bool], within: float = 30) -> Answer:
        """The first answer to a GET that is as wanted."""
        deadline, last = time.monotonic() + within, None
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the server ended:\n{self.stderr}"
            try:
                last = self.ask(path)
            except OSError:
                last = None
            if last is not None and wanted(last):
                return last
            time.sleep(0.05)
        raise AssertionError(f"{path} answered {last} after {within} s:\n{self.stderr}")

    def stop(self, within: float = 30) -> int:
        """End it as a service manager does; the exit code."""
        self.signal(signal.SIGTERM)
        return self.end(within)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, within: float = 30) -> int:
        """Wait for its end; the exit code."""
        try:
            return self._process.wait(within)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(5)
            assert self._process.stderr is not None
            self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr += line


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
