"""Small programs in an interpreter of their own, which says what it would otherwise keep to itself."""

from __future__ import annotations

import subprocess
import sys

from tests.support.commands import clean_environment

# What was left open is told. That a fork copies one thread of several, Python tells since 3.12; here it is meant.
_WARNINGS = ("-W", "default::ResourceWarning", "-W", "ignore:This process:DeprecationWarning")


def run_program(text: str, nats_url: str, project: str, *, within: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with a broker and a project in its environment."""
    with start_program(text, nats_url, project) as program:
        try:
            out, err = program.communicate(timeout=within)
        finally:
            program.kill()
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def start_program(text: str, nats_url: str, project: str) -> subprocess.Popen[str]:
    """Start one, to talk with."""
    return subprocess.Popen(
        [sys.executable, *_WARNINGS, "-c", text],
        env={**clean_environment(), "NATS_URL": nats_url, "JETJOBS_PROJECT": project},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
