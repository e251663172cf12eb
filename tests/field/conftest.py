"""Failures that other job systems had, one test for each case of the collection, named by its id.

What kills, freezes or restarts processes is marked `faults`, what takes minutes `soak` (`make soak-field`).
"""

from tests.support.fixtures import doors, field, guarded, own_rig, own_schedules, rig, schedules

__all__ = ["doors", "field", "guarded", "own_rig", "own_schedules", "rig", "schedules"]
