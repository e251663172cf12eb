"""Durable background, scheduled and event-driven jobs on NATS JetStream."""

from __future__ import annotations

from jetjobs._core.models import RunRecord as RunRecord
from jetjobs._core.models import RunStatus as RunStatus
from jetjobs._core.policy import Backoff as Backoff
from jetjobs._core.policy import JobPolicy as JobPolicy
from jetjobs._core.triggers import Cron as Cron
from jetjobs._core.triggers import Every as Every
from jetjobs._core.triggers import OnEvent as OnEvent
from jetjobs.client import JobClient as JobClient
from jetjobs.client import JobRun as JobRun
from jetjobs.client import TriggerError as TriggerError
from jetjobs.client import TriggerRequest as TriggerRequest
from jetjobs.config import HostSettings as HostSettings
from jetjobs.config import JobRetention as JobRetention
from jetjobs.context import JobContext as JobContext
from jetjobs.declaring import job as job
from jetjobs.host import JobHost as JobHost
from jetjobs.job import Job as Job
from jetjobs.module import Module as Module
from jetjobs.outcomes import Discard as Discard
from jetjobs.outcomes import JobInterrupted as JobInterrupted
from jetjobs.outcomes import RetryAfter as RetryAfter
from jetjobs.outcomes import Snooze as Snooze
