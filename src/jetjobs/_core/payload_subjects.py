"""Names of the stream of large bodies and its subjects: one body's chunks, and all of a run's."""

from __future__ import annotations

from typing import Literal

from jetjobs._core.run_ids import is_run_id
from jetjobs._core.tokens import encode_token


def payload_stream(project: str) -> str:
    """Name of the stream of large bodies."""
    return f"JETJOBS_{project}_payloads"


def all_payloads(project: str) -> str:
    """All subjects of the payload stream."""
    return f"jetjobs.{project}.payload.>"


def payload_subject(project: str, run_id: str, direction: Literal["in", "out"], name: str) -> str:
    """Subject of a large body; its chunks append `.<n>`, n from 0."""
    return f"jetjobs.{project}.payload.{run_id}.{direction}.{encode_token(name)}"


def payload_pattern(project: str, run_id: str) -> str:
    """All chunks of all bodies of a run."""
    return f"jetjobs.{project}.payload.{run_id}.>"


def payload_run_id(subject: str) -> str:
    """The run id in the subject of a chunk.

    >>> payload_run_id("jetjobs.shop.payload.r1.in.abc.0")
    'r1'
    """
    return subject.split(".", 4)[3]


def is_payload_subject(project: str, subject: str) -> bool:
    """True for what `payload_subject` writes: a claim check from outside may name nothing else."""
    match subject.split("."):
        case ["jetjobs", owner, "payload", run_id, "in" | "out", name]:
            return owner == project and is_run_id(run_id) and is_run_id(name)
        case _:
            return False
