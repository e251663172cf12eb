"""Three real nats-servers that form a cluster, for what must survive the loss of one."""

import json
from collections.abc import Mapping
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from tests.support.servers import COMPOSE, RealServer, free_port

NAMES = ("n1", "n2", "n3")


class RealCluster:
    """`nodes["n1"]` … `nodes["n3"]`, each a `RealServer`; three replicas are possible after `ready`."""

    def __init__(self, folder: Path) -> None:
        routes = {name: f"nats://127.0.0.1:{free_port()}" for name in NAMES}
        self.nodes: Mapping[str, RealServer] = {
            name: RealServer(
                folder / name,
                config=COMPOSE / "cluster.conf",
                extra_args=("-n", name, "--cluster", route, "--routes", ",".join(routes.values())),
            )
            for name, route in routes.items()
        }

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    def start(self) -> None:
        """Every node is up; they haven't chosen a leader yet."""
        for node in self.nodes.values():
            node.start()

    async def ready(self) -> None:
        """Return when JetStream has a leader. Wait under a timeout: `async with asyncio.timeout(45)`."""
        client = await nats.connect(self.urls)
        try:
            while not await _answers(client):
                pass  # each try waits for its own answer
        finally:
            await client.close()

    async def leader_of(self, stream: str) -> RealServer | None:
        """The node that leads a stream, None while there is none."""
        client = await nats.connect(self.urls)
        try:
            info = await client.jetstream().stream_info(stream)
        finally:
            await client.close()
        return self.nodes.get(info.cluster.leader or "") if info.cluster else None

    def remove(self) -> None:
        for node in self.nodes.values():
            node.remove()


async def _answers(client: Client) -> bool:
    try:
        answer = await client.request("$JS.API.INFO", timeout=0.5)
    except NatsError:
        return False
    return "error" not in json.loads(answer.data)
