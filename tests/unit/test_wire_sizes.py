"""Records are cut to what the broker takes: the largest texts and the oldest lines first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from jetjobs._core import texts, wire
from jetjobs._core.bodies import Body
from jetjobs._core.models import Attempt, LogLine, Progress, RunError, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.shapes import pack
from jetjobs.context import Journal
from tests.support.handler_contexts import make

AT = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
LIMIT = 512 * 1024
PLAIN = RunRecord("01abc", "billing", "send", RunStatus.RUNNING)


def said(message: str, /, **fields: Any) -> LogLine:
    journal = Journal()
    with capture_logs():
        make(journal).log(message, **fields)
    return journal.logs[0]


def lines(count: int, size: int) -> tuple[LogLine, ...]:
    return tuple(LogLine(AT, "info", f"{number:06}" + "x" * size) for number in range(count))


class TestFits:
    def test_small_servers_get_short_errors_before_anything_a_run_needs_goes(self) -> None:
        error = RunError("E", "m" * 8000, "t" * 30_000)
        attempts = tuple(Attempt(number, "h", AT, AT, "FAILED", error) for number in range(1, 21))
        body = Body(b"\xc5\x3f\xfd" + b"x" * 16_381)
        said = Progress(1, 2, "\U0001f600" * 2048)
        record = replace(PLAIN, attempts=attempts, error=error, payload_body=body, result_body=body, progress=said)
        back = wire.unpack_record(wire.pack_record(record, 55_900))
        assert (back.payload_body, back.result_body) == (body, body)
        assert back.error is not None
        assert back.error.message.startswith("mmm")
        assert back.error.traceback.endswith("ttt")
        assert [part.error.message[:3] for part in back.attempts if part.error] == ["mmm"] * 20
        assert back.progress is not None
        assert back.progress.message is not None
        assert "cut, 2048 characters" in back.progress.message
        quiet = replace(record, progress=Progress(1), attempts=(Attempt(1, "h", AT, AT, "LOST"),))
        assert wire.unpack_record(wire.pack_record(quiet, 36_000)).result_body == body

    def test_a_small_record_is_left_as_it_is(self) -> None:
        assert wire.fit_record(PLAIN) is PLAIN

    def test_logs_go_first_and_the_newest_stay(self) -> None:
        record = replace(PLAIN, logs=lines(1000, 1000), error=RunError("E", "m" * 8000, "t" * 30_000))
        back = wire.unpack_record(wire.pack_record(record))
        assert back.error == record.error
        assert back.logs[-1] == record.logs[-1]
        assert 300 < len(back.logs) < 500
        gone = 1000 - (len(back.logs) - 1)
        assert back.logs[0].message == f"… [cut, {gone} older lines]"
        assert back.logs[1] == record.logs[gone]

    def test_then_the_texts_of_errors(self) -> None:
        error = RunError("E", "m" * 8000, "t" * 300_000)
        record = replace(PLAIN, error=error, attempts=(Attempt(1, "h", AT, AT, "FAILED", error),) * 30)
        back = wire.unpack_record(wire.pack_record(record))
        assert back.error is not None
        assert back.error.message.startswith("mmm")
        assert back.error.traceback.startswith("[cut, 300000 characters]")
        assert len(back.attempts) == 20
        assert back.attempts[0].error == back.error

    def test_then_the_checkpoint(self) -> None:
        record = replace(PLAIN, checkpoint_body=Body(b"x" * 600_000), payload_body=Body(b"p"))
        back = wire.unpack_record(wire.pack_record(record))
        assert back == replace(PLAIN, payload_body=Body(b"p"))

    def test_in_the_end_whatever_it_takes(self) -> None:
        record = replace(PLAIN, key="k" * 600_000, result_body=Body(b"x" * 600_000), extra={"later": "x" * 600_000})
        back = wire.unpack_record(wire.pack_record(record))
        assert back.run_key == PLAIN.run_key
        assert back.status is PLAIN.status
        assert back.key is not None
        assert back.key.endswith("… [cut, 600000 characters]")

    @given(
        st.integers(0, 3000),
        st.integers(0, 5000),
        st.integers(0, 700_000),
        st.integers(0, 700_000),
        st.integers(0, 25),
    )
    def test_any_record_fits(self, count: int, line: int, text: int, body: int, tries: int) -> None:
        error = RunError("E" * text, "é" * text, "t" * text)
        record = replace(
            PLAIN,
            logs=lines(1, line) * count,
            error=error,
            attempts=(Attempt(1, "h", AT, AT, "FAILED", error),) * min(tries, 3),
            checkpoint_body=Body(b"c" * body),
            payload_body=Body(b"p" * text),
            skip_reason="r" * body,
            trigger=TriggerInfo("event", event_subject="s" * body),
        )
        data = wire.pack_record(record)
        assert len(data) <= LIMIT
        assert wire.unpack_record(data).run_key == PLAIN.run_key


class TestTexts:
    @given(st.text(), st.integers(40, 200))
    def test_a_cut_text_keeps_its_limit_and_tells_its_length(self, text: str, limit: int) -> None:
        for cut in (texts.cut, texts.cut_front):
            found = cut(text, limit)
            size = len(found.encode())
            assert size <= limit
            assert (
                found == text.encode("utf-8", "backslashreplace").decode() or f"[cut, {len(text)} characters]" in found
            )

    def test_a_text_keeps_its_beginning_and_a_traceback_its_end(self) -> None:
        assert texts.cut("a" * 50 + "z" * 50, 60).startswith("aaaa")
        assert texts.cut_front("a" * 50 + "z" * 50, 60).endswith("zzzz")
        assert texts.cut("short", 60) == texts.cut_front("short", 60) == "short"
        assert texts.cut("é", 60) == texts.cut_front("é", 60) == "é"

    def test_errors(self) -> None:
        error = texts.run_error("E" * 300, "m" * 3_000_000, "t" * 3_000_000)
        assert (len(error.type.encode()), len(error.message.encode()), len(error.traceback.encode())) == (
            200,
            8192,
            32768,
        )
        assert texts.run_error("ValueError", "no") == RunError("ValueError", "no")

    def test_reasons(self) -> None:
        assert len(texts.reason("r" * 5000).encode()) == 1024


class TestSaidByHandlers:
    """What a context keeps for the record, whatever a handler says."""

    @pytest.mark.parametrize("size", [8192, 8193, 3_000_000])
    def test_a_message(self, size: int) -> None:
        line = said("m" * size)
        assert len(line.message) == 8192
        assert line.message.endswith("…") is (size > 8192)

    @pytest.mark.parametrize(
        "given",
        [
            {"a": "x" * 10_000, "ok": True, "n": None},
            {f"field{number}": "y" * 5000 for number in range(40)},
            {f"field{number}": number for number in range(5000)},
            {"n" * 10_000: 1, "ü" * 10_000: 2},
            {"half": "\ud800"},
            {"\ud800": 1},
            {"huge": 2**70},
            {"deep": [[[["x" * 9000]]]]},
            {"raw": b"x" * 2000},
            {"at": AT, "x": object()},
        ],
    )
    def test_fields(self, given: dict[str, Any]) -> None:
        line = said("m", **given)
        assert 0 < len(line.fields) <= 32
        assert all(len(name) <= 200 and len(pack({"": value})) <= 4096 for name, value in line.fields.items())
        record = replace(PLAIN, logs=(line,))
        assert wire.unpack_record(wire.pack_record(record)).logs == (line,)

    def test_progress(self) -> None:
        journal = Journal()
        make(journal).progress(1, 2, "m" * 5000)
        assert journal.progress == Progress(1, 2, "m" * 2047 + "…")
