"""Subjects of core NATS: rung, asked, announced and called. Nothing is stored on them."""

from __future__ import annotations

from jetjobs._core.models import JobAddress, RunKey, RunStatus
from jetjobs._core.names import address_of, job_key, record_key, run_of
from jetjobs._core.tokens import encode_token


def cancel_subject(project: str, run: RunKey) -> str:
    """Doorbell that tells a run's host to look at the record's cancel mark."""
    return f"jetjobs.{project}.control.cancel.{record_key(run)}"


def all_cancels(project: str) -> str:
    """Doorbells of all runs of the project."""
    return f"jetjobs.{project}.control.cancel.>"


def parse_cancel_subject(project: str, subject: str) -> RunKey | None:
    """The run whose doorbell rang; `None` for any other subject."""
    prefix = f"jetjobs.{project}.control.cancel."
    return run_of(subject.removeprefix(prefix).split(".")) if subject.startswith(prefix) else None


def control_subject(project: str, address: JobAddress) -> str:
    """Doorbell that tells hosts to look at what was ordered for a job."""
    return f"jetjobs.{project}.control.jobs.{job_key(address)}"


def all_controls(project: str) -> str:
    """Doorbells of all jobs of the project."""
    return f"jetjobs.{project}.control.jobs.>"


def parse_control_subject(project: str, subject: str) -> JobAddress | None:
    """The job whose doorbell rang; `None` for any other subject."""
    prefix = f"jetjobs.{project}.control.jobs."
    tokens = subject.removeprefix(prefix).split(".") if subject.startswith(prefix) else []
    return address_of(*tokens) if len(tokens) == 2 else None


def drain_subject(project: str, host_id: str) -> str:
    """Where a host can be asked to stop taking runs."""
    return f"jetjobs.{project}.control.drain.{encode_token(host_id)}"


def host_subject(project: str, host_id: str) -> str:
    """Where a host answers whether it still holds a run."""
    return f"jetjobs.{project}.control.host.{encode_token(host_id)}"


def ended_subject(project: str, status: RunStatus, run: RunKey) -> str:
    """Where the end of a run is announced."""
    return f"jetjobs.{project}.events.{status.value}.{record_key(run)}"


def ended_pattern(project: str, run: RunKey) -> str:
    """Where the end of a run is announced, whatever its status."""
    return f"jetjobs.{project}.events.*.{record_key(run)}"


def announces_end(project: str, subject: str, address: JobAddress) -> bool:
    """Whether a subject is that of the end of one of that job's runs.

    >>> announces_end("shop", "jetjobs.shop.events.FAILED.ops.alarm.r1", JobAddress("ops", "alarm"))
    True
    >>> announces_end("shop", "jetjobs.shop.events.FAILED.ops.work.r1", JobAddress("ops", "alarm"))
    False
    """
    prefix = f"jetjobs.{project}.events."
    _, _, run = subject[len(prefix) :].partition(".")
    return subject.startswith(prefix) and run.startswith(f"{job_key(address)}.")


def call_subject(project: str, address: JobAddress) -> str:
    """Where a job's call gateway listens."""
    return f"jetjobs.{project}.call.{job_key(address)}"
