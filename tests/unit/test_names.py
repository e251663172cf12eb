from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import names, payload_subjects, signal_subjects
from jetjobs._core.models import JobAddress, RunKey, RunStatus
from jetjobs.errors import InvalidNameError

modules = st.from_regex(r"[A-Za-z0-9_-]{1,8}(\.[A-Za-z0-9_-]{1,8}){0,2}", fullmatch=True)
jobs = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
addresses = st.builds(JobAddress, modules, jobs)
run_ids = st.from_regex(r"[A-Za-z0-9_=-]{1,128}", fullmatch=True)
runs = st.builds(RunKey, modules, jobs, run_ids)
projects = st.from_regex(r"[a-z0-9_-]{1,32}", fullmatch=True)

BILLING = JobAddress("billing.invoices", "send")
RUN = RunKey("billing.invoices", "send", "01abc")


class TestAllowedNames:
    @pytest.mark.parametrize("name", ["shop", "a", "0", "_x-y", "p" * 32])
    def test_projects(self, name: str) -> None:
        assert names.check_project(name) == name

    @pytest.mark.parametrize("name", ["", "Shop", "a.b", "a b", "p" * 33, "é", "shop\n", None, 7, b"shop"])
    def test_no_projects(self, name: object) -> None:
        with pytest.raises(InvalidNameError, match="write 1 to 32"):
            names.check_project(name)

    @pytest.mark.parametrize("name", ["billing", "billing.invoices", "A-1_b.C"])
    def test_modules(self, name: str) -> None:
        assert names.check_module_name(name) == name

    @pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "a b", "é", "*", ">", "a\n", None, 7])
    def test_no_modules(self, name: object) -> None:
        with pytest.raises(InvalidNameError, match=r"billing\.invoices"):
            names.check_module_name(name)

    @pytest.mark.parametrize("name", ["", "a.b", "a b", "é", "a\n", None, 7])
    def test_no_jobs(self, name: object) -> None:
        with pytest.raises(InvalidNameError, match="send_invoice"):
            names.check_job_name(name)

    def test_a_long_wrong_name_is_shown_short(self) -> None:
        with pytest.raises(InvalidNameError) as caught:
            names.check_job_name("é" * 10_000)
        assert len(str(caught.value)) < 300

    def test_an_address_may_take_200_bytes_and_no_more(self) -> None:
        assert names.check_address("m" * 100, "j" * 100) == ("m" * 100, "j" * 100)
        with pytest.raises(InvalidNameError, match="201 bytes"):
            names.check_address("m" * 101, "j" * 100)

    def test_a_dot_counts_for_the_three_bytes_it_takes(self) -> None:
        with pytest.raises(InvalidNameError, match="202 bytes"):
            names.check_address("m" * 50 + "." + "m" * 49, "j" * 100)

    @given(addresses)
    def test_an_address_is_split_at_its_last_dot(self, address: JobAddress) -> None:
        assert names.split_address(str(address)) == address

    @pytest.mark.parametrize("text", ["send", "", ".send", "billing.", None, 7])
    def test_what_names_no_job_is_refused(self, text: object) -> None:
        with pytest.raises(InvalidNameError):
            names.split_address(text)


class TestTokens:
    @given(st.text(min_size=1))
    def test_reversible(self, name: str) -> None:
        try:
            token = names.encode_token(name)
        except InvalidNameError:
            with pytest.raises(UnicodeEncodeError):
                name.encode()
            return
        assert names.decode_token(token) == name
        assert not set(token) & set(". *>\r\n\t")

    @given(st.text(min_size=1), st.text(min_size=1))
    def test_injective(self, one: str, other: str) -> None:
        assert (names.encode_token(one) == names.encode_token(other)) == (one == other)

    def test_case_is_kept_apart(self) -> None:
        assert names.encode_token("Send") != names.encode_token("send")

    @pytest.mark.parametrize("token", ["", "a.b", "=", "=2", "=2e", "=41", "=FF", "a b", "é", "=2E=", "\ud800"])
    def test_what_no_name_is_written_as_is_refused(self, token: str) -> None:
        with pytest.raises(InvalidNameError):
            names.decode_token(token)

    @pytest.mark.parametrize("name", ["", "\ud800"])
    def test_what_has_no_bytes_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidNameError):
            names.encode_token(name)


