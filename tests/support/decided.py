"""What `decide` says of a situation."""

from __future__ import annotations

from jetjobs._core.delivery import (
    Action,
    Write,
)
from jetjobs._core.models import RunRecord
from tests.unit import strategies as some


def written(action: Action, then: str) -> RunRecord:
    assert isinstance(action, Write)
    assert action.then == then
    return some.sound(action.record)
