from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jetjobs import ClientSettings, HostSettings, JobRetention
from jetjobs._core.models import JobAddress
from jetjobs.config import (
    HostSwitches,
    Surroundings,
    connect_options,
    resolve_client_settings,
    resolve_host_settings,
    resolve_project,
    resolve_switches,
    surroundings,
)
from jetjobs.errors import ConfigError, InvalidNameError

MIB = 1024 * 1024


def around(environ: dict[str, str] | None = None, file: dict[str, Any] | None = None) -> Surroundings:
    return Surroundings(environ or {}, file or {}, Path("/app/pyproject.toml") if file else None)


def written(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


# ------------------------------------------------------------------ host settings


def test_the_defaults_are_those_of_the_design() -> None:
    settings = resolve_host_settings(None, around())
    assert settings == HostSettings()
    assert settings == HostSettings(
        ack_wait="30s",
        heartbeat_every="10s",
        lost_after="5m",
        upkeep_every="10m",
        drain="20s",
        interrupt_grace="5s",
        completion_error_after="60s",
        capacity=None,
        threads=64,
        max_payload="64MiB",
        retention=JobRetention(),
        max_age="30d",
        replicas=1,
        probes=None,
    )


def test_argument_before_environment_before_file_before_default() -> None:
    environ = {"JETJOBS_ACK_WAIT": "40s", "JETJOBS_DRAIN": "30s"}
    file = {"ack_wait": "50s", "drain": "50s", "threads": 8}
    settings = resolve_host_settings(HostSettings(ack_wait="35s"), around(environ, file))
    assert settings.ack_wait == timedelta(seconds=35)
    assert settings.drain == timedelta(seconds=30)
    assert settings.threads == 8
    assert settings.heartbeat_every == timedelta(seconds=10)


def test_a_given_value_that_equals_the_default_is_given_all_the_same() -> None:
    settings = resolve_host_settings(HostSettings(ack_wait="30s"), around({"JETJOBS_ACK_WAIT": "40s"}))
    assert settings.ack_wait == timedelta(seconds=30)


@pytest.mark.parametrize(
    "variable, text, name, value",
    [
        ("JETJOBS_ACK_WAIT", "45", "ack_wait", timedelta(seconds=45)),
        ("JETJOBS_ACK_WAIT", " 45.5 ", "ack_wait", timedelta(seconds=45.5)),
        ("JETJOBS_HEARTBEAT_EVERY", "5s", "heartbeat_every", timedelta(seconds=5)),
        ("JETJOBS_LOST_AFTER", "10m", "lost_after", timedelta(minutes=10)),
        ("JETJOBS_UPKEEP_EVERY", "1m", "upkeep_every", timedelta(minutes=1)),
        ("JETJOBS_DRAIN", "0", "drain", timedelta()),
        ("JETJOBS_INTERRUPT_GRACE", "1s", "interrupt_grace", timedelta(seconds=1)),
        ("JETJOBS_COMPLETION_ERROR_AFTER", "2m", "completion_error_after", timedelta(minutes=2)),
        ("JETJOBS_CAPACITY", "12", "capacity", 12),
        ("JETJOBS_THREADS", "3", "threads", 3),
        ("JETJOBS_MAX_PAYLOAD", "1 MiB", "max_payload", MIB),
        ("JETJOBS_MAX_PAYLOAD", "20000", "max_payload", 20_000),
        ("JETJOBS_MAX_AGE", "60d", "max_age", timedelta(days=60)),
        ("JETJOBS_REPLICAS", "3", "replicas", 3),
        ("JETJOBS_PROBES", "8080", "probes", "127.0.0.1:8080"),
        ("JETJOBS_PROBES", "0.0.0.0:8080", "probes", "0.0.0.0:8080"),
        ("JETJOBS_PROBES", "[::]:8080", "probes", "[::]:8080"),
        ("JETJOBS_RETENTION_FINISHED", "1d", "retention", JobRetention(finished="1d")),
        ("JETJOBS_RETENTION_MAX_PER_JOB", "10", "retention", JobRetention(max_per_job=10)),
        ("JETJOBS_THREADS", "", "threads", 64),
    ],
)
def test_every_setting_has_a_variable(variable: str, text: str, name: str, value: object) -> None:
    assert getattr(resolve_host_settings(None, around({variable: text})), name) == value


def test_the_retention_is_merged_from_environment_and_file_unless_given() -> None:
    surrounded = around({"JETJOBS_RETENTION_FINISHED": "1d"}, {"retention": {"finished": "2d", "skipped": "2h"}})
    assert resolve_host_settings(None, surrounded).retention == JobRetention(finished="1d", skipped="2h")
    given = HostSettings(retention=JobRetention(keys="1d"))
    assert resolve_host_settings(given, surrounded).retention == JobRetention(keys="1d")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"heartbeat_every": "30s"}, r"heartbeat_every 30s \(given\) must be shorter than ack_wait 30s \(default\)"),
        ({"ack_wait": "5s", "heartbeat_every": "6s"}, r"heartbeat_every 6s \(given\) .* ack_wait 5s \(given\)"),
        ({"ack_wait": "10s"}, r"heartbeat_every 10s \(default\) must be shorter than ack_wait 10s \(given\)"),
        ({"lost_after": "20s"}, r"lost_after 20s \(given\) must be longer than twice heartbeat_every 10s \(default\)"),
        ({"max_age": "1h"}, r"max_age 1h \(given\) must be longer than an hour"),
        ({"capacity": 0}, "capacity must be a whole number, 1 or more, not 0"),
        ({"threads": True}, "threads must be a whole number, 1 or more, not True"),
        ({"replicas": 6}, "replicas must be 1 to 5, not 6"),
        ({"replicas": 0}, "replicas must be a whole number"),
        ({"probes": "0.0.0.0"}, "probes must be a port or HOST:PORT"),
        ({"probes": 0}, "probes must be a port or HOST:PORT"),
        ({"probes": True}, "probes must be a port or HOST:PORT"),
        ({"probes": "65536"}, "probes must be a port or HOST:PORT"),
        (
            {"max_payload": "64 megs"},
            "max_payload must be a number of bytes or a text such as \"64MiB\", not '64 megs'",
        ),
        ({"max_payload": True}, "max_payload must be a number of bytes"),
        ({"max_payload": 1000}, "max_payload must be 16 KiB or more, not 1000"),
        ({"ack_wait": 0}, "ack_wait must be more than 0"),
        ({"drain": -1}, "drain: -1 is negative"),
        ({"retention": {"finished": "1d"}}, "retention must be a JobRetention"),
        ({"heartbeat": "5s"}, "HostSettings has no setting 'heartbeat'; did you mean heartbeat_every"),
        ({"xyz": 1}, "HostSettings has no setting 'xyz'; there are ack_wait, "),
    ],
)
def test_host_settings_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HostSettings(**options)


