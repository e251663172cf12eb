"""The command `jetjobs`: thin commands over `JobHost` and `JobClient`, with no second path to the data."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `jetjobs.cli.failures` lists them."""
    try:
        from jetjobs.cli.entry import main as enter  # noqa: PLC0415 - a Ctrl-C in its tenths of a second is one, too
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return enter(argv)