class TestTable:
    """The names operators see, as the contract lists them."""

    def test_jobs_stream(self) -> None:
        assert names.stream("shop") == "JETJOBS_shop"
        assert names.all_triggers("shop") == "jetjobs.shop.trigger.>"
        assert names.all_schedules("shop") == "jetjobs.shop.schedule.>"
        head = "jetjobs.shop.trigger.billing=2Einvoices.send."
        assert names.trigger_subject("shop", RUN) == head + "run.01abc"
        assert names.tick_subject("shop", BILLING, "s1") == head + "tick.s1"
        assert names.consumer_filters("shop", BILLING) == (head + "run.>", head + "tick.>")
        assert names.trigger_id_pattern("shop", "01abc") == "jetjobs.shop.trigger.*.*.run.01abc"

    def test_schedules(self) -> None:
        head = "jetjobs.shop.schedule.billing=2Einvoices.send."
        assert names.schedule_subject("shop", BILLING, "s1") == head + "tick.s1"
        assert names.retry_subject("shop", RUN, 2) == head + "run.01abc.2"
        assert names.run_schedules("shop", RUN) == head + "run.01abc.*"
        assert names.schedule_id_pattern("shop", "01abc") == "jetjobs.shop.schedule.*.*.run.01abc.*"

    @pytest.mark.parametrize(
        "chosen, within",
        [({}, "*.*"), ({"module": "a.b"}, "a=2Eb.*"), ({"address": BILLING}, "billing=2Einvoices.send")],
    )
    def test_of_all_runs_of_a_job_or_a_module(self, chosen: dict[str, Any], within: str) -> None:
        both = names.run_patterns("shop", **chosen)
        assert both == (f"jetjobs.shop.schedule.{within}.run.>", f"jetjobs.shop.trigger.{within}.run.>")

    def test_buckets(self) -> None:
        assert names.runs_bucket("shop") == "jetjobs_shop_runs"
        assert names.schedules_bucket("shop") == "jetjobs_shop_schedules"
        assert names.jobs_bucket("shop") == "jetjobs_shop_jobs"
        assert names.hosts_bucket("shop") == "jetjobs_shop_hosts"
        assert names.bucket_stream("b") == "KV_b"
        assert names.bucket_subject("b", "k") == "$KV.b.k"
        assert names.record_key(RUN) == "billing=2Einvoices.send.01abc"
        assert names.record_subject("shop", RUN) == "$KV.jetjobs_shop_runs.billing=2Einvoices.send.01abc"
        assert names.record_pattern("shop") == "$KV.jetjobs_shop_runs.*.*.*"
        assert names.record_pattern("shop", BILLING) == "$KV.jetjobs_shop_runs.billing=2Einvoices.send.*"
        assert names.record_pattern("shop", module="a.b") == "$KV.jetjobs_shop_runs.a=2Eb.*.*"
        assert names.record_id_pattern("shop", "01abc") == "$KV.jetjobs_shop_runs.*.*.01abc"
        assert names.job_key(BILLING) == "billing=2Einvoices.send"
        assert names.host_key("h-1") == "h-1"

    def test_core_nats(self) -> None:
        assert (
            signal_subjects.cancel_subject("shop", RUN) == "jetjobs.shop.control.cancel.billing=2Einvoices.send.01abc"
        )
        assert signal_subjects.all_cancels("shop") == "jetjobs.shop.control.cancel.>"
        assert signal_subjects.host_subject("shop", "h-1") == "jetjobs.shop.control.host.h-1"
        assert signal_subjects.drain_subject("shop", "h.1") == "jetjobs.shop.control.drain.h=2E1"
        ended = signal_subjects.ended_subject("shop", RunStatus.FAILED, RUN)
        assert ended == "jetjobs.shop.events.FAILED.billing=2Einvoices.send.01abc"
        assert signal_subjects.ended_pattern("shop", RUN) == "jetjobs.shop.events.*.billing=2Einvoices.send.01abc"
        assert signal_subjects.call_subject("shop", BILLING) == "jetjobs.shop.call.billing=2Einvoices.send"

    def test_payloads(self) -> None:
        assert payload_subjects.payload_stream("shop") == "JETJOBS_shop_payloads"
        assert payload_subjects.all_payloads("shop") == "jetjobs.shop.payload.>"
        assert payload_subjects.payload_subject("shop", "01abc", "in", "f00") == "jetjobs.shop.payload.01abc.in.f00"
        assert payload_subjects.payload_pattern("shop", "01abc") == "jetjobs.shop.payload.01abc.>"

    @pytest.mark.parametrize(
        "subject",
        [
            "jetjobs.other.payload.01abc.in.f00",
            "jetjobs.shop.payload.*.in.f00",
            "jetjobs.shop.payload.01abc.up.f00",
            "jetjobs.shop.payload.01abc.in.>",
            "jetjobs.shop.trigger.a.b.run.c",
            "",
        ],
    )
    def test_a_claim_check_may_name_nothing_else(self, subject: str) -> None:
        assert payload_subjects.is_payload_subject("shop", "jetjobs.shop.payload.01abc.out.f00")
        assert not payload_subjects.is_payload_subject("shop", subject)


