"""Pause a consumer and have it go on: the broker does it, so it holds for whoever pulls.

What the server does, measured on 2.15.1:

* A paused consumer hands out nothing, redeliveries included. Acks and renewals are taken, heartbeats of pulls go on.
  The pause outlives a kill of the server.
* A pause is set where a consumer is created, and by a call of its own. Creating again and updating leave it as it is,
  so a host that knows nothing of it can't undo it.
* Ending it by that call doesn't wake the consumer: what waits goes out with the next pull, trigger or heartbeat,
  seconds later. A pause that runs out by itself wakes it. So it is ended by letting it run out in a moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from jetjobs._nats.faults import NotFound

Api = Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]]

FOR_GOOD: Final = "2200-01-01T00:00:00Z"

# Longer than an answer and a question take; if it isn't, the next heartbeat wakes the consumer.
_MOMENT: Final = timedelta(milliseconds=250)
_NANO: Final = 1_000_000_000
_RUNS_OUT: Final = 5 * _NANO


async def switch_consumer(api: Api, stream: str, info: Mapping[str, Any], *, paused: bool) -> None:
    """Pause the consumer that `info` tells of, or have it go on, unless it is so already.

    Raises:
        PermissionMissing: this user may not.
    """
    until = pause_until(info, paused=paused)
    if until is None:
        return
    try:
        await api(f"CONSUMER.PAUSE.{stream}.{info['name']}", {"pause_until": until})
    except NotFound:
        return  # whoever pulls makes it again


def pause_until(info: Mapping[str, Any], *, paused: bool) -> str | None:
    """The end of the pause to ask for; `None` when the consumer is as it should be.

    >>> pause_until({"ts": "2030-01-01T00:00:00.123456789Z"}, paused=True)
    '2200-01-01T00:00:00Z'
    """
    remaining = int(info.get("pause_remaining") or 0) if info.get("paused") else 0
    if paused:
        return None if remaining > _RUNS_OUT else FOR_GOOD
    if remaining <= _RUNS_OUT:
        return None  # it goes on, or somebody has just seen to it
    return (datetime.fromisoformat(info["ts"]) + _MOMENT).isoformat()
