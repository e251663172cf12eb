"""Durable background, scheduled and event-driven jobs on NATS JetStream.

Declaring is imported at once and is light. The two front doors, client and host, come with nats-py, asyncio and TLS:
they are imported when their names are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from jetjobs._core.models import Attempt as Attempt
from jetjobs._core.models import RunError as RunError
from jetjobs._core.models import RunRecord as RunRecord
from jetjobs._core.models import RunStatus as RunStatus
from jetjobs._core.models import TriggerInfo as TriggerInfo
from jetjobs._core.policy import Backoff as Backoff
from jetjobs._core.policy import JobPolicy as JobPolicy
from jetjobs._core.policy import JobRetention as JobRetention
from jetjobs._core.settings import ClientSettings as ClientSettings
from jetjobs._core.settings import HostSettings as HostSettings
from jetjobs._core.triggers import Cron as Cron
from jetjobs._core.triggers import Every as Every
from jetjobs._core.triggers import OnEvent as OnEvent
from jetjobs.context import JobContext as JobContext
from jetjobs.declaring import job as job
from jetjobs.errors import AccessDenied as AccessDenied
from jetjobs.errors import AmbiguousHostError as AmbiguousHostError
from jetjobs.errors import AmbiguousRunId as AmbiguousRunId
from jetjobs.errors import BrokerError as BrokerError
from jetjobs.errors import BrokerUnavailable as BrokerUnavailable
from jetjobs.errors import ConfigError as ConfigError
from jetjobs.errors import DeclarationError as DeclarationError
from jetjobs.errors import DuplicateJobError as DuplicateJobError
from jetjobs.errors import DuplicateRun as DuplicateRun
from jetjobs.errors import InvalidNameError as InvalidNameError
from jetjobs.errors import JetJobsError as JetJobsError
from jetjobs.errors import JobsNotHosted as JobsNotHosted
from jetjobs.errors import PayloadError as PayloadError
from jetjobs.errors import PayloadInvalidError as PayloadInvalidError
from jetjobs.errors import PayloadTooLargeError as PayloadTooLargeError
from jetjobs.errors import RunCancelled as RunCancelled
from jetjobs.errors import RunEnded as RunEnded
from jetjobs.errors import RunFailed as RunFailed
from jetjobs.errors import RunMissed as RunMissed
from jetjobs.errors import RunNotFound as RunNotFound
from jetjobs.errors import RunSkipped as RunSkipped
from jetjobs.errors import RunTimedOut as RunTimedOut
from jetjobs.errors import ScheduleError as ScheduleError
from jetjobs.errors import TriggerUnconfirmed as TriggerUnconfirmed
from jetjobs.errors import UnknownJobError as UnknownJobError
from jetjobs.job import Job as Job
from jetjobs.module import Module as Module
from jetjobs.outcomes import Discard as Discard
from jetjobs.outcomes import JobInterrupted as JobInterrupted
from jetjobs.outcomes import RetryAfter as RetryAfter
from jetjobs.outcomes import Skip as Skip
from jetjobs.outcomes import Snooze as Snooze

if TYPE_CHECKING:
    from jetjobs.client import JobClient as JobClient
    from jetjobs.client import JobRun as JobRun
    from jetjobs.client import TriggerError as TriggerError
    from jetjobs.client import TriggerRequest as TriggerRequest
    from jetjobs.host import EventHealth as EventHealth
    from jetjobs.host import HostHealth as HostHealth
    from jetjobs.host import JobHealth as JobHealth
    from jetjobs.host import JobHost as JobHost
    from jetjobs.sync import SyncJobClient as SyncJobClient

_FRONT_DOORS = {
    "JobClient": "jetjobs.client",
    "JobRun": "jetjobs.client",
    "TriggerError": "jetjobs.client",
    "TriggerRequest": "jetjobs.client",
    "EventHealth": "jetjobs.host",
    "HostHealth": "jetjobs.host",
    "JobHealth": "jetjobs.host",
    "JobHost": "jetjobs.host",
    "SyncJobClient": "jetjobs.sync",
}


if not TYPE_CHECKING:  # a checker that saw it would take any misspelled name

    def __getattr__(name: str) -> object:
        module = _FRONT_DOORS.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_FRONT_DOORS})
