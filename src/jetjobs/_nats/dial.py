"""Open a connection, or say in one clear error why not.

nats-py retries silently at the first connection too. Here the first error that no repetition can heal
decides at once (password, TLS, version), and the others once every server was tried.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from nats import errors as nats_errors
from nats.aio.client import Client

from jetjobs._nats.faults import from_api_error, permission_subject, redact, translate
from jetjobs._nats.tuned import TunedClient, server_info
from jetjobs.errors import (
    AccessDenied,
    BrokerError,
    BrokerUnavailable,
    ConfigError,
    JetJobsError,
    JetStreamDisabled,
    ServerTooOld,
)

NEEDED: Final = "2.14"
SMALLEST_MAX_PAYLOAD: Final = 60_000  # a record with payload, result and error in it must go into one message
WITHIN: Final = 7.0  # with a program's start before it and the giving up after it still under 10 s
LONGEST_WAIT: Final = 6.0

# Ours, not the caller's: they decide what a lost answer means.
_FIXED: Final[Mapping[str, Any]] = {
    "allow_reconnect": True,
    "max_reconnect_attempts": -1,
    "pending_size": 0,  # refuse what can't be sent now, instead of sending it after a reconnect
}
_DEFAULTS: Final[Mapping[str, Any]] = {"ping_interval": 10, "max_outstanding_pings": 2, "connect_timeout": 3}


async def dial(target: str | Mapping[str, Any], *, name: str, longest_wait: float = LONGEST_WAIT) -> Client:
    """A connected client whose server is recent enough and has JetStream.

    `longest_wait` bounds the seconds between its tries to reconnect; each client has its own number of them.
    """
    options = _options(target, name, longest_wait)
    client = TunedClient()
    first = _FirstErrors(client, len(options["servers"]))
    try:
        async with asyncio.timeout(WITHIN):
            await client.connect(**options, error_cb=first.heard)
            first.connecting = False
            await _prove(client, first.refused)
    except TimeoutError:
        await _abandon(client)
        raise first.unreachable(f"no answer within {WITHIN:g} s") from None
    except JetJobsError:
        await _abandon(client)
        raise
    except TypeError as failure:
        raise ConfigError(f"a connect option that NATS doesn't have: {redact(str(failure))}") from None
    except (OSError, ValueError, nats_errors.Error) as failure:
        await _abandon(client)
        raise translate(failure, f"connecting to {first.servers}") from None
    except BaseException:
        await _abandon(client)
        raise
    return client


def _options(target: str | Mapping[str, Any], name: str, longest_wait: float = LONGEST_WAIT) -> dict[str, Any]:
    given: dict[str, Any] = {"servers": target} if isinstance(target, str) else dict(target)
    servers = given.get("servers") or given.pop("url", None) or "nats://localhost:4222"
    if isinstance(servers, str):
        servers = [part.strip() for part in servers.split(",") if part.strip()]
    # 100 hosts that lost the same broker must not come back in the same second: of 6 s, three in ten do.
    waits = {"reconnect_time_wait": random.uniform(longest_wait / 4, longest_wait)}  # noqa: S311
    _add_tls(given)
    options = {"name": name, **_DEFAULTS, **waits, **given, **_FIXED, "servers": list(servers)}
    _check_credentials(options)
    return options


def _add_tls(options: dict[str, Any]) -> None:
    """Make a context of `tls=True` and of the files `tls_ca`, `tls_cert`, `tls_key`."""
    ca, cert, key = (options.pop(name, None) for name in ("tls_ca", "tls_cert", "tls_key"))
    if options.get("tls") is False:
        del options["tls"]
    if not (ca or cert or options.get("tls") is True):
        return
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as failure:
        raise AccessDenied(f"the TLS files can't be used ({ca or cert}): {failure.strerror or failure}") from None
    options["tls"] = context


def _check_credentials(options: Mapping[str, Any]) -> None:
    """Refuse what nats-py would stumble over: it reads a credentials file without a JWT for ever."""
    creds, seed = options.get("user_credentials"), options.get("nkeys_seed")
    if isinstance(creds, (str, Path)):
        _must_hold(Path(creds), "BEGIN NATS USER JWT", "BEGIN USER NKEY SEED")
    if isinstance(seed, (str, Path)):
        _must_hold(Path(seed))
    if (creds or seed or options.get("nkeys_seed_str")) and find_spec("nkeys") is None:
        raise ConfigError("credentials files and nkeys need the package nkeys: pip install 'jetjobs[nkeys]'")


def _must_hold(path: Path, *markers: str) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as failure:
        raise AccessDenied(f"the credentials file {path} can't be read: {failure.strerror}") from None
    missing = [marker for marker in markers if marker not in text]
    if missing or not text.strip():
        raise AccessDenied(f"the credentials file {path} holds no {missing[0] if missing else 'seed'}")


class _FirstErrors:
    """nats-py's error callback of the first connection: counts, and raises what decides."""

    def __init__(self, client: Client, servers: int) -> None:
        self._client = client
        self._left = servers
        self._last = ""
        self.connecting = True
        self.refused = asyncio.Event()

    @property
    def servers(self) -> str:
        """Hosts and ports, never credentials."""
        return ", ".join(f"{uri.hostname}:{uri.port}" for uri in self._client.servers) or "NATS"

    async def heard(self, error: Exception) -> None:
        """Raises out of `Client.connect`; afterwards it may not, that would end the read loop."""
        if not self.connecting:
            if permission_subject(str(error)):
                self.refused.set()
            return
        failure = translate(error, f"connecting to {self.servers}")
        if isinstance(failure, AccessDenied) or isinstance(error, FileNotFoundError):
            raise failure
        silent = isinstance(error, TimeoutError)
        self._last = redact(str(error)) or ("no answer" if silent else type(error).__name__)
        self._left -= 1
        if self._left <= 0:
            raise self.unreachable(self._last)

    def unreachable(self, why: str) -> BrokerUnavailable:
        """The error when no server could be used."""
        return BrokerUnavailable(f"no NATS server at {self.servers}: {self._last or why}")


