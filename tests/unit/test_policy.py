from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.models import TriggerKind
from jetjobs._core.policy import Backoff, JobPolicy, JobRetention, check_age
from jetjobs.errors import ConfigError
from jetjobs.outcomes import JobInterrupted, Skip


def test_the_defaults_are_those_of_the_design() -> None:
    policy = JobPolicy()
    assert policy.max_concurrency == 1
    assert policy.timeout is None
    assert policy.max_attempts == 1
    assert policy.backoff == Backoff(base="1s", factor=2, cap="5m", jitter=0.1)
    assert policy.retry_on == (Exception,)
    assert policy.discard_on == ()
    assert policy.drain is None
    assert policy.on_shutdown == "retry"
    assert policy.isolation == "thread"
    assert policy.retention is None
    assert policy.redact == policy.aliases == ()


@pytest.mark.parametrize("written", ["2m", 120, 120.0, timedelta(minutes=2)])
def test_durations_are_kept_as_timedelta(written: Any) -> None:
    policy = JobPolicy(timeout=written, drain=written, expires_in=written, backoff=Backoff(written))
    kept = [policy.timeout, policy.drain, policy.expires_in, policy.backoff.base]
    assert kept == [timedelta(minutes=2)] * 4


def test_a_drain_of_nothing_is_one_and_a_timeout_of_nothing_is_none() -> None:
    assert JobPolicy(drain=0).drain == timedelta()
    with pytest.raises(ConfigError, match="timeout must be more than 0, not 0"):
        JobPolicy(timeout=0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_concurrency": 0}, "max_concurrency must be a whole number, 1 or more, not 0"),
        ({"max_concurrency": -3}, "max_concurrency must be a whole number, 1 or more, not -3"),
        ({"max_concurrency": True}, "max_concurrency must be a whole number, 1 or more, not True"),
        ({"max_concurrency": 2.0}, "max_concurrency must be a whole number, 1 or more, not 2.0"),
        ({"max_attempts": 0}, "max_attempts must be a whole number, 1 or more, not 0"),
        ({"max_attempts": False}, "max_attempts must be"),
        ({"timeout": -1}, "timeout: -1 is negative"),
        ({"timeout": True}, "timeout: True is not a duration"),
        ({"timeout": "5"}, "timeout: '5' is not a duration"),
        ({"drain": "soon"}, "drain: 'soon' is not a duration"),
        ({"on_shutdown": "wait"}, "on_shutdown must be 'retry' or 'fail', not 'wait'"),
        ({"isolation": "fibre"}, "isolation must be 'thread' or 'process', not 'fibre'"),
        ({"isolation": None}, "isolation must be 'thread' or 'process', not None"),
        ({"backoff": "1s"}, "backoff must be a Backoff, not '1s'; write Backoff"),
        ({"retention": "1d"}, "retention must be a JobRetention, not '1d'; write JobRetention"),
        ({"retry_on": ("ValueError",)}, "retry_on must hold exception classes, not 'ValueError'; write retry_on="),
        ({"retry_on": ValueError("x")}, "retry_on must hold exception classes, not ValueError"),
        ({"discard_on": (int,)}, "discard_on must hold exception classes, not <class 'int'>"),
        ({"retry_on": (Skip,)}, "retry_on can't hold Skip: the handler raises it to decide itself"),
        ({"discard_on": (JobInterrupted,)}, "discard_on can't hold JobInterrupted"),
        ({"retry_on": (KeyboardInterrupt,)}, "retry_on can't hold KeyboardInterrupt: it ends the process"),
        ({"retry_on": (BaseException,)}, "retry_on can't hold BaseException"),
        ({"redact": "card"}, "redact must be several texts, not 'card'; write redact="),
        ({"redact": ("card", "")}, "redact must hold texts that aren't empty, not ''"),
        ({"redact": 5}, "redact must be several texts, not 5"),
        ({"aliases": (3,)}, "aliases must hold texts that aren't empty, not 3"),
        ({"expires_in": {"evnt": "1h"}}, "expires_in: 'evnt' is no kind of trigger; there are manual, cron"),
        ({"expires_in": {"event": "soon"}}, r"expires_in\['event'\]: 'soon' is not a duration"),
        ({"expires_in": 0}, "expires_in must be more than 0"),
        ({"max_retries": 3}, "max_retries is no policy of a job; there are max_concurrency, timeout"),
        ({"retries": 3}, r"did you mean max_attempts\?"),
        ({"max_concurency": 3}, r"did you mean max_concurrency\?"),
        ({"cron": "* * * * *"}, "aliases$"),
    ],
)
def test_what_a_policy_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JobPolicy(**options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"base": "10m"}, "backoff cap 0:05:00 is shorter than base 0:10:00"),
        ({"cap": 0, "base": 0}, "backoff cap must be more than 0"),
        ({"factor": 0.5}, "backoff factor must be 1 or more, not 0.5"),
        ({"factor": True}, "backoff factor must be a number, not True"),
        ({"factor": float("nan")}, "backoff factor must be a number, not nan"),
        ({"jitter": 1.5}, "backoff jitter must be from 0 to 1, not 1.5"),
        ({"jitter": "10%"}, "backoff jitter must be a number, not '10%'"),
    ],
)
def test_what_a_backoff_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Backoff(**options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"finished": 0}, "retention finished must be more than 0"),
        ({"max_per_job": 0}, "retention max_per_job must be a whole number"),
        ({"max_deletes": True}, "retention max_deletes must be a whole number"),
        ({"keys": -1}, "retention keys: -1 is negative"),
    ],
)
def test_what_a_retention_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JobRetention(**options)


