"""`jetjobs run` and `jetjobs init`: a host for modules named on the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from jetjobs.cli.failures import ExitCode, Mistake
from jetjobs.cli.load import Loaded, load
from jetjobs.cli.logs import configure_logs
from jetjobs.cli.options import Parser, add_connection, connection_of, project_of, say_where
from jetjobs.cli.sources import project_files
from jetjobs.config import HostSettings
from jetjobs.host import JobHost

_NOT_WITH_A_HOST = ("--project", "--version", "--disable", "--no-schedules", "--probes", "--nats")


def add_run(parser: Parser) -> None:
    """The options of `run`."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="pkg.mod or pkg.mod:attr: a Module, a Module class, a list of them, a JobHost, or what makes one",
    )
    add_connection(parser)
    add_host_options(parser)
    parser.add_argument("--probes", metavar="[HOST:]PORT", help="answer GET /live and /ready there; default: loopback")
    # How `dev` learns what to watch: written once the paths are loaded. Its child also ends when stdin does.
    parser.add_argument("--dev-files", help=argparse.SUPPRESS)
    parser.set_defaults(command=run)


def add_host_options(parser: Parser) -> None:
    """What `run` and `dev` share."""
    parser.add_argument("--version", metavar="VERSION", help="release of your code (PEP 440)")
    parser.add_argument(
        "--disable", action="append", default=[], metavar="PATTERN", help="don't run these jobs, as in 'reports.*'"
    )
    parser.add_argument("--no-schedules", action="store_true", help="run jobs, but let no schedule fire from here")
    parser.add_argument("--json-logs", action="store_true", help="logs as JSON lines")


def add_init(parser: Parser) -> None:
    """The options of `init`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="as for run")
    add_connection(parser)
    parser.add_argument("--version", metavar="VERSION", help="release of your code (PEP 440)")
    parser.set_defaults(command=init, disable=[], no_schedules=False, probes=None)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    configure_logs(level=logging.DEBUG if args.debug else logging.INFO, as_json=args.json_logs)
    if args.dev_files:
        _follow_parent()
    try:
        loaded = load(args.paths)
    finally:
        if args.dev_files:
            Path(args.dev_files).write_text(json.dumps(project_files(args.paths)), encoding="utf-8")
    return _host(loaded, args).run()


def init(args: argparse.Namespace) -> int:
    """Make stream, buckets, descriptors and missing consumers exist."""
    loaded = load(args.paths)
    host = _host(loaded, args)
    if loaded.host is None:
        say_where(args)
    asyncio.run(_prepare(host))
    every = [job.address for module in host.modules for job in module.jobs.values()]
    names = sorted(str(address) for address in every if host.switches.runs(address))
    if every and not names:
        raise Mistake(
            "every job is switched off here (JETJOBS_ENABLED, JETJOBS_DISABLE, or [tool.jetjobs]): none was made ready"
        )
    print(f"ready: {', '.join(names)}")
    return ExitCode.OK


async def _prepare(host: JobHost) -> None:
    try:
        await host.prepare()
    finally:
        await host.close()


def _host(loaded: Loaded, args: argparse.Namespace) -> JobHost:
    if loaded.host is not None:
        _refuse_flags(args)
        return loaded.host
    return JobHost(
        loaded.modules,
        project=project_of(args),
        nats=connection_of(args),
        settings=None if args.probes is None else HostSettings(probes=args.probes),
        version=args.version,
        disable=args.disable,
        schedules=not args.no_schedules,
    )


def _refuse_flags(args: argparse.Namespace) -> None:
    given = (args.project, args.version, args.disable, args.no_schedules, args.probes, connection_of(args))
    wrong = [flag for flag, value in zip(_NOT_WITH_A_HOST, given, strict=True) if value]
    if wrong:
        raise Mistake(
            f"{' '.join(args.paths)} is a JobHost, which has settings of its own: {', '.join(wrong)} would do "
            "nothing; name the modules instead, or leave it out"
        )


def _follow_parent() -> None:
    """Drain when the parent closes our stdin, or is gone: no orphan stays, whatever ends `dev`."""

    def wait_for_end() -> None:
        descriptor = sys.stdin.fileno()
        while os.read(descriptor, 1024):
            pass
        main = threading.main_thread().ident
        if main is not None and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, signal.SIGTERM)  # the main thread must wake up from its select
        else:
            signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="jetjobs-dev-parent", daemon=True).start()
