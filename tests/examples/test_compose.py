"""The compose files start servers that take what they are given; Docker itself isn't needed to know."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from jetjobs._nats.dial import NEEDED
from jetjobs._nats.server_binary import find_server
from tests.docs.pages import ROOT

COMPOSE = ROOT / "compose"


def services(name: str) -> dict[str, Any]:
    yaml: Any = import_module("yaml")  # it has no types
    return yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))["services"]


def within(container: str, service: dict[str, Any], data: Path) -> str:
    """A path of a container, here."""
    mounted = dict(each.split(":")[1::-1] for each in service["volumes"])
    for inside, outside in mounted.items():
        if container == inside:
            return str(COMPOSE / outside) if outside.startswith("./") else str(data)
    return container


@pytest.mark.parametrize("name,nodes", [("compose.yaml", 1), ("cluster.yaml", 3)])
def test_the_server_takes_its_command(name: str, nodes: int, tmp_path: Path) -> None:
    found = services(name)
    assert len(found) == nodes
    for service in found.values():
        command = [within(word, service, tmp_path) for word in service["command"]]
        done = subprocess.run(
            [str(find_server().path), *command, "-t"], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        image, _, version = service["image"].partition(":")
        assert image == "nats"
        assert tuple(map(int, version.split("-")[0].split("."))) >= tuple(map(int, NEEDED.split(".")))


def test_each_node_has_a_port_and_a_store_of_its_own() -> None:
    nodes = services("cluster.yaml")
    assert len({node["ports"][0] for node in nodes.values()}) == len(nodes)
    assert len({node["volumes"][1] for node in nodes.values()}) == len(nodes)
    routes = (COMPOSE / "cluster.conf").read_text(encoding="utf-8")
    assert all(f"nats://{name}:6222" in routes for name in nodes)
