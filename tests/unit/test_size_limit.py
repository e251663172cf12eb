from __future__ import annotations

import pytest
from nats.aio.client import Client

from jetjobs._nats.size_limit import SizeLimit

SAID = Client().max_payload


@pytest.fixture
def limit() -> SizeLimit:
    return SizeLimit(Client())


def test_at_first_it_is_what_the_server_says(limit: SizeLimit):
    assert limit.most == SAID
    assert str(limit.refusal("a.b", b"x" * (SAID + 1), None)) == (
        f"{SAID + 1} bytes for 'a.b' with headers, and the server takes at most {SAID} (its max_payload)"
    )


def test_a_server_that_hangs_up_takes_what_is_needed_of_any(limit: SizeLimit):
    limit.sent(500_000)
    limit.sent(10)
    limit.hung_up()
    assert limit.most == 60_000
    assert "at most 60000 (it hung up on a larger one)" in str(limit.refusal("a.b", b"x" * 60_001, None))


def test_and_half_of_that_when_it_hangs_up_again(limit: SizeLimit):
    for size, most in [(500_000, 60_000), (60_000, 30_000), (30_000, 15_000)]:
        limit.sent(size)
        limit.hung_up()
        limit.connected()
        assert limit.most == most


def test_who_has_sent_nothing_learns_nothing(limit: SizeLimit):
    limit.sent(500_000)
    limit.connected()
    limit.hung_up()
    assert limit.most == SAID
