"""Messages on their way in: whole frames taken from the socket's bytes, and what handlers see of them.

nats-py parses each frame with two regular expressions and two deletions at the front of its buffer, builds
a message with all headers read, and puts it into a queue for a task to take out. A host handles three messages
per run, most of them answers without headers; taking whole frames by offset and reading headers when asked for
costs a quarter of that. Whatever is no whole MSG or HMSG frame for one of our handlers is still nats-py's business.
"""
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from nats.errors import ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

_MESSAGES: Final = (b"MSG ", b"HMSG ")
_H: Final = ord("H")
_CRLF: Final = b"\r\n"
_NO_HEADERS: Final[Mapping[str, str]] = {}
_STATUS_LINE: Final = "NATS/1.0"
_LONGEST_LINE: Final = 64 * 1024


class Inbound:
    """One message: `subject` and `reply` as texts, `data`, and `headers`, read at the first look."""

    __slots__ = ("_head", "_headers", "data", "reply", "subject")

    def __init__(self, subject: str, reply: str, data: bytes, head: bytes | Mapping[str, str] | None) -> None:
        self.subject = subject
        self.reply = reply
        self.data = data
        self._head = head
        self._headers: Mapping[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Header values by name, the last of a name; a status stands under `Status` and `Description`."""
        if self._headers is None:
            head = self._head
            self._headers = headers_of(head) if isinstance(head, bytes) else head or _NO_HEADERS
        return self._headers


Handler = Callable[[Inbound], None]


class Direct:
    """Stands where nats-py keeps a subscription's queue, and handles instead of queueing.

    Saves a queue, an event and a task switch per message. `put_nowait` is nats-py's way in, `take` ours.
    """

    __slots__ = ("_handler", "_on_error", "_sub")

    def __init__(self, handler: Handler, sub: Subscription, on_error: Callable[[Exception], None]) -> None:
        self._handler = handler
        self._sub = sub
        self._on_error = on_error

    def take(self, message: Inbound) -> None:
        """Handle one message."""
        # A fence: an exception here would end nats-py's read loop and the connection with it.
        try:
            self._handler(message)
        except Exception as failure:  # noqa: BLE001
            self._on_error(failure)

    def put_nowait(self, message: Msg) -> None:
        """Handle one message that nats-py has parsed."""
        self._sub._pending_size = 0
        self.take(Inbound(message.subject, message.reply, message.data, message.headers))

    def empty(self) -> bool:
        """Always: nothing waits here."""
        return True

    def qsize(self) -> int:
        """Always 0."""
        return 0

    async def join(self) -> None:
        """Return at once: what came was handled when it came."""
        return


# Triggers of one job mostly carry the same block. Whoever reads it must not change it.
_read_before: Final[dict[bytes, Mapping[str, str]]] = {}
_REMEMBERED: Final = 256
_WORTH_REMEMBERING: Final = 512  # bytes; a longer block comes once


def headers_of(head: bytes) -> Mapping[str, str]:
    """`read_headers`, remembered."""
    found = _read_before.get(head)
    if found is None:
        found = MappingProxyType(read_headers(head))
        if len(head) <= _WORTH_REMEMBERING:
            if len(_read_before) >= _REMEMBERED:
                _read_before.clear()
            _read_before[head] = found
    return found


def read_headers(head: bytes) -> dict[str, str]:
    r"""The header block as a mapping; stray bytes become replacement characters, lines without a colon are left out.

    >>> read_headers(b"NATS/1.0 408 Request Timeout\r\nA: b\r\n\r\n")
    {'Status': '408', 'Description': 'Request Timeout', 'A': 'b'}
    """
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    found: dict[str, str] = {}
    status, _, description = first.removeprefix(_STATUS_LINE).strip().partition(" ")
    if status:
        found["Status"] = status
        if description:
            found["Description"] = description.strip()
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    return found


# Where the next frame begins, then sid, subject, reply, header block, body. Plain: a host takes three per run.
_Frame = tuple[int, int, bytes, bytes, bytes | None, bytes]


class FrameParser(Parser):
    """nats-py's parser behind a quick path for whole message frames."""

    nc: Client

    async def parse(self, data: bytes = b"") -> None:
        """Dispatch what is whole in the buffer and `data`; keep the rest."""
        if self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)
            return
        buffer = bytes(self.buf) + data if self.buf else bytes(data)
        at = 0
        while (end := buffer.find(_CRLF, at)) >= 0:
            if buffer.startswith(_MESSAGES, at):
                frame = _frame(buffer, at, end)
                if frame is None:
                    break
                at = frame[0]
                if not self._take(frame):
                    await self._leave_to_nats_py(frame)
            else:
                self.buf = bytearray(buffer[at : end + 2])
                at = end + 2
                await super().parse()
        self.buf = bytearray(buffer[at:])
        if end < 0 and len(self.buf) > _LONGEST_LINE:
            raise ProtocolError("nats: a control line without end")

    def _take(self, frame: _Frame) -> bool:
        """Handle a frame for one of our handlers, or for a subscription that is no more."""
        _, sid, subject, reply, head, data = frame
        client = self.nc
        sub = client._subs.get(sid)
        if sub is None:
            return True
        direct = cast("object", sub._pending_queue)
        if type(direct) is not Direct:
            return False
        stats = client.stats
        stats["in_msgs"] += 1
        stats["in_bytes"] += len(data)
        sub._received += 1
        # A subject is whatever bytes somebody published on: an error here would end the read loop, and the message
        # would come back to do it again.
        direct.take(Inbound(subject.decode("utf-8", "replace"), reply.decode("utf-8", "replace"), data, head))
        return True

    async def _leave_to_nats_py(self, frame: _Frame) -> None:
        _, sid, subject, reply, head, data = frame
        await self.nc._process_msg(sid, subject, reply, data, head)  # pyright: ignore[reportArgumentType]


def _frame(buffer: bytes, at: int, end: int) -> _Frame | None:
    """The frame whose control line lies from `at` to `end`; `None` while it isn't whole.

    Raises:
        ProtocolError: it is no such line.
    """
    # By spaces alone: to the server other white space is a part of the subject.
    args = buffer[at:end].split(b" ")
    try:
        begin = end + 2
        whole = begin + int(args[-1])
        if len(buffer) < whole + 2:
            return None
        head_end = begin
        if buffer[at] == _H:
            head_end += int(args.pop(-2))
        _, subject, sid, *reply, _ = args
        (answer_to,) = reply or (b"",)
        head = buffer[begin:head_end] if head_end > begin else None
        return whole + 2, int(sid), subject, answer_to, head, buffer[head_end:whole]
    except (ValueError, IndexError):
        raise ProtocolError("nats: malformed MSG") from None
