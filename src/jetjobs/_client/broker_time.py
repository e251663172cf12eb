"""What time it is for the broker, asked by the first call that depends on it: this machine's clock may be wrong."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import datetime

from jetjobs._client.calls import Deadline
from jetjobs._log import get_logger
from jetjobs._ports import Broker
from jetjobs.errors import BrokerError, PermissionMissing

_BELIEVE = 60.0
_ASK = 2.0
_logger = get_logger("jetjobs.client")


class BrokerTime:
    """One client's measurement, believed for a minute."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    async def now(self, broker: Broker, deadline: Deadline) -> datetime:
        """The current instant by the broker's clock; by our own, last corrected, while the broker can't be asked."""
        if time.monotonic() >= self._until:
            try:
                async with asyncio.timeout(min(_ASK, deadline.left / 4)):
                    await broker.measure_clock()
                self._until = time.monotonic() + _BELIEVE
            except PermissionMissing:
                self._until = math.inf  # a caller of few rights; the server would refuse, and log it, every time
            except (BrokerError, TimeoutError) as error:
                _logger.debug("clock_not_measured", error=str(error))
        return broker.now()
