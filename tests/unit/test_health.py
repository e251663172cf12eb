"""What probes make of what the parts of a host say."""

from __future__ import annotations

import pytest

from jetjobs._engine.health import EventHealth, Findings, HostHealth, JobHealth, State

WELL = JobHealth("shop.mail", limit=4)
SICK = JobHealth("shop.mail", limit=4, problem="the consumer has gone")
DEAF = EventHealth("shop.mail", "orders.paid", problem="not allowed")


@pytest.mark.parametrize(
    "state, ready", [("new", False), ("off", True), ("serving", True), ("draining", False), ("closed", False)]
)
def test_which_state_is_ready(state: State, *, ready: bool):
    found = Findings(state, connected=True, jobs=(WELL,))
    assert (found.ready, found.problems) == (ready, ())


@pytest.mark.parametrize(
    "found, ready, problems",
    [
        (Findings("serving", connected=False), False, ("not connected",)),
        (Findings("new", connected=False), False, ()),
        (Findings("closed", connected=False), False, ()),
        (Findings("serving", connected=True, died="OSError()"), False, ("a loop died: OSError()",)),
        (Findings("serving", connected=True, unwritten="storage full"), False, ("storage full",)),
        (
            Findings("serving", connected=True, blocked_for=12.3),
            False,
            ("the event loop has been blocked for 12 s",),
        ),
        (Findings("serving", connected=True, jobs=(SICK,)), False, ("shop.mail: the consumer has gone",)),
        (
            Findings("serving", connected=True, events=(DEAF,)),
            True,
            ("shop.mail, events of orders.paid: not allowed",),
        ),
        (
            Findings("draining", connected=False, died="x", jobs=(SICK,)),
            False,
            ("a loop died: x", "not connected", "shop.mail: the consumer has gone"),
        ),
    ],
)
def test_what_is_wrong(found: Findings, *, ready: bool, problems: tuple[str, ...]):
    assert (found.ready, found.problems) == (ready, problems)


def test_a_paused_job_is_no_problem():
    assert Findings("serving", connected=True, jobs=(JobHealth("a.b", limit=1, paused=True),)).ready


def test_as_plain_values():
    health = HostHealth(
        live=True, ready=True, ok=False, state="serving", connected=True, project="p", host_id="h", jobs=(WELL,)
    )
    plain = health.as_dict()
    assert plain["jobs"][0]["job"] == "shop.mail"
    assert (health.problem, health.draining) == (None, False)
