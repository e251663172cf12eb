from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import codec
from jetjobs._core.gateway_calls import CallAsked, accepted, is_inbox, read_call, refused
from jetjobs._core.headers import write_key
from jetjobs.errors import InvalidNameError, JetJobsError, PayloadInvalidError

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)


@given(key=KEYS, name=st.sampled_from(["Jetjobs-Key", "jetjobs-key", "JETJOBS-KEY"]))
def test_a_key_arrives_as_it_was_written(key: str, name: str) -> None:
    assert read_call({name: write_key(key)}, b"") == CallAsked(None, key)


@pytest.mark.parametrize(
    "headers, data, payload",
    [
        ({}, b"", None),
        ({}, b'{"id": 7}', {"id": 7}),
        ({"content-type": "application/json; charset=utf-8"}, b"7", 7),
        ({"Content-Type": "application/msgpack"}, codec.encode({"raw": b"\x00"}), {"raw": b"\x00"}),
        ({"Jetjobs-Turn": "nine", "Jetjobs-Trigger": "{", "Nats-TTL": "1s"}, b"7", 7),
    ],
)
def test_a_body_is_json_unless_it_says_msgpack(headers: dict[str, str], data: bytes, payload: Any) -> None:
    assert read_call(headers, data) == CallAsked(payload, None)


@pytest.mark.parametrize(
    "headers, data, error",
    [
        ({}, codec.encode({"id": 7}), PayloadInvalidError),
        ({}, b"{", PayloadInvalidError),
        ({"Content-Type": "application/msgpack"}, b"\xc1", PayloadInvalidError),
        ({"Content-Type": "text/plain"}, b"7", PayloadInvalidError),
        ({"Content-Type": ""}, b"7", PayloadInvalidError),
        ({"Jetjobs-Key": ""}, b"7", InvalidNameError),
        ({"Jetjobs-Key": "%ff"}, b"7", InvalidNameError),
        ({"Jetjobs-Key": "k" * 5000}, b"7", InvalidNameError),
    ],
)
def test_what_can_t_be_read_is_refused(headers: dict[str, str], data: bytes, error: type[JetJobsError]) -> None:
    with pytest.raises(error):
        read_call(headers, data)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=3), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(headers: dict[str, str], data: bytes) -> None:
    with suppress(PayloadInvalidError, InvalidNameError):
        read_call(headers, data)


def test_answers_are_small_json() -> None:
    assert json.loads(accepted("r", duplicate=True)) == {"run_id": "r", "duplicate": True}
    assert json.loads(accepted("r", duplicate=True, payload_differs=True))["payload_differs"] is True
    told = json.loads(refused("PayloadInvalidError", "é" * 100_000, "r1"))["error"]
    assert (told["type"], told["run_id"], len(told["message"])) == ("PayloadInvalidError", "r1", 4096)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "inbox.x",
        "$JS.API.STREAM.DELETE.S",
        "$KV.jetjobs_shop_runs.a.b.c",
        "jetjobs.shop.trigger.a.b.run.c",
        "orders._INBOX.x",
    ],
)
def test_only_inboxes_are_answered(reply: str) -> None:
    assert not is_inbox(reply)


@pytest.mark.parametrize("reply", ["_INBOX.x", "_INBOX_ann.x.1", "_R_.abc", "_GR_.a.b.c"])
def test_inboxes_are_those_of_clients_and_the_server_s_own(reply: str) -> None:
    assert is_inbox(reply)
