"""How a handler's end is understood, where it isn't as plain as a return or an error."""

from __future__ import annotations

from jetjobs._core.models import RunStatus
from tests.engine.host.stage import Stage


async def test_an_outcome_raised_in_a_task_group_counts(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host()
    skipped = await stage.ended(await stage.trigger("group skip"))
    assert (skipped.status, skipped.skip_reason) == (RunStatus.SKIPPED, "nothing")
    waiting = await stage.reached(await stage.trigger("group later"), RunStatus.RETRYING)
    assert waiting.error is not None
    assert waiting.error.type == "RetryAfter"


async def test_a_timeout_is_one_although_the_handler_survived_a_cancellation_of_its_own(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host()
    record = await stage.ended(await stage.trigger("cancels never", "timed"), "timed")
    assert (record.status, record.starts) == (RunStatus.TIMED_OUT, 1)
