from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.bodies import Body
from jetjobs._core.headers import read_trigger
from jetjobs._core.messages import Message, Trigger
from jetjobs._core.misfits import PARKED_FOR, SPACING, next_return, parked_message, verdict_on
from jetjobs._core.models import Owner, RunKey, RunRecord, RunStatus, TriggerInfo

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUN = RunKey("shop", "order", "r1")


def trigger(schema: str | None = "theirs", deadline: datetime | None = None) -> Trigger:
    return Trigger(RUN, Body(b"\x80"), 5, NOW - HOUR, 1, payload_schema=schema, start_deadline=deadline)


THIS = Owner(5, NOW - HOUR, 1, "theirs")


def record(status: RunStatus, expires_at: datetime | None = NOW + HOUR, **fields: Any) -> RunRecord:
    given = {"run_id": "r1", "module": "shop", "job": "order", "created_at": NOW - HOUR, "owner": THIS, **fields}
    return RunRecord.of(status=status, expires_at=expires_at, **given)


@pytest.mark.parametrize("schema", [None, "mine"])
@pytest.mark.parametrize("status", [None, RunStatus.RETRYING, RunStatus.RUNNING])
def test_a_payload_of_this_release_that_is_wrong_fails(schema: str | None, status: RunStatus | None):
    known = None if status is None else record(status)
    assert verdict_on(trigger(schema), known, schema="mine", expires_at=NOW + HOUR, now=NOW) == "fail"


@pytest.mark.parametrize(
    "deadline, expires_at, verdict",
    [
        (None, NOW + HOUR, "park"),
        (None, NOW, "fail"),
        (NOW + HOUR, NOW + HOUR, "park"),
        (NOW + HOUR, NOW - HOUR, "fail"),
        (NOW, NOW + HOUR, "fail"),
    ],
)
def test_another_releases_payload_waits_until_its_start_deadline_or_its_expiry(
    deadline: datetime | None, expires_at: datetime, verdict: str
):
    assert verdict_on(trigger(deadline=deadline), None, schema=None, expires_at=expires_at, now=NOW) == verdict


@pytest.mark.parametrize(
    "known, verdict",
    [
        (record(RunStatus.RETRYING), "park"),
        (record(RunStatus.RUNNING, starts=1, max_attempts=2), "leave"),
        (record(RunStatus.RUNNING, starts=1, max_attempts=1), "fail"),
        (record(RunStatus.RUNNING, starts=3, snoozes=1, interruptions=1, max_attempts=2), "leave"),
        (record(RunStatus.SUCCEEDED), "fail"),
        (record(RunStatus.RETRYING, NOW), "fail"),
        (record(RunStatus.RUNNING, NOW), "fail"),
        (record(RunStatus.RETRYING, None), "park"),
        (record(RunStatus.RUNNING, owner=Owner(6, NOW - HOUR, 1, "theirs")), "fail"),
        (record(RunStatus.RUNNING, owner=None), "fail"),
        (record(RunStatus.RUNNING, cancel_asked=True), "fail"),
        (record(RunStatus.RETRYING, turn=2), "fail"),
    ],
)
def test_what_has_begun_waits_until_it_expires(known: RunRecord, verdict: str):
    """A retry comes again; a RUNNING run's own message is nobody's to retire, and on a last attempt starts nothing."""
    given = trigger(deadline=NOW - HOUR)
    assert verdict_on(given, known, schema="mine", expires_at=NOW + HOUR, now=NOW) == verdict


@given(st.lists(st.timedeltas(timedelta(0), timedelta(seconds=3)), min_size=1, max_size=50))
def test_what_is_parked_comes_back_later_and_not_all_at_once(gaps: list[timedelta]):
    now, last, returns = NOW, None, list[datetime]()
    for gap in gaps:
        now += gap
        last = next_return(last, now)
        assert last >= now + PARKED_FOR
        returns.append(last)
    assert all(later - sooner >= SPACING for sooner, later in pairwise(returns) if later > sooner)
    assert returns == sorted(returns)


def test_a_parked_trigger_comes_back_as_it_was():
    before = Trigger(
        RUN,
        Body(b"\x81\xa1n\x01"),
        5,
        NOW - HOUR,
        3,
        turn=2,
        info=TriggerInfo("child", parent_run_id="p"),
        idempotency_key="k",
        scheduled_for=NOW,
        start_deadline=NOW + HOUR,
        expires_in=timedelta(days=7),
        payload_schema="theirs",
        traceparent="00-x",
    )
    parked = parked_message("shop", before, NOW + PARKED_FOR, expires_at=NOW + 7 * HOUR)
    fired = {name: value for name, value in parked.headers.items() if not name.startswith("Nats-")}
    subject = parked.headers["Nats-Schedule-Target"]
    after = read_trigger("shop", Message(subject, fired, parked.data, 9, NOW + PARKED_FOR, num_delivered=1))
    assert isinstance(after, Trigger)
    for name in ("key", "body", "turn", "info", "idempotency_key", "scheduled_for", "start_deadline", "payload_schema"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.expires_at, after.expires_in, after.traceparent) == (NOW + 7 * HOUR, None, "00-x")
    assert parked.subject.endswith(".run.r1.2")