async def _prove(client: Client, refused: asyncio.Event) -> None:
    """Check that the server speaks, is recent enough and has JetStream for us."""
    if not client.is_connected:
        raise AccessDenied("the server closed the connection during the handshake: check TLS and credentials")
    version = str(server_info(client).get("version", "0.0.0"))
    if _number(version) < _number(NEEDED):
        raise ServerTooOld(
            f"nats-server {version} is too old: jetjobs needs {NEEDED} or later (message schedules)", version, NEEDED
        )
    check_size(client)
    asking = asyncio.create_task(client.request("$JS.API.INFO", b"", timeout=3.0))
    refusing = asyncio.create_task(refused.wait())
    try:
        await asyncio.wait({asking, refusing}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            return  # a user who may not ask: what else it may not do shows when it does it
        _judge((await asking).data)
    except nats_errors.NoRespondersError:
        raise JetStreamDisabled(
            "the server has no JetStream: start nats-server with -js, or enable it for this account "
            "(a leaf node needs its hub's domain in default_js_domain)"
        ) from None
    except nats_errors.TimeoutError:
        raise BrokerUnavailable("the server is there, but its JetStream doesn't answer") from None
    finally:
        refusing.cancel()
        asking.cancel()


def check_size(client: Client) -> None:
    """Refuse a server whose messages are too small.

    Raises:
        BrokerError: with its limit and the needed one.
    """
    if client.max_payload < SMALLEST_MAX_PAYLOAD:
        raise BrokerError(
            f"the server's max_payload is {client.max_payload} bytes, and jetjobs needs {SMALLEST_MAX_PAYLOAD} or "
            "more: raise it in the server's configuration"
        )


def _judge(answer: bytes) -> None:
    error = json.loads(answer).get("error")
    if error is not None:
        raise from_api_error(error, "checking JetStream")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-", maxsplit=1)[0].split(".")[:2] if part.isdigit())


async def _abandon(client: Client) -> None:
    try:
        await asyncio.wait_for(client.close(), 1.0)
    except (OSError, ssl.SSLError, TimeoutError, nats_errors.Error, JetJobsError):
        return
