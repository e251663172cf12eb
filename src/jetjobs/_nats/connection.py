"""One connection to NATS: its state, its listeners, and what to conclude when it is gone.

`dial.connect` makes one. Nothing is buffered while disconnected: whoever writes knows whether it was sent.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from jetjobs._clock import SystemClock
from jetjobs._log import get_logger
from jetjobs._nats.dial import LONGEST_WAIT, check_size, dial
from jetjobs._nats.faults import permission_missing, permission_subject, redact, translate
from jetjobs._nats.size_limit import SizeLimit
from jetjobs._nats.tuned import (
    Handler,
    Headers,
    Hooks,
    TunedClient,
    drop_subscription,
    drop_unsent,
    end_interest,
    hang_up,
    hooks_of,
    listen,
    publish_now,
    read_any_bytes,
    server_info,
    set_hooks,
    sever,
)
from jetjobs.errors import BrokerUnavailable

_clock = SystemClock()
_log = get_logger("jetjobs.nats")

Target = str | Mapping[str, Any] | Client
_open = WeakSet["Connection"]()
OnRefusal = Callable[[str, str], None]  # "publish" or "subscription", and the subject in lower case

_TOO_LARGE: Final = "maximum payload violation"
_PROBE_TIMEOUT: Final = 1.0
_DRAIN_WITHIN: Final = 2.0
_PORTS: Final = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
_NOBODY_THERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


async def connect(target: Target, *, name: str, longest_wait: float = LONGEST_WAIT) -> Connection:
    """An open connection to `target`: a URL (several with commas), nats-py connect options, or an open client.

    An open client stays its owner's: it is never closed here.

    Raises:
        BrokerUnavailable: nobody there; names host and port.
        AccessDenied: password, token, credentials file or TLS.
        ServerTooOld: before 2.14.
        JetStreamDisabled: no JetStream on the server or for the account.
        BrokerError: its messages are too small.
    """
    if isinstance(target, Client):
        if not target.is_connected:
            raise BrokerUnavailable("the NATS client given is not connected")
        check_size(target)
        return Connection(target, owned=False)
    return Connection(await dial(target, name=name, longest_wait=longest_wait), owned=True)


class Connection:
    """An open nats-py client and the news about it. Belongs to the thread of its event loop."""

    def __init__(self, client: Client, *, owned: bool) -> None:
        self.client = client
        self.connected_since: float | None = _clock.monotonic()
        self._owned = owned
        self._closed = False
        self._before = hooks_of(client)
        self._on_reconnect: list[Callable[[], None]] = []
        self._on_disconnect: list[Callable[[], None]] = []
        self._on_refusal: list[OnRefusal] = []
        self._waiting: dict[asyncio.Future[None], None] = {}  # in order: who waited first writes first
        self._subscriptions: set[Subscription] = set()
        self._said: set[str] = set()  # since the last connect
        self._size_limit = SizeLimit(client)
        set_hooks(client, Hooks(self._heard_error, self._disconnected, self._reconnected, self._gone))
        if not isinstance(client, TunedClient):
            read_any_bytes(client)
        if owned:
            _open.add(self)

    # -- state

    @property
    def is_connected(self) -> bool:
        """True while what is sent goes out at once."""
        return self.connected_since is not None and self.client.is_connected

    @property
    def is_closed(self) -> bool:
        """True when this connection will never come back."""
        return self._closed or self.client.is_closed

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body a message may have; one more and the server hangs up."""
        return self._size_limit.most

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call after each reconnect, when subscriptions are in place again."""
        self._on_reconnect.append(callback)

    def on_disconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call when the connection is lost or closed: no answer to anything sent will come. The answer ends that."""
        self._on_disconnect.append(callback)
        return partial(self._on_disconnect.remove, callback)

    def on_refusal(self, callback: OnRefusal) -> Callable[[], None]:
        """Call when the server refused a publish or subscription for want of a permission; the answer ends that."""
        self._on_refusal.append(callback)
        return partial(self._on_refusal.remove, callback)

    async def wait_connected(self, timeout: float) -> None:
        """Return once connected.

        Raises:
            BrokerUnavailable: not within `timeout`, or closed for good.
        """
        if self.is_connected:
            return
        if not self.is_closed:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[waiting] = None
            try:
                async with asyncio.timeout(timeout):
                    await waiting
                if not self.is_closed:
                    return
            except TimeoutError:
                pass
            finally:
                self._waiting.pop(waiting, None)
        state = "closed" if self.is_closed else "lost"
        raise BrokerUnavailable(f"the connection to {self.servers} is {state}; nothing was sent")

    @property
    def servers(self) -> str:
        """Hosts and ports of all known servers, without credentials."""
        return ", ".join(sorted({f"{uri.hostname}:{uri.port or _PORTS[uri.scheme]}" for uri in self.client.servers}))

    # -- traffic

    async def listen(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Subscribe for as long as the connection lives; `handler` must neither block nor await."""
        if self.is_closed:
            raise BrokerUnavailable(f"the connection to {self.servers} is closed")
        sub = await listen(self.client, subject, handler, queue=queue, on_error=self._handler_failed)
        self._subscriptions.add(sub)
        return sub

    async def forget(self, sub: Subscription) -> None:
        """End a subscription."""
        self._subscriptions.discard(sub)
        with suppress(nats_errors.Error):
            await sub.unsubscribe()

    def abandon(self, sub: Subscription) -> None:
        """End a subscription while disconnected, so that the reconnect doesn't bring it back."""
        self._subscriptions.discard(sub)
        drop_subscription(self.client, sub)

    async def drain(self, sub: Subscription) -> None:
        """End a subscription once everything the server had sent for it was handled."""
        self._subscriptions.discard(sub)
        try:
            if self.is_connected:  # else nats-py would wait 10 s for an answer
                async with asyncio.timeout(_DRAIN_WITHIN):
                    await end_interest(self.client, sub)
                    await sub.drain()
        except (nats_errors.Error, OSError):  # TimeoutError is an OSError
            pass
        finally:
            drop_subscription(self.client, sub)

    def post(self, subject: str, data: bytes = b"", reply: str = "", headers: Headers | None = None) -> bool:
        """Send without waiting; False if not connected. In order with everything sent here.

        Raises:
            PayloadTooLargeError: headers and body over the server's limit; nothing was sent.
        """
        if self.connected_since is None or not self.client.is_connected:
            return False
        limit = self._size_limit
        try:
            size = publish_now(self.client, subject, data, reply=reply, headers=headers, most=limit.learned)
        except nats_errors.MaxPayloadError:
            raise limit.refusal(subject, data, headers) from None
        except (nats_errors.BadSubjectError, nats_errors.BadHeaderError) as bad:
            raise translate(bad, f"sending to {subject!r}") from None
        limit.sent(size)
        return True

    # -- conclusions

    def hang_up(self) -> None:
        """Let the server give us nothing more; from any thread. The loop reconnects once it runs again.

        A borrowed client is left alone.
        """
        if self._owned:
            hang_up(self.client)

    async def refused_everywhere(self) -> bool:
        """True if every known server's port refuses connections: the broker is down for all, not just for us.

        A server that answers, or is silent, may be serving others: False.
        """
        if self.is_connected:
            return False
        probes = [_refuses(str(uri.hostname), uri.port or _PORTS[uri.scheme]) for uri in self.client.servers]
        return bool(probes) and all(await asyncio.gather(*probes))

    async def close(self) -> None:
        """Let go: close our own client, or only end our subscriptions on a borrowed one. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._owned:
            await self.client.close()
        else:
            for sub in list(self._subscriptions):
                await self.forget(sub)
            set_hooks(self.client, self._before)
        self._lose()
        self._wake()

    # -- nats-py's callbacks

    async def _disconnected(self) -> None:
        if not self._closed and self.connected_since is not None:
            _log.warning("nats disconnected", servers=self.servers)
        if self._owned:
            drop_unsent(self.client)
        self._lose()
        if not self._owned and self._before.disconnected is not None:
            await self._before.disconnected()

    def _lose(self) -> None:
        if self.connected_since is None:
            return
        self.connected_since = None
        for callback in tuple(self._on_disconnect):
            callback()
        if self.is_closed:
            self._wake()

    async def _reconnected(self) -> None:
        self.connected_since = _clock.monotonic()
        self._said.clear()
        self._size_limit.connected()
        _log.info("nats reconnected", server=server_info(self.client).get("server_name"))
        for callback in self._on_reconnect:
            callback()
        self._wake()
        if not self._owned and self._before.reconnected is not None:
            await self._before.reconnected()

    async def _gone(self) -> None:
        self._lose()
        self._wake()
        if not self._owned and self._before.closed is not None:
            await self._before.closed()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _heard_error(self, error: Exception) -> None:
        text = redact(str(error) or type(error).__name__)
        refused = permission_subject(text)
        if refused is not None:
            self._refused(*refused)
        elif text not in self._said:  # an unreachable server says the same at every attempt
            self._said.add(text)
            _log.warning("nats error", error=text)
        if _TOO_LARGE in text.lower():
            self._size_limit.hung_up()
        if not self._owned and self._before.error is not None:
            await self._before.error(error)

    def _refused(self, kind: str, subject: str) -> None:
        _log.warning("nats permission missing", error=str(permission_missing(kind, subject)), subject=subject)
        for callback in tuple(self._on_refusal):
            callback(kind, subject)

    def _handler_failed(self, failure: Exception) -> None:
        _log.error("nats handler failed", exc_info=failure)


def _forked() -> None:
    """In a forked child, which keeps none of our connections; what is borrowed is its owner's."""
    for connection in list(_open):
        sever(connection.client)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


async def _refuses(host: str, port: int) -> bool:
    """True if every address of a host refuses (an address this machine can't even try doesn't count)."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            codes = await asyncio.gather(*(_knock(family, address) for family, _, _, _, address in found))
    except (TimeoutError, OSError):
        return False
    tried = [code for code in codes if code not in _NOBODY_THERE]
    return bool(tried) and all(code == errno.ECONNREFUSED for code in tried)


async def _knock(family: int, address: Any) -> int:
    """The errno of connecting to an address; 0 if somebody opened."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(probe, address)
        except OSError as refusal:
            return refusal.errno or -1
    return 0
