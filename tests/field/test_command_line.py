"""What an operator got wrong in a path, and a broker that isn't there: one clear line, in time: B127, B129."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from jetjobs.errors import (
    BrokerUnavailable,
)
from tests.support.commands import APP, Terminal
from tests.support.doors import SECRET, Doors, failed
from tests.support.impostors import black_hole
from tests.support.servers import free_port


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, project="cli-failures")


class TestModules:
    """Of `run`; none of these needs a broker."""

    @pytest.mark.parametrize(
        "path, words",
        [
            ("nope", ["no module 'nope'", "go to the folder it lies in"]),
            ("appp:shop", ["no module 'appp'", "did you mean app?"]),
            ("app:nope", ["app has no 'nope'"]),
            ("app:shp", ["did you mean app:shop?"]),
            ("app.shop", ["did you mean app:shop?"]),
            ("app.py", ["is a file", "as it is imported: app"]),
            ("./pkg/app.py:shop", ["as it is imported: pkg.app:shop"]),
            (r"pkg\app.py", [r"'pkg\app.py' is a file", "as it is imported: pkg.app"]),
            (r"C:\code\app.py", [r"from the folder C:\code: app"]),
            ("/code/app.py", ["from the folder /code: app"]),
            ("../app.py", ["from the folder ..: app"]),
            ("app:mail", ["is the job shop.mail", "name the module, as in app"]),
            ("app:mail.timeout", ["has no 'timeout'"]),
            ("app:Path", ["must be a Module"]),
        ],
    )
    def test_b127_a_path_that_names_nothing(self, terminal: Terminal, path: str, words: list[str]):
        done = terminal.run("run", path)
        failed(done, 2, *words)
        assert done.in_time

    def test_b127_from_another_folder(self, tmp_path: Path):
        """The working folder is on the path, and no other."""
        (tmp_path / "app.py").write_text(APP)
        (tmp_path / "elsewhere").mkdir()
        away = Terminal(tmp_path / "elsewhere", project="cli-failures")
        failed(away.run("run", "app:shop"), 2, "no module 'app'", "go to the folder it lies in")

    def test_b127_an_error_inside_shows_the_users_traceback_only(self, terminal: Terminal):
        (terminal.folder / "broken.py").write_text("import helper_of_broken\n")
        (terminal.folder / "helper_of_broken.py").write_text("import not_installed_anywhere\n")
        done = terminal.run("run", "broken:host")
        assert done.code == 2
        assert done.in_time
        assert "No module named 'not_installed_anywhere'" in done.last_line
        assert 'helper_of_broken.py", line 1' in done.err
        assert "cli/load.py" not in done.err
        assert "importlib" not in done.err

    def test_b127_a_syntax_error_shows_its_line(self, terminal: Terminal):
        (terminal.folder / "broken.py").write_text("x = (\n")
        done = terminal.run("run", "broken")
        assert done.code == 2
        assert 'broken.py", line 1' in done.err
        assert "SyntaxError" in done.last_line

    def test_b127_a_job_declared_wrongly_shows_where(self, terminal: Terminal):
        (terminal.folder / "broken.py").write_text(
            'from jetjobs import Module\nm = Module("m")\n@m.job\ndef f(a, b, c): ...\n'
        )
        done = terminal.run("run", "broken")
        assert done.code == 2
        assert 'broken.py", line 3' in done.err
        assert "declaring.py" not in done.err

    def test_b127_flags_that_a_host_of_the_users_own_would_ignore(self, terminal: Terminal):
        (terminal.folder / "mine.py").write_text('from jetjobs import JobHost\nhost = JobHost(project="p")\n')
        failed(terminal.run("run", "mine:host", "--version", "1"), 2, "--version would do nothing")


def test_b127_a_number_of_thousands_of_digits(terminal: Terminal):
    failed(terminal.run("trigger", "shop.mail", "9" * 5000), 2, "thousands of digits")


class TestAddress:
    """B129: of every command; what it asked for is named, and so is the way to ask elsewhere."""

    @pytest.mark.parametrize("command", ["init app", "trigger shop.mail {}", "runs list", "jobs list"])
    def test_b129_nobody_there(self, terminal: Terminal, command: str):
        port = free_port()
        done = terminal.run(*command.split(), "--nats", f"nats://me:{SECRET}@127.0.0.1:{port}")
        failed(done, 3, f"127.0.0.1:{port}", "--nats")

    @pytest.mark.parametrize("command", ["trigger shop.mail {}", "runs list"])
    def test_b129_somebody_who_never_answers(self, terminal: Terminal, command: str):
        with black_hole() as url:
            failed(terminal.run(*command.split(), "--nats", url), 3, url.removeprefix("nats://"))

    def test_b129_a_name_that_is_none(self, terminal: Terminal):
        failed(terminal.run("runs", "list", "--nats", "nats://no-such-host.invalid:4222"), 3, "no-such-host.invalid")

    def test_b129_debug_shows_the_traceback_without_the_password(self, terminal: Terminal):
        done = terminal.run("runs", "list", "--debug", "--nats", f"nats://me:{SECRET}@127.0.0.1:{free_port()}")
        assert done.code == 3
        assert "Traceback" in done.err
        assert SECRET not in done.err


class TestEveryDoor:
    async def test_b129_nobody_there(self, doors: Doors):
        """B129: a closed port."""
        port = free_port()
        await doors.all_refuse({"servers": f"nats://me:{SECRET}@127.0.0.1:{port}"}, BrokerUnavailable, f":{port}")

    async def test_b129_somebody_who_never_answers(self, doors: Doors):
        """B129: a black hole."""
        with black_hole() as url:
            await doors.all_refuse({"servers": url}, BrokerUnavailable, url.removeprefix("nats://"), "no answer")

    async def test_b129_many_black_holes_take_no_longer_than_one(self, doors: Doors):
        """Tried one after the other, these would take 30 s."""
        with ExitStack() as stack:
            holes = [stack.enter_context(black_hole()) for _ in range(10)]
            await doors.command_refuses("run app", {"servers": ",".join(holes)}, holes[0].removeprefix("nats://"))
