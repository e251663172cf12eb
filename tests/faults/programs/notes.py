"""What the handlers of a host program write: one line per start and end, in a file that outlives the process."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from jetjobs import JobContext

JOURNAL = os.environ["JOURNAL"]


def note(what: str, **fields: Any) -> None:
    """One line, in one write: lines of several processes don't mix. Monotonic time is the machine's."""
    line = json.dumps({"what": what, "pid": os.getpid(), "at": time.monotonic(), **fields}) + "\n"
    out = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(out, line.encode())
    finally:
        os.close(out)


@contextmanager
def noted(ctx: JobContext[Any], **fields: Any) -> Generator[None]:
    """A start's line, and at the end of the block, whatever ends it, the end's."""
    about = {"job": ctx.job, "run": ctx.run_id, "attempt": ctx.attempt, "start": secrets.token_hex(4)}
    note("start", **about, **fields)
    how = "return"
    try:
        yield
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        try:
            note("end", **about, how=how, reason=ctx.cancel_reason)
        except BaseException as struck:
            # The interrupt of a thread may strike before or after the line is out: two lines of a start count once.
            note("end", **about, how=type(struck).__name__, reason=ctx.cancel_reason)
            raise
