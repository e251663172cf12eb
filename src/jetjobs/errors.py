"""Every error jetjobs raises, one tree.

::

    JetJobsError
    ├── ConfigError (ValueError)             a setting that can't be, or two that contradict
    ├── DeclarationError (TypeError)         a job, module or trigger that can't be declared so
    │   └── DuplicateJobError                one name declared twice; names both places
    ├── InvalidNameError (ValueError)        a project, module, job name or id outside the alphabet
    ├── PayloadError (TypeError)             a value that can't be stored; names the path to it
    │   ├── PayloadTooLargeError             more bytes than `max_payload`
    │   └── PayloadInvalidError              stored bytes or values that don't fit the handler
    ├── ScheduleError (ValueError)           a cron line or interval that means nothing
    │   └── ScheduleNameTaken                another schedule has the name
    ├── BrokerError                          something between us and NATS
    │   ├── BrokerUnavailable                not reachable in time; nothing was sent
    │   │   └── ProjectNotPrepared           reachable, but no host ever made this project's streams
    │   ├── AnswerUnknown                    sent, not answered: it may have happened
    │   │   └── TriggerUnconfirmed           the same for a trigger; has `.run_id`, repeat it safely
    │   ├── WrongRevision                    somebody else wrote first (10071)
    │   ├── AccessDenied                     wrong password, token, creds or TLS
    │   ├── PermissionMissing                the user may not use a subject; has `.subject`
    │   ├── JetStreamDisabled                the server or account has no JetStream
    │   ├── ServerTooOld                     has `.found` and `.needed`
    │   ├── StorageFull                      a limit of stream, account or disk
    │   ├── StreamMismatch                   what exists differs in a way we may not change
    │   └── ServerStartError                 the embedded broker didn't come up
    │       └── ServerBinaryNotFound         no usable nats-server on this machine
    ├── ClientError                          a call that can't be answered as asked
    │   ├── UnknownJobError                  nobody described such a job; has `.close_names`
    │   ├── JobsNotHosted                    a `Job` that is bound to no client or host
    │   ├── AmbiguousHostError               a `Job` bound to two different projects
    │   ├── HostNotFound                     no live host of this id
    │   ├── RunNotFound / AmbiguousRunId     no run, or runs of several jobs, with this id
    │   ├── DuplicateRun                     `on_duplicate="raise"`; has `.run_id`
    │   └── BlockingCallError                a blocking call on a thread that runs an event loop
    ├── HostError                            a host that can't start or whose loop died
    └── RunEnded                             `result()` of a run without a value; has `.record`
        ├── RunFailed ├── RunTimedOut ├── RunCancelled ├── RunSkipped └── RunMissed

What a handler raises to steer its own run is not an error and lives in `jetjobs.outcomes`.
Messages say what happened, which name, and what to do; credentials never appear in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jetjobs._core.models import RunRecord


class JetJobsError(Exception):
    """The root: catch this to catch everything jetjobs raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is made anew of its `args` alone, which for those with more to tell raises: a pool of
        # processes would break instead of telling the error.
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[JetJobsError], args: tuple[object, ...], told: Mapping[str, object]) -> JetJobsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(told)
    return error


class ConfigError(JetJobsError, ValueError):
    """A setting is impossible or contradicts another; the message shows both values."""


class DeclarationError(JetJobsError, TypeError):
    """A job, module or trigger can't be declared this way; the message shows a model to write."""


class DuplicateJobError(DeclarationError):
    """One name is declared twice; the message names both places."""


class InvalidNameError(JetJobsError, ValueError):
    """A name is outside the alphabet or length that subjects and keys allow."""


class PayloadError(JetJobsError, TypeError):
    """A payload or result can't be stored; the message names the path, as in `payload["x"][0]`."""


class PayloadTooLargeError(PayloadError):
    """More bytes than `max_payload` allows; the message names size and limit."""


