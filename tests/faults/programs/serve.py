"""A host process: `serve.py MODULE…`, each a file beside this one with a `module`. Settings by environment."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parent))

from notes import note

from jetjobs import JobHost


def main() -> int:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    modules = [importlib.import_module(name).module for name in sys.argv[1:]]
    host = JobHost(
        modules,
        project=os.environ["PROJECT"],
        version=os.environ.get("VERSION"),
        nats={"servers": os.environ["SERVER"], "reconnect_time_wait": 0.1, "connect_timeout": 1},
    )
    watch = threading.Thread(target=_report_health, args=(host,), daemon=True)
    watch.start()
    note("process", host=host.host_id)
    code = host.run()
    note("exit", code=code)
    return code


def _report_health(host: JobHost) -> None:
    """On SIGUSR1 the host's health goes to the journal; `ready` once it is connected and serves."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set())
    while True:
        signal.sigwait({signal.SIGUSR1})
        health = host.health()
        note("health", **json.loads(json.dumps({**health.as_dict(), "problem": health.problem})))


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # before any thread: all inherit it
    sys.exit(main())