class TestApart:
    @given(addresses, addresses)
    def test_consumers_of_different_jobs(self, one: JobAddress, other: JobAddress) -> None:
        assert (names.consumer(one) == names.consumer(other)) == (one == other)

    @pytest.mark.parametrize(
        "one,other",
        [(("a.b", "c"), ("a", "b-c")), (("a", "b"), ("A", "b")), (("a_", "b"), ("a", "_b"))],
    )
    def test_close_neighbours(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        first, second = JobAddress(*one), JobAddress(*other)
        assert names.consumer(first) != names.consumer(second)
        assert names.job_key(first) != names.job_key(second)
        assert names.run_id_for_key(*first, "k") != names.run_id_for_key(*second, "k")

    def test_a_dot_moved_from_module_to_job_names_another_job(self) -> None:
        # `b.c` is no job name, but the two must not meet even so.
        one, other = RunKey("a.b", "c", "k-1"), RunKey("a", "b.c", "k-1")
        assert names.trigger_subject("p", one) != names.trigger_subject("p", other)
        assert names.record_subject("p", one) != names.record_subject("p", other)
        assert names.consumer(one.address) != names.consumer(other.address)
        assert names.run_id_for_key("a.b", "c", "k") != names.run_id_for_key("a", "b.c", "k")

    @given(runs, runs)
    def test_records_of_different_runs(self, one: RunKey, other: RunKey) -> None:
        assert (names.record_key(one) == names.record_key(other)) == (one == other)

    @given(addresses)
    def test_the_longest_durable_name_is_taken_by_the_broker(self, address: JobAddress) -> None:
        names.check_address(*address)
        assert len(names.consumer(address)) <= 255


class TestParsing:
    @given(projects, runs)
    def test_triggers(self, project: str, run: RunKey) -> None:
        assert names.parse_trigger_subject(project, names.trigger_subject(project, run)) == ("run", *run)

    @given(projects, addresses, run_ids)
    def test_ticks(self, project: str, address: JobAddress, schedule_id: str) -> None:
        subject = names.tick_subject(project, address, schedule_id)
        assert names.parse_trigger_subject(project, subject) == ("tick", *address, schedule_id)

    @pytest.mark.parametrize(
        "subject",
        [
            "",
            "jetjobs",
            "jetjobs.shop.trigger.m.j.run.",
            "jetjobs.shop.trigger.m.j.run",
            "jetjobs.shop.trigger.m.j.high.x",
            "jetjobs.shop.trigger.m.j.run.x.1",
            "jetjobs.shop.trigger.m.=41.run.x",
            "jetjobs.shop.trigger.m..run.x",
            "jetjobs.shop.schedule.m.j.run.x",
            "jetjobs.other.trigger.m.j.run.x",
        ],
    )
    def test_other_trigger_subjects(self, subject: str) -> None:
        assert names.parse_trigger_subject("shop", subject) is None

    @given(projects, runs)
    def test_doorbells(self, project: str, run: RunKey) -> None:
        assert signal_subjects.parse_cancel_subject(project, signal_subjects.cancel_subject(project, run)) == run
        assert signal_subjects.parse_cancel_subject(project, names.record_subject(project, run)) is None

    @pytest.mark.parametrize("key", ["", "m.j", "m.j.", "m.j.x.y", "m.=41.x"])
    def test_other_doorbells(self, key: str) -> None:
        assert signal_subjects.parse_cancel_subject("shop", "jetjobs.shop.control.cancel." + key) is None


class TestRunIds:
    def test_a_fresh_id_is_a_ulid_in_lower_case(self) -> None:
        # The example every implementation of ULID uses, 01ARZ3NDEKTSV4RRFFQ69G5FAV, taken apart.
        randomness = bytes.fromhex("d6764c61efb99302bd5b")
        assert names.fresh_run_id(1_469_922_850_259, randomness) == "01arz3ndektsv4rrffq69g5fav"
        assert names.fresh_run_id((1 << 48) - 1, b"\xff" * 10) == "7" + "z" * 25

    @given(st.integers(0, (1 << 48) - 2), st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
    def test_fresh_ids_sort_by_time(self, at: int, one: bytes, other: bytes) -> None:
        assert names.fresh_run_id(at, one) < names.fresh_run_id(at + 1, other)

    @pytest.mark.parametrize("at,randomness", [(-1, bytes(10)), (1 << 48, bytes(10)), (0, bytes(9))])
    def test_no_ulid(self, at: int, randomness: bytes) -> None:
        with pytest.raises(ValueError, match="48 bits"):
            names.fresh_run_id(at, randomness)

    def test_a_key_names_the_run_another_language_computes(self) -> None:
        digest = hashlib.sha256("billing\0send\0inv-é".encode()).digest()[:20]
        expected = "k-" + base64.b32encode(digest).decode().lower()
        assert names.run_id_for_key("billing", "send", "inv-é") == expected

    def test_vectors(self) -> None:
        """Fixed for good: a changed id is a run done twice."""
        assert names.run_id_for_key("billing", "send_invoice", "inv-7") == "k-htypy37y4mbgeo4khdlwrl6j4zre45zc"
        assert names.run_id_for_event("billing", "thank", "orders.paid", "42") == "e-halkqp2sbuoezzx53kydxtetx7dckikt"
        assert names.run_id_for_tick("s1", 1_700_000_000_000) == "s1-1700000000000"

    def test_children_differ_by_key_ordinal_job_and_parent(self) -> None:
        ids = [
            names.run_id_for_child(RUN, "m", "j", 1),
            names.run_id_for_child(RUN, "m", "j", 2),
            names.run_id_for_child(RUN, "m", "j", "1"),
            names.run_id_for_child(RUN, "m", "k", 1),
            names.run_id_for_child(RUN._replace(run_id="other"), "m", "j", 1),
        ]
        assert len(set(ids)) == len(ids)
        assert all(text.startswith("c-") and names.is_run_id(text) for text in ids)
        assert names.run_id_for_child(RUN, "m", "j", 1) == ids[0]

    def test_two_people_who_retry_at_once_make_one_run(self) -> None:
        assert names.run_id_for_retry(RUN, 1) == names.run_id_for_retry(RUN, 1)
        assert names.run_id_for_retry(RUN, 1) != names.run_id_for_retry(RUN, 2)
        assert names.run_id_for_retry(RUN, 1).startswith("r-")

    @given(st.text(min_size=1, max_size=300))
    def test_from_outside_every_text_gives_an_id_that_stays_itself(self, text: str) -> None:
        made = names.safe_run_id(text)
        assert names.is_run_id(made)
        assert names.safe_run_id(made) == made
        assert (made == text) == names.is_run_id(text)

    def test_long_ones_are_hashed(self) -> None:
        assert names.safe_run_id("x" * 129).startswith("h-")
        assert names.safe_run_id("x" * 129) != names.safe_run_id("x" * 130)
        assert names.safe_run_id("x" * 128) == "x" * 128

    @pytest.mark.parametrize("text", ["", None, 7, "\ud800"])
    def test_no_ids(self, text: object) -> None:
        with pytest.raises(InvalidNameError):
            names.safe_run_id(text)

    @pytest.mark.parametrize("text", ["", "a.b", "a b", "x" * 129, "é", "a\n", None, 7])
    def test_is_no_run_id(self, text: object) -> None:
        assert not names.is_run_id(text)

    @pytest.mark.parametrize("key", ["", None, 7, "x" * 4097, "\ud800"])
    def test_no_keys(self, key: object) -> None:
        with pytest.raises(InvalidNameError):
            names.check_key(key)

    def test_a_key_may_be_any_text(self) -> None:
        assert names.check_key("2026/inv 7 é\n") == "2026/inv 7 é\n"


def test_a_lease_is_no_hosts_key():
    assert names.lease_key("pruner") == "lease.pruner"
    assert names.lease_key("pruner") != names.host_key("pruner")


def test_a_chunk_names_its_run():
    subject = payload_subjects.payload_subject("shop", "r1", "in", "abc")
    assert payload_subjects.payload_run_id(f"{subject}.0") == "r1"
