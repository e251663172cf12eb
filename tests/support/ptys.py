"""Commands in a terminal of their own."""

import os
import pty
import select
import subprocess
import sys
import time

from tests.support.commands import Terminal, command

# Makes the pty on stdin the controlling terminal, so that its Ctrl-C becomes SIGINT, then becomes the command.
IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
CTRL_C = b"\x03"


class Pty:
    """A command in a terminal of its own."""

    def __init__(self, terminal: Terminal, *args: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *command(args)],
            cwd=terminal.folder,
            env=terminal.env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.said = ""

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: str, within: float = 45) -> None:
        deadline = time.monotonic() + within
        while text not in self.said:
            assert self._read(deadline - time.monotonic()), f"{text!r} did not come, but:\n{self.said}"

    def end(self, within: float) -> int:
        deadline = time.monotonic() + within
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def hang_up(self) -> None:
        """Close the terminal, as its window's owner does."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)

    def _read(self, within: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, within))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux's way to say that nobody has the other end open
            return False
        self.said += data.decode(errors="replace")
        return bool(data)
