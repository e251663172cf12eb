"""The jobs stream, its consumers, buckets and keys: every name of what is stored, built here, parsed here.

Core NATS has its own (`signal_subjects`), and so have large bodies (`payload_subjects`).

Names of modules and jobs become one token each (`tokens`), readable on purpose: operators see them in `nats sub` and
grant permissions by them, as in `billing=2Einvoices`. Run ids are tokens already (`run_ids`).

What is the same for all runs of a job is computed once, so a run's subject costs one concatenation.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from jetjobs._core.models import JobAddress, RunKey
from jetjobs._core.run_ids import check_key as check_key
from jetjobs._core.run_ids import fresh_run_id as fresh_run_id
from jetjobs._core.run_ids import is_run_id as is_run_id
from jetjobs._core.run_ids import run_id_for_child as run_id_for_child
from jetjobs._core.run_ids import run_id_for_event as run_id_for_event
from jetjobs._core.run_ids import run_id_for_key as run_id_for_key
from jetjobs._core.run_ids import run_id_for_retry as run_id_for_retry
from jetjobs._core.run_ids import run_id_for_tick as run_id_for_tick
from jetjobs._core.run_ids import safe_run_id as safe_run_id
from jetjobs._core.tokens import check_address as check_address
from jetjobs._core.tokens import check_job_name as check_job_name
from jetjobs._core.tokens import check_module_name as check_module_name
from jetjobs._core.tokens import check_project as check_project
from jetjobs._core.tokens import decode_token as decode_token
from jetjobs._core.tokens import encode_token as encode_token
from jetjobs._core.tokens import split_address as split_address
from jetjobs.errors import InvalidNameError

TriggerSubjectKind = Literal["run", "tick"]


class TriggerSubject(NamedTuple):
    """A trigger subject taken apart: `id` is a run id, or a schedule id where `kind` is `tick`."""

    kind: TriggerSubjectKind
    module: str
    job: str
    id: str


# ------------------------------------------------------------------------------------------------ the jobs stream


def stream(project: str) -> str:
    """Name of the jobs stream."""
    return f"JETJOBS_{project}"


def all_triggers(project: str) -> str:
    """All trigger subjects of the project."""
    return f"jetjobs.{project}.trigger.>"


def all_schedules(project: str) -> str:
    """All schedule subjects of the project."""
    return f"jetjobs.{project}.schedule.>"


def trigger_subject(project: str, run: RunKey) -> str:
    """Subject of a run's own trigger."""
    return _prefix(project, "trigger", run.module, run.job) + "run." + run.run_id


def tick_subject(project: str, address: JobAddress, schedule_id: str) -> str:
    """Subject all ticks of one schedule share."""
    return _prefix(project, "trigger", address.module, address.job) + "tick." + schedule_id


def schedule_subject(project: str, address: JobAddress, schedule_id: str) -> str:
    """Subject of a recurring schedule."""
    return _prefix(project, "schedule", address.module, address.job) + "tick." + schedule_id


def retry_subject(project: str, run: RunKey, turn: int) -> str:
    """Subject of the schedule that brings a run's message of this turn: a delayed run has turn 1."""
    return f"{_prefix(project, 'schedule', run.module, run.job)}run.{run.run_id}.{turn}"


def run_schedules(project: str, run: RunKey) -> str:
    """Subjects of the schedules of a run, whatever their turn."""
    return f"{_prefix(project, 'schedule', run.module, run.job)}run.{run.run_id}.*"


def trigger_id_pattern(project: str, run_id: str) -> str:
    """Subjects of the triggers of a run of whatever job."""
    return f"jetjobs.{project}.trigger.*.*.run.{run_id}"


def schedule_id_pattern(project: str, run_id: str) -> str:
    """Subjects of the schedules of a run of whatever job, whatever their turn."""
    return f"jetjobs.{project}.schedule.*.*.run.{run_id}.*"


def run_patterns(project: str, address: JobAddress | None = None, module: str | None = None) -> tuple[str, str]:
    """Subjects of the schedules and of the triggers of all runs, or of a job's, or of a module's."""
    if address is None:
        within = f"{'*' if module is None else encode_token(module)}.*"
    else:
        within = f"{encode_token(address.module)}.{encode_token(address.job)}"
    return f"jetjobs.{project}.schedule.{within}.run.>", f"jetjobs.{project}.trigger.{within}.run.>"


def run_places(project: str, run: RunKey) -> tuple[str, str, str]:
    """Where a message of a run may be, in an order in which none that exists is missed.

    One may be on its way from schedule to trigger, so the trigger is read, then the schedule, then the trigger again.
    """
    trigger = trigger_subject(project, run)
    return trigger, run_schedules(project, run), trigger


def run_id_places(project: str, run_id: str) -> tuple[str, str, str]:
    """The same for a run whose job isn't known."""
    trigger = trigger_id_pattern(project, run_id)
    return trigger, schedule_id_pattern(project, run_id), trigger


def consumer(address: JobAddress) -> str:
    """Name of a job's durable consumer. `=_` can't come from a name, so it parts the two for certain.

    >>> consumer(JobAddress("billing.invoices", "send"))
    'billing=2Einvoices=_send'
    """
    return f"{encode_token(address.module)}=_{encode_token(address.job)}"


