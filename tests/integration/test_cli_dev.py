"""`jetjobs dev`: the broker it brings, and the reload."""

import signal
from pathlib import Path

import pytest

from tests.field.test_interrupts import address_in
from tests.support.commands import APP, Terminal

pytestmark = pytest.mark.integration


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    (tmp_path / "helper.py").write_text('WORD = "first"\n')
    (tmp_path / "app.py").write_text(
        APP
        + '\n\nimport helper\n\n\n@shop.job(timeout="5s")\ndef word(ctx: JobContext) -> str:\n    return helper.WORD\n'
    )
    return Terminal(tmp_path)


def test_reloads_on_change_and_waits_for_a_mistake_to_be_mended(terminal: Terminal):
    with terminal.start("dev", "app:shop") as dev:
        dev.wait_for("host_started")
        terminal.env |= address_in(dev.said)
        assert terminal.env["JETJOBS_PROJECT"] == "dev"
        assert '"first"' in terminal.run("trigger", "shop.word", "--wait", "10").out

        # A file that app.py imports, not one named on the command line.
        (terminal.folder / "helper.py").write_text('WORD = "second"\n')
        dev.wait_for("host_started", times=2)
        assert '"second"' in terminal.run("trigger", "shop.word", "--wait", "10").out

        (terminal.folder / "helper.py").write_text("WORD = (\n")
        dev.wait_for("waiting for a change of the code")
        assert "SyntaxError" in dev.said
        assert 'helper.py", line 1' in dev.said

        (terminal.folder / "helper.py").write_text('WORD = "third"\n')
        dev.wait_for("host_started", times=3)
        assert '"third"' in terminal.run("trigger", "shop.word", "--wait", "10").out

        dev.signal(signal.SIGINT)
        assert dev.end() == 130
        assert dev.said.count("Traceback (most recent call last)") == 1  # the mistake's own


def test_a_running_job_may_finish_before_the_reload(terminal: Terminal):
    with terminal.start("dev", "app") as dev:
        dev.wait_for("host_started")
        terminal.env |= address_in(dev.said)
        run_id = terminal.run("trigger", "shop.slow", "2").out.strip()
        dev.wait_for("slow started")
        (terminal.folder / "helper.py").write_text('WORD = "second"\n')
        dev.wait_for("host_started", times=2)
        assert dev.said.index("slow ended") > dev.said.index("helper.py changed: reloading")
        assert "SUCCEEDED" in terminal.run("runs", "show", run_id).out
        dev.signal(signal.SIGTERM)
        assert dev.end() == 0


def test_what_it_ran_is_still_there_the_next_time(terminal: Terminal):
    run_ids: list[str] = []
    for _ in range(2):
        with terminal.start("dev", "app") as dev:
            dev.wait_for("host_started")
            terminal.env |= address_in(dev.said)
            run_ids.append(terminal.run("trigger", "shop.word", "--wait", "10").out.split()[1])
            listed = terminal.run("runs", "list").out
            dev.signal(signal.SIGINT)
            assert dev.end() == 130
        for run_id in run_ids:
            assert run_id in listed


def test_a_host_of_the_users_own_finds_the_broker(terminal: Terminal):
    (terminal.folder / "mine.py").write_text("import app\nfrom jetjobs import JobHost\nhost = JobHost([app.shop])\n")
    with terminal.start("dev", "mine:host") as dev:
        dev.wait_for("host_started")
        terminal.env |= address_in(dev.said)
        assert '"first"' in terminal.run("trigger", "shop.word", "--wait", "10").out
        dev.signal(signal.SIGINT)
        assert dev.end() == 130


def test_started_twice_in_one_folder_says_who_has_it(terminal: Terminal):
    with terminal.start("dev", "app") as dev:
        dev.wait_for("host_started")
        second = terminal.run("dev", "app")
        assert second.code == 3
        assert "is in use by" in second.last_line
        assert "Traceback" not in second.err
        dev.signal(signal.SIGINT)
        assert dev.end() == 130
