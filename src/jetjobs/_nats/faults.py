"""One table from what NATS says went wrong to the errors of jetjobs.

`NotFound` and `Refused` stay inside this package's callers: both are `BrokerError`s with the broker's own
`code`, for the few places that decide by it. Everything a user can act on has a public type.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from nats import errors as nats_errors
from nats.js import errors as js_errors

from jetjobs.errors import (
    AccessDenied,
    AnswerUnknown,
    BrokerError,
    BrokerUnavailable,
    InvalidNameError,
    JetJobsError,
    JetStreamDisabled,
    PayloadTooLargeError,
    PermissionMissing,
    ProjectNotPrepared,
    StorageFull,
    StreamMismatch,
    WrongRevision,
)


class Refused(BrokerError):
    """The broker said no for a reason that has no error of its own; `code` is its number."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class NotFound(Refused):
    """The stream, consumer or message isn't there."""


class Mismatch(StreamMismatch):
    """A `StreamMismatch` with the broker's number."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


STREAM_NOT_FOUND: Final = 10059
STREAM_EXISTS: Final = 10058
CONSUMER_NOT_FOUND: Final = 10014
CONSUMER_EXISTS: Final = 10148
CONSUMER_MISSING: Final = 10149  # the answer to an update of what isn't there
MESSAGE_NOT_FOUND: Final = 10037

_NOT_FOUND: Final = frozenset({STREAM_NOT_FOUND, CONSUMER_NOT_FOUND, CONSUMER_MISSING, MESSAGE_NOT_FOUND})
_WRONG_SEQUENCE: Final = frozenset({10071, 10164})
_NO_JETSTREAM: Final = frozenset({10039, 10076})
# Account limits, memory, disk, and what a store says when it can't take one message more.
_NO_ROOM: Final = frozenset({10002, 10023, 10028, 10047, 10077})
# No leader yet, a leader being elected, or a peer that is still catching up: repeat later.
_NOT_NOW: Final = frozenset({10007, 10008, 10009})
_TOO_LARGE: Final = frozenset({10054, 10097})
# Configurations that contradict what exists or what the cluster can do.
_MISMATCH: Final = frozenset({
    10005, 10012, 10052, STREAM_EXISTS, 10065, 10074, 10098, 10099, 10100, 10113, 10120, CONSUMER_EXISTS,
})  # fmt: skip

_SEQUENCE: Final = re.compile(r"sequence: (\d+)")
_PERMISSION: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(?<=://)\S*@|(?<![\w/@])[^\s/@,\"'(]+:[^\s/@,]*@")
_DENIED: Final = (
    "authorization violation",
    "authentication",
    "authorization failed",
    "user credentials",
    "offers no tls",
)


def redact(text: str) -> str:
    """The text without any `user:password@` or `token@`.

    >>> redact("nats://me:secret@a:4222 and b:4222")
    'nats://***@a:4222 and b:4222'
    """
    # Two URLs joined by a comma may lose the first host's name; no form of a password may stay.
    return _CREDENTIALS.sub("***@", text)


def permission_subject(text: str) -> tuple[str, str] | None:
    """`("publish" | "subscription", subject)` of a permissions violation; nats-py gives it in lower case."""
    found = _PERMISSION.search(text)
    return (found[1].lower(), found[2]) if found else None


def permission_missing(kind: str, subject: str) -> PermissionMissing:
    """The error for a subject this user may not use, saying what to grant."""
    verb = "publish to" if kind == "publish" else "subscribe to"
    return PermissionMissing(f'this NATS user may not {verb} "{subject}": grant it, or use another user', subject)


def no_responders(subject: str, doing: str) -> BrokerError:
    """What silence on a subject means: no JetStream behind its API, else no stream (or no leader) yet."""
    if subject.startswith("$JS.API."):
        return JetStreamDisabled(
            f"{doing}: nobody answers the JetStream API. Start nats-server with -js, "
            "or enable JetStream for this account"
        )
    silence = "nobody answers" if subject == ">" else f'no stream takes "{subject}" now'
    return ProjectNotPrepared(
        f"{doing}: {silence}. No host has prepared this project on this broker yet: check the "
        "project's name and the broker's address, start a host or `jetjobs init`; or its stream has no leader"
    )


def from_api_error(error: Mapping[str, Any], doing: str) -> BrokerError | PayloadTooLargeError:
    """The error for a JetStream answer's `error` object."""
    code = int(error.get("err_code") or 0)
    said = str(error.get("description") or f"error {error.get('code')}")
    if code in _WRONG_SEQUENCE:
        found = _SEQUENCE.search(said)
        return WrongRevision(f"{doing}: {said}", int(found[1]) if found else None)
    if code in _NOT_FOUND:
        return NotFound(f"{doing}: {said}", code)
    return _by_table(code, f"{doing}: {said} ({code or error.get('code')})")


def _by_table(code: int, text: str) -> BrokerError | PayloadTooLargeError:
    if code in _NO_ROOM:
        return StorageFull(f"{text}. Free space or raise the limit; nothing was stored")
    if code in _NO_JETSTREAM:
        return JetStreamDisabled(f"{text}. Start nats-server with -js, or enable JetStream for this account")
    if code in _NOT_NOW:
        return BrokerUnavailable(text)
    if code in _TOO_LARGE:
        return PayloadTooLargeError(text)
    if code in _MISMATCH:
        return Mismatch(text, code)
    return Refused(text, code or None)


def translate(exc: BaseException, doing: str) -> JetJobsError:
    """The jetjobs error for anything nats-py or a socket raised while `doing`."""
    if isinstance(exc, JetJobsError):
        return exc
    if isinstance(exc, js_errors.APIError):
        described = {"code": exc.code, "err_code": exc.err_code, "description": exc.description}
        return from_api_error(described, doing)
    text = f"{doing}: {redact(str(exc) or type(exc).__name__)}"
    permission = permission_subject(text)
    if permission is not None:
        return permission_missing(*permission)
    return _by_type(exc, text)


def _by_type(exc: BaseException, text: str) -> JetJobsError:
    match exc:
        case ssl.SSLError() | nats_errors.SecureConnRequiredError() | nats_errors.SecureConnFailedError():
            return AccessDenied(f"{text}: check the CA, the certificate and the name in it (`tls`, `tls_hostname`)")
        case nats_errors.MaxPayloadError():
            return PayloadTooLargeError(text)
        case nats_errors.BadSubjectError() | nats_errors.BadHeaderError():
            return InvalidNameError(text)
        case nats_errors.TimeoutError():
            return AnswerUnknown(text)
        case _ if any(word in text.lower() for word in _DENIED):
            return AccessDenied(text)
        case _:
            return BrokerUnavailable(text)