class PayloadInvalidError(PayloadError):
    """Bytes that can't be decoded, or values that don't fit the handler's payload type."""


class ScheduleError(JetJobsError, ValueError):
    """A cron line, interval or instant that means nothing, with what to write instead."""


class ScheduleNameTaken(ScheduleError):
    """Another schedule of the project has this name."""


class BrokerError(JetJobsError):
    """Something between this process and NATS."""


class BrokerUnavailable(BrokerError):
    """The broker was not reachable in time, and nothing was sent."""


class ProjectNotPrepared(BrokerUnavailable):
    """No stream takes the project's messages: no host ever started there, or the stream has no leader yet."""


class AnswerUnknown(BrokerError):
    """A write was sent and its answer never came: it may have happened. Read before repeating."""


class TriggerUnconfirmed(AnswerUnknown):
    """A trigger may have been stored. Repeating the call with `run_id` or its key is safe."""

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class WrongRevision(BrokerError):
    """A compare-and-set lost: the subject's last sequence is not the expected one (10071).

    `actual` is the sequence found, when the broker told it.
    """

    def __init__(self, message: str, actual: int | None = None) -> None:
        super().__init__(message)
        self.actual = actual


class AccessDenied(BrokerError):
    """The broker refused the credentials or the TLS handshake failed."""


class PermissionMissing(BrokerError):
    """The user may not publish or subscribe to `subject`."""

    def __init__(self, message: str, subject: str | None = None) -> None:
        super().__init__(message)
        self.subject = subject


class JetStreamDisabled(BrokerError):
    """The server or the account has no JetStream."""


class ServerTooOld(BrokerError):
    """The server can't do message schedules."""

    def __init__(self, message: str, found: str, needed: str) -> None:
        super().__init__(message)
        self.found = found
        self.needed = needed


class StorageFull(BrokerError):
    """The stream, the account or the disk has no room left; nothing was stored."""


class StreamMismatch(BrokerError):
    """A stream, bucket or consumer exists with a configuration we may not change."""


class ServerStartError(BrokerError):
    """The embedded broker didn't come up; the message ends with its own last words."""


class ServerBinaryNotFound(ServerStartError):
    """There is no nats-server ≥ 2.14 on this machine."""


class ClientError(JetJobsError):
    """A call can't be answered as asked."""


class UnknownJobError(ClientError):
    """No host ever described this job in this project."""

    def __init__(self, message: str, close_names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.close_names = tuple(close_names)


class JobsNotHosted(ClientError):
    """A `Job` was triggered that is bound to no client and no host; the message says how to bind it."""


class AmbiguousHostError(ClientError):
    """A `Job` is bound to two different projects, so a bare `trigger` can't know which is meant."""


class HostNotFound(ClientError):
    """No host of this id lives in the project; the message lists those that do."""


class RunNotFound(ClientError):
    """There is neither a record nor a message of this run."""


class AmbiguousRunId(ClientError):
    """Runs of several jobs carry this id; name module and job."""


class DuplicateRun(ClientError):
    """`on_duplicate="raise"`: the key already has a run."""

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class BlockingCallError(ClientError):
    """A blocking call on a thread whose event loop is running would stop that loop."""


class HostError(JetJobsError):
    """A host can't start, or one of its loops died."""


class RunEnded(JetJobsError):
    """A run ended without a value; `record` tells everything known."""

    def __init__(self, message: str, record: RunRecord) -> None:
        super().__init__(message)
        self.record = record


class RunFailed(RunEnded):
    """The run ended FAILED."""


class RunTimedOut(RunEnded):
    """The run ended TIMED_OUT."""


class RunCancelled(RunEnded):
    """The run ended CANCELLED."""


class RunSkipped(RunEnded):
    """The run ended SKIPPED: its handler said there was nothing to do."""


class RunMissed(RunEnded):
    """The run ended MISSED: it could not start in time."""
