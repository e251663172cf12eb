"""A run's record as it may be shown: without what its job's `redact` hides."""

from __future__ import annotations

from collections.abc import Sequence

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.models import RunRecord
from jetjobs._core.redaction import HIDDEN, redact
from jetjobs.client import JobClient
from jetjobs.errors import PayloadError, UnknownJobError


async def shown(client: JobClient, record: RunRecord) -> RunRecord:
    """The record with the hidden parts of payload and result replaced; itself when its job hides nothing."""
    try:
        described = await client.jobs.get(record.module, record.job)
    except UnknownJobError:
        return record
    return hide(record, described.redact) if described.redact else record


def hide(record: RunRecord, paths: Sequence[str]) -> RunRecord:
    """The record with these paths of payload and result replaced."""
    return record.but(payload_body=_hidden(record.payload_body, paths), result_body=_hidden(record.result_body, paths))


def _hidden(body: Body | None, paths: Sequence[str]) -> Body | None:
    if body is None or body.claim is not None:
        return body
    try:
        return Body(codec.encode(redact(body.value, paths)))
    except PayloadError:
        return Body(codec.encode(HIDDEN))  # what can't be read can't be looked through either
