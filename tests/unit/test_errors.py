"""Errors that travel: between processes of a pool, into a log, to a test's runner."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import jetjobs.errors
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs.errors import JetJobsError

RECORD = RunRecord("r", "m", "j", RunStatus.FAILED, starts=1)
VALUES = {"record": RECORD, "close_names": ("a", "b"), "actual": 7}
ALL = [
    each for _, each in inspect.getmembers(jetjobs.errors, inspect.isclass)
    if issubclass(each, JetJobsError) and each.__module__ == "jetjobs.errors"
]  # fmt: skip


@pytest.mark.parametrize("again", [lambda it: pickle.loads(pickle.dumps(it)), copy.copy], ids=["pickled", "copied"])  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_the_same_elsewhere(kind: type[JetJobsError], again: object) -> None:
    parameters = list(inspect.signature(kind).parameters) if inspect.isfunction(kind.__init__) else []
    more = {name: VALUES.get(name, f"the {name}") for name in parameters if name != "message"}
    error = kind("what happened", **more)
    assert callable(again)
    same = again(error)
    assert (type(same), str(same), vars(same)) == (kind, "what happened", more)
