"""Which jobs want a process of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetjobs.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetjobs.job import Job


def check_isolation(jobs: Iterable[Job[Any, Any]]) -> None:
    """Refuse jobs that ask for a process: what they were promised, to be killed for certain, can't be kept yet.

    Raises:
        ConfigError: names the job.
    """
    for job in jobs:
        if job.policy.isolation == "process" and not job.is_async:
            raise ConfigError(
                f'job {job.address} ({job.where}): isolation="process" is not there yet, and a thread can\'t be killed '
                'for certain; write isolation="thread" to run it in one'
            )
