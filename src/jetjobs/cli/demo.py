"""`jetjobs demo`: the file index example on this checkout, with a broker of its own."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from jetjobs._core.connect_options import VARIABLES
from jetjobs.cli.failures import ExitCode, Mistake
from jetjobs.cli.logs import configure_logs
from jetjobs.cli.options import Parser, data_folder
from jetjobs.cli.runs import runs_table
from jetjobs.client import JobClient
from jetjobs.embedded import EmbeddedServer
from jetjobs.host import JobHost

PROJECT = "demo"
DATA = ".jetjobs/demo"
_EXAMPLE = Path("examples", "file_index")
_SHOWN = 8
_PATIENCE = 120.0


def add_demo(parser: Parser) -> None:
    """The options of `demo`."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="what to index (default: the checkout)")
    parser.add_argument("--data", default=DATA, metavar="FOLDER", help=f"where the broker keeps its data ({DATA})")
    parser.set_defaults(command=demo)


def demo(args: argparse.Namespace) -> int:
    """Index a folder, and print what ran and the report. A second time only what changed is indexed."""
    configure_logs(level=logging.DEBUG if args.debug else logging.WARNING)
    example = find_example()
    folder = Path(args.folder).absolute() if args.folder else example.parents[1]
    if not folder.is_dir():
        raise Mistake(f"{folder} is no folder that can be indexed")
    for variable in VARIABLES:  # the demo's broker has no users, whatever this shell uses elsewhere
        os.environ.pop(variable, None)
    sys.path.insert(0, str(example))
    files = importlib.import_module("file_index").files
    server = EmbeddedServer(data_folder(args.data))
    server.start_blocking()
    try:
        return asyncio.run(_demo(server.url, files, folder))
    finally:
        server.stop_blocking()


def find_example() -> Path:
    """Where the example lies: beside the sources of an editable install, or in or above the working folder.

    Raises:
        Mistake: it isn't on this machine.
    """
    here = Path.cwd()
    for root in (Path(__file__).parents[3], here, *here.parents):
        if (root / _EXAMPLE / "file_index.py").is_file():
            return root / _EXAMPLE
    raise Mistake(
        "the demo runs examples/file_index of the source checkout, which isn't part of the installed package; "
        "get the sources and run `make demo` there"
    )


async def _demo(url: str, files: Any, folder: Path) -> int:
    started = time.monotonic()
    _say(f"{PROJECT} @ {url}: indexing {folder}")
    async with JobHost([files], project=PROJECT, nats=url), JobClient(url, project=PROJECT) as client:
        scan = await client.get_job("files", "scan").trigger({"folder": str(folder)})
        record = await scan.wait(_PATIENCE)
        if not record.ok:
            raise Mistake(f"the scan has {record.status.lower()}: {record.error}", ExitCode.FAILED)
        scanned: dict[str, Any] = record.result
        report = await client.run("files", "report", scanned["report"]).result(_PATIENCE)
        runs = await client.runs.list(limit=_SHOWN)
    print(runs_table(runs))
    print()
    print(report["text"])
    print()
    took = time.monotonic() - started
    counts = f"{scanned['indexed']} indexed now, {scanned['known']} known from before"
    print(f"{scanned['files']} files: {counts}; {took:.1f} s")
    return ExitCode.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
