"""The one place that touches nats-py's private parts, each with what it buys. Everything else uses its public API.

* `TunedClient` turns errors that nats-py answers by closing the client for good into a reconnect, and insists on
  TLS where it was asked for.
* `hook`, `unhook`: hear connection events of a client somebody else opened.
* `drop_unsent`: commands not yet on the wire die with their connection, instead of going out on the next one.
* `hang_up`: the server gives nothing more to a client whose event loop can't say so.
* `sever`: a forked child holds no end of its parent's connection.
* `end_interest`: the server's half of an unsubscribe, so that ours can wait for what is under way.
* `listen`: a subscription whose handler runs in the read loop, without queue and task between.
* `read_any_bytes`: subjects that are no text don't end the read loop of a client somebody else opened.
* `publish_now`: nats-py's `publish`, quicker and without await.
"""
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from nats import errors as nats_errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from jetjobs._nats.inbound import Direct, FrameParser, Handler

# Values by name, or a block made beforehand, from "NATS/1.0" to its empty line.
Headers = Mapping[str, str] | bytes

_CLOSE_WITHIN: Final = 2.0
_SEND_AT: Final = 32  # commands gathered in one loop turn before the first go to the socket
_WHITESPACE: Final = re.compile(r"\s")
_BREAKS_OUT: Final = re.compile(r"[ \t\r\n]")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PROVEN_NAMES: Final = set[str]()
_NAMES_KEPT: Final = 256
_LEFT_TO_NATS_PY: Final = ("permissions violation", "stale connection")


class Hooks(NamedTuple):
    """A client's callbacks; each is a coroutine function."""

    error: Callable[[Exception], Awaitable[None]] | None
    disconnected: Callable[[], Awaitable[None]] | None
    reconnected: Callable[[], Awaitable[None]] | None
    closed: Callable[[], Awaitable[None]] | None


class TunedClient(Client):
    """nats-py's client, except that no error of the server ends it, that `close` does, and that it reads quicker."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = FrameParser(self)
        self._finished = False

    async def close(self) -> None:
        """Close for good, also in the middle of a reconnect. What a peer doesn't read in time is dropped."""
        self._finished = True
        # nats-py waits until all is written, which to a frozen server takes as long as TCP believes in it.
        giving_up = asyncio.get_running_loop().call_later(_CLOSE_WITHIN, self._abort)
        try:
            await super().close()
        except OSError:
            self._abort()  # in the midst of writing; nats-py leaves the socket open then
        finally:
            giving_up.cancel()

    def _abort(self) -> None:
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        # close() cancels the reconnect, but a wait_for whose connect has just failed swallows that
        # (before Python 3.12), and the task would try for ever and keep the loop from ending.
        self._stop_if_finished()
        await super()._connect_to_server(s)
        self._stop_if_finished()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        # nats-py encrypts when the server demands it and at no other time: asked for by `tls://` or a CA alone,
        # it would send the login in clear, at the first connection and to whoever answers a reconnect.
        if initial_connection and self._asks_for_tls() and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise nats_errors.Error("TLS is asked for, but the server offers no TLS; no login was sent")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    def _asks_for_tls(self) -> bool:
        scheme = self._current_server.uri.scheme if self._current_server is not None else ""
        return scheme == "tls" or (scheme not in {"ws", "wss"} and "tls" in self.options)

    def _stop_if_finished(self) -> None:
        if self._finished:
            if self._transport is not None:
                self._transport.close()
            raise asyncio.CancelledError

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        # The same in a third of the time: nats-py looks at every character of every name by itself.
        headers: dict[str, str] = {}
        for line in raw.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            name = name.strip()
            if colon and name.isascii() and not _WHITESPACE.search(name):
                headers[name] = value.strip()
        return headers

    async def _process_err(self, err_msg: str) -> None:
        # nats-py closes the client for ever on an expired credential, a full server, a subject too
        # long; hosts shall wait and go on, e.g. until the credentials file has been renewed.
        if any(known in err_msg for known in _LEFT_TO_NATS_PY):
            await super()._process_err(err_msg)
            return
        error = nats_errors.Error(f"nats: {err_msg.strip(chr(39))}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _process_op_err(self, e: Exception) -> None:
        # A peer that no longer reads leaves bytes in the write buffer, and close() would wait for
        # them as long as TCP does (a quarter of an hour) before the first attempt to reconnect.
        if not self.is_closed and not self.is_reconnecting:
            self._abort()
        await super()._process_op_err(e)


def hooks_of(client: Client) -> Hooks:
    """The callbacks a client has now."""
    return Hooks(client._error_cb, client._disconnected_cb, client._reconnected_cb, client._closed_cb)


def set_hooks(client: Client, hooks: Hooks) -> None:
    """Replace a client's callbacks; nats-py takes them in `connect` only."""
    if hooks.error is not None:
        client._error_cb = hooks.error
    client._disconnected_cb = hooks.disconnected
    client._reconnected_cb = hooks.reconnected
    client._closed_cb = hooks.closed


def read_any_bytes(client: Client) -> None:
    """Let a client somebody else opened survive a subject or status line that is no UTF-8. Idempotent.

    Anybody may publish on one, and nats-py's read loop ends at it, for good; what was text is read as before.
    """
    if "_build_message" in vars(client):
        return
    build, process = client._build_message, client._process_headers

    def build_message(sid: int, subject: bytes, *rest: Any) -> Any:
        return build(sid, subject.decode("utf-8", "replace").encode(), *rest)

    async def process_headers(headers: Any) -> Any:
        try:
            return await process(headers)
        except UnicodeDecodeError:
            return None

    client._build_message = build_message  # pyright: ignore[reportAttributeAccessIssue]
    client._process_headers = process_headers


def server_info(client: Client) -> Mapping[str, Any]:
    """What the server said of itself."""
    return client._server_info


def drop_unsent(client: Client) -> None:
    """Forget commands that never reached the socket.

    nats-py sends them after the reconnect: an old pull would bring deliveries nobody has a slot for,
    an old nak would hit a newer owner's delivery.
    """
    client._pending = []
    client._pending_data_size = 0


def drop_subscription(client: Client, sub: Subscription) -> None:
    """Forget a subscription without telling the server: a reconnect won't replay it."""
    client._remove_sub(sub._id)


def hang_up(client: Client) -> None:
    """End a connection from another thread than its event loop's, which learns of it when it runs again.

    The server sees the end at once, and with it the end of every pull and subscription. What has arrived is kept.
    """
    writer = getattr(client._transport, "_io_writer", None)
    if writer is not None:
        with suppress(OSError):  # it has ended by itself
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)


