"""How a child process's end reads: as the ending of an attempt, and as what a hook in the host is given for it."""

from __future__ import annotations

import signal

from jetjobs._core.completion import Ending, Raised, Returned, Skipped, Snoozed
from jetjobs._core.models import RunError
from jetjobs._core.texts import run_error
from jetjobs.errors import JetJobsError
from jetjobs.outcomes import Discard, JobInterrupted, RetryAfter, Skip, Snooze

DIED = "ProcessDied"


class FailedInChild(JetJobsError):
    """What an `after_attempt` hook is given for an exception that stayed in the child; `error` describes it."""

    def __init__(self, error: RunError) -> None:
        super().__init__(str(error))
        self.error = error


def error_of(ending: Ending, reason: str | None) -> BaseException | None:
    """What a hook is given for what the handler raised, which stayed in the child."""
    match ending:
        case Returned():
            return None
        case Skipped(text):
            return Skip(text)
        case Snoozed(delay):
            return Snooze(delay)
        case Raised():
            return _raised_error(ending)
        case _:
            return JobInterrupted(reason or "cancel")


def _raised_error(ending: Raised) -> BaseException:
    error = ending.error
    if ending.after is not None:
        return RetryAfter(ending.after, error.message)
    return Discard(error.message) if error.type == Discard.__name__ else FailedInChild(error)


def died(text: str) -> Raised:
    """The failed attempt of a handler whose process died."""
    return Raised(run_error(DIED, text))


def is_death(ending: Ending) -> bool:
    """Whether it is that."""
    return isinstance(ending, Raised) and ending.error.type == DIED


def how(code: int) -> str:
    """What an exit code says; a negative one is of a signal."""
    if code >= 0:
        return f"child process died: exit code {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    return f"child process died: signal {-code}{name}"
