"""A cluster's leader, other platforms: B133."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from jetjobs._core.models import RunStatus
from tests.faults.field import api
from tests.faults.rig import SOURCE, Rig
from tests.support.cluster import RealCluster
from tests.support.commands import APP, Terminal

# ------------------------------------------------------------------- cluster


async def test_a_clusters_leader_killed_in_a_run(cluster: RealCluster, tmp_path: Path, project: str) -> None:
    """Three replicas: long runs and a queue survive the loss of the jobs stream's leader, each started once."""
    rig = Rig(tmp_path, ",".join(cluster.urls), project)
    try:
        for _ in range(2):
            await rig.host(REPLICAS="3", ACK_WAIT="18s", HEARTBEAT_EVERY="2s", LOST_AFTER="30s", UPKEEP_EVERY="10s")
        long_ones = await rig.trigger_all("hold3", [10] * 4)
        for run_id in long_ones:
            await rig.journal.started(run_id)
        queued = await rig.trigger_all("four", [0.2] * 60)
        stream = f"JETJOBS_{project}"
        info = await api(cluster.urls[0], f"STREAM.INFO.{stream}")
        assert info["config"]["num_replicas"] == 3
        leader = await cluster.leader_of(stream)
        assert leader is not None
        await rig.journal.started(job="four", times=10)
        await asyncio.to_thread(leader.kill9)
        assert len(rig.journal.starts(job="four")) < 60
        records = [*await rig.all_ended("four", queued, 60), *await rig.all_ended("hold3", long_ones, 40)]
        assert {record.status for record in records} == {RunStatus.SUCCEEDED}
        assert {record.starts for record in records} == {1}
        assert Counter(line.run for line in rig.journal.starts()) == Counter([*queued, *long_ones])
        assert rig.journal.most_live("four") <= 4
        run_id = await rig.trigger("ping", timeout=20)
        await rig.journal.started(run_id)
    finally:
        await rig.close()


# ----------------------------------------------------------------- platforms

# Python imports a module of this name at its start, whatever it is asked to run.
SITECUSTOMIZE = """
import asyncio

def refuse(self, *_):
    raise NotImplementedError

asyncio.SelectorEventLoop.add_signal_handler = refuse
asyncio.SelectorEventLoop.remove_signal_handler = refuse
"""


def test_without_signal_handlers_of_the_loop(tmp_path: Path, nats_url: str, project: str) -> None:
    """B133: as on Windows; it starts, and Ctrl-C drains."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    terminal.env["PYTHONPATH"] = f"{tmp_path}:{SOURCE}"
    probe = [sys.executable, "-c", "import asyncio; asyncio.new_event_loop().add_signal_handler(2, print)"]
    assert b"NotImplementedError" in subprocess.run(probe, env=terminal.env, capture_output=True, check=False).stderr
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGINT)
        assert host.end() == 130
        assert "host_draining" in host.said
        assert "Traceback" not in host.said