def sever(client: Client) -> None:
    """In a forked child: let go of the parent's socket, which a file that takes and gives nothing replaces.

    Else the broker would take the child for its dead parent for minutes, and what the child writes would be in the
    parent's name. Not closed: the number stays taken, so that no other file comes to be meant by it.
    """
    writer = getattr(client._transport, "_io_writer", None)
    number = -1 if writer is None else writer.get_extra_info("socket").fileno()
    if number >= 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, number, inheritable=False)
        os.close(nothing)


async def end_interest(client: Client, sub: Subscription) -> None:
    """Tell the server that no more is wanted, and go on hearing what it has sent until `drop_subscription`.

    It has left when this returns: nats-py's PING passes what waits to be sent, and its PONG would tell too early.
    """
    await client._send_unsubscribe(sub._id)
    await client._flush_pending(force_flush=True)


def publish_now(client: Client, subject: str, data: bytes, *, reply: str, headers: Headers | None, most: int) -> int:
    """Buffer a publish, in order with nats-py's own commands; its flusher sends what one loop turn gathered.

    Gives the size that counts against the server's limit, or against `most` where that is less.

    Does what `Client.publish` does in 1.0 instead of 2.6 µs (0.6 instead of 1.6 without headers), which is a
    tenth of a run, and needs no await. Call it only while connected.

    Raises:
        MaxPayloadError: headers and body over the server's limit; sent, they would end the connection.
        BadSubjectError, BadHeaderError: what would break out of the protocol line.
    """
    if not subject or _BREAKS_OUT.search(subject):
        raise nats_errors.BadSubjectError
    size = len(data)
    if headers:
        block = header_block(headers)
        size += len(block)
        command = b"%b%b%b\r\n" % (f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode(), block, data)
    else:
        command = b"%b%b\r\n" % (f"PUB {subject} {reply} {size}\r\n".encode(), data)
    if size > most or size > client.max_payload:
        raise nats_errors.MaxPayloadError
    pending = client._pending
    pending.append(command)
    client._pending_data_size += len(command)
    if len(pending) >= _SEND_AT and type(client._transport) is TcpTransport:
        # The server shall work while this loop turn goes on: a twentieth more runs a second.
        client._transport.writelines(pending)
        client._pending = []
        client._pending_data_size = 0
    client.stats["out_msgs"] += 1
    client.stats["out_bytes"] += size
    flushes = client._flush_queue
    assert flushes is not None
    if flushes.empty():
        flushes.put_nowait(asyncio.get_running_loop().create_future())
    return size


def message_size(data: bytes, headers: Headers | None) -> int:
    """The bytes the server counts against its limit."""
    return len(data) + (len(header_block(headers)) if headers else 0)


def header_block(headers: Headers) -> bytes:
    """The headers as they go over the wire; values can't break out of their line.

    Raises:
        BadHeaderError: a name could.
    """
    if isinstance(headers, bytes):
        return headers
    lines = ["NATS/1.0"]
    for name, value in headers.items():
        if name not in _PROVEN_NAMES:
            _prove_name(name)
        if "\n" in value or "\r" in value:
            value = value.replace("\r", " ").replace("\n", " ")  # noqa: PLW2901  # as nats-py does
        lines.append(f"{name}: {value}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode()


def _prove_name(name: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise nats_errors.BadHeaderError(name)
    if len(_PROVEN_NAMES) < _NAMES_KEPT:
        _PROVEN_NAMES.add(name)


async def listen(
    client: Client, subject: str, handler: Handler, *, queue: str = "", on_error: Callable[[Exception], None]
) -> Subscription:
    """Subscribe; `handler` runs inside the read loop for each message and must neither block nor await."""
    # No pending limit: a limit makes nats-py drop messages, and what arrives here was asked for.
    sub = await client.subscribe(subject, queue=queue, pending_msgs_limit=0, pending_bytes_limit=0)
    sub._pending_queue = Direct(handler, sub, on_error)  # pyright: ignore[reportAttributeAccessIssue]
    return sub
