"""Encoded payloads and results, and what stands for those too large to travel along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jetjobs._core import codec

# Bodies up to this size travel in the message and the record; larger ones as a claim check.
INLINE_LIMIT = 16 * 1024
MAX_PAYLOAD = 64 * 1024 * 1024  # of one body, unless settings say something else


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Where a large body lies in the payload stream: `chunks` messages under `subject.<n>`, n from 0."""

    subject: str
    chunks: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Body:
    """An encoded payload or result: inline bytes, or the claim check that stands for them."""

    data: bytes = b""
    encoding: Literal["msgpack", "json"] = "msgpack"
    claim: ClaimCheck | None = None

    @property
    def value(self) -> Any:
        """The decoded value; a `ClaimCheck` where the bytes were not fetched.

        Raises:
            PayloadInvalidError: the bytes are neither what `encoding` says nor nothing.
        """
        return self.claim if self.claim is not None else codec.decode(self.data, self.encoding)
