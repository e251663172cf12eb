"""Which finished runs go, which shrink, and which stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import wire
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.models import JobAddress, LogLine, RunError, RunStatus, TriggerInfo
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import (
    Doomed,
    Oldest,
    RetentionRules,
    Survey,
    counts,
    describe_retention,
    promised,
    read_retention,
    record_ttl,
    stub,
    ttl_left,
)
from jetjobs._core.run_ids import fresh_run_id
from tests.unit import strategies as some

S = RunStatus
HOUR, DAY, TICK = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)
SEND = JobAddress("billing", "send")
Records = list[some.RunRecord]


def ended(ago: timedelta, status: RunStatus = S.SUCCEEDED, **changes: Any) -> some.RunRecord:
    return some.record(status, finished_at=some.NOW - ago, **changes)


def plan(
    records: Records, rules: RetentionRules | JobRetention, now: datetime = some.NOW, named: Collection[str] = ()
) -> list[Doomed]:
    """All that a pruner would take away in one go, in its order: by age, then the oldest of what is too many."""
    rules = rules if isinstance(rules, RetentionRules) else RetentionRules(rules)
    survey = Survey(rules, now, named)
    stored = [(record, revision, some.NOW) for revision, record in enumerate(records, 1)]
    aged = [survey.see(*each) for each in stored]
    doomed = [each for each in aged if each is not None]
    for job, excess in survey.excess.items():
        oldest = Oldest(excess)
        for each, gone in zip(stored, aged, strict=True):
            surplus = survey.surplus(*each) if gone is None and each[0].run_key.address == job else None
            if surplus is not None:
                oldest.offer(surplus)
        doomed += oldest
    return doomed


def fate(record: some.RunRecord, retention: JobRetention) -> str:
    found = plan([record], retention)
    return "stays" if not found else "shrinks" if found[0].shrinks else "goes"


@pytest.mark.parametrize("status", [S.SUCCEEDED, S.FAILED, S.TIMED_OUT, S.CANCELLED, S.MISSED])
def test_a_finished_run_goes_after_seven_days(status: RunStatus):
    assert fate(ended(7 * DAY, status), JobRetention()) == "stays"
    assert fate(ended(7 * DAY + TICK, status), JobRetention()) == "goes"


def test_a_skipped_run_goes_after_an_hour():
    assert fate(ended(HOUR, S.SKIPPED), JobRetention()) == "stays"
    assert fate(ended(HOUR + TICK, S.SKIPPED), JobRetention()) == "goes"


@pytest.mark.parametrize("status", [S.RUNNING, S.RETRYING])
def test_what_has_not_ended_stays_and_does_not_count(status: RunStatus):
    old = some.record(status, started_at=some.NOW - 90 * DAY, finished_at=some.NOW - 90 * DAY)
    assert plan([old, replace(old, run_id="r2"), ended(HOUR)], JobRetention(max_per_job=1, min_age=0)) == []


def test_the_youngest_are_never_touched_whatever_the_limits():
    strict = JobRetention(finished=1, skipped=1, max_per_job=1, min_age="10m")
    young = [replace(ended(timedelta(minutes=10) - TICK), run_id=f"r{n}") for n in range(5)]
    assert plan(young, strict) == []
    assert len(plan([replace(r, finished_at=some.NOW - timedelta(minutes=10)) for r in young], strict)) == 5


def test_of_too_many_the_oldest_go_in_their_order():
    records = [replace(ended(timedelta(hours=n)), run_id=f"r{n}") for n in (3, 1, 5, 2, 4)]
    assert [each.run.run_id for each in plan(records, JobRetention(max_per_job=2))] == ["r5", "r4", "r3"]


def test_the_number_is_each_jobs_own_and_so_is_the_policy():
    other = JobAddress("billing", "other")
    rules = RetentionRules(JobRetention(max_per_job=1), {other: JobRetention(max_per_job=3, finished="1d")})
    mine = [replace(ended(timedelta(hours=n)), run_id=f"r{n}") for n in range(1, 4)]
    theirs = [replace(record, job="other") for record in mine]
    gone = plan([*mine, *theirs, replace(ended(2 * DAY), job="other")], rules)
    assert sorted(str(each.run) for each in gone) == ["billing.other/r1", "billing.send/r2", "billing.send/r3"]


def test_a_run_that_a_schedule_waits_for_stays():
    records = [replace(ended(30 * DAY), run_id="r1"), replace(ended(30 * DAY), run_id="r2"), ended(HOUR)]
    assert [each.run.run_id for each in plan(records, JobRetention(max_per_job=1), named={"r1"})] == ["r2"]


KEYED: list[dict[str, Any]] = [
    {"key": "k"},
    {"run_id": "e-abc", "trigger": TriggerInfo("event", event_subject="orders.paid")},
    {"trigger": TriggerInfo("backfill")},
    {"trigger": TriggerInfo("child", parent_run_id="p")},
    {"trigger": TriggerInfo("retry", retry_of="p")},
]


@pytest.mark.parametrize("named", KEYED)
def test_a_promise_is_kept_by_a_stub(named: dict[str, Any]):
    retention = JobRetention(max_per_job=1, finished="2d", keys="7d")
    keyed, plain = replace(ended(DAY), **named), replace(ended(HOUR), run_id="young")
    (shrinks,) = plan([keyed, plain], retention)
    assert (shrinks.run, shrinks.shrinks) == (keyed.run_key, True)
    small = stub(keyed)
    assert not counts(small, retention, DAY)
    assert plan([small, plain], retention) == []
    assert fate(replace(ended(2 * DAY + TICK), **named), retention) == "shrinks"
    assert fate(replace(small, finished_at=some.NOW - 7 * DAY), retention) == "stays"
    assert fate(replace(small, finished_at=some.NOW - 7 * DAY - TICK), retention) == "goes"


def test_a_promise_that_has_passed_counts_like_any_other():
    retention = JobRetention(max_per_job=1, finished="30d", keys="1d")
    small = stub(replace(ended(2 * DAY), key="k"))
    (goes,) = plan([small, replace(ended(HOUR), run_id="young")], retention)
    assert (goes.run, goes.shrinks) == (small.run_key, False)


@pytest.mark.parametrize(
    "trigger", [TriggerInfo(), TriggerInfo("cron", schedule_id="s"), TriggerInfo("event"), TriggerInfo("delayed")]
)
def test_nobody_names_these_again(trigger: TriggerInfo):
    assert not promised(some.record(S.SUCCEEDED, trigger=trigger))


def test_a_stub_keeps_what_a_promise_needs_and_nothing_large():
    large = Body(claim=ClaimCheck("jetjobs.p.payload.r1.in.x", 3, 1_000_000, "x"))
    whole = replace(
        ended(DAY, S.FAILED, key="k", payload_digest="d", payload_body=large, result_body=Body(b"\xc0")),
        error=RunError("ValueError", "secret", "Traceback"),
        logs=(LogLine(some.NOW, "info", "secret"),),
        extra={"later": 1},
        trigger=TriggerInfo("child", parent_run_id="p", event_subject="secret"),
    )
    small = wire.unpack_record(wire.pack_record(some.sound(stub(whole))))
    for name in ("run_key", "status", "key", "payload_digest", "attempt", "max_attempts", "finished_at", "extra"):
        assert getattr(small, name) == getattr(whole, name), name
    assert small.stub
    assert small.error == RunError("ValueError")
    assert small.trigger == TriggerInfo("child", parent_run_id="p")
    assert (small.payload_body, small.result_body, small.logs, small.owner) == (None, None, (), None)
    assert stub(small) == small
    assert len(wire.pack_record(small)) < 400


def test_a_record_goes_by_itself_after_the_pruner_would_have_taken_it():
    retention = JobRetention(finished="1d", keys="3d")
    plain = ended(timedelta(), expires_at=some.NOW)
    assert record_ttl(plain, retention) == DAY + timedelta(minutes=10)
    assert record_ttl(replace(plain, key="k"), retention) == 3 * DAY + timedelta(minutes=10)
    assert record_ttl(replace(plain, expires_at=some.NOW + 2 * DAY), retention) == 2 * DAY + timedelta(minutes=10)
    assert ttl_left(plain, retention, some.NOW + HOUR) == DAY + timedelta(minutes=10) - HOUR
    assert ttl_left(plain, retention, some.NOW + 9 * DAY) == timedelta(seconds=1)


@pytest.mark.parametrize(
    "run_id, changes, wanted",
    [
        (fresh_run_id(0, bytes(10)), {}, True),
        ("chosen-outside", {}, False),
        ("k-abc", {"key": "k"}, True),
    ],
)
def test_bodies_go_with_an_id_that_only_this_job_has(run_id: str, changes: dict[str, Any], wanted: bool):  # noqa: FBT001
    body = Body(claim=ClaimCheck("s", 1, 1, "x"))
    for place in ("payload_body", "result_body", "checkpoint_body"):
        record = replace(ended(60 * DAY), run_id=run_id, **{place: body}, **changes)
        assert [each.bodies_outside for each in plan([record], JobRetention())] == [wanted]
    assert not plan([replace(ended(60 * DAY), run_id=run_id)], JobRetention())[0].bodies_outside


def test_messages_of_an_expired_run_need_not_be_looked_for():
    (gone,) = plan([ended(9 * DAY, expires_at=some.NOW - 2 * DAY)], JobRetention())
    assert gone.expired(some.NOW)
    assert not gone.expired(some.NOW - 2 * DAY)
    assert not gone._replace(expires_at=None).expired(some.NOW)


def test_without_an_end_the_time_of_writing_counts():
    (gone,) = plan([some.record(S.MISSED, finished_at=None)], JobRetention(), some.NOW + 8 * DAY)
    assert not gone.shrinks


def test_when_the_next_record_is_due():
    survey = Survey(RetentionRules(JobRetention()), some.NOW)
    assert survey.due_at is None
    survey.see(some.record(S.RUNNING), 1, some.NOW)
    assert survey.due_at is None
    survey.see(ended(DAY), 2, some.NOW)
    assert survey.due_at == some.NOW + 6 * DAY
    survey.see(ended(timedelta(minutes=30), S.SKIPPED), 3, some.NOW)
    survey.see(ended(2 * DAY, key="k"), 4, some.NOW)
    assert survey.due_at == some.NOW + timedelta(minutes=30)


def test_a_policy_travels_with_the_jobs_description():
    policy = JobRetention(finished="90d", max_per_job=7, min_age=0)
    described = JobDescriptor("billing", "other", retention=describe_retention(policy))
    described = wire.unpack_descriptor(wire.pack_descriptor(described))
    rules = RetentionRules(JobRetention(), {SEND: JobRetention(max_per_job=2)})
    rules = rules.described([described, JobDescriptor(*SEND, retention=describe_retention(policy))])
    assert rules.of(JobAddress("billing", "other")) == policy
    assert rules.of(SEND).max_per_job == 2, "what is declared here counts here"
    assert rules.of(JobAddress("billing", "third")) == JobRetention()


@pytest.mark.parametrize(
    "described", [None, {"max_per_job": 0}, {"finished_ms": -5}, {"keys": "x"}, {"keys_ms": 1 << 60}]
)
def test_a_description_that_makes_no_sense_is_none(described: dict[str, Any] | None):
    assert read_retention(described) is None


def test_what_a_description_leaves_out_is_the_default_and_more_is_ignored():
    assert read_retention({"max_per_job": 3, "later": 1}) == JobRetention(max_per_job=3)


# ------------------------------------------------------------------ properties

_retentions = st.builds(
    JobRetention,
    skipped=st.integers(1, 20).map(lambda h: h * HOUR),
    finished=st.integers(1, 100).map(lambda h: h * HOUR),
    keys=st.integers(0, 100).map(lambda h: h * HOUR),
    min_age=st.integers(0, 10).map(lambda h: h * HOUR),
    max_per_job=st.integers(1, 6),
)


@st.composite
def _some_records(draw: st.DrawFn) -> Records:
    records: Records = []
    for number in range(draw(st.integers(0, 14))):
        status = draw(st.sampled_from(tuple(S)[2:]))
        ended_at = some.NOW - draw(st.integers(0, 120)) * HOUR
        record = some.record(status, finished_at=ended_at if status.is_terminal else None)
        record = replace(
            record,
            run_id=f"r{number}",
            job=draw(st.sampled_from(("send", "other"))),
            key=draw(st.sampled_from((None, None, "k"))),
        )
        records.append(stub(record) if record.key and draw(st.booleans()) and status.is_terminal else record)
    return records


def _after(records: Records, doomed: list[Doomed]) -> Records:
    verdicts = {each.run: each.shrinks for each in doomed}
    kept = [record for record in records if verdicts.get(record.run_key) is not False]
    return [stub(record) if verdicts.get(record.run_key) else record for record in kept]


@some.brief
@given(_some_records(), _retentions, st.sets(st.sampled_from([f"r{n}" for n in range(14)]), max_size=3))
def test_what_a_plan_takes_and_what_it_leaves(records: Records, retention: JobRetention, named: set[str]):
    by_run = {record.run_key: record for record in records}
    doomed = plan(records, retention, named=named)
    assert len({each.run for each in doomed}) == len(doomed)
    for each in doomed:
        record = by_run[each.run]
        assert record.status.is_terminal
        assert record.run_id not in named
        assert record.finished_at is not None
        age = some.NOW - record.finished_at
        assert age >= retention.min_age
        if not each.shrinks:
            assert record.key is None or age > retention.keys, "a promise was broken"
        else:
            assert record.key is not None
            assert not record.stub

    left = _after(records, doomed)
    assert plan(left, retention, named=named) == [], "what is left is within the limits"
    fixed = Counter[str]()
    counted = Counter[str]()
    for record in left:
        age = some.NOW - record.finished_at if record.finished_at is not None else timedelta()
        if counts(record, retention, age):
            counted[record.job] += 1
            fixed[record.job] += age < retention.min_age or record.run_id in named
    for job, number in counted.items():
        assert number <= max(retention.max_per_job, fixed[job]), "more are left than the limit, and could have gone"


@some.brief
@given(_some_records(), _retentions)
def test_nothing_older_stays_beside_what_went_for_its_number(records: Records, retention: JobRetention):
    gone = {each.run for each in plan(records, retention) if not each.shrinks}
    for record in records:
        if record.run_key in gone or record.key is not None or record.finished_at is None:
            continue
        for other in records:
            if other.run_key in gone and other.job == record.job and other.finished_at is not None:
                limit = retention.skipped if other.status is S.SKIPPED else retention.finished
                aged = some.NOW - other.finished_at > limit
                assert aged or other.key is not None or other.finished_at <= record.finished_at


@some.brief
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 50))
def test_the_oldest_in_any_order_and_no_more_are_held(ages: list[int], wanted: int):
    offered = [Doomed(age, revision, some.KEY, False, False, None) for revision, age in enumerate(ages)]
    oldest = Oldest(wanted)
    for each in offered:
        oldest.offer(each)
        assert len(list(oldest)) <= wanted
    assert list(oldest) == sorted(offered)[:wanted]


def test_a_record_without_expiry_stays_for_its_retention_and_the_slack():
    record = ended(timedelta()).but(expires_at=None)
    assert record_ttl(record, JobRetention(finished="1d")) == timedelta(days=1, minutes=10)
