from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetjobs._core.models import LogLine
from jetjobs.cli.failures import Mistake
from jetjobs.cli.options import Parser
from jetjobs.cli.run_filters import add_filters, filters_of
from jetjobs.cli.run_watching import unseen

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def filters(*words: str) -> dict[str, Any]:
    parser = Parser()
    add_filters(parser)
    return filters_of(parser.parse_args(words), NOW)


def test_what_is_left_out_is_no_filter():
    assert filters() == {}
    assert filters("--include-skipped") == {"include_skipped": True}


def test_each_filter():
    assert filters("--job", "billing.invoices.send") == {"module": "billing.invoices", "job": "send"}
    assert filters("--module", "billing", "--job", "send") == {"module": "billing", "job": "send"}
    assert filters("--status", "failed,missed", "--status", "Skipped") == {"status": ["failed", "missed", "Skipped"]}
    assert filters("--since", "1h", "--until", "2029-12-31T23:30Z") == {
        "since": NOW - timedelta(hours=1),
        "until": NOW - timedelta(minutes=30),
    }
    assert filters("--schedule", "a.b/cron", "--error-type", "KeyError", "--text", "x") == {
        "schedule": "a.b/cron",
        "error_type": "KeyError",
        "text": "x",
    }


def test_an_instant_that_is_none_is_told():
    with pytest.raises(Mistake, match="--since"):
        filters("--since", "yesterday")


def lines(*numbers: int) -> list[LogLine]:
    return [LogLine(NOW + timedelta(seconds=n), "info", str(n)) for n in numbers]


def test_each_line_of_a_log_is_printed_once_also_when_the_oldest_were_cut():
    assert unseen([], lines(1, 2)) == lines(1, 2)
    assert unseen(lines(1, 2), lines(1, 2, 3)) == lines(3)
    assert unseen(lines(1, 2), lines(1, 2)) == []
    assert unseen(lines(1, 2), lines(5, 6)) == lines(5, 6)
    assert unseen(lines(1, 5), [*lines(4), *lines(6)]) == lines(6)