@pytest.mark.parametrize(
    "environ, file, message",
    [
        (
            {"JETJOBS_HEARTBEAT_EVERY": "40s"},
            {"ack_wait": "35s"},
            r"heartbeat_every 40s \(from JETJOBS_HEARTBEAT_EVERY\) must .* ack_wait 35s \(from .*pyproject.toml\)",
        ),
        ({"JETJOBS_THREADS": "many"}, {}, r"threads \(from JETJOBS_THREADS\) must be a whole number, .* not 'many'"),
        ({"JETJOBS_ACK_WAIT": "soon"}, {}, r"ack_wait \(from JETJOBS_ACK_WAIT\): 'soon' is not a duration"),
        ({}, {"threads": 0}, r"threads \(from .*pyproject.toml\) must be a whole number, 1 or more, not 0"),
        ({"JETJOBS_RETENTION_KEYS": "x"}, {}, "retention keys: 'x' is not a duration"),
    ],
)
def test_a_refusal_names_where_the_values_came_from(
    environ: dict[str, str], file: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_host_settings(None, around(environ, file))


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        HostSettings().threads = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_client_settings() -> None:
    assert resolve_client_settings(None, around()) == ClientSettings(timeout="10s", max_payload="64MiB")
    surrounded = around({"JETJOBS_TIMEOUT": "3"}, {"timeout": "4s", "max_payload": 20_000})
    settings = resolve_client_settings(None, surrounded)
    assert (settings.timeout, settings.max_payload) == (timedelta(seconds=3), 20_000)
    assert resolve_client_settings(ClientSettings(timeout=1), surrounded).timeout == timedelta(seconds=1)
    with pytest.raises(ConfigError, match="timeout must be more than 0"):
        ClientSettings(timeout=0)


# ------------------------------------------------------------------ the file


def test_the_nearest_file_upwards_is_read(tmp_path: Path) -> None:
    written(tmp_path, '[tool.jetjobs]\nproject = "shop"\nthreads = 3\n[tool.jetjobs.retention]\nfinished = "1d"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    found = surroundings({}, inner)
    assert found.path == tmp_path / "pyproject.toml"
    assert found.origin == str(found.path)
    assert resolve_project(None, found) == "shop"
    assert resolve_host_settings(None, found) == HostSettings(threads=3, retention=JobRetention(finished="1d"))
    written(inner, '[project]\nname = "other"\n')
    assert surroundings({}, inner).file == {}


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "[tool.jetjobs]\nack_wiat = '5s'",
            r"\[tool.jetjobs\] in .*pyproject.toml has no setting 'ack_wiat'; did you mean ack_wait",
        ),
        ("[tool.jetjobs]\nzzz = 1", "has no setting 'zzz'; there are ack_wait, "),
        (
            "[tool.jetjobs.retention]\nfinish = '1d'",
            r"\[tool.jetjobs.retention\] in .* 'finish'; did you mean finished",
        ),
        ("[tool.jetjobs]\nretention = 5", r"retention in .* must be a table; write \[tool.jetjobs.retention\]"),
        ("[tool]\njetjobs = 5", r"tool.jetjobs in .* must be a table; write \[tool.jetjobs\]"),
        ("[tool.jetjobs", r"pyproject.toml can't be read: Expected"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        surroundings({}, written(tmp_path, text))


def test_a_file_without_our_table_says_nothing(tmp_path: Path) -> None:
    assert surroundings({}, written(tmp_path, "")).file == {}
    assert surroundings({}, written(tmp_path, "tool = 5")).file == {}


def test_the_environment_is_the_process_s_own_unless_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JETJOBS_PROJECT", "from-env")
    monkeypatch.chdir(written(tmp_path, '[tool.jetjobs]\nnats = "nats://file:1"\n'))
    monkeypatch.delenv("NATS_URL", raising=False)
    assert resolve_project() == "from-env"
    assert resolve_host_settings() == HostSettings()
    assert resolve_client_settings() == ClientSettings()
    assert resolve_switches() == HostSwitches()
    assert connect_options()["servers"] == ["nats://file:1"]


# ------------------------------------------------------------------ project, switches


def test_the_project_has_no_default() -> None:
    surrounded = around({"JETJOBS_PROJECT": "env"}, {"project": "file"})
    assert resolve_project("arg", surrounded) == "arg"
    assert resolve_project(None, surrounded) == "env"
    assert resolve_project(None, around({}, {"project": "file"})) == "file"
    with pytest.raises(ConfigError, match='no project is given; write project="shop", set JETJOBS_PROJECT, or put'):
        resolve_project(None, around())


@pytest.mark.parametrize("name", ["A", "a.b", "", "a b", "x" * 33])
def test_projects_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        resolve_project(name, around())
    if name:
        with pytest.raises(InvalidNameError):
            resolve_project(None, around({"JETJOBS_PROJECT": name}))


def test_every_place_can_only_switch_off_more() -> None:
    assert resolve_switches(None, around()) == HostSwitches(enabled=True, disable=(), schedules=True)
    surrounded = around({"JETJOBS_DISABLE": "a.*, b.c,"}, {"disable": ["d.e"], "schedules": False})
    found = resolve_switches(HostSwitches(disable=("x.y", "a.*")), surrounded)
    assert found == HostSwitches(enabled=True, disable=("x.y", "a.*", "d.e", "b.c"), schedules=False)
    off = resolve_switches(HostSwitches(enabled=False), around({"JETJOBS_ENABLED": "yes", "JETJOBS_SCHEDULES": "off"}))
    assert (off.enabled, off.schedules) == (False, False)
    assert not resolve_switches(None, around({"JETJOBS_ENABLED": "0"})).enabled


def test_patterns_name_jobs_with_their_modules() -> None:
    switches = HostSwitches(disable=("reports.*", "*.mail"))
    runs = {name: switches.runs(JobAddress(*name.rsplit(".", 1))) for name in ["reports.x", "shop.mail", "shop.pay"]}
    assert runs == {"reports.x": False, "shop.mail": False, "shop.pay": True}
    assert not HostSwitches(enabled=False).runs(JobAddress("shop", "pay"))


@pytest.mark.parametrize(
    "environ, file, message",
    [
        ({"JETJOBS_ENABLED": "maybe"}, {}, r"enabled \(from JETJOBS_ENABLED\) must be true or false, not 'maybe'"),
        ({}, {"schedules": 5}, r"schedules \(from .*pyproject.toml\) must be true or false, not '5'"),
        ({}, {"disable": "a.*"}, "disable in .*pyproject.toml must be a list of texts"),
        ({}, {"disable": [1]}, "disable in .*pyproject.toml must be a list of texts"),
    ],
)
def test_switches_that_are_refused(environ: dict[str, str], file: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_switches(None, around(environ, file))
