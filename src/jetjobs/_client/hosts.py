"""What a client shows of a project's hosts, and what it can ask of them: `client.hosts`."""

from __future__ import annotations

from collections.abc import Callable

from jetjobs._client.calls import Deadline, Pauses, read
from jetjobs._client.scope import Scope
from jetjobs._core.controls import check_actor
from jetjobs._core.descriptors import HostPresence
from jetjobs._core.durations import DurationLike
from jetjobs._ports import DrainAnswer
from jetjobs.errors import BrokerUnavailable, HostNotFound


class HostsView:
    """The hosts that live in a project."""

    def __init__(self, scope: Callable[[], Scope]) -> None:
        self._scope = scope

    async def list(self, *, timeout: DurationLike | None = None) -> list[HostPresence]:
        """All that said so lately."""
        scope = self._scope()
        return list(await read(scope.backend.catalog.hosts, scope.deadline(timeout), "listing hosts"))

    async def drain(
        self, host_id: str, *, actor: str | None = None, timeout: DurationLike | None = None
    ) -> DrainAnswer:
        """Ask a host to take no more runs; what it answers, at once. Its running ones go on.

        `jetjobs run` and `JobHost.run()` end then as at SIGTERM. A host inside another program stays, draining, until
        that program closes it.

        Raises:
            HostNotFound: no such host lives.
            AnswerUnknown: it doesn't answer; it may be frozen, or its event loop blocked.
            BrokerUnavailable: nothing was sent.
        """
        by, scope = check_actor(actor), self._scope()
        deadline = scope.deadline(timeout)
        answer = await _asked(scope, host_id, by, deadline)
        if answer is not None:
            return answer
        live = await read(scope.backend.catalog.hosts, deadline, "listing hosts")
        known = ", ".join(host.host_id for host in live) or "none"
        raise HostNotFound(f"no host {host_id!r} hears in project {scope.project!r}; live hosts: {known}")


async def _asked(scope: Scope, host_id: str, actor: str | None, deadline: Deadline) -> DrainAnswer | None:
    """What the host answers. Through an outage it is asked again; a host that is silent isn't."""
    pauses = Pauses(deadline)
    while True:
        try:
            return await scope.backend.broker.ask_drain(host_id, actor)
        except BrokerUnavailable as error:
            if not await pauses.another_try(error):
                raise
