"""Figures that the pages give in their sentences are those of the code."""

from __future__ import annotations

import re

import pytest

from jetjobs import context
from jetjobs._core import bodies, occurrences, policy, retry, texts, wire
from jetjobs._core.retention import ORPHAN_AGE, TTL_SLACK
from jetjobs._engine import children, claiming, event_bridge, event_route, hosting, presence, reconciler
from jetjobs._journal import FIRST_LINES, LAST_LINES, MAX_LOG_BYTES
from jetjobs._nats.dial import SMALLEST_MAX_PAYLOAD
from jetjobs.config import HostSettings
from tests.docs.pages import ROOT

KIB = 1024
HOST = HostSettings()
RULES = occurrences.DecisionRules()
WAIT, GRACE, DRAIN = (each.total_seconds() for each in (HOST.ack_wait, HOST.interrupt_grace, HOST.drain))

# The page, and the sentence as it must be there; line breaks and the stars of emphasis aside.
SAID = [
    ("guarantees", f"`ack_wait` is {WAIT:g} s by default, `heartbeat_every` {HOST.heartbeat_every.seconds} s"),
    ("guarantees", f"`lost_after` {HOST.lost_after.seconds // 60} min"),
    ("guarantees", f"(it looks every {WAIT / 12:g} s)"),
    ("guarantees", f"`max_age` ({policy.MAX_AGE.days} d)"),
    ("guarantees", f"`expires_in` + `timeout` + {policy.AGE_MARGIN.seconds // 3600} h must stay under it"),
    ("guarantees", f"({policy.DEFAULT_EXPIRY.days} d from when the broker stored the trigger; events 24 h)"),
    ("guarantees", f"first after {claiming.RETURN_DELAYS[0]:g} s, later every {claiming.RETURN_DELAYS[-1]:g} s"),
    ("guarantees", f"with a delay, up to {claiming.RETURN_DELAYS[-1]:g} s"),
    ("how-to/isolate-a-job", f"At most {children.KEPT_IDLE} idle children stay"),
    ("how-to/isolate-a-job", f"a grace ({GRACE:g} s) later"),
    ("how-to/isolate-a-job", f"a third of `ack_wait` ({WAIT / 3:g} s)"),
    ("how-to/run-a-host", f"for `drain` ({DRAIN:g} s)"),
    ("how-to/run-a-host", f"`interrupt_grace` ({GRACE:g} s) and {hosting.AFTER_INTERRUPT:g} s more"),
    ("how-to/run-a-host", f"`threads` of a host ({HOST.threads})"),
    ("how-to/events", f"up to {event_route.PLACES:,} wait in a host ({event_route.BYTES // KIB**2} MiB of bodies)"),
    ("how-to/events", f"tried again for {event_route.STORE_WITHIN:g} s"),
    ("how-to/events", f"asks again every {event_bridge.LOOK_EVERY:g} s"),
    ("how-to/events", f"A run waits for its job at most {policy.EVENT_EXPIRY.total_seconds() / 3600:g} h"),
    ("how-to/events", f"Over {bodies.INLINE_LIMIT // KIB} KiB the body travels beside the trigger"),
    ("how-to/schedules", f"or {reconciler.LOOK_EVERY:g} s after a tick was due"),
    ("how-to/schedules", f"written again within {reconciler.LOOK_EVERY:g} s"),
    ("how-to/schedules", f"nothing was decided in {reconciler.ABANDONED_AFTER.days} days, is DISABLED"),
    ("how-to/schedules", f"`all` ({RULES.pass_size} at a time)"),
    ("how-to/schedules", f"`queue` it ({RULES.max_waiting:,} at most)"),
    ("how-to/retention", f"{TTL_SLACK.seconds // 60} min after their age"),
    ("how-to/retention", f"{ORPHAN_AGE.seconds // 3600} h after it was stored"),
    ("how-to/retention", f"every `upkeep_every` ({HOST.upkeep_every.seconds // 60} min)"),
    ("how-to/deploy", f"said in the last {presence.TTL.seconds} s that they live"),
    ("how-to/troubleshoot", f"under {SMALLEST_MAX_PAYLOAD:,} bytes is refused"),
    ("how-to/troubleshoot", f"over `max_payload` ({HOST.max_payload // KIB**2} MiB)"),
    ("how-to/write-jobs", f"| an error's message | the first {texts.MAX_ERROR_MESSAGE // KIB} KiB |"),
    ("how-to/write-jobs", f"| its traceback | the last {texts.MAX_TRACEBACK // KIB} KiB |"),
    ("how-to/write-jobs", f"the first {context.MAX_TEXT:,} characters; its first {context.MAX_FIELDS} fields"),
    ("how-to/write-jobs", f"and {context.MAX_FIELD:,} characters of each"),
    ("how-to/write-jobs", f"| the reason of a skip | the first {texts.MAX_REASON // KIB} KiB |"),
    ("how-to/write-jobs", f"the first {FIRST_LINES} and the newest, at most {FIRST_LINES + LAST_LINES + 1:,}"),
    ("how-to/write-jobs", f"and {MAX_LOG_BYTES // KIB} KiB |"),
    ("how-to/write-jobs", f"| a checkpoint | up to {context.MAX_CHECKPOINT // KIB} KiB"),
    ("how-to/write-jobs", f"| the whole record | {wire.MAX_RECORD // KIB} KiB"),
    ("how-to/write-jobs", f"over {HOST.max_payload // KIB**2} MiB (a setting) they are refused"),
    ("protocol", f"a key goes {presence.TTL.seconds} s after its host fell silent"),
    ("protocol", f"at most {wire.MAX_RECORD // KIB} KiB, less where the server takes less"),
]


@pytest.mark.parametrize("page,sentence", SAID, ids=[f"{page}-{number}" for number, (page, _) in enumerate(SAID)])
def test_a_figure_is_that_of_the_code(page: str, sentence: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert sentence in text


def test_how_often_a_run_may_be_interrupted() -> None:
    assert retry.MAX_INTERRUPTIONS == 10
    for page in ("guarantees", "how-to/run-a-host"):
        assert "at most ten times" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
