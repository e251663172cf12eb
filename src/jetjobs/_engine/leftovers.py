"""Whether anything of a run is in the stream still, on whatever subject it is by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetjobs._ports import Broker


async def anything_there(broker: Broker, places: Iterable[str]) -> bool:
    """Whether a message is in one of a run's places (`names.run_places`), as the stream's leader has it."""
    for subject in places:
        if await broker.last(subject) is not None:
            return True
    return False
