"""What a caller says to a job's call gateway, and what it is answered: bytes in, bytes out.

A caller needs no right on the jobs stream, so nothing of what it sends reaches the stream but the payload, validated,
and its key. Where the answer goes is the caller's text too, and it is sent with the rights of the host: only an inbox
will do, or a caller could have a host write on any subject.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from jetjobs._core import codec
from jetjobs._core.headers import CONTENT_TYPE, KEY, read_content_type, read_key
from jetjobs.errors import InvalidNameError, PayloadInvalidError

BUSY: Final = "Busy"
INTERNAL: Final = "InternalError"

_LONGEST_TEXT: Final = 4096
# Inboxes of clients, of whatever user; then what the server itself makes of them between accounts and clusters, and
# lets no client write.
_INBOXES: Final = ("_INBOX", "_R_.", "_GR_.")
_CONTENT_TYPE: Final = CONTENT_TYPE.lower()
_KEY: Final = KEY.lower()


class CallAsked(NamedTuple):
    """A call understood: the decoded payload, not yet validated, and the idempotency key."""

    payload: Any
    key: str | None


def read_call(headers: Mapping[str, str], data: bytes) -> CallAsked:
    """The call in a request; JSON unless `Content-Type` says msgpack, header names in any case.

    >>> read_call({"jetjobs-key": "order-7"}, b'{"id": 7}')
    CallAsked(payload={'id': 7}, key='order-7')

    Raises:
        PayloadInvalidError: the body isn't what it says it is.
        InvalidNameError: the key can't be one.
    """
    said = {name.lower(): value for name, value in headers.items()}
    try:
        encoding = read_content_type(said.get(_CONTENT_TYPE, "application/json"))
    except ValueError as error:
        raise PayloadInvalidError(f"the header {CONTENT_TYPE}: {error}") from None
    try:
        key = read_key(said[_KEY]) if _KEY in said else None
    except ValueError as error:
        raise InvalidNameError(f"the header {KEY}: {error}") from None
    return CallAsked(codec.decode(data, encoding), key)


def accepted(run_id: str, *, duplicate: bool, payload_differs: bool = False) -> bytes:
    """The answer to a call whose run is stored.

    >>> accepted("k-1", duplicate=False)
    b'{"run_id":"k-1","duplicate":false}'
    """
    answer: dict[str, Any] = {"run_id": run_id, "duplicate": duplicate}
    if payload_differs:
        answer["payload_differs"] = True
    return _packed(answer)


def refused(kind: str, message: str, run_id: str | None = None) -> bytes:
    """The answer to a call that came to nothing; `run_id` names a run that may be stored all the same.

    >>> refused("Busy", "later")
    b'{"error":{"type":"Busy","message":"later"}}'
    """
    error: dict[str, Any] = {"type": kind, "message": message[:_LONGEST_TEXT]}
    if run_id is not None:
        error["run_id"] = run_id
    return _packed({"error": error})


def is_inbox(reply: str) -> bool:
    """Whether an answer may go to this subject.

    >>> is_inbox("_INBOX.abc.1"), is_inbox("jetjobs.shop.trigger.a.b.run.x"), is_inbox("$JS.API.STREAM.PURGE.S")
    (True, False, False)
    """
    return reply.startswith(_INBOXES)


def _packed(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()
