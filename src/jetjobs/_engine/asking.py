"""`Asking`: how a host asks for runs itself, for its handlers and for callers at the gateway.

Triggering is the client's business, and the floors keep engine and client strangers: `host` brings this in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jetjobs._core.models import RunRecord
    from jetjobs.context import ChildTrigger
    from jetjobs.job import Job
    from jetjobs.triggered import TriggeredRun


class Asking(Protocol):
    """A client over the host's own connection."""

    def children_of(self, parent: RunRecord) -> ChildTrigger:
        """What triggers the children of one start of a run."""
        ...

    async def submit(self, job: Job[Any, Any], payload: Any, key: str | None) -> TriggeredRun[Any]:
        """Have a run stored for somebody outside; the payload fits the handler.

        Raises:
            JetJobsError: it isn't stored, or nobody knows; within 5 s.
        """
        ...
