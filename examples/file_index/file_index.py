"""An index of the files in a folder: five jobs that do real work on real input.

    jetjobs dev file_index                                    in this folder
    jetjobs trigger files.scan '{"folder": "/some/where"}'    in another terminal

or everything at once, on this checkout: `make demo`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from jetjobs import Cron, Every, JobContext, JobRetention, JobRun, Module, OnEvent

# A module is what one service owns. Other services trigger its jobs by these names: files.scan, files.index_file.
files = Module("files")

LARGEST = 1_000_000
SKIPPED_FOLDERS = {"node_modules", "__pycache__", "build", "dist", "venv"}


# Payloads can be pydantic models: what doesn't fit is refused where the job is triggered, not hours later in a host.
class Folder(BaseModel):
    folder: str


class SourceFile(BaseModel):
    path: str
    size: int


class Entry(BaseModel):
    path: str
    sha256: str
    size: int
    lines: int
    words: int


class Index(BaseModel):
    folder: str
    entries: list[Entry]
    failed: list[str]


# A plain function runs in a thread of its own, so it may block. `max_concurrency` counts over all hosts together:
# start the same module on ten machines, and there are still at most eight of these at once.
# Records are kept for a week, 1,000 a job; here each file's record is its entry in the index, so there may be more.
@files.job(max_concurrency=8, max_attempts=3, timeout="30s", retention=JobRetention(max_per_job=100_000))
def index_file(ctx: JobContext, file: SourceFile) -> Entry:
    """Hash one file, count its lines and words."""
    data = Path(file.path).read_bytes()
    ctx.log("read", bytes=len(data))  # stays with the run: `jetjobs runs show ID`
    return Entry(
        path=file.path,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        lines=data.count(b"\n"),
        words=len(data.split()),
    )


# With attempts left, a scan whose host dies is started again elsewhere. That is harmless: see the key below.
# The broker fires the schedule, and one of the hosts takes the tick. A scan that takes longer than 30 s skips one.
@files.job(max_attempts=3, timeout="10m", triggers=[Every("30s", payload={"folder": "."})])
async def scan(ctx: JobContext, where: Folder) -> dict[str, Any]:
    """Trigger one index_file per file, wait for all, and have the report written."""
    found = await asyncio.to_thread(list_files, Path(where.folder))
    runs = [await trigger_index(path, stat) for path, stat in found]
    known = sum(run.duplicate for run in runs)
    ctx.log("triggered", files=len(runs), known=known)

    # Waiting holds the one slot of `scan` and none of `index_file`, so the two can't block each other.
    entries: list[Entry] = []
    failed: list[str] = []
    for done, run in enumerate(runs, start=1):
        record = await run.wait()
        if record.ok:
            entries.append(Entry.model_validate(record.result))
        else:
            failed.append(str(found[done - 1][0]))
        ctx.progress(done, len(runs))

    # Hundreds of entries are more than a message should carry. Nothing to do about it here: large payloads
    # travel beside the message by themselves.
    summary = await report.trigger(Index(folder=where.folder, entries=entries, failed=failed))
    return {"files": len(runs), "indexed": len(runs) - known, "known": known, "report": summary.run_id}


async def trigger_index(path: Path, stat: os.stat_result) -> JobRun[Entry]:
    # The same key is the same run for as long as its record is kept. An unchanged file keeps its key, so its run of
    # last time is handed back and its result is still there; a changed one has another key and is read again.
    key = f"{path}:{stat.st_mtime_ns}:{stat.st_size}"
    return await index_file.trigger(SourceFile(path=str(path), size=stat.st_size), idempotency_key=key)


# Some other service says on a plain NATS subject that a file can't wait for the next scan; it knows nothing of jobs.
# Of all hosts one hears each event, and what the filter keeps out is never stored.
@files.job(timeout="1m", triggers=[OnEvent("files.urgent", filter={"size": {"lte": LARGEST}})])
async def urgent(ctx: JobContext, file: SourceFile) -> Entry:
    """Index one file now."""
    ctx.log("asked by an event", subject=ctx.trigger.event_subject)
    path = Path(file.path)
    run = await trigger_index(path, await asyncio.to_thread(path.stat))
    return await run.result()


@files.job(timeout="1m")
def report(ctx: JobContext, index: Index) -> dict[str, Any]:
    """Write index.json, and return a summary that people can read."""
    by_kind: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for entry in index.entries:
        kind = Path(entry.path).suffix or "(none)"
        by_kind[kind] += 1
        lines[kind] += entry.lines
    ctx.log("summing up", entries=len(index.entries))
    target = Path(".jetjobs", "index.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(index.model_dump(), indent=1), encoding="utf-8")
    table = [f"{'KIND':<10}{'FILES':>7}{'LINES':>9}"]
    table += [f"{kind:<10}{by_kind[kind]:>7}{count:>9}" for kind, count in lines.most_common(8)]
    table += [f"{'total':<10}{len(index.entries):>7}{lines.total():>9}"]
    copies = len(index.entries) - len({entry.sha256 for entry in index.entries})
    table += [f"{copies} copies of others, {len(index.failed)} not readable; all of it in {target}"]
    return {"text": "\n".join(table), "files": len(index.entries), "lines": lines.total(), "failed": index.failed}


# Every night at three, summer and winter. If no host is up then, the first one back does it, unless an hour has passed.
@files.job(timeout="1m", triggers=[Cron("0 3 * * *", timezone="Europe/Paris")])
def nightly(ctx: JobContext) -> dict[str, Any]:
    """Write the largest files of the last index into a report of the day."""
    source = Path(".jetjobs", "index.json")
    if not source.exists():
        ctx.skip("nothing was indexed yet")
    index = Index.model_validate_json(source.read_bytes())
    largest = sorted(index.entries, key=lambda entry: entry.size, reverse=True)[:10]
    day = (ctx.trigger.scheduled_for or datetime.now(UTC)).date()  # without one it was asked for by hand
    target = source.with_name(f"largest-{day}.txt")
    target.write_text("".join(f"{entry.size:>9} {entry.path}\n" for entry in largest), encoding="utf-8")
    return {"report": str(target), "files": len(index.entries)}


# ------------------------------------------------------------------ ordinary code, nothing of jobs in it


def list_files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The text files of a folder with their stat: what git knows, else everything that isn't hidden or built."""
    wanted: list[tuple[Path, os.stat_result]] = []
    for path in sorted(_git_files(folder) or _all_files(folder)):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            if stat.st_size <= LARGEST and not _is_binary(path):
                wanted.append((path, stat))
    return wanted


def _git_files(folder: Path) -> list[Path]:
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):  # no git here, or not a repository
        return []
    return [folder / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _all_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
        found += [Path(where, name) for name in names if not name.startswith(".")]
    return found


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(8192)
