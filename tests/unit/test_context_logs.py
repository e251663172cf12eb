"""What a handler logs: kept as a record can hold it, however much, odd or fast."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from jetjobs._core import codec, wire
from jetjobs._core.models import LogLine, RunRecord, RunStatus
from jetjobs._journal import MAX_LOG_BYTES
from jetjobs.context import Journal
from tests.support.handler_contexts import NOON, make


def test_log_writes_to_record_and_structlog() -> None:
    journal = Journal()
    with capture_logs() as lines:
        make(journal).log("sending", level="warning", invoice=7, event="mine")
    assert journal.logs == [LogLine(NOON, "warning", "sending", {"invoice": 7, "event": "mine"})]
    assert journal.changed
    assert lines == [
        {
            "event": "sending",
            "log_level": "warning",
            "invoice": 7,
            "event_": "mine",
            "module": "billing",
            "job": "send",
            "run_id": "r1",
            "attempt": 2,
        }
    ]


def test_fields_named_like_the_contexts_own_are_no_error() -> None:
    journal = Journal()
    with capture_logs() as lines:
        make(journal).log("x", message="m", job="other", run_id=1, self=2)
    assert journal.logs[0].fields == {"message": "m", "job": "other", "run_id": 1, "self": 2}
    assert lines[0]["self_"] == 2


def test_the_logger_does_not_write_to_the_record() -> None:
    journal = Journal()
    ctx = make(journal)
    with capture_logs() as lines:
        ctx.logger.info("quietly", a=1)
    assert ctx.logger is ctx.logger
    assert journal.logs == []
    assert lines[0]["event"] == "quietly"
    assert lines[0]["run_id"] == "r1"


@pytest.mark.parametrize(
    "level, kept", [("info", "info"), ("WARN", "warning"), ("Error", "error"), ("debug", "debug"), ("loud", "info")]
)
def test_levels(level: str, kept: str) -> None:
    journal = Journal()
    with capture_logs() as lines:
        make(journal).log("x", level=level)
    assert journal.logs[0].level == lines[0]["log_level"] == kept


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Open:
    def __repr__(self) -> str:
        return "open" * 1000


@pytest.mark.parametrize(
    "value, kept",
    [
        (None, None),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (10**30, str(10**30)),
        ("x" * 5000, "x" * 2047 + "…"),
        ([1, {"a": NOON}], [1, {"a": NOON.isoformat()}]),
        (b"\x00", "base64:AA=="),
        ([Decimal("1.5"), {2}, date(2026, 3, 1)], ["1.5", [2], "2026-03-01"]),
        ("\ud800", "\\ud800"),
        ((1, 2), [1, 2]),
        (RunStatus.FAILED, "FAILED"),
        (Hostile(), "<Hostile without a repr>"),
        (Open(), "open" * 511 + "ope…"),
        (list(range(5000)), str(list(range(5000)))[:2047] + "…"),
        (ValueError("x"), "ValueError('x')"),
    ],
)
def test_field_values_are_kept_or_shown(value: Any, kept: Any) -> None:
    journal = Journal()
    with capture_logs():
        make(journal).log("x", value=value)
    assert journal.logs[0].fields == {"value": kept}
    wire.pack_record(RunRecord("r", "m", "j", RunStatus.RUNNING, logs=tuple(journal.logs)))


def test_a_cycle_is_no_error() -> None:
    journal = Journal()
    cycle: list[Any] = []
    cycle.append(cycle)
    with capture_logs():
        make(journal).log("x", cycle=cycle)
    assert journal.logs[0].fields == {"cycle": "[[...]]"}


def test_what_was_logged_does_not_change_later() -> None:
    journal = Journal()
    values = [1]
    with capture_logs():
        make(journal).log("x", values=values)
    values.append(2)
    assert journal.logs[0].fields == {"values": [1]}


def test_a_message_need_not_be_a_text_nor_short() -> None:
    journal = Journal()
    with capture_logs():
        make(journal).log(ValueError("x"))  # pyright: ignore[reportArgumentType]
        numbered: dict[str, Any] = {f"f{n}": n for n in range(50)}
        make(journal).log("y" * 10_000, **numbered)
    assert journal.logs[0].message == "ValueError('x')"
    assert len(journal.logs[1].message) == 8192
    assert len(journal.logs[1].fields) == 32


def test_of_many_lines_the_first_and_the_last_are_kept_with_a_mark_between() -> None:
    journal = Journal()
    for number in range(5000):
        journal.add(LogLine(NOON + timedelta(seconds=number), "info", f"line {number}"))
    logs = journal.logs
    assert len(logs) == 1000
    assert [line.message for line in logs[:50]] == [f"line {number}" for number in range(50)]
    assert logs[50] == LogLine(logs[51].at, "warning", "… 4001 lines cut …")
    assert [line.message for line in logs[51:]] == [f"line {number}" for number in range(4051, 5000)]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 8192), st.integers(0, 3)), max_size=1200))
def test_logs_are_bounded_and_in_order_whatever_their_size(sizes: list[tuple[int, int]]) -> None:
    journal = Journal()
    for number, (size, fields) in enumerate(sizes):
        named = {f"f{n}": "v" * 100 for n in range(fields)}
        journal.add(LogLine(NOON + timedelta(seconds=number), "info", "x" * size, named))
    logs = journal.logs
    assert len(logs) <= 1000
    assert [line.at for line in logs] == sorted(line.at for line in logs)
    packed = codec.encode([[line.level, line.message, dict(line.fields)] for line in logs])
    assert len(packed) <= MAX_LOG_BYTES + 50 * 8192
    cut = [line for line in logs if line.message.endswith("lines cut …")]
    lost = int(cut[0].message.split()[1]) if cut else 0
    assert len(logs) - len(cut) + lost == len(sizes)


def test_wide_characters_count_by_their_bytes() -> None:
    journal = Journal()
    for _ in range(200):
        journal.add(LogLine(NOON, "info", "本" * 2000, {"ü": "ü" * 100, "n": 1}))
    assert sum(len(line.message.encode()) for line in journal.logs) < MAX_LOG_BYTES + 50 * 8192


def test_threads_may_log_while_the_heartbeat_reads() -> None:
    journal = Journal()
    ready = threading.Barrier(5)

    def write() -> None:
        ready.wait()
        for number in range(2000):
            journal.add(LogLine(NOON, "info", str(number)))

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    ready.wait()
    while any(writer.is_alive() for writer in writers):
        assert len(journal.logs) <= 1010
    for writer in writers:
        writer.join()
    assert journal.logs[-1].message == "1999"
