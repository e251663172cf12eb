"""What somebody edited by hand at a job's consumer: put right while hosts serve, and what it left behind told.

A limit of deliveries is the worst: a message that used it up is never delivered again, not even with the limit gone,
and shows nowhere. Hosts take it away at each upkeep, and `given_up` tells of what was lost to it before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from jetjobs._log import get_logger
from jetjobs._nats.faults import NotFound
from jetjobs._nats.versions import version_of

_log = get_logger("jetjobs.nats")

Api = Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]]

# Never other than so, whatever a host's settings are. The broker leaves out what is nothing.
UNEDITED: Final[Mapping[str, Any]] = {
    "max_deliver": -1,
    "backoff": None,
    "headers_only": None,
    "max_batch": None,
    "max_expires": None,
    "max_bytes": None,
    "inactive_threshold": None,
}


def edited(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a consumer that are other than they ever should be, with the values they should have.

    >>> edited({"max_deliver": 1, "ack_wait": 30})
    {'max_deliver': -1}
    """
    return {name: value for name, value in UNEDITED.items() if (config.get(name) or None) != value}


async def mend_consumer(api: Api, stream: str, consumer: str, *, newest: int) -> None:
    """Put right what was edited at this consumer, of a version up to `newest`; one question where nothing was."""
    try:
        config = (await api(f"CONSUMER.INFO.{stream}.{consumer}", None))["config"]
        wrong = edited(config)
        if not wrong or version_of(config) > newest:
            return
        order = {"stream_name": stream, "config": {**config, **wrong}, "action": "update"}
        await api(f"CONSUMER.CREATE.{stream}.{consumer}", order)
    except NotFound:
        return  # whoever pulls makes it again
    had = {name: config.get(name) for name in wrong}
    _log.warning("consumer put right", consumer=consumer, had=had)


async def given_up(api: Api, stream: str, consumer: str, sequence: int) -> bool:
    """Whether a message that is still stored is never delivered again: it was, and is in nobody's hand.

    Proves nothing while others are in flight, until the acks have passed it by.
    """
    try:
        info = await api(f"CONSUMER.INFO.{stream}.{consumer}", None)
    except NotFound:
        return False  # the one that is made again delivers everything
    if info.get("paused"):
        return False
    behind: int = info["delivered"]["stream_seq"]
    return sequence <= behind and (info["num_ack_pending"] == 0 or sequence <= info["ack_floor"]["stream_seq"])
