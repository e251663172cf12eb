"""What a command says and returns when it can't do what it was asked.

==== =========================================================================================
code means
==== =========================================================================================
0    done
1    the run didn't succeed, `doctor` found a failure, or there was nothing left to change
2    the command line, a setting or the user's module is wrong
3    the broker isn't reachable, refused, or has no JetStream
4    no such job, run or host
130  Ctrl-C
==== =========================================================================================
"""

from __future__ import annotations

import re
from enum import IntEnum

from jetjobs.errors import (
    AccessDenied,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    ConfigError,
    DeclarationError,
    DuplicateRun,
    HostNotFound,
    InvalidNameError,
    JetJobsError,
    PayloadError,
    RunNotFound,
    ScheduleError,
    UnknownJobError,
)

_LOGIN = re.compile(r"(?<=://)[^\s\"']*@")
_USAGE = (ClientError, ConfigError, DeclarationError, InvalidNameError, PayloadError, ScheduleError)


class ExitCode(IntEnum):
    """What the process ends with; the module's docstring tells when."""

    OK = 0
    FAILED = 1
    USAGE = 2
    BROKER = 3
    NOT_FOUND = 4
    INTERRUPTED = 130


class Mistake(Exception):
    """A command can't go on. The message says what happened and what to do; it becomes one line on stderr."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


class UserCodeError(Exception):
    """The user's own module failed; `report` is its traceback without our frames."""

    def __init__(self, report: str, message: str) -> None:
        super().__init__(message)
        self.report = report


def exit_code(error: Exception) -> ExitCode:
    """The code for an error of jetjobs.

    >>> exit_code(RunNotFound("no run x")).value
    4
    """
    match error:
        case Mistake():
            return error.code
        case UnknownJobError() | RunNotFound() | HostNotFound():
            return ExitCode.NOT_FOUND
        case BrokerError():
            return ExitCode.BROKER
        case UserCodeError():
            return ExitCode.USAGE
        case _ if isinstance(error, _USAGE) and not isinstance(error, DuplicateRun):
            return ExitCode.USAGE
        case _:
            return ExitCode.FAILED


def message_of(error: Exception) -> str:
    """What stderr says after `error: `; never with credentials.

    >>> message_of(ConfigError("no server at nats://me:secret@a:4222"))
    'no server at nats://…@a:4222'
    """
    text = str(error) or type(error).__name__
    if isinstance(error, JetJobsError):
        # These speak to programmers; here the same thing is a flag.
        text = text.replace("pass allow_unknown=True", "add --allow-unknown")
        text = text.replace("see client.jobs.list()", "see `jetjobs jobs list`")
        text = text.replace("client.runs.get(run_id)", "`jetjobs runs show ID`")
    return hide_logins(text + _advice(error, text))


def _advice(error: Exception, text: str) -> str:
    """What to do, where the library can't know that there are flags."""
    if isinstance(error, AccessDenied) and "uthori" in text:
        return "; check who you are: --user, --password, --token, --creds, or their variables (NATS_USER, …)"
    if isinstance(error, BrokerUnavailable) and text.startswith("no NATS server"):
        return "; say where one is with --nats or NATS_URL, or start one (`jetjobs dev` has its own)"
    return ""


def hide_logins(text: str) -> str:
    """The text with every `user:password@` of a URL taken out."""
    return _LOGIN.sub("…@", text)
