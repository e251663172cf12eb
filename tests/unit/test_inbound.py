"""The quick frame parser says what nats-py's parser says, however the bytes are cut."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from jetjobs._nats.inbound import Direct, FrameParser, Inbound, read_headers

tokens = st.text("abcXYZ.$_0", min_size=1, max_size=12)
heads = st.dictionaries(st.text("AbC-", min_size=1, max_size=6), st.text("xy z:", max_size=6), max_size=3)
frames = st.tuples(tokens, st.integers(1, 3), st.none() | tokens, st.binary(max_size=40), st.none() | heads)


def encode(frame: tuple[str, int, str | None, bytes, dict[str, str] | None]) -> bytes:
    subject, sid, reply, data, head = frame
    args = f"{subject} {sid}" + (f" {reply}" if reply else "")
    if head is None:
        return f"MSG {args} {len(data)}\r\n".encode() + data + b"\r\n"
    block = ("NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + "\r\n").encode()
    return f"HMSG {args} {len(block)} {len(block) + len(data)}\r\n".encode() + block + data + b"\r\n"


class Client:
    """What a parser calls; keeps what came, subscription 1 by our way and the others by nats-py's."""

    def __init__(self, *, direct: bool) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.stats = {"in_msgs": 0, "in_bytes": 0}
        self._subs = {sid: Sub() for sid in (1, 2, 3)}
        if direct:
            self._subs[1]._pending_queue = Direct(self._take, cast("Any", self._subs[1]), self._failed)

    def _take(self, message: Inbound) -> None:
        self.heard.append((1, message.subject.encode(), message.reply.encode(), message.data, message._head))

    def _failed(self, error: Exception) -> None:
        raise AssertionError from error

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, head: bytes | None) -> None:
        self.heard.append((sid, subject, reply, data, head))

    async def _process_ping(self) -> None:
        self.heard.append(("PING",))

    async def _process_pong(self) -> None:
        self.heard.append(("PONG",))


class Sub:
    """As much of a subscription as a parser looks at."""

    def __init__(self) -> None:
        self._pending_queue: object = None
        self._received = 0
        self._pending_size = 0


@given(st.lists(frames | st.sampled_from(["PING", "PONG", "OK"]), max_size=6), st.data())
async def test_says_the_same_as_nats_py(script: list[Any], data: st.DataObject) -> None:
    raw = b"".join(
        {"PING": b"PING\r\n", "PONG": b"PONG\r\n", "OK": b"+OK\r\n"}[f] if isinstance(f, str) else encode(f)
        for f in script
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    ours, theirs = Client(direct=True), Client(direct=False)
    quick, plain = FrameParser(ours), Parser(theirs)
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        await quick.parse(raw[begin:end])
    await plain.parse(raw)
    assert ours.heard == theirs.heard
    assert not quick.buf


@pytest.mark.parametrize(
    "line", [b"MSG a 1 x\r\n", b"MSG a\r\n", b"HMSG a 1 5\r\nabcde\r\n", b"HMSG a 1 q 5\r\nabcde\r\n"]
)
async def test_broken_frames_are_protocol_errors(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        await FrameParser(Client(direct=True)).parse(line)


async def test_a_handler_that_raises_is_reported_and_the_next_message_comes() -> None:
    client, failures = Client(direct=True), list[Exception]()

    def refuse(_message: Inbound) -> None:
        raise LookupError

    client._subs[1]._pending_queue = Direct(refuse, cast("Any", client._subs[1]), failures.append)
    await FrameParser(client).parse(b"MSG a 1 1\r\nx\r\nMSG b 2 1\r\ny\r\n")
    assert [type(each) for each in failures] == [LookupError]
    assert client.heard == [(2, b"b", b"", b"y", None)]


def test_headers_of_a_status() -> None:
    head = b"NATS/1.0 409 Consumer Deleted\r\nNats-Pending-Messages: 3\r\n\r\n"
    assert read_headers(head) == {"Status": "409", "Description": "Consumer Deleted", "Nats-Pending-Messages": "3"}


@given(st.binary(max_size=60))
def test_any_bytes_are_some_headers(head: bytes) -> None:
    assert isinstance(read_headers(head), dict)
