"""Hypothesis strategies for the core's values, and plain examples to start a test from."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st

from jetjobs._core.bodies import Body
from jetjobs._core.completion import (
    Cancelled,
    CompletionRules,
    Ending,
    Raised,
    Returned,
    ShutDown,
    Skipped,
    Snoozed,
    TimedOut,
)
from jetjobs._core.delivery import DeliveryRules, Situation
from jetjobs._core.messages import Trigger
from jetjobs._core.models import Owner, RunError, RunKey, RunRecord, RunStatus
from jetjobs._core.policy import Backoff, JobPolicy

NOW: Final = datetime(2030, 5, 1, 12, tzinfo=UTC)
ACK_WAIT: Final = timedelta(seconds=30)
KEY: Final = RunKey("billing", "send", "r1")
BOOM: Final = RunError("ValueError", "boom", "Traceback …")
LONG_AGO: Final = timedelta(days=1)
TERMINAL: Final = tuple(status for status in RunStatus if status.is_terminal)


def trigger(sequence: int = 7, n: int = 1, turn: int = 1, **changes: Any) -> Trigger:
    """A trigger message of the run, stored just now."""
    plain = Trigger(KEY, Body(b"\xa1x"), sequence=sequence, stored_at=NOW, num_delivered=n, turn=turn)
    return replace(plain, **changes)


def owner(sequence: int = 7, n: int = 1, host: str = "other") -> Owner:
    """The delivery of `trigger()` as another host got it."""
    return Owner(sequence, NOW, n, host)


def record(status: RunStatus = RunStatus.RUNNING, **changes: Any) -> RunRecord:
    """The record of a run that another host started just now, with three attempts."""
    plain = RunRecord(
        run_id=KEY.run_id,
        module=KEY.module,
        job=KEY.job,
        status=status,
        max_attempts=3,
        starts=1,
        claim="theirs",
        owner=owner(),
        host_id="other",
        created_at=NOW,
        started_at=NOW,
        heartbeat_at=NOW,
        expires_at=NOW + timedelta(days=7),
        retry_at=NOW if status is RunStatus.RETRYING else None,
    )
    return replace(plain, **changes)


def sound(made: RunRecord) -> RunRecord:
    """The record, whose every value must be of a field it has: changes are made unchecked, for speed."""
    assert set(vars(made)) <= {field.name for field in fields(RunRecord)}
    return made


def rules(**policy: Any) -> DeliveryRules:
    """How this host judges deliveries."""
    return DeliveryRules("me", JobPolicy(**policy), ACK_WAIT, version="2.0")


def knows(*, holds: bool | None = None, connected: timedelta = LONG_AGO) -> Situation:
    """What this host knows besides record and message."""
    return Situation("mine", connected, "digest", owner_holds=holds)


def completion(roll: float = 0.5, **policy: Any) -> CompletionRules:
    """How this host settles attempts."""
    return CompletionRules("me", JobPolicy(**policy), roll)


# Whole records are slow to draw, and all unit tests together have five seconds.
brief = settings(max_examples=50)

instants = st.integers(-86_400 * 10, 86_400 * 10).map(lambda seconds: NOW + timedelta(seconds=seconds))
spans = st.integers(0, 86_400 * 2).map(lambda seconds: timedelta(seconds=seconds))
rolls = st.floats(0, 1, exclude_max=True)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    """Backoffs from nothing to a day, gentle and steep."""
    base = draw(st.integers(0, 3_600_000))
    cap = draw(st.integers(max(base, 1), 86_400_000))
    factor = draw(st.sampled_from((1.0, 1.1, 1.5, 2.0, 3.0, 1e6)))
    return Backoff(
        timedelta(milliseconds=base), factor=factor, cap=timedelta(milliseconds=cap), jitter=draw(st.floats(0, 1))
    )


@st.composite
def policies(draw: st.DrawFn, most_attempts: int = 5) -> JobPolicy:
    """Policies that differ in what the core looks at."""
    return JobPolicy(
        max_attempts=draw(st.integers(1, most_attempts)),
        timeout=draw(st.sampled_from((None, "1s", "1h"))),
        backoff=draw(backoffs()),
        on_shutdown=draw(st.sampled_from(("retry", "retry", "fail"))),
        expires_in=draw(st.sampled_from((None, "1h", "3d"))),
    )


@st.composite
def records(draw: st.DrawFn, statuses: tuple[RunStatus, ...] = tuple(RunStatus)[2:]) -> RunRecord:
    """Records of any status, consistent in their counters, owned by this host, another one or nobody."""
    most = draw(st.integers(1, 4))
    status = draw(st.sampled_from(statuses))
    attempt = draw(st.integers(1, most if status is not RunStatus.RETRYING else max(most - 1, 1)))
    snoozes, interruptions = draw(st.integers(0, 3)), draw(st.integers(0, 10))
    seen = draw(st.none() | instants)
    return record(
        status,
        max_attempts=most,
        starts=attempt + snoozes + interruptions,
        snoozes=snoozes,
        interruptions=interruptions,
        turn=draw(st.integers(1, 4)),
        owner=draw(
            st.none() | st.builds(owner, st.integers(7, 8), st.integers(1, 3), st.sampled_from(("me", "other")))
        ),
        cancel_asked=draw(st.booleans()) if status is not RunStatus.RETRYING else False,
        expires_at=draw(st.none() | instants),
        started_at=seen,
        heartbeat_at=draw(st.none() | st.just(seen)),
        error=draw(st.none() | st.just(BOOM)),
    )


triggers = st.builds(
    trigger,
    st.integers(7, 8),
    st.integers(1, 4),
    st.integers(1, 5),
    start_deadline=st.none() | instants,
    expires_at=st.none() | instants,
    expires_in=st.none() | spans,
)
situations = st.builds(
    knows,
    holds=st.sampled_from((None, True, False)),
    connected=st.sampled_from((timedelta(0), ACK_WAIT, LONG_AGO)),
)
errors = st.sampled_from((BOOM, RunError("OSError")))
endings: st.SearchStrategy[Ending] = st.one_of(
    st.builds(Returned, st.none() | st.just(Body(b"\x01")), st.booleans()),
    st.builds(Raised, errors, st.booleans(), st.none() | spans),
    st.builds(TimedOut, errors),
    st.builds(Skipped, st.text(max_size=5)),
    st.builds(Snoozed, spans),
    st.builds(ShutDown, errors),
    st.just(Cancelled()),
)
