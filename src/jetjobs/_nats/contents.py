"""What a stream holds, told from its state and its subjects: no message is read where none need be.

All of it is answered by the stream's leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final

from jetjobs._core import names
from jetjobs._core.models import RunKey
from jetjobs._nats.faults import NotFound
from jetjobs._nats.link import Link
from jetjobs._ports import Holding

# Listing a subject costs server and client a hundredth of what asking for a message does.
_LIST_RATHER: Final = 100

_TIMEOUT: Final = 10.0


async def holding(link: Link, stream: str) -> Holding:
    """How much a stream holds, and the sequence of its last write."""
    state = await _state(link, stream)
    return Holding(state["messages"], state["last_seq"])


async def subject_pages(link: Link, stream: str, pattern: str) -> AsyncGenerator[list[str], None]:
    """The subjects under a pattern that have a message, up to 100,000 at a time.

    What is removed while this goes on may make it miss others.
    """
    offset, total = 0, 1
    while offset < total:
        answer = await _info(link, stream, {"subjects_filter": pattern, "offset": offset})
        page: list[str] = list(answer["state"].get("subjects") or ())
        if not page:
            return
        offset, total = offset + len(page), answer.get("total", 0)
        yield page


async def runs_in_stream(link: Link, project: str, runs: Sequence[RunKey]) -> set[RunKey]:
    """Those of the runs with a message on a trigger or schedule subject of their own."""
    if not runs:
        return set()
    stream = names.stream(project)
    if (await _state(link, stream)).get("num_subjects", 0) <= _LIST_RATHER * len(runs):
        # One answer is one instant: a message that becomes another one meanwhile can't be missed.
        answer = await _info(link, stream, {"subjects_filter": ">"})
        subjects = answer["state"].get("subjects") or ()
        if len(subjects) == answer.get("total", 0):
            return set(_named(project, runs, subjects))
    there = await asyncio.gather(*(_has_message(link, project, run) for run in runs))
    return {run for run, has in zip(runs, there, strict=True) if has}


def _named(project: str, runs: Sequence[RunKey], subjects: Iterable[str]) -> list[RunKey]:
    stored = set(subjects)
    stored.update([subject.rpartition(".")[0] for subject in subjects])  # a schedule's without its turn
    return [
        run
        for run in runs
        if names.trigger_subject(project, run) in stored
        or names.run_schedules(project, run).removesuffix(".*") in stored
    ]


async def _has_message(link: Link, project: str, run: RunKey) -> bool:
    for subject in names.run_places(project, run):
        try:
            wanted = {"last_by_subj": subject}
            await link.ask_stream("STREAM.MSG.GET", names.stream(project), wanted, about=subject, timeout=_TIMEOUT)
        except NotFound:
            continue
        else:
            return True
    return False


async def _state(link: Link, stream: str) -> dict[str, Any]:
    return (await _info(link, stream, None))["state"]


async def _info(link: Link, stream: str, wanted: dict[str, Any] | None) -> dict[str, Any]:
    return await link.ask_stream("STREAM.INFO", stream, wanted, about=stream, timeout=_TIMEOUT)
