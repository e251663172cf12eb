"""B21: schedules whose spans and windows reach to the ends of the calendar, as `timedelta.max` does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from jetjobs import ConfigError, Cron, Every, JobContext, JobPolicy, Module
from tests.support.field import Field
from tests.support.links import until

pytestmark = pytest.mark.integration

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
KINDS: dict[str, Callable[..., Cron | Every]] = {
    "every": partial(Every, "1s"),
    "utc": partial(Cron, "* * * * * *"),
    "west": partial(Cron, "* * * * * *", timezone="America/New_York"),
    "east": partial(Cron, "* * * * * *", timezone="Asia/Tokyo"),
}
FIRES: dict[str, Any] = {
    "grace": {"misfire_grace": timedelta.max},
    "jitter": {"jitter": timedelta.max},
    "always": {"start_at": FIRST, "end_at": LAST},
    "from-the-first": {"start_at": FIRST},
    "to-the-last": {"end_at": LAST},
}
NEVER: dict[str, Any] = {"from-the-last": {"start_at": LAST}, "to-the-first": {"end_at": FIRST}}


async def test_b21_windows_and_spans_at_the_ends_of_the_calendar(field: Field, capsys: pytest.CaptureFixture[str]):
    """They fire, or never do, as they say; no loop of the host breaks over them, and a restart changes nothing."""
    ran: dict[str, int] = {}

    async def note(ctx: JobContext[Any]) -> None:
        ran[ctx.job] = ran.get(ctx.job, 0) + 1

    module = Module("m")
    for kind, make in KINDS.items():
        for name, options in {**FIRES, **NEVER}.items():
            module.expose_job(f"{kind}-{name}", note, triggers=[make(**options)], timeout="5s")
    host = await field.host(module)
    expected = {f"{kind}-{name}" for kind in KINDS for name in FIRES}
    await until(lambda: ran.keys() >= expected and min(ran.values()) >= 2, within=20)
    await host.close()
    ran.clear()
    await field.host(module)
    await until(lambda: ran.keys() >= expected, within=20)
    assert ran.keys() == expected
    said = capsys.readouterr().out
    assert "broke" not in said
    assert "left_alone" not in said


@pytest.mark.parametrize("name", ["timeout", "expires_in"])
def test_b21_a_span_without_end_is_refused_in_words(name: str):
    options: Any = {name: timedelta.max}
    with pytest.raises(ConfigError, match="shorten expires_in or timeout"):
        JobPolicy(**options)
