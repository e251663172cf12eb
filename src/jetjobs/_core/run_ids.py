"""Run ids: chosen before anything is published, so that a publish whose answer was lost can be repeated.

A derived id is a letter, `-`, and the lower-case base32 of the first 20 bytes of a sha256 over its parts joined by
NUL, so that a client in any language names the same run. Ids are one subject token: at most 128 of `[A-Za-z0-9_=-]`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from jetjobs._core.models import RunKey
from jetjobs._core.tokens import encode_token
from jetjobs.errors import InvalidNameError

MAX_RUN_ID: Final = 128
MAX_KEY: Final = 4096

_RUN_ID: Final = re.compile(r"[A-Za-z0-9_=-]{1,128}")
_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = tuple(a + b for a in _DIGITS for b in _DIGITS)


def fresh_run_id(epoch_ms: int, randomness: bytes) -> str:
    """A ULID in lower case from a time and ten random bytes: ids sort by time.

    >>> fresh_run_id(0, bytes(10))
    '00000000000000000000000000'
    """
    if len(randomness) != 10 or not 0 <= epoch_ms < 1 << 48:
        raise ValueError("a ULID takes 48 bits of time and 10 random bytes")
    number = epoch_ms << 80 | int.from_bytes(randomness, "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


def is_fresh(run_id: str) -> bool:
    """Whether an id has the form of a fresh one, which nobody asks for twice.

    >>> is_fresh(fresh_run_id(0, bytes(10))), is_fresh("k-abc")
    (True, False)
    """
    return len(run_id) == 26 and "-" not in run_id


def run_id_for_key(module: str, job: str, key: str) -> str:
    """The one run an idempotency key names within a job.

    Raises:
        InvalidNameError: the key is no text, empty, or longer than 4,096 bytes.
    """
    return "k-" + _digest(module, job, check_key(key))


def run_id_for_tick(schedule_id: str, occurrence_ms: int) -> str:
    """The one run of a schedule's occurrence, given in epoch milliseconds."""
    return f"{schedule_id}-{occurrence_ms}"


def run_id_for_event(module: str, job: str, source_subject: str, message_id: str) -> str:
    """The one run of an event that carried a `Nats-Msg-Id`."""
    return "e-" + _digest(module, job, source_subject, message_id)


def run_id_for_child(parent: RunKey, module: str, job: str, key: str | int) -> str:
    """The one child run a parent triggers of a job under a key, or as its n-th (an int) of that job.

    The parent's next attempt names the same child. Key `"1"` and ordinal `1` are different children.
    """
    kind, name = ("ordinal", str(key)) if isinstance(key, int) else ("key", check_key(key))
    return "c-" + _digest(*parent, module, job, kind, name)


def run_id_for_retry(run: RunKey, retries: int) -> str:
    """The one run that retries a finished run for the n-th time: two people at once make one."""
    return "r-" + _digest(*run, str(retries))


def is_run_id(text: object) -> bool:
    """True when the text can be a run id as it is.

    >>> is_run_id("order-7"), is_run_id("order.7")
    (True, False)
    """
    return isinstance(text, str) and _RUN_ID.fullmatch(text) is not None


def safe_run_id(text: object) -> str:
    """A run id for what somebody outside calls a run: itself where it can be, else escaped, else hashed.

    >>> safe_run_id("order 7")
    'order=207'

    Raises:
        InvalidNameError: no text, or empty.
    """
    if isinstance(text, str) and _RUN_ID.fullmatch(text) is not None:
        return text
    if not isinstance(text, str) or not text:
        raise InvalidNameError(f"{ascii(text)[:80]} can't be a run id; write 1 to 128 letters, digits, '_' and '-'")
    escaped = encode_token(text)
    return escaped if len(escaped) <= MAX_RUN_ID else "h-" + _digest(text)


def check_key(key: object) -> str:
    """The key itself when it can be an idempotency key.

    Raises:
        InvalidNameError: no text, empty, longer than 4,096 bytes, or not encodable.
    """
    if not isinstance(key, str) or not key:
        raise InvalidNameError(f"{ascii(key)[:80]} can't be an idempotency key; write a text that isn't empty")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"the key {ascii(key)[:80]} holds half a character and has no UTF-8") from error
    if size > MAX_KEY:
        raise InvalidNameError(f"the key has {size} bytes, at most {MAX_KEY} are allowed: use a digest of it")
    return key


def _digest(*parts: str) -> str:
    # "surrogatepass": subjects and ids of events come from outside, and any text must give some id.
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return base64.b32encode(hashlib.sha256(data).digest()[:20]).decode().lower()
