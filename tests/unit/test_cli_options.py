import argparse
import io
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest
import structlog

from jetjobs import cli
from jetjobs.cli import entry, failures
from jetjobs.cli.dev import to_set
from jetjobs.cli.failures import ExitCode, Mistake, exit_code, hide_logins, message_of
from jetjobs.cli.logs import configure_logs
from jetjobs.cli.options import connection_of, read_instant, read_json, read_seconds
from jetjobs.diagnosis import may_publish
from jetjobs.errors import (
    AccessDenied,
    BrokerUnavailable,
    ConfigError,
    HostError,
    PermissionMissing,
    RunNotFound,
    ServerBinaryNotFound,
    UnknownJobError,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class _Interrupted(ModuleType):
    """A module whose import a Ctrl-C ends."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_ctrl_c_while_the_command_is_still_being_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "jetjobs.cli.entry", _Interrupted("jetjobs.cli.entry"))
    assert cli.main(["--version"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    "error, code",
    [
        (ConfigError("x"), 2),
        (BrokerUnavailable("x"), 3),
        (PermissionMissing("x"), 3),
        (ServerBinaryNotFound("x"), 3),
        (UnknownJobError("x"), 4),
        (RunNotFound("x"), 4),
        (HostError("x"), 1),
        (Mistake("x", ExitCode.FAILED), 1),
    ],
)
def test_exit_codes(error: Exception, code: int):
    assert exit_code(error) == code
    assert f"\n{code} " in (failures.__doc__ or "")


def test_advice_speaks_of_flags():
    assert "--allow-unknown" in message_of(UnknownJobError("start it, or pass allow_unknown=True"))
    assert "--password" in message_of(AccessDenied("connecting: nats: 'Authorization Violation'"))
    assert "--nats" in message_of(BrokerUnavailable("no NATS server at a:1: refused"))


@pytest.mark.parametrize(
    "text",
    ["nats://me:s3cr3t@h:1", "tls://s3cr3t@h", "x nats://a:s3c@r3t@h y", "--nat=nats://u:s3cr3t@h,nats://v:s3cr3t@i"],
)
def test_logins_are_hidden(text: str):
    assert "s3c" not in hide_logins(text)


class TestReading:
    def test_instants(self):
        assert read_instant("2030-01-01T01:00+01:00", "--at") == NOW
        assert read_instant("1893456000", "--at") == NOW
        assert read_instant("1h", "--since", now=NOW) == NOW - timedelta(hours=1)

    @pytest.mark.parametrize("text", ["2030-01-01", "soon", "nan", "inf", "", "1e300"])
    def test_no_instants(self, text: str):
        with pytest.raises(Mistake, match="--at"):
            read_instant(text, "--at")
        with pytest.raises(Mistake, match="--since"):
            read_instant(text, "--since", now=NOW)

    def test_a_span_before_the_calendar(self):
        with pytest.raises(Mistake, match="before the year 1"):
            read_instant("9000000d", "--since", now=NOW)

    def test_seconds(self):
        assert read_seconds("1.5", "--wait") == 1.5
        assert read_seconds("2m", "--wait") == 120
        for text in ("-1", "nan", "inf"):
            with pytest.raises(Mistake):
                read_seconds(text, "--wait")

    def test_json(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("sys.stdin", io.StringIO('{"a": [1]}'))
        assert read_json("-") == {"a": [1]}
        with pytest.raises(Mistake, match="nested too deeply"):
            read_json("[" * 100_000)


class TestParser:
    def test_debug_counts_wherever_it_is_written(self):
        for line in (["--debug", "runs", "list"], ["runs", "list", "--debug"]):
            assert entry.parser().parse_args(line).debug is True
        assert entry.parser().parse_args(["runs", "list"]).debug is False

    def test_connection_flags(self):
        args = entry.parser().parse_args(["doctor", "--nats", "nats://a", "--user", "u", "--tls-ca", "ca.pem"])
        assert connection_of(args) == {"servers": "nats://a", "user": "u", "tls_ca": "ca.pem"}
        assert connection_of(argparse.Namespace()) is None

    def test_a_wrong_command_line_is_one_line_without_credentials(self, capsys: pytest.CaptureFixture[str]):
        with pytest.raises(SystemExit) as ended:
            entry.main(["runs", "list", "nats://me:s3cr3t@h"])
        assert ended.value.code == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert "s3cr3t" not in err


class TestLogs:
    @pytest.fixture(autouse=True)
    def restored(self) -> Iterator[None]:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        yield
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)

    def test_secrets_stay_out_of_both_kinds(self, capsys: pytest.CaptureFixture[str]):
        configure_logs(level=logging.DEBUG, as_json=True)
        structlog.get_logger("x").info("connecting", server="nats://me:s3cr3t@h")
        logging.getLogger("y").warning("nats://%s@h", "me:s3cr3t")
        out, err = capsys.readouterr()
        assert not out
        assert err.count("\n") == 2
        assert "s3cr3t" not in err

    def test_below_the_level_nothing_is_said(self, capsys: pytest.CaptureFixture[str]):
        configure_logs(level=logging.WARNING)
        structlog.get_logger("x").info("hello")
        logging.getLogger("y").info("hello")
        assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "permissions, may",
    [
        (None, True),
        ({}, True),
        ({"allow": ["a.*.c"]}, True),
        ({"allow": ["a.>"]}, True),
        ({"allow": ["a.b"]}, False),
        ({"allow": ["a.b.c.>"]}, False),
        ({"allow": ["a.b.c.d"]}, False),
        ({"allow": [">"], "deny": ["a.b.*"]}, False),
        ({"deny": ["x"]}, True),
    ],
)
def test_rights_by_pattern(permissions: object, may: bool):  # noqa: FBT001
    assert may_publish("a.b.c", permissions) is may


def test_what_to_type_into_another_terminal():
    variables = {"NATS_URL": "nats://127.0.0.1:4222", "JETJOBS_PROJECT": "dev"}
    assert to_set(windows=False, **variables) == "export NATS_URL=nats://127.0.0.1:4222 JETJOBS_PROJECT=dev"
    assert to_set(windows=True, **variables) == '$env:NATS_URL="nats://127.0.0.1:4222"; $env:JETJOBS_PROJECT="dev"'
