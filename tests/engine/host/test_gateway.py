"""Calls at a host's gateway: bounded, answered whatever happens, and left first by a host that drains."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from structlog.testing import capture_logs

from jetjobs import Discard, JobContext, Module
from jetjobs._client import asking
from jetjobs._core.models import NOTHING, JobAddress, RunStatus
from jetjobs._engine import gateway
from jetjobs.errors import AnswerUnknown
from tests.engine.host.stage import Stage

SEND = JobAddress("m", "send")


class Order(BaseModel):
    id: int

    @field_validator("id")
    @classmethod
    def _known(cls, number: int) -> int:
        if number == 13:
            raise KeyError(number)
        if number == 17:
            raise Discard("no such order")
        return number


def shop() -> Module:
    module = Module("m")

    @module.job
    async def send(ctx: JobContext[Any], order: Order) -> int:
        return order.id

    return module


async def call(stage: Stage, body: object, headers: Mapping[str, str] = NOTHING) -> Any:
    answer = await stage.world.call(SEND, json.dumps(body).encode(), headers)
    return None if answer is None else json.loads(answer)


async def test_a_call_is_a_run(stage: Stage) -> None:
    await stage.serve(shop())
    answer = await call(stage, {"id": 7}, {"JETJOBS-KEY": "order-7"})
    assert answer == {"run_id": answer["run_id"], "duplicate": False}
    assert (await stage.ended(answer["run_id"], "send")).result == 7
    again = await call(stage, {"id": 8}, {"jetjobs-key": "order-7"})
    assert again == {**answer, "duplicate": True, "payload_differs": True}


@pytest.mark.parametrize("limit, most", [("PLACES", 2), ("BYTES", 2 * len(b'{"id": 1}'))])
async def test_more_than_a_host_can_answer_at_once_is_busy(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(gateway, limit, most)
    ports = (await stage.serve(shop())).ports
    hanging = ports.fail("broker.store", when="hang", times=None)
    with capture_logs() as logs:
        held = [asyncio.ensure_future(call(stage, {"id": number})) for number in (1, 2)]
        await stage.when(lambda: hanging.hits == 2)
        for number in (3, 4):
            assert (await call(stage, {"id": number}))["error"]["type"] == "Busy"
    assert [entry["event"] for entry in logs].count("gateway_busy") == 1
    hanging.release()
    answers = await asyncio.wait_for(asyncio.gather(*held), 10)
    assert all("run_id" in answer for answer in answers)
    assert "run_id" in await call(stage, {"id": 5})
    for answer, number in zip(answers, (1, 2), strict=True):
        assert (await stage.ended(answer["run_id"], "send")).result == number


async def test_a_broker_that_stores_nothing_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SUBMIT_WITHIN", 0.2)
    ports = (await stage.serve(shop())).ports
    away = ports.fail("broker.store", times=None)
    error = (await call(stage, {"id": 1}))["error"]
    assert (error["type"], "run_id" in error) == ("BrokerUnavailable", False)
    away.release()
    silent = ports.fail("broker.store", times=None, error=AnswerUnknown("no answer"))
    error = (await call(stage, {"id": 1}))["error"]
    assert error["type"] == "TriggerUnconfirmed"
    assert error["run_id"] in error["message"]
    silent.release()
    assert "run_id" in await call(stage, {"id": 1})


async def test_a_lost_answer_of_the_broker_makes_one_run(stage: Stage) -> None:
    ports = (await stage.serve(shop())).ports
    ports.fail("broker.store", when="after")
    answer = await call(stage, {"id": 1}, {"Jetjobs-Key": "k"})
    assert answer["duplicate"] is False
    assert (await stage.ended(answer["run_id"], "send")).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("number, raised", [(13, "KeyError"), (17, "Discard")])
async def test_a_payload_type_that_breaks_is_answered_and_logged(memory_stage: Stage, number: int, raised: str) -> None:
    await memory_stage.serve(shop())
    with capture_logs() as logs:
        answer = await call(memory_stage, {"id": number})
    assert answer["error"]["type"] == "InternalError"
    assert raised in answer["error"]["message"]
    assert [entry["job"] for entry in logs if entry["event"] == "call_broke"] == ["m.send"]
    assert "run_id" in await call(memory_stage, {"id": 14})


async def test_a_host_that_drains_hears_no_more_and_answers_what_it_heard(stage: Stage) -> None:
    hosted = await stage.serve(shop())
    hanging = hosted.ports.fail("broker.store", when="hang")
    heard = asyncio.ensure_future(call(stage, {"id": 1}))
    await asyncio.wait_for(hanging.reached.wait(), 10)
    closing = asyncio.ensure_future(hosted.host.close())

    async def deaf() -> bool:
        return await call(stage, {"id": 2}) is None

    for _ in range(200):
        if await deaf():
            break
    else:
        pytest.fail("a host that drains hears calls")
    assert not closing.done()
    hanging.release()
    answer = await asyncio.wait_for(heard, 10)
    assert "run_id" in answer
    await stage.driven(closing)
    await stage.serve(shop())
    assert (await stage.ended(answer["run_id"], "send")).result == 1
