"""Durable background, scheduled and event-driven jobs on NATS JetStream.

Importing the package imports nothing else: each name brings its module when it is first used. So what only declares
jobs, triggers them, or has pytest look for plugins doesn't pay for hosts, nats-py, TLS and pydantic.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from jetjobs._version import __version__ as __version__
    from jetjobs.client import ChangeOutcome as ChangeOutcome
    from jetjobs.client import JobClient as JobClient
    from jetjobs.client import JobRun as JobRun
    from jetjobs.client import RunChange as RunChange
    from jetjobs.client import TriggerError as TriggerError
    from jetjobs.client import TriggerRequest as TriggerRequest
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
    from jetjobs.host import EventHealth as EventHealth
    from jetjobs.host import HostHealth as HostHealth
    from jetjobs.host import JobHealth as JobHealth
    from jetjobs.host import JobHost as JobHost
    from jetjobs.job import Job as Job
    from jetjobs.module import Module as Module
    from jetjobs.outcomes import Discard as Discard
    from jetjobs.outcomes import JobInterrupted as JobInterrupted
    from jetjobs.outcomes import RetryAfter as RetryAfter
    from jetjobs.outcomes import Skip as Skip
    from jetjobs.outcomes import Snooze as Snooze
    from jetjobs.sync import SyncJobClient as SyncJobClient

_NAMES = {
    "jetjobs._core.models": ("Attempt", "RunError", "RunRecord", "RunStatus", "TriggerInfo"),
    "jetjobs._core.policy": ("Backoff", "JobPolicy", "JobRetention"),
    "jetjobs._core.settings": ("ClientSettings", "HostSettings"),
    "jetjobs._core.triggers": ("Cron", "Every", "OnEvent"),
    "jetjobs._version": ("__version__",),
    "jetjobs.client": ("ChangeOutcome", "JobClient", "JobRun", "RunChange", "TriggerError", "TriggerRequest"),
    "jetjobs.context": ("JobContext",),
    "jetjobs.declaring": ("job",),
    "jetjobs.errors": (
        "AccessDenied",
        "AmbiguousHostError",
        "AmbiguousRunId",
        "BrokerError",
        "BrokerUnavailable",
        "ConfigError",
        "DeclarationError",
        "DuplicateJobError",
        "DuplicateRun",
        "InvalidNameError",
        "JetJobsError",
        "JobsNotHosted",
        "PayloadError",
        "PayloadInvalidError",
        "PayloadTooLargeError",
        "RunCancelled",
        "RunEnded",
        "RunFailed",
        "RunMissed",
        "RunNotFound",
        "RunSkipped",
        "RunTimedOut",
        "ScheduleError",
        "TriggerUnconfirmed",
        "UnknownJobError",
    ),
    "jetjobs.host": ("EventHealth", "HostHealth", "JobHealth", "JobHost"),
    "jetjobs.job": ("Job",),
    "jetjobs.module": ("Module",),
    "jetjobs.outcomes": ("Discard", "JobInterrupted", "RetryAfter", "Skip", "Snooze"),
    "jetjobs.sync": ("SyncJobClient",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


class _Package(ModuleType):
    """The package as a module whose names come when they are used."""

    __all__ = tuple(name for name in _HOME if name != "__version__")  # what `import *` brings

    def __getattr__(self, name: str) -> object:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = self.__dict__[name] = getattr(import_module(home), name)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        # `jetjobs.job` is the decorator. Python would put the module of that name in its place when it is imported.
        if not (name == "job" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOME})


sys.modules[__name__].__class__ = _Package
