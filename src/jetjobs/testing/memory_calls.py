"""Call gateways in memory: queue groups of hosts, and the caller's side of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from jetjobs._core.models import NOTHING, JobAddress
from jetjobs._ports import Call, OnCall

if TYPE_CHECKING:
    from jetjobs.testing.memory_cluster import MemoryLink


class MemoryCalls:
    """All call gateways of one project."""

    def __init__(self) -> None:
        self._members: list[MemoryCallService] = []

    def join(self, link: MemoryLink, jobs: Iterable[JobAddress], on_call: OnCall) -> MemoryCallService:
        """A new member of the groups of these jobs."""
        made = MemoryCallService(link, frozenset(jobs), on_call, self._members.remove)
        self._members.append(made)
        return made

    def ask(
        self, job: JobAddress, data: bytes = b"", headers: Mapping[str, str] = NOTHING
    ) -> asyncio.Future[bytes] | None:
        """Call a job as a program without any other right would; `None` when nobody hears."""
        member = next((each for each in self._members if job in each.jobs and each.link.connected), None)
        if member is None:
            return None
        self._members.remove(member)  # the next call is another one's
        self._members.append(member)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answer(text: bytes) -> None:
            if member.link.connected and not answered.done():
                answered.set_result(text)

        asyncio.get_running_loop().call_soon(member.on_call, Call(job, headers, data, answer))
        return answered


class MemoryCallService:
    """One member of the groups of some jobs."""

    def __init__(
        self,
        link: MemoryLink,
        jobs: frozenset[JobAddress],
        on_call: OnCall,
        leave: Callable[[MemoryCallService], None],
    ) -> None:
        self.link = link
        self.jobs = jobs
        self.on_call = on_call
        self._leave: Callable[[MemoryCallService], None] | None = leave

    async def stop(self) -> None:
        """Leave the groups; what was on its way arrives first."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave(self)
        await asyncio.sleep(0)
