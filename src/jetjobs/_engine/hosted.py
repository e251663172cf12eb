"""A declared job as a host runs it: the job, its module, the module's state, and the rules, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetjobs._core.delivery import DeliveryRules

if TYPE_CHECKING:
    from jetjobs._core.models import JobAddress
    from jetjobs._engine.engine import Engine
    from jetjobs.job import Job
    from jetjobs.module import Module


@dataclass(slots=True)
class HostedJob:
    """`state` is what the module's lifespan gave; the module's hooks are called around every attempt."""

    job: Job[Any, Any]
    module: Module
    rules: DeliveryRules
    state: Any = None

    @property
    def address(self) -> JobAddress:
        """The job's names."""
        return self.job.address


def host_job(engine: Engine, module: Module, job: Job[Any, Any], state: Any) -> HostedJob:
    """The job with the rules this host judges its deliveries by."""
    rules = DeliveryRules(
        host_id=engine.host_id,
        policy=job.policy,
        ack_wait=engine.settings.ack_wait,
        version=engine.version,
    )
    return HostedJob(job, module, rules, state)
