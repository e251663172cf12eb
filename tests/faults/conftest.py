"""Host processes on a real server; every test of this folder is marked `faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures import own_rig, rig, schedules

__all__ = ["own_rig", "rig", "schedules"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
