"""Bytes that would run code if anything unpickled or imported by them: B121."""

from __future__ import annotations

import ast
import hashlib
import json
import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest

import jetjobs
from jetjobs import JobContext, Module, RunStatus
from jetjobs.errors import PayloadInvalidError
from tests.support.field import Field, field_of
from tests.support.raw_socket import head

SOURCE = Path(jetjobs.__file__).parent
MSGPACK = head(Content_Type="application/msgpack")


class Evil:
    """Unpickled, it would touch a file."""

    def __init__(self, touches: Path) -> None:
        self._touches = touches

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._touches,)


def packed(value: Any) -> bytes:
    return cast("bytes", msgpack.packb(value))


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    module = Module("billing")

    @module.job(max_concurrency=4, max_attempts=3, timeout="20s")
    async def echo(ctx: JobContext, payload: Any = None) -> Any:
        return payload

    async with field_of(nats_url, project) as made:
        await made.host(module)
        yield made


async def test_b121_pickles_and_their_like_are_only_bytes(field: Field, tmp_path: Path):
    touched = tmp_path / "touched"
    evil = pickle.dumps(Evil(touched))
    reduce = json.dumps(
        {"py/object": "pathlib.Path", "py/reduce": [{"py/function": "pathlib.Path.touch"}, str(touched)]}
    )
    yaml = f"!!python/object/apply:pathlib.Path.touch [{touched}]"
    bodies: dict[str, tuple[bytes, bytes | None]] = {
        "pickle": (evil, None),
        "pickle-as-msgpack": (evil, MSGPACK),
        "pickle-in-an-extension": (packed(msgpack.ExtType(1, evil)), MSGPACK),
        "pickle-in-an-unknown-extension": (packed(msgpack.ExtType(80, evil)), MSGPACK),
        "pickle-by-its-type": (evil, head(Content_Type="application/x-python-pickle")),
        "yaml": (yaml.encode(), None),
        "reduce": (reduce.encode(), None),
    }
    for run_id, (body, lines) in bodies.items():
        await field.raw.pub(field.subject("billing.echo", f"run.{run_id}"), body, lines)
    statuses = {run_id: (await field.ended("billing.echo", run_id)).status for run_id in bodies}
    # The last is plain JSON: it arrives as the dict it is.
    assert statuses == {**dict.fromkeys(bodies, RunStatus.FAILED), "reduce": RunStatus.SUCCEEDED}
    assert (await field.ended("billing.echo", "reduce")).result == json.loads(reduce)
    assert not touched.exists()


@pytest.mark.parametrize("content_type", ["application/msgpack", "application/json", "application/x-python-pickle"])
async def test_b121_a_pickle_behind_a_claim_check(field: Field, tmp_path: Path, content_type: str):
    touched = tmp_path / "touched"
    body = pickle.dumps([Evil(touched)] * 3) + b"x" * 50_000
    digest = hashlib.sha256(body).hexdigest()
    subject = f"jetjobs.{field.project}.payload.r1.in.{digest}"
    await field.raw.pub(f"{subject}.0", body)
    claim = json.dumps({"subject": subject, "chunks": 1, "size": len(body), "sha256": digest})
    lines = head(Jetjobs_Payload=claim, Content_Type=content_type)
    await field.raw.pub(field.subject("billing.echo", "run.r1"), b"", lines)
    record = await field.ended("billing.echo", "r1")
    assert (record.status, record.result) == (RunStatus.FAILED, None)
    await field.retired("billing.echo")
    assert not touched.exists()


async def test_b121_a_pickle_where_a_record_should_be(field: Field, tmp_path: Path):
    """Readers say so, and go on with the others."""
    touched = tmp_path / "touched"
    good = await field.client.get_job("billing.echo").trigger(1)
    await good.wait(timeout=45)
    whole = await field.nats.jetstream().get_last_msg(
        f"KV_jetjobs_{field.project}_runs", f"$KV.jetjobs_{field.project}_runs.billing.echo.{good.run_id}"
    )
    evil = pickle.dumps(Evil(touched))
    stored = cast("dict[str, Any]", msgpack.unpackb(whole.data or b"", strict_map_key=False))
    swapped = packed({**stored, "payload": msgpack.ExtType(1, evil), "result": evil, "run_id": "inside"})
    for run_id, data in {"bare": evil, "ext": packed(msgpack.ExtType(1, evil)), "inside": swapped}.items():
        await field.raw.pub(f"$KV.jetjobs_{field.project}_runs.billing.echo.{run_id}", data)
    assert good.run_id in {record.run_id for record in await field.client.runs.list()}
    for run_id in ("bare", "ext", "inside"):
        with pytest.raises(PayloadInvalidError, match=f"billing.echo/{run_id}"):
            await field.client.run("billing", "echo", run_id).record()
    # A trigger of the same run finds the record in its place.
    await field.raw.pub(field.subject("billing.echo", "run.bare"), b"1")
    await (await field.client.get_job("billing.echo").trigger(2)).result(timeout=45)
    assert not touched.exists()


def test_b121_nothing_in_the_code_base_could():
    """No module that rebuilds objects or runs text; what imports by name gets its names from the operator or itself."""
    importing: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=found):
                    names = {each.name.partition(".")[0] for each in found}
                case ast.ImportFrom(module=str(home), level=0):
                    names = {home.partition(".")[0]}
                case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                    names = {name} & {"eval", "exec", "__import__", "import_module"}
                case _:
                    continue
            if "import_module" in names:
                importing.add(path.relative_to(SOURCE).as_posix())
            assert not names & {"pickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "jsonpickle"}, path
            assert not names & {"eval", "exec", "__import__"}, path
    # The lazy exports, the demo's own example, the command line's PATH, and what a host tells its own child.
    assert importing == {"__init__.py", "cli/demo.py", "cli/load.py", "_engine/child_main.py"}
