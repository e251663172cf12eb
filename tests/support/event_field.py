"""What a project wrote and counted while events came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetjobs import JobHost
from jetjobs._core import names
from tests.support.events import jetstream_of
from tests.support.field import Field


async def sequences(field: Field) -> Mapping[str, int]:
    """The last sequence of the jobs stream and of the bucket of records: what any write moves."""
    streams = (names.stream(field.project), names.bucket_stream(names.runs_bucket(field.project)))
    return {name: (await jetstream_of(field).stream_info(name)).state.last_seq for name in streams}


def counts(host: JobHost) -> Any:
    assert host._hosting is not None
    return host._hosting.bridge.counts