def test_retention_defaults() -> None:
    kept = JobRetention()
    assert (kept.skipped, kept.finished, kept.keys) == (timedelta(hours=1), timedelta(days=7), timedelta(days=7))
    assert (kept.max_per_job, kept.max_deletes, kept.min_age) == (1000, 200, timedelta(minutes=10))


def test_expiry_depends_on_what_asked() -> None:
    assert JobPolicy().expiry("manual") == JobPolicy().expiry("cron") == timedelta(days=7)
    assert JobPolicy().expiry("event") == timedelta(hours=24)
    assert JobPolicy(expires_in="1h").expiry("event") == timedelta(hours=1)
    by_kind = JobPolicy(expires_in={"event": "2h"})
    assert by_kind.expiry("event") == timedelta(hours=2)
    assert by_kind.expiry("delayed") == timedelta(days=7)


def test_a_run_must_not_outlive_its_message() -> None:
    day = timedelta(days=1)
    at_most = 30 * day - timedelta(hours=1)
    assert JobPolicy(expires_in=at_most - day, timeout=day).timeout == day
    with pytest.raises(
        ConfigError, match=r"expires_in 28 days, 23:00:00 \+ timeout 1 day, 0:00:01 \+ 1 h is over max_age 30"
    ):
        JobPolicy(expires_in=at_most - day, timeout=day + timedelta(seconds=1))
    with pytest.raises(ConfigError, match="max_age 7 days"):
        check_age(JobPolicy(), timedelta(days=7))
    with pytest.raises(ConfigError, match="is over max_age"):
        JobPolicy(expires_in={"event": "40d"})


def test_options_replace_what_they_name() -> None:
    base = JobPolicy(timeout="2m", max_attempts=3, expires_in={"event": "2h"})
    changed = base.with_options({"max_attempts": 5})
    assert (changed.timeout, changed.max_attempts, changed.expiry("event")) == (base.timeout, 5, timedelta(hours=2))
    assert base.with_options({}) is base
    with pytest.raises(ConfigError, match="is over max_age"):
        base.with_options({"timeout": "25d"})


def test_one_exception_class_needs_no_tuple() -> None:
    assert JobPolicy(retry_on=OSError, discard_on=[ValueError]).retry_on == (OSError,)  # pyright: ignore[reportArgumentType]


def test_a_policy_is_frozen() -> None:
    with pytest.raises(AttributeError):
        JobPolicy().timeout = timedelta(1)  # pyright: ignore[reportAttributeAccessIssue]


@given(st.integers(1, 10_000), st.integers(1, 100), st.sampled_from(get_args(TriggerKind)))
def test_every_good_policy_equals_itself_and_bounds_its_runs(concurrency: int, attempts: int, kind: Any) -> None:
    options: dict[str, Any] = {"max_concurrency": concurrency, "max_attempts": attempts, "timeout": attempts}
    policy = JobPolicy(**options)
    assert policy == JobPolicy(**options)
    assert policy.expiry(kind) + timedelta(seconds=attempts) < timedelta(days=30)
