"""Each command on a real server, as a process; what it prints and what it returns."""

import json
import secrets
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import APP, Terminal
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


def shown(text: str) -> Any:
    """The one strict JSON document a command printed."""

    def refuse(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def terminal(nats_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal beside a host that has the jobs of `APP`."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "app.py").write_text(APP)
    terminal = Terminal(folder, nats=nats_server.url, project=f"cli-{secrets.token_hex(5)}")
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        yield terminal


@pytest.fixture
def slow_run(terminal: Terminal) -> str:
    """The id of a run whose handler is running."""
    started = terminal.folder / "slow-started"
    started.unlink(missing_ok=True)
    run_id = terminal.run("trigger", "shop.slow", "200").out.strip()
    for _ in range(20):
        if started.exists() and '"status": "RUNNING"' in terminal.run("runs", "show", run_id, "--json").out:
            return run_id
    pytest.fail("the run did not start")


class TestTrigger:
    def test_prints_the_run_id_and_where_it_went(self, terminal: Terminal):
        done = terminal.run("trigger", "shop.mail", '{"to": "a"}')
        assert done.code == 0
        assert len(done.out.split()) == 1
        where = f"{terminal.env['JETJOBS_PROJECT']} @ {terminal.env['NATS_URL']}"
        assert done.err.splitlines() == [where]

    def test_waits_and_prints_the_result(self, terminal: Terminal):
        done = terminal.run("trigger", "shop.mail", '{"to": "ä"}', "--wait", "10")
        assert done.code == 0
        assert done.out.startswith("SUCCEEDED ")
        assert '"to": "ä"' in done.out

    def test_a_terminal_that_can_not_show_the_result(self, terminal: Terminal):
        done = terminal.run("trigger", "shop.mail", '{"to": "ä"}', "--wait", env={"PYTHONIOENCODING": "ascii"})
        assert done.code == 0
        assert r'"to": "\xe4"' in done.out

    def test_a_run_that_fails_is_exit_code_1(self, terminal: Terminal):
        done = terminal.run("trigger", "shop.boom", "--wait")
        assert done.code == 1
        assert done.out.startswith("FAILED ")
        assert "ValueError: no way" in done.out

    def test_json_of_a_finished_run(self, terminal: Terminal):
        done = terminal.run("jobs", "trigger", "shop.mail", "-", "--wait", "10", "--json", stdin='{"to": 1}')
        document = shown(done.out)
        assert {"run_id", "module", "job", "duplicate", "payload_differs", "no_host", "paused", "run"} == set(document)
        assert document["run"]["result"] == {"sent": {"to": 1}}
        assert document["run"]["logs"][0]["message"] == "sending"

    def test_a_key_has_one_run_and_another_payload_is_told(self, terminal: Terminal):
        key = secrets.token_hex(4)
        first = terminal.run("trigger", "shop.mail", '{"to": 1}', "--key", key)
        second = terminal.run("trigger", "shop.mail", '{"to": 2}', "--key", key, "--json")
        assert shown(second.out)["run_id"] == first.out.strip()
        assert shown(second.out)["payload_differs"] is True
        assert "with another payload" in second.err
        third = terminal.run("trigger", "shop.mail", '{"to": 1}', "--key", key)
        assert third.out == first.out, "what a script takes is the id alone"
        assert "the key already had this run" in third.err

    def test_a_key_whose_run_failed_is_refused_or_run_again(self, terminal: Terminal):
        key = ("--key", secrets.token_hex(4))
        failed = shown(terminal.run("trigger", "shop.boom", *key, "--wait", "--json").out)["run_id"]
        refused = terminal.run("trigger", "shop.boom", *key, "--on-duplicate", "raise")
        assert (refused.code, failed in refused.last_line) == (1, True)
        again = terminal.run("trigger", "shop.boom", *key, "--on-duplicate", "retry_failed", "--wait", "--json")
        assert shown(again.out)["run"]["retry_of"] == failed

    def test_how_late_it_may_be_goes_with_it(self, terminal: Terminal):
        late = ("--delay", "1h", "--start-within", "5m", "--expires-in", "2h")
        run_id = terminal.run("trigger", "shop.mail", "{}", *late).out.strip()
        document = shown(terminal.run("runs", "show", run_id, "--json").out)
        due, start, end = (
            datetime.fromisoformat(document[name]) for name in ("scheduled_for", "start_deadline", "expires_at")
        )
        assert (start - due, end - due) == (timedelta(minutes=5), timedelta(hours=2))
        assert terminal.run("runs", "cancel", run_id).code == 0
        wrong = terminal.run("trigger", "shop.mail", "{}", "--start-within", "soon")
        assert (wrong.code, "--start-within" in wrong.last_line) == (2, True)

    def test_a_delayed_run_is_scheduled_and_can_be_cancelled(self, terminal: Terminal):
        run_id = terminal.run("trigger", "shop.mail", "{}", "--delay", "1h").out.strip()
        assert shown(terminal.run("runs", "show", run_id, "--json").out)["status"] == "SCHEDULED"
        cancelled = terminal.run("runs", "cancel", run_id)
        assert cancelled.code == 0
        assert "CANCELLED" in cancelled.out

    def test_gives_up_waiting_in_time(self, terminal: Terminal):
        done = terminal.run("trigger", "shop.slow", "200", "--wait", "1")
        assert done.code == 1
        assert done.in_time
        assert "after 1 s; it goes on" in done.last_line
        assert "Traceback" not in done.err

    def test_an_unknown_job_names_close_ones(self, terminal: Terminal):
        done = terminal.run("trigger", "shop.mial")
        assert done.code == 4
        assert "did you mean 'shop.mail'" in done.last_line

    def test_a_job_nobody_hosts_is_stored_when_asked_to_and_told(self, terminal: Terminal):
        done = terminal.run("trigger", "later.job", "--allow-unknown")
        assert done.code == 0
        assert (
            "waits for a host that describes later.job; none ever did"
            in terminal.run("runs", "show", done.out.strip()).out
        )
        assert "no live host takes runs of later.job" in done.err


class TestRuns:
    def test_lists_what_failed_with_filters_in_any_case(self, terminal: Terminal):
        run_id = terminal.run("trigger", "shop.boom", "--wait", "--json").out
        run_id = shown(run_id)["run_id"]
        done = terminal.run(
            "runs", "list", "--job", "shop.boom", "--status", "failed", "--since", "1h", "--error-type", "ValueError"
        )
        assert done.code == 0
        head, *rows = done.out.splitlines()
        assert head.split() == ["RUN", "JOB", "STATUS", "ATTEMPT", "AGE", "TOOK", "ERROR"]
        assert any(row.startswith(run_id) and row.endswith("ValueError: no way") for row in rows)
        assert terminal.run("runs", "list", "--text", run_id, "--until", "1h").out == ""

    def test_json_lists_have_one_shape(self, terminal: Terminal):
        terminal.run("trigger", "shop.boom", "--wait")
        document = shown(terminal.run("runs", "list", "--job", "boom", "--limit", "1", "--json").out)
        assert set(document) == {"project", "runs"}
        (run,) = document["runs"]
        assert run["error"] == {"type": "ValueError", "message": "no way"}
        assert run["created_at"].endswith("Z")

    def test_shows_everything_of_one_run(self, terminal: Terminal):
        run_id = shown(terminal.run("trigger", "shop.boom", "--wait", "--json").out)["run_id"]
        done = terminal.run("runs", "show", run_id)
        assert done.code == 0
        assert "shop.boom" in done.out
        assert "raise ValueError" in done.out

    def test_no_such_run_is_exit_code_4(self, terminal: Terminal):
        for verb in ("show", "cancel"):
            done = terminal.run("runs", verb, "nope")
            assert done.code == 4
            assert "no run 'nope'" in done.last_line

    def test_cancels_a_running_one_and_says_when_it_is_too_late(self, terminal: Terminal, slow_run: str):
        asked = shown(terminal.run("runs", "cancel", slow_run, "--json").out)
        assert asked["runs"][0]["outcome"] == "ASKED"
        assert terminal.run("runs", "logs", slow_run, "--follow").code == 0
        assert shown(terminal.run("runs", "show", slow_run, "--json").out)["status"] == "CANCELLED"
        late = terminal.run("runs", "cancel", slow_run)
        assert late.code == 1
        assert "ALREADY_FINISHED" in late.out

    def test_bulk_needs_yes(self, terminal: Terminal, slow_run: str):
        refused = terminal.run("runs", "cancel", "--job", "shop.slow")
        assert refused.code == 2
        assert slow_run in refused.err
        assert "add --yes" in refused.last_line
        assert '"status": "RUNNING"' in terminal.run("runs", "show", slow_run, "--json").out
        done = terminal.run("runs", "cancel", "--job", "shop.slow", "--yes")
        assert done.code == 0
        assert slow_run in done.out
        assert done.err.splitlines()[0].startswith(f"{terminal.env['JETJOBS_PROJECT']} @ nats://")

    @pytest.mark.parametrize("verb", ["cancel", "retry", "delete"])
    def test_nothing_named_is_refused(self, terminal: Terminal, verb: str):
        for more in ((), ("--yes", "--include-skipped"), ("--limit", "3")):
            done = terminal.run("runs", verb, *more)
            assert done.code == 2
            assert "name the runs" in done.last_line
        done = terminal.run("runs", verb, "r1", "--status", "failed")
        assert done.code == 2
        assert "leave the other filters out" in done.last_line
        done = terminal.run("runs", verb, "--text", "nothing like it", "--yes")
        assert (done.code, done.last_line) == (0, "no runs match")

    def test_cancels_what_waits_by_filter(self, terminal: Terminal):
        ids = {terminal.run("trigger", "shop.mail", "{}", "--delay", "1h").out.strip() for _ in range(2)}
        document = shown(terminal.run("runs", "cancel", "--status", "scheduled", "--yes", "--json").out)
        assert {run["run_id"]: run["outcome"] for run in document["runs"]} == dict.fromkeys(ids, "CANCELLED")

    def test_retries_what_failed_once(self, terminal: Terminal):
        run_id = shown(terminal.run("trigger", "shop.boom", "--wait", "--json").out)["run_id"]
        foreseen = shown(terminal.run("runs", "retry", run_id, "--dry-run", "--json").out)
        done = shown(terminal.run("runs", "retry", run_id, "--json").out)
        assert (foreseen["dry_run"], done["dry_run"]) == (True, False)
        assert foreseen["runs"] == done["runs"]
        new = done["runs"][0]["new_run_id"]
        assert terminal.run("runs", "logs", new, "--follow").code == 0
        assert shown(terminal.run("runs", "show", new, "--json").out)["retry_of"] == run_id
        listed = terminal.run("runs", "retry", "--job", "shop.boom", "--limit", "1", "--dry-run")
        assert listed.out.splitlines()[0].split() == ["RUN", "JOB", "OUTCOME", "STATUS", "NEW", "RUN"]
        edited = shown(terminal.run("runs", "retry", new, "--payload", "null", "--json").out)["runs"][0]
        assert (edited["outcome"], edited["new_run_id"] != new) == ("RETRIED", True)

    def test_deletes_what_ended(self, terminal: Terminal, slow_run: str):
        run_id = shown(terminal.run("trigger", "shop.boom", "--wait", "--json").out)["run_id"]
        done = terminal.run("runs", "delete", slow_run, run_id, "nobody", "--json")
        assert done.code == 4
        assert "no run 'nobody'" in done.last_line
        assert [run["outcome"] for run in shown(done.out)["runs"]] == ["STILL_ACTIVE", "SHRUNK", "NOT_FOUND"]
        assert shown(terminal.run("runs", "show", run_id, "--json").out)["stub"]
        assert terminal.run("runs", "delete", slow_run).code == 1
        terminal.run("runs", "cancel", slow_run)

    def test_logs(self, terminal: Terminal):
        run_id = shown(terminal.run("trigger", "shop.mail", '{"to": "a@b.c"}', "--wait", "--json").out)["run_id"]
        assert terminal.run("runs", "logs", run_id).out.split()[1:] == ["info", "sending", "to=a@b.c"]
        (line,) = terminal.run("runs", "logs", run_id, "--json", "--follow").out.splitlines()
        assert shown(line)["fields"] == {"to": "a@b.c"}
        assert terminal.run("runs", "logs", "nobody").code == 4

    def test_watches_until_ctrl_c(self, terminal: Terminal):
        with terminal.start("runs", "watch", "--job", "shop.boom", "--existing", "--status", "failed") as watching:
            watching.wait_for("watching")
            run_id = shown(terminal.run("trigger", "shop.boom", "--wait", "--json").out)["run_id"]
            said = watching.wait_for(f"shop.boom/{run_id}")
            assert "attempt 1/1: ValueError: no way" in said
            watching.signal(signal.SIGINT)
            assert watching.end() == 130


class TestCatalog:
    def test_jobs(self, terminal: Terminal):
        done = terminal.run("jobs", "list")
        assert [row.split()[0] for row in done.out.splitlines()] == ["JOB", "shop.boom", "shop.mail", "shop.slow"]
        document = shown(terminal.run("jobs", "list", "--json").out)
        mail = next(job for job in document["jobs"] if job["job"] == "mail")
        assert (mail["description"], mail["timeout"], mail["live_hosts"]) == ("Send a mail.", 30.0, 1)

    def test_hosts(self, terminal: Terminal):
        assert "shop.mail" in terminal.run("hosts", "list").out
        (host,) = shown(terminal.run("hosts", "list", "--json").out)["hosts"]
        assert sorted(host["jobs"]) == ["shop.boom", "shop.mail", "shop.slow"]

    def test_doctor_finds_nothing_wrong(self, terminal: Terminal):
        done = terminal.run("doctor")
        assert done.code == 0, done.out
        document = shown(terminal.run("doctor", "--json").out)
        states = {check["name"]: check["state"] for check in document["checks"]}
        assert set(states.values()) == {"ok"}
        assert {"broker", "clock", "trigger", "hosts", "jobs", "zone data"} <= set(states)
        stored = f"KV_jetjobs_{terminal.env['JETJOBS_PROJECT']}_"
        assert {f"{stored}{each}" for each in ("runs", "schedules", "jobs", "hosts")} <= set(states)

    def test_what_is_switched_off_is_not_made_ready(self, terminal: Terminal):
        some = terminal.run("init", "app", env={"JETJOBS_DISABLE": "shop.s*"})
        assert (some.code, some.out) == (0, "ready: shop.boom, shop.mail\n")
        none = terminal.run("init", "app", env={"JETJOBS_ENABLED": "false"})
        assert (none.code, none.out, "JETJOBS_ENABLED" in none.last_line) == (2, "", True)

    def test_a_module_that_nobody_hosts_is_prepared_and_then_found_by_doctor(self, terminal: Terminal, tmp_path: Path):
        (tmp_path / "other.py").write_text(
            'from jetjobs import JobContext, Module\n\nlate = Module("late")\n\n\n'
            '@late.job(timeout="1s")\ndef report(ctx: JobContext) -> None: ...\n'
        )
        elsewhere = Terminal(tmp_path, nats=terminal.env["NATS_URL"], project=f"cli-{secrets.token_hex(5)}")
        prepared = elsewhere.run("init", "other:late")
        assert prepared.code == 0
        assert prepared.out == "ready: late.report\n"
        document = shown(elsewhere.run("doctor", "--json").out)
        by_name = {check["name"]: check for check in document["checks"]}
        assert by_name["hosts"]["state"] == "warn"
        assert "late.report" in by_name["jobs"]["found"]


def test_help_names_the_exit_codes_and_every_variable(terminal: Terminal):
    assert "130 Ctrl-C" in terminal.run("--help").out
    text = terminal.run("runs", "list", "--help").out
    for variable in ("URL", "USER", "PASSWORD", "TOKEN", "CREDS", "NKEY", "CA", "CERT", "KEY"):
        assert f"NATS_{variable}" in text
