"""What people ordered for a job while it is in use: paused or not, and another limit than its code declares.

Orders stand beside the descriptor, under a key of their own, so that a host that describes its jobs again can't undo
them. What a job comes to follows from both: `standing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from jetjobs._core.checks import whole
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.models import NOTHING, JobAddress
from jetjobs._core.texts import cut
from jetjobs.errors import ConfigError

_LONGEST_ACTOR = 200


@dataclass(frozen=True, slots=True)
class JobControl:
    """The orders for one job. `switched` tells of the last pause or resume, `limited` of the last change of the limit.

    `max_concurrency` is the limit ordered, `None` where the declared one holds.
    """

    module: str
    job: str
    paused: bool = False
    switched_by: str | None = None
    switched_at: datetime | None = None
    max_concurrency: int | None = None
    limited_by: str | None = None
    limited_at: datetime | None = None
    extra: Mapping[str, Any] = NOTHING

    @property
    def address(self) -> JobAddress:
        """The job meant."""
        return JobAddress(self.module, self.job)


class Standing(NamedTuple):
    """What a job comes to: runs at once over all hosts, and whether none may start."""

    limit: int
    paused: bool


@dataclass(frozen=True, slots=True)
class JobInfo(JobDescriptor):
    """A job as hosts describe it, with what people ordered; `control` is `None` where nobody ever did.

    `inherited` is what was ordered for the job by its present name, where this is an old one: it holds here, too.
    """

    control: JobControl | None = None
    inherited: JobControl | None = None

    @property
    def paused(self) -> bool:
        """Whether no run of it may start."""
        return standing(self.max_concurrency, self.inherited, self.control).paused

    @property
    def limit(self) -> int:
        """Runs at once over all hosts, as it is now."""
        return standing(self.max_concurrency, self.inherited, self.control).limit


def job_info(descriptor: JobDescriptor, control: JobControl | None, inherited: JobControl | None = None) -> JobInfo:
    """They put together."""
    described = {each.name: getattr(descriptor, each.name) for each in fields(JobDescriptor)}
    return JobInfo(**described, control=control, inherited=inherited)


def present_name(descriptor: JobDescriptor) -> JobAddress | None:
    """The job by its present name, where this describes an old one."""
    return None if descriptor.now_called is None else JobAddress(descriptor.module, descriptor.now_called)


def standing(declared: int, *controls: JobControl | None) -> Standing:
    """What a job comes to that declares this limit: the first limit ordered holds, and any pause.

    >>> standing(8, None, JobControl("billing", "send", max_concurrency=2))
    Standing(limit=2, paused=False)
    """
    limit = limiting(*controls)
    ordered = None if limit is None else limit.max_concurrency
    pause = pausing(*controls)
    return Standing(declared if ordered is None else ordered, pause is not None and pause.paused)


def pausing(*controls: JobControl | None) -> JobControl | None:
    """The orders that say whether the job is paused: the first that pause it, else the last."""
    return next((control for control in controls if control is not None and control.paused), (None, *controls)[-1])


def limiting(*controls: JobControl | None) -> JobControl | None:
    """The orders that say which limit holds: the first with one, else the last."""
    ordered = (control for control in controls if control is not None and control.max_concurrency is not None)
    return next(ordered, (None, *controls)[-1])


def switch(control: JobControl, *, paused: bool, actor: str | None, now: datetime) -> JobControl:
    """The orders once the job is paused, or resumed; the same object when it is so already."""
    if control.paused == paused:
        return control
    return replace(control, paused=paused, switched_by=actor, switched_at=now)


def override(control: JobControl, max_concurrency: int | None, *, actor: str | None, now: datetime) -> JobControl:
    """The orders with another limit, or with none; the same object when it is so already."""
    if control.max_concurrency == max_concurrency:
        return control
    return replace(control, max_concurrency=max_concurrency, limited_by=actor, limited_at=now)


def check_limit(max_concurrency: object) -> int | None:
    """A limit that can be ordered, or `None` for the declared one.

    Raises:
        ConfigError: it is no whole number above zero.
    """
    if max_concurrency == 0 and not isinstance(max_concurrency, bool):
        raise ConfigError("max_concurrency must be 1 or more; to keep all runs from starting, pause the job")
    return None if max_concurrency is None else whole("max_concurrency", max_concurrency)


def check_actor(actor: object) -> str | None:
    """Who orders something, as it is kept; long names are cut.

    Raises:
        ConfigError: it is no text.
    """
    if actor is None or actor == "":
        return None
    if not isinstance(actor, str):
        raise ConfigError(f"actor must be a text that says who does it, not {actor!r}")
    return cut(actor, _LONGEST_ACTOR)
