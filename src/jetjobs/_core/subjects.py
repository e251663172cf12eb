"""Which subjects and streams of other services an event trigger may listen on."""

from __future__ import annotations

import re
from typing import Final

from jetjobs.errors import InvalidNameError

MAX_SUBJECT: Final = 1024  # the broker closes the connection over 4,096
_OWN: Final = frozenset({"trigger", "schedule", "control", "call", "payload", "*"})
_STREAM: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]{1,255}")


def check_subject(subject: object) -> str:
    """The subject itself when an event trigger may listen on it; wildcards are allowed.

    Raises:
        InvalidNameError: it is no subject, a system one, or takes jetjobs' own messages too.
    """
    if not isinstance(subject, str) or not subject:
        raise InvalidNameError(f'an event subject is a text such as "orders.paid", not {subject!r}')
    if len(subject.encode("utf-8", "replace")) > MAX_SUBJECT:
        raise InvalidNameError(
            f"an event subject of {len(subject)} characters is too long; {MAX_SUBJECT} bytes at most"
        )
    if not subject.isprintable() or " " in subject:
        raise InvalidNameError(f"event subject {subject!r} has a space or control character; part words by dots")
    tokens = subject.split(".")
    _check_tokens(subject, tokens)
    if tokens[0].startswith(("$", "_INBOX")):
        raise InvalidNameError(f"event subject {subject!r} belongs to the broker; listen on a subject of your service")
    if _takes_own(tokens):
        raise InvalidNameError(
            f"event subject {subject!r} takes jetjobs' own messages too, so each run would ask for another; "
            'write a narrower one such as "orders.>"'
        )
    return subject


def check_stream(name: object) -> str:
    """The stream's name itself when a stream can have it.

    Raises:
        InvalidNameError: none can.
    """
    if not isinstance(name, str) or not _STREAM.fullmatch(name):
        raise InvalidNameError(f"{name!r} is no stream name; it has no spaces, dots, *, > or slashes")
    return name


def _check_tokens(subject: str, tokens: list[str]) -> None:
    for place, part in enumerate(tokens):
        if not part:
            raise InvalidNameError(f"event subject {subject!r} has an empty part; write single dots between parts")
        if part == ">" and place < len(tokens) - 1:
            raise InvalidNameError(f"event subject {subject!r}: > stands at the end only; write * for one part")
        if part not in {"*", ">"} and ("*" in part or ">" in part):
            raise InvalidNameError(f"event subject {subject!r}: {part!r} is no wildcard; * and > stand alone")


def _takes_own(tokens: list[str]) -> bool:
    """Whether a pattern takes `jetjobs.<project>.<branch>.…` with a branch that jetjobs writes or reads."""
    if tokens[0] == ">":
        return True
    if tokens[0] not in {"jetjobs", "*"}:
        return False
    if ">" in tokens[:3]:
        return True
    return len(tokens) >= 4 and tokens[2] in _OWN
