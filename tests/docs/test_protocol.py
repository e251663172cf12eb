"""The protocol's page and its vectors are those of the code."""

from __future__ import annotations

import re
from dataclasses import fields

from jetjobs._core import headers, names, payload_subjects, signal_subjects
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus, TriggerInfo
from tests.docs.pages import ROOT
from tests.docs.test_reference import rows
from tests.docs.vectors import FILE, as_text

_PAGE = ROOT / "docs" / "protocol.md"


def test_vectors_are_those_of_the_code():
    # `python -m tests.docs.vectors` writes them anew. A vector that changes is another protocol.
    assert FILE.read_text(encoding="utf-8") == as_text()


def test_every_header_is_explained():
    assert {row[0] for row in rows(_PAGE, "headers")} == set(headers.ALL)


def test_every_terminal_status_is_named():
    line = next(line for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("Terminal statuses"))
    assert all(status.value in line for status in RunStatus if status.is_terminal)


def test_every_field_of_a_record_is_in_its_table():
    _, _, rest = _PAGE.read_text(encoding="utf-8").partition("## Records\n")
    told = set(re.findall(r"`(\w+)`", rest))
    stored = {field.name.removesuffix("_body") for field in fields(RunRecord)} - {"extra"}
    assert (stored | {"v", "attempt"}) - told == set()


def test_every_field_of_a_trigger_is_in_its_row():
    row = next(row for row in rows(_PAGE, "headers") if row[0] == headers.TRIGGER)
    assert {field.name for field in fields(TriggerInfo)} <= set(re.findall(r"\w+", row[1]))


def test_every_subject_and_key_has_a_row():
    page = _PAGE.read_text(encoding="utf-8")
    run, job = RunKey("M", "J", "R"), JobAddress("M", "J")
    spelled = [
        names.stream("P"),
        names.trigger_subject("P", run),
        names.retry_subject("P", run, 1).removesuffix("1") + "T",
        names.tick_subject("P", job, "S"),
        names.schedule_subject("P", job, "S"),
        names.consumer(job),
        names.record_key(run),
        names.job_key(job),
        names.control_key(job),
        names.schedule_key("S"),
        names.schedule_name_key("N"),
        names.lease_key("pruner"),
        names.runs_bucket("P"),
        names.schedules_bucket("P"),
        names.jobs_bucket("P"),
        names.hosts_bucket("P"),
        payload_subjects.payload_stream("P"),
        payload_subjects.payload_subject("P", "R", "in", "SHA256"),
        signal_subjects.cancel_subject("P", run),
        signal_subjects.control_subject("P", job),
        signal_subjects.drain_subject("P", "HOST"),
        signal_subjects.host_subject("P", "HOST"),
        signal_subjects.ended_subject("P", RunStatus.FAILED, run).replace("FAILED", "STATUS"),
        signal_subjects.call_subject("P", job),
    ]
    assert [name for name in spelled if f"`{name}" not in page] == []