def event_consumer(project: str, address: JobAddress, trigger_digest: str) -> str:
    """Name of an event trigger's queue group, and of its durable on a user's stream.

    The project is part of the digest: the subjects and streams of other services belong to no project, and two
    projects under one name would take each other's events.

    >>> event_consumer("shop", JobAddress("billing", "thank"), "0a1b2c")
    'billing=_thank=_cfcef317126ed5f8'
    """
    digest = hashlib.sha256(f"{project}:{trigger_digest}".encode()).hexdigest()[:16]
    return f"{consumer(address)}=_{digest}"


def consumer_filters(project: str, address: JobAddress) -> tuple[str, str]:
    """What a job's consumer takes. `high` and `low` stay free for consumers of their own."""
    prefix = _prefix(project, "trigger", address.module, address.job)
    return prefix + "run.>", prefix + "tick.>"


def parse_trigger_subject(project: str, subject: str) -> TriggerSubject | None:
    """The parts of a trigger subject of this project; `None` when the tokens are wrong."""
    head, _, last = subject.rpartition(".")
    known = _trigger_head(project, head)
    return TriggerSubject(*known, last) if known is not None and last else None


@lru_cache(maxsize=4096)
def _prefix(project: str, branch: str, module: str, job: str) -> str:
    return f"jetjobs.{project}.{branch}.{encode_token(module)}.{encode_token(job)}."


@lru_cache(maxsize=4096)
def _trigger_head(project: str, head: str) -> tuple[TriggerSubjectKind, str, str] | None:
    match head.split("."):
        case ["jetjobs", owner, "trigger", module, job, "run" | "tick" as kind] if owner == project:
            address = address_of(module, job)
            return (kind, address.module, address.job) if address is not None else None
        case _:
            return None


@lru_cache(maxsize=4096)
def address_of(module: str, job: str) -> JobAddress | None:
    """The job that two tokens name; `None` when they name none."""
    try:
        return JobAddress(decode_token(module), decode_token(job))
    except InvalidNameError:
        return None


def run_of(tokens: list[str]) -> RunKey | None:
    """The run that three tokens name; `None` when they name none."""
    if len(tokens) != 3 or not tokens[2]:
        return None
    address = address_of(tokens[0], tokens[1])
    return RunKey(*address, tokens[2]) if address is not None else None


# ------------------------------------------------------------------------------------------------ buckets


def runs_bucket(project: str) -> str:
    """Name of the bucket of run records."""
    return f"jetjobs_{project}_runs"


def schedules_bucket(project: str) -> str:
    """Name of the bucket of schedules."""
    return f"jetjobs_{project}_schedules"


def jobs_bucket(project: str) -> str:
    """Name of the bucket of job descriptors."""
    return f"jetjobs_{project}_jobs"


def hosts_bucket(project: str) -> str:
    """Name of the bucket of live hosts."""
    return f"jetjobs_{project}_hosts"


def bucket_stream(bucket: str) -> str:
    """Name of the stream under a bucket."""
    return f"KV_{bucket}"


def bucket_subject(bucket: str, key: str) -> str:
    """Subject of a bucket's key."""
    return f"$KV.{bucket}.{key}"


def is_in_bucket(subject: str) -> bool:
    """Whether a subject is that of some bucket's key.

    >>> is_in_bucket(bucket_subject(jobs_bucket("shop"), "a.b")), is_in_bucket("jetjobs.shop.trigger.a.b.run.r")
    (True, False)
    """
    return subject.startswith("$KV.")


def record_key(run: RunKey) -> str:
    """Key of a run's record."""
    return _key_prefix(run.module, run.job) + run.run_id


def record_subject(project: str, run: RunKey) -> str:
    """Subject of a run's record."""
    return _record_prefix(project, run.module, run.job) + run.run_id


def record_pattern(project: str, address: JobAddress | None = None, module: str | None = None) -> str:
    """Subjects of all records, or of a job's, or of a module's."""
    if address is not None:
        return _record_prefix(project, address.module, address.job) + "*"
    within = "*" if module is None else encode_token(module)
    return f"$KV.jetjobs_{project}_runs.{within}.*.*"


def record_id_pattern(project: str, run_id: str) -> str:
    """Subjects of the records with this run id, of whatever job."""
    return f"$KV.jetjobs_{project}_runs.*.*.{run_id}"


def job_key(address: JobAddress) -> str:
    """Key of a job's descriptor."""
    return f"{encode_token(address.module)}.{encode_token(address.job)}"


DESCRIPTOR_KEYS: Final = "*.*"
CONTROL_KEYS: Final = "control.*.*"


def control_key(address: JobAddress) -> str:
    """Key of what people ordered for a job: three tokens, where a descriptor has two."""
    return f"control.{job_key(address)}"


def host_key(host_id: str) -> str:
    """Key of a host's entry."""
    return encode_token(host_id)


def schedule_key(schedule_id: str) -> str:
    """Key of a schedule's record."""
    return f"id.{encode_token(schedule_id)}"


def schedule_name_key(name: str) -> str:
    """Key under which a schedule's name leads to its id, so that no two have one name."""
    return f"name.{encode_token(name)}"


def lease_key(name: str) -> str:
    """Key of a lease in the hosts' bucket: two tokens, where a host's has one."""
    return f"lease.{encode_token(name)}"


@lru_cache(maxsize=4096)
def _key_prefix(module: str, job: str) -> str:
    return f"{encode_token(module)}.{encode_token(job)}."


@lru_cache(maxsize=4096)
def _record_prefix(project: str, module: str, job: str) -> str:
    return f"$KV.jetjobs_{project}_runs.{_key_prefix(module, job)}"
