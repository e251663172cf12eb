from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.bodies import Body
from jetjobs._core.messages import Trigger
from jetjobs._core.models import JobAddress, Owner, RunKey, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.triggering import (
    AT_ONCE,
    PLAIN,
    Asked,
    Existing,
    Publish,
    Refuse,
    Retry,
    Timing,
    check_options,
    close_names,
    differs,
    is_asked_by,
    judge,
    reschedule_refusal,
    timing,
    waiting_record,
)
from jetjobs.errors import ConfigError, InvalidNameError

NOW = datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)
RECORD = RunRecord("k-1", "billing", "send", RunStatus.RUNNING, payload_digest="same")
spans = st.integers(0, 10**6).map(lambda ms: timedelta(milliseconds=ms))


class TestOptions:
    @pytest.mark.parametrize(
        "asked",
        [
            PLAIN,
            Asked(idempotency_key="a"),
            Asked(idempotency_key="a" * 4096, on_duplicate="retry_failed"),
            Asked(idempotency_key="*.> \r\n", on_duplicate="raise"),
            Asked(delay="1s"),
            Asked(at=0),
        ],
    )
    def test_what_can_be_meant_passes(self, asked: Asked):
        assert check_options(asked) is asked

    @pytest.mark.parametrize("key", ["", 7, b"bytes", "a" * 4097, "\ud800"])
    def test_a_key_is_a_text_that_is_not_empty(self, key: Any):
        with pytest.raises(InvalidNameError):
            check_options(Asked(idempotency_key=key))

    @pytest.mark.parametrize(
        "asked",
        [
            Asked(on_duplicate="raise"),
            Asked(on_duplicate="retry_failed"),
            Asked(idempotency_key="a", on_duplicate="no"),  # pyright: ignore[reportArgumentType]
            Asked(delay="1s", at=NOW),
            Asked(delay=0, at=NOW),
        ],
    )
    def test_contradictions_are_refused(self, asked: Asked):
        with pytest.raises(ConfigError):
            check_options(asked)


class TestTiming:
    def test_without_options_a_run_is_due_at_once(self):
        assert timing(PLAIN, NOW) == AT_ONCE
        assert AT_ONCE.info == TriggerInfo("manual")

    @given(delay=spans, within=spans)
    def test_a_delay_is_due_later_and_its_deadline_counts_from_there(self, delay: timedelta, within: timedelta):
        found = timing(Asked(delay=delay, start_within=within), NOW)
        assert found.due_at == (NOW + delay if delay else None)
        assert found.start_deadline == NOW + delay + within
        assert found.info == TriggerInfo("delayed", scheduled_for=NOW + delay)

    @given(late=spans, within=spans)
    def test_a_past_instant_is_due_now(self, late: timedelta, within: timedelta):
        found = timing(Asked(at=NOW - late, start_within=within), NOW)
        assert found.due_at is None
        assert found.start_deadline == NOW + within
        assert found.delayed

    def test_at_and_delay_mean_the_same_instant(self):
        assert timing(Asked(at=NOW + timedelta(hours=1)), NOW) == timing(Asked(delay="1h"), NOW)

    def test_what_the_run_stands_for_is_the_callers_word(self):
        asked = Asked(delay="1h", scheduled_for=NOW)
        assert timing(asked, NOW).scheduled_for == NOW

    def test_expiry_is_a_span(self):
        assert timing(Asked(expires_in="2m"), NOW) == Timing(expires_in=timedelta(minutes=2))

    @pytest.mark.parametrize(
        "asked",
        [
            Asked(delay="soon"),
            Asked(delay=-1),
            Asked(delay=timedelta.max),
            Asked(delay="100000d"),
            Asked(at=datetime(2262, 1, 1, tzinfo=UTC)),
            Asked(expires_in="11001d"),
            Asked(at=NOW.replace(tzinfo=None)),
            Asked(at=float("nan")),
            Asked(start_within="1 day ago"),
            Asked(start_within=timedelta.max),
            Asked(expires_in=True),
            Asked(scheduled_for=NOW.replace(tzinfo=None)),
        ],
    )
    def test_what_is_no_instant_or_span_is_refused(self, asked: Asked):
        with pytest.raises(ConfigError):
            timing(asked, NOW)


