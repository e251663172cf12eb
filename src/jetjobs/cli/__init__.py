"""The command `jetjobs`: thin commands over `JobHost` and `JobClient`, with no second path to the data."""

from __future__ import annotations

from jetjobs.cli.entry import main as main
