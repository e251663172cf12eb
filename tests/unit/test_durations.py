from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.durations import duration, format_duration, instant, optional_duration
from jetjobs.errors import ConfigError


@pytest.mark.parametrize(
    "written,seconds",
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5h", 5400),
        (" 30s ", 30),
        ("0s", 0),
        (30, 30),
        (0.25, 0.25),
        (0, 0),
        (timedelta(minutes=2), 120),
    ],
)
def test_spans(written: object, seconds: float) -> None:
    assert duration(written, "timeout") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    [
        True,
        False,
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        1e300,
        10**400,
        "",
        "30",
        "s",
        "-5s",
        "5 s",
        "1m1h",
        "5S",
        "1w",
        "forever",
        "٣s",
        "999999999999999d",
        "1s" * 1000,
        None,
        b"5s",
        [5],
    ],
)
def test_what_is_no_span_names_the_setting_and_what_to_write(written: object) -> None:
    with pytest.raises(ConfigError, match=r"^ack_wait: .*30s") as caught:
        duration(written, "ack_wait")
    assert len(str(caught.value)) < 300


def test_none_stays_none_only_where_it_may() -> None:
    assert optional_duration(None, "timeout") is None
    assert optional_duration("1s", "timeout") == timedelta(seconds=1)


@given(st.timedeltas(min_value=timedelta(0)))
def test_what_is_formatted_is_read_back(span: timedelta) -> None:
    assert duration(format_duration(span), "x") == span


@pytest.mark.parametrize(
    "span,text",
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=2, milliseconds=5), "2d5ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=1), "0.001ms"),
        (timedelta(seconds=-30), "-30s"),
    ],
)
def test_format(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_an_aware_instant_is_kept_in_utc(at: datetime) -> None:
    found = instant(at, "at")
    assert found == at.astimezone(UTC)
    assert found.tzinfo is UTC


@pytest.mark.parametrize("epoch", [0, 1_700_000_000, 1_700_000_000.25, -1])
def test_epoch_seconds(epoch: float) -> None:
    assert instant(epoch, "at") == datetime.fromtimestamp(epoch, UTC)


@pytest.mark.parametrize(
    "written",
    [
        datetime(2026, 3, 1),  # noqa: DTZ001
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        1_700_000_000_000,
        float("nan"),
        1e300,
        10**400,
        True,
        "2026-03-01",
        None,
    ],
)
def test_what_is_no_instant_is_refused(written: Any) -> None:
    with pytest.raises(ConfigError, match=r"^at: "):
        instant(written, "at")
