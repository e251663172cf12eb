"""A short digest of what is said, to tell two sayings apart."""

from __future__ import annotations

import hashlib
import json


def digest_of(value: object) -> str:
    """A short digest of a JSON-like value, the same whatever the order of its keys.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
