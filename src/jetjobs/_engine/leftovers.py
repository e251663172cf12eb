"""Whether anything of a run is in the stream still, on whatever subject it is by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetjobs._ports import Broker


async def anything_there(broker: Broker, trigger: str, schedules: str) -> bool:
    """Whether a message is on one of the two subjects, as the stream's leader has it.

    One may be on its way from schedule to trigger, so the trigger is read, then the schedule, then the trigger again:
    only a message that exists nowhere is missed by all three.
    """
    for subject in (trigger, schedules, trigger):
        if await broker.last(subject) is not None:
            return True
    return False
