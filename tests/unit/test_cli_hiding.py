"""What `redact` names is in nothing that the command shows."""

from __future__ import annotations

from jetjobs import JobContext, Module
from jetjobs._core import codec
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.wire import pack_descriptor, unpack_descriptor
from jetjobs.cli.hiding import hide

CARD = {"card": {"number": "4111", "name": "x"}, "items": [{"pin": 1}, {"pin": 2}]}


def record(payload: Body | None, result: Body | None = None) -> RunRecord:
    return RunRecord("r", "shop", "pay", RunStatus.SUCCEEDED, payload_body=payload, result_body=result)


def test_named_parts_are_replaced_in_payload_and_result():
    whole = Body(codec.encode(CARD))
    shown = hide(record(whole, whole), ["card.number", "items.pin"])
    hidden = {"card": {"number": "[redacted]", "name": "x"}, "items": [{"pin": "[redacted]"}, {"pin": "[redacted]"}]}
    assert shown.payload == shown.result == hidden


def test_json_of_other_languages_is_hidden_too():
    assert hide(record(Body(b'{"pin": 7}', "json")), ["pin"]).payload == {"pin": "[redacted]"}


def test_what_cannot_be_read_is_hidden_whole():
    assert hide(record(Body(b"\xc1")), ["pin"]).payload == "[redacted]"


def test_nothing_and_claim_checks_stay_as_they_are():
    claim = Body(claim=ClaimCheck("s", 1, 1, "00"))
    assert hide(record(claim), ["pin"]).payload_body is claim
    assert hide(record(None), ["pin"]).payload_body is None


def test_the_paths_travel_with_the_description():
    shop = Module("shop")

    @shop.job(redact=("card.number",))
    async def pay(ctx: JobContext, order: dict[str, object]) -> None: ...

    assert unpack_descriptor(pack_descriptor(pay.descriptor())).redact == ("card.number",)