class TestDuplicates:
    def test_nothing_there_is_stored(self):
        for choice in ("return", "raise", "retry_failed"):
            assert judge(None, "same", choice) == Publish()

    @given(status=st.sampled_from(RunStatus))
    def test_by_default_the_run_there_is_returned_whatever_became_of_it(self, status: RunStatus):
        assert judge(replace(RECORD, status=status), "same", "return") == Existing(payload_differs=False)
        assert judge(replace(RECORD, status=status), "other", "return") == Existing(payload_differs=True)

    @given(status=st.sampled_from(RunStatus))
    def test_raise_refuses_whatever_became_of_it(self, status: RunStatus):
        assert judge(replace(RECORD, status=status), "same", "raise") == Refuse()

    @given(status=st.sampled_from(RunStatus))
    def test_only_a_run_that_ended_without_success_is_retried(self, status: RunStatus):
        failed = {RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED, RunStatus.MISSED}
        wanted = Retry() if status in failed else Existing(payload_differs=False)
        assert judge(replace(RECORD, status=status), "same", "retry_failed") == wanted

    def test_a_record_is_of_the_message_that_started_it(self):
        owner = Owner(7, NOW, 1, "h")
        mine, theirs = replace(RECORD, turn=1, owner=owner), replace(RECORD, turn=1, owner=replace(owner, sequence=6))
        assert is_asked_by(None, 7, AT_ONCE)
        assert is_asked_by(mine, 7, AT_ONCE)
        assert not is_asked_by(theirs, 7, AT_ONCE)
        assert not is_asked_by(theirs, 0, AT_ONCE)
        assert not is_asked_by(None, 0, AT_ONCE)
        assert is_asked_by(replace(theirs, turn=2), 7, AT_ONCE)
        assert is_asked_by(replace(theirs, owner=None), 7, AT_ONCE)
        assert is_asked_by(theirs, 7, Timing(due_at=NOW))

    def test_an_unknown_digest_accuses_nobody(self):
        assert not differs(None, "a")
        assert not differs("a", None)
        assert differs("a", "b")


class TestWaiting:
    TRIGGER = Trigger(
        RunKey("billing", "send", "r1"),
        Body(b"\x01"),
        sequence=7,
        stored_at=NOW,
        num_delivered=0,
        info=TriggerInfo("retry", retry_of="r0"),
        idempotency_key="key",
        start_deadline=NOW + timedelta(minutes=1),
        expires_in=timedelta(minutes=2),
    )

    def test_a_queued_run_shows_what_its_trigger_says(self):
        record = waiting_record(self.TRIGGER, None, "d")
        assert (record.run_key, record.status, record.payload, record.key) == (
            self.TRIGGER.key,
            RunStatus.QUEUED,
            1,
            "key",
        )
        assert (record.payload_digest, record.retry_of, record.starts, record.fired_at) == ("d", "r0", 0, NOW)
        assert record.expires_at == NOW + timedelta(minutes=2)

    def test_a_scheduled_run_expires_from_its_due_instant(self):
        due_at = NOW + timedelta(hours=1)
        record = waiting_record(self.TRIGGER, due_at, None)
        assert (record.status, record.scheduled_for, record.fired_at) == (RunStatus.SCHEDULED, due_at, None)
        assert record.expires_at == due_at + timedelta(minutes=2)

    def test_an_expiry_that_is_an_instant_stays(self):
        expires_at = NOW + timedelta(days=1)
        trigger = replace(self.TRIGGER, expires_at=expires_at, expires_in=None)
        assert waiting_record(trigger, None, None).expires_at == expires_at
        assert waiting_record(replace(trigger, expires_at=None), None, None).expires_at is None


class TestCloseNames:
    KNOWN = (
        JobAddress("billing", "send_invoice"),
        JobAddress("billing.eu", "send_invoice"),
        JobAddress("reports", "daily"),
    )

    @pytest.mark.parametrize(
        "wanted, first",
        [
            (JobAddress("billing", "send_invoce"), "billing.send_invoice"),
            (JobAddress("Billing", "Send_Invoice"), "billing.send_invoice"),
            (JobAddress("report", "daily"), "reports.daily"),
            (JobAddress("something_else_entirely", "daily"), "reports.daily"),
        ],
    )
    def test_what_was_meant_comes_first(self, wanted: JobAddress, first: str):
        assert close_names(wanted, self.KNOWN)[0] == first

    def test_nothing_comes_close(self):
        assert close_names(JobAddress("zzz", "qqq"), self.KNOWN) == ()

    @given(st.text("ab_.", min_size=1), st.text("ab_", min_size=1))
    def test_all_are_known_and_few(self, module: str, job: str):
        found = close_names(JobAddress(module, job), self.KNOWN)
        assert len(found) <= 3
        assert set(found) <= {str(address) for address in self.KNOWN}


@given(lead=st.integers(-10_000, 10_000).map(lambda ms: timedelta(milliseconds=ms)))
def test_a_run_due_within_a_second_stays_where_it_is(lead: timedelta):
    assert (reschedule_refusal(NOW + lead, NOW) is None) == (lead >= timedelta(seconds=1))
