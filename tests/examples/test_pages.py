"""The how-to pages of the web frameworks show the examples, and that of deploying has figures that agree."""

from __future__ import annotations

import configparser
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from jetjobs._engine.event_bridge import LONGEST_STOP
from jetjobs._engine.hosting import AFTER_INTERRUPT
from jetjobs._engine.leaving import PATIENCE
from jetjobs.cli.entry import parser
from jetjobs.cli.failures import ExitCode
from jetjobs.config import HostSettings, Surroundings, resolve_host_settings
from tests.docs.pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"
LONGEST_DRAIN = 39  # seconds, as the page says


@pytest.mark.parametrize("name", ["flask", "django", "fastapi"])
def test_code_on_the_page_is_code_of_the_example(name: str):
    files = (ROOT / "examples" / f"{name}_app").rglob("*.py")
    code = [file.read_text(encoding="utf-8") for file in files]
    page = HOW_TO / f"{name}.md"
    shown = [block.text for block in blocks(page) if block.kind == "left" and "$ " not in block.text]
    variants = page.read_text(encoding="utf-8").count("<!-- not run: a variant of the above -->")
    strangers = [text for text in shown if not any(text in each for each in code)]
    assert len(shown) > 1
    assert len(strangers) == variants, strangers


def files() -> dict[str, str]:
    return {block.name: block.text for block in blocks(HOW_TO / "deploy.md") if block.kind == "file"}


def manifest(name: str) -> tuple[Any, Any]:
    """The pod's spec and its one container."""
    yaml: Any = import_module("yaml")  # it has no types
    deployment = yaml.safe_load(files()[name])
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def settings_of(environment: dict[str, str]) -> HostSettings:
    return resolve_host_settings(None, Surroundings(environment, {}))


def seconds_to_stop(settings: HostSettings) -> float:
    """Of a host whose handlers use all their time, in child processes too."""
    drain, grace = settings.drain.total_seconds(), settings.interrupt_grace.total_seconds()
    return LONGEST_STOP + drain + 2 * grace + AFTER_INTERRUPT + 2 * PATIENCE


def test_the_page_says_how_long_a_stop_takes():
    assert seconds_to_stop(HostSettings()) == LONGEST_DRAIN
    assert f"{LONGEST_DRAIN} s at worst" in (HOW_TO / "deploy.md").read_text(encoding="utf-8")


def test_the_unit():
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - names keep their case
    unit.read_string(files()["shop-jobs@.service"])
    service = unit["Service"]
    name, _, value = service["Environment"].partition("=")
    settings = settings_of({name: value})
    assert settings.probes == "127.0.0.1:8080"
    assert float(service["TimeoutStopSec"]) > seconds_to_stop(settings)
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "jetjobs"
    assert parser().parse_args(arguments).paths == ["billing"]
    assert int(service["RestartPreventExitStatus"]) == ExitCode.USAGE
    assert (service["Restart"], service["KillMode"]) == ("always", "mixed")


def test_the_deployment_of_hosts():
    pod, host = manifest("deployment.yaml")
    environment = {each["name"]: each["value"] for each in host["env"]}
    assert set(environment) <= {f"JETJOBS_{name.upper()}" for name in HostSettings.__dataclass_fields__}
    settings = settings_of(environment)
    assert pod["terminationGracePeriodSeconds"] > seconds_to_stop(settings)
    assert settings.probes == f"0.0.0.0:{host['ports'][0]['containerPort']}"
    assert settings.replicas == 3
    probes = (host["readinessProbe"]["httpGet"], host["livenessProbe"]["httpGet"])
    assert probes == ({"path": "/ready", "port": "probes"}, {"path": "/live", "port": "probes"})
    for container in (*pod["initContainers"], host):
        program, *arguments = container["command"]
        assert program == "jetjobs"
        assert parser().parse_args(arguments).paths == ["billing"]
        assert arguments[arguments.index("--version") + 1] == container["image"].partition(":")[2]


def test_a_live_host_is_not_ended_sooner_than_its_runs_are_given_up():
    for name in ("deployment.yaml", "web.yaml"):
        probe = manifest(name)[1]["livenessProbe"]
        patience = probe["periodSeconds"] * probe["failureThreshold"]
        assert patience > 2 * HostSettings().ack_wait.total_seconds()


def test_the_deployment_of_a_web_application():
    pod, web = manifest("web.yaml")
    pre_stop = float(web["lifecycle"]["preStop"]["exec"]["command"][1])
    requests = float(web["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > pre_stop + requests + seconds_to_stop(HostSettings())
    assert int(web["command"][web["command"].index("--port") + 1]) == web["ports"][0]["containerPort"]
