from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import names, signal_subjects, wire
from jetjobs._core.controls import (
    JobControl,
    check_actor,
    check_limit,
    job_info,
    override,
    present_name,
    standing,
    switch,
)
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.models import JobAddress
from jetjobs.errors import ConfigError, PayloadInvalidError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
SEND = JobControl("billing.invoices", "send")

limits = st.none() | st.integers(1, 10**6)
actors = st.none() | st.text(min_size=1, max_size=20)
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
controls = st.builds(
    JobControl,
    st.just("billing"),
    st.just("send"),
    paused=st.booleans(),
    switched_by=actors,
    switched_at=st.none() | instants,
    max_concurrency=limits,
    limited_by=actors,
    limited_at=st.none() | instants,
    extra=st.dictionaries(st.text(min_size=1).map(lambda name: f"x_{name}"), st.integers(0, 9), max_size=2),
)


@given(controls, st.booleans(), actors, st.integers(1, 100))
def test_a_switch_says_who_and_when_and_leaves_the_limit(
    control: JobControl,
    paused: bool,  # noqa: FBT001
    actor: str | None,
    declared: int,
):
    after = switch(control, paused=paused, actor=actor, now=NOW)
    assert after.paused is paused
    assert standing(declared, after).limit == standing(declared, control).limit
    if control.paused is paused:
        assert after is control, "who did it first stays"
    else:
        assert (after.switched_by, after.switched_at) == (actor, NOW)
    assert switch(after, paused=paused, actor="another", now=LATER) is after


@given(controls, limits, actors, st.integers(1, 100))
def test_a_limit_says_who_and_when_and_leaves_the_pause(
    control: JobControl, limit: int | None, actor: str | None, declared: int
):
    after = override(control, limit, actor=actor, now=NOW)
    assert standing(declared, after) == (declared if limit is None else limit, control.paused)
    if control.max_concurrency == limit:
        assert after is control
    else:
        assert (after.limited_by, after.limited_at) == (actor, NOW)
    assert override(after, limit, actor="another", now=LATER) is after


@given(controls, st.booleans(), limits)
def test_the_order_of_a_switch_and_a_limit_doesnt_matter(
    control: JobControl,
    paused: bool,  # noqa: FBT001
    limit: int | None,
):
    one = override(switch(control, paused=paused, actor="a", now=NOW), limit, actor="b", now=NOW)
    assert one == switch(override(control, limit, actor="b", now=NOW), paused=paused, actor="a", now=NOW)


@given(st.integers(1, 100), st.lists(st.none() | controls, max_size=3))
def test_what_a_job_comes_to(declared: int, orders: list[JobControl | None]):
    found = standing(declared, *orders)
    ordered = [each.max_concurrency for each in orders if each is not None and each.max_concurrency is not None]
    assert found.limit == [*ordered, declared][0]
    assert found.paused is any(each.paused for each in orders if each is not None)


@given(controls)
def test_orders_survive_their_bytes(control: JobControl):
    assert wire.unpack_control(wire.pack_control(control)) == control


@pytest.mark.parametrize(
    "change",
    [{"max_concurrency": 0}, {"max_concurrency": "2"}, {"paused": 1}, {"switched_at": "today"}, {"v": 2}, {"job": 3}],
)
def test_orders_of_strangers_are_refused(change: dict[str, object]):
    data = cast("bytes", msgpack.packb({"module": "a", "job": "b", "v": 1, **change}))
    with pytest.raises(PayloadInvalidError):
        wire.unpack_control(data)


def test_a_job_shows_both():
    described = JobDescriptor("billing.invoices", "send", max_concurrency=8, redact=("card",), digest="d")
    plain = job_info(described, None)
    assert (plain.address, plain.redact, plain.paused, plain.limit) == (described.address, ("card",), False, 8)
    ordered = job_info(described, replace(SEND, paused=True, max_concurrency=2))
    assert (ordered.paused, ordered.limit, ordered.max_concurrency) == (True, 2, 8)
    assert ordered.control is not None
    assert ordered.control.address == described.address


def test_an_old_name_leads_to_the_present_one():
    described = JobDescriptor("billing.invoices", "post", now_called="send")
    assert present_name(described) == SEND.address
    assert present_name(JobDescriptor("billing.invoices", "send")) is None


@pytest.mark.parametrize("bad", [0, -1, True, False, 2.0, "2", [1]])
def test_a_limit_that_is_none(bad: object):
    with pytest.raises(ConfigError, match="max_concurrency"):
        check_limit(bad)


def test_a_limit_of_nothing_says_what_to_do_instead():
    with pytest.raises(ConfigError, match="pause the job"):
        check_limit(0)
    assert (check_limit(None), check_limit(3)) == (None, 3)


def test_an_actor_is_a_text_of_bounded_length():
    assert (check_actor(None), check_actor(""), check_actor("ops")) == (None, None, "ops")
    assert len((check_actor("é" * 5000) or "").encode()) <= 200
    with pytest.raises(ConfigError, match="actor"):
        check_actor(7)


@given(st.text(alphabet="aZ0_-.", min_size=1).filter(lambda name: ".." not in name and name.strip(".") == name))
def test_the_doorbell_names_its_job(module: str):
    address = JobAddress(module, "send")
    subject = signal_subjects.control_subject("shop", address)
    assert signal_subjects.parse_control_subject("shop", subject) == address
    assert signal_subjects.parse_control_subject("other", subject) is None
    assert subject.startswith(signal_subjects.all_controls("shop").removesuffix(">"))
    key = names.control_key(address)
    assert len(key.split(".")) == len(names.CONTROL_KEYS.split(".")) == len(names.job_key(address).split(".")) + 1


@pytest.mark.parametrize("end", ["", "a", "a.b.c", "a=.b", "a..b"])
def test_a_doorbell_that_names_none(end: str):
    assert signal_subjects.parse_control_subject("shop", f"jetjobs.shop.control.jobs.{end}") is None


def test_a_subject_that_is_no_doorbell():
    assert signal_subjects.parse_control_subject("shop", "billing.send") is None
