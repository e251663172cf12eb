"""The users of docs/security.md on a real server, and what each of them sent and was refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nats
from nats.aio.client import Client

from tests.support.servers import RealServer

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORD = "correct-horse"
_REFUSED_WITHIN = 2.0
ROLES = ("caller", "gateway", "host", "viewer", "admin")

_BLOCK = re.compile(r"<!-- (user|frame|lines): (\w+) -->\n```conf\n(.*?)```", re.DOTALL)
_PLACE = "      # the blocks below\n"
_VIOLATION = re.compile(r"permissions violation for (?:publish|subscription) to \"([^\"]+)\"", re.IGNORECASE)


def blocks() -> dict[str, str]:
    """The configuration of each user on the page, and that of the frame around them."""
    return {name: text for _, name, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8"))}


def host_of_events(name: str) -> str:
    """The page's host under another name, with the lines for events of a stream instead of a subscription."""
    found = blocks()
    host = re.sub(r"shop_host(?=[.,])", name, found["host"])
    host = host.replace("$SHOP_HOST_PASSWORD", PASSWORD)
    return host.replace('"orders.paid"', "").replace("publish: { allow: [", "publish: { allow: [\n" + found["events"])


def caller_without_cancel(name: str) -> str:
    """The page's caller under another name, without the lines it says it can do without."""
    caller = blocks()["caller"].replace("shop_caller", name).replace("$SHOP_CALLER_PASSWORD", PASSWORD)
    return re.sub(r"# cancel\n.*?\]", "]", caller, count=1, flags=re.DOTALL)


def caller_who_operates(name: str) -> str:
    """The page's caller under another name, with the lines for one who pauses, limits and drains."""
    found = blocks()
    caller = found["caller"].replace("shop_caller", name).replace("$SHOP_CALLER_PASSWORD", PASSWORD)
    return caller.replace("publish: { allow: [", "publish: { allow: [\n" + found["operator"])


def configuration(*more_users: str) -> str:
    """The page's server, all of its users, one without limits called boss, and more."""
    found = blocks()
    users = [found[role] for role in ROLES] + [f"{{ user: boss, password: {PASSWORD} }}", *more_users]
    variables = [f"SHOP_{role.upper()}_PASSWORD: {PASSWORD}" for role in ROLES]
    return "\n".join(variables) + "\n" + found["server"].replace(_PLACE, "\n".join(users))


def login(server: RealServer, user: str) -> dict[str, Any]:
    """The connect options of a user: one of the page's, by its role, or any other."""
    name = f"shop_{user}" if user in ROLES else user
    return {"servers": server.url, "user": name, "password": PASSWORD, "inbox_prefix": f"_INBOX_{name}"}


def variables(server: RealServer, user: str) -> dict[str, str]:
    """The same for the command line."""
    options = login(server, user)
    names = {"servers": "NATS_URL", "user": "NATS_USER", "password": "NATS_PASSWORD", "inbox_prefix": "NATS_INBOX"}
    return {variable: options[option] for option, variable in names.items()}


def allowed_to_publish(role: str) -> list[str]:
    """The subjects a block lets its user publish on."""
    section = blocks()[role].partition("publish:")[2].partition("]")[0]
    return re.findall(r'"([^"]+)"', section)


def sent_by(log: str, user: str) -> set[str]:
    """What a user's connections published on, by the server's trace."""
    name = f"shop_{user}" if user in ROLES else user
    return set(re.findall(rf'/user:{name}" - <<- \[H?PUB ([^\s\]]+)', log))


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject falls under a pattern."""
    parts = (re.escape(token).replace(r"\*", "[^.]+") for token in pattern.removesuffix(".>").split("."))
    return re.fullmatch(r"\.".join(parts) + (r"\..+" if pattern.endswith(".>") else ""), subject) is not None


class Intruder:
    """A user with a NATS client of its own, who tries what jetjobs would never do."""

    def __init__(self, server: RealServer, user: str) -> None:
        self._options = login(server, user)
        self._refused: set[str] = set()
        self._news = asyncio.Event()
        self.client: Client

    async def __aenter__(self) -> Self:
        async def heard(error: Exception) -> None:
            self._refused.update(_VIOLATION.findall(str(error)))
            self._news.set()

        self.client = await nats.connect(**self._options, error_cb=heard)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()

    async def let_through(self, subjects: Iterable[str]) -> list[str]:
        """Those of the subjects on which a publish isn't refused; what is sent means nothing anywhere."""
        return [
            subject for subject in subjects if not await self._is_refused(subject, self.client.publish(subject, b"?"))
        ]

    async def let_hear(self, subjects: Iterable[str]) -> list[str]:
        """Those of the subjects to which a subscription isn't refused."""
        return [subject for subject in subjects if not await self._is_refused(subject, self.client.subscribe(subject))]

    async def _is_refused(self, subject: str, trying: Any) -> bool:
        self._refused.clear()
        await trying
        try:
            # No round trip tells: nats-py's PING overtakes what still waits for the socket.
            async with asyncio.timeout(_REFUSED_WITHIN):
                while subject.lower() not in self._refused:  # nats-py gives it in lower case
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def store(self, subject: str, headers: Mapping[str, str], data: bytes = b"null") -> None:
        """Publish with headers, and have it confirmed."""
        await self.client.jetstream().publish(subject, data, headers=dict(headers))
