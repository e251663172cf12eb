"""A declared job as a host runs it: the job, its module, the module's state, and the rules, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetjobs._core.delivery import DeliveryRules
from jetjobs._engine.slots import Slots

if TYPE_CHECKING:
    from jetjobs._core.models import JobAddress
    from jetjobs._engine.engine import Engine
    from jetjobs.job import Job
    from jetjobs.module import Module


class NameSlots(Slots):
    """The slots all names of a renamed job have in common. Who waits for a run of the same job finds no full host."""

    __slots__ = ()

    def give_back(self) -> None:
        """Free a slot, or hand it on, unless there are too many since the limit was lowered."""
        if self.limit is not None and self.taken > self.limit:
            self.taken -= 1
        else:
            super().give_back()

    def is_worth_a_word(self, now: float) -> bool:  # noqa: ARG002
        """Never: a job at its limit is nothing to warn of."""
        return False


@dataclass(slots=True)
class HostedJob:
    """`state` is what the module's lifespan gave; the module's hooks are called around every attempt.

    `address` is the name served: the job's own, or an old one. `shared` are the slots that all names of a renamed job
    have in common on this host.
    """

    job: Job[Any, Any]
    module: Module
    rules: DeliveryRules
    address: JobAddress
    state: Any = None
    shared: NameSlots | None = None


def host_job(engine: Engine, module: Module, job: Job[Any, Any], *, state: Any, shared: NameSlots | None) -> HostedJob:
    """The job, under one of its names, with the rules this host judges its deliveries by."""
    rules = DeliveryRules(
        host_id=engine.host_id,
        policy=job.policy,
        ack_wait=engine.settings.ack_wait,
        version=engine.version,
    )
    return HostedJob(job.now_called or job, module, rules, job.address, state, shared)
