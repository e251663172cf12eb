"""Where the broker is and who we are there, merged from argument, environment and file. Pure: reads nothing.

================ ====================== ====================================================
variable         option given on        meaning
================ ====================== ====================================================
NATS_URL         `servers`              one URL, or several with commas
NATS_USER        `user`                 user name
NATS_PASSWORD    `password`             its password
NATS_TOKEN       `token`                token instead of a user
NATS_CREDS       `user_credentials`     path of a credentials file
NATS_NKEY        `nkeys_seed`           path of a file with an nkey seed, or the seed itself
NATS_CA          `tls_ca`               path of the CA certificates to trust
NATS_CERT        `tls_cert`             path of the client certificate
NATS_KEY         `tls_key`              path of its key
NATS_INBOX       `inbox_prefix`         where answers come in, instead of `_INBOX`: a user may have its own
================ ====================== ====================================================

In `[tool.jetjobs]` the same in lower case, `nats_url` as `nats`; passwords and tokens aren't taken from a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit

from jetjobs.errors import ConfigError

DEFAULT_SERVER: Final = "nats://localhost:4222"
VARIABLES: Final[Mapping[str, str]] = {
    "NATS_URL": "servers",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CREDS": "user_credentials",
    "NATS_NKEY": "nkeys_seed",
    "NATS_CA": "tls_ca",
    "NATS_CERT": "tls_cert",
    "NATS_KEY": "tls_key",
    "NATS_INBOX": "inbox_prefix",
}
FILE_KEYS: Final[Mapping[str, str]] = {
    "nats": "servers",
    **{variable.lower(): option for variable, option in VARIABLES.items() if variable != "NATS_URL"},
}
_LOGIN: Final = ("user", "password", "token", "user_credentials", "nkeys_seed", "nkeys_seed_str")
_SECRET: Final = frozenset({"password", "token", "nkeys_seed", "nkeys_seed_str"})
_PATHS: Final = ("user_credentials", "nkeys_seed", "tls_ca", "tls_cert", "tls_key")
_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_PLACES: Final = ("", "NATS_URL: ", "nats in [tool.jetjobs]: ")  # as messages begin, for argument, environment and file
_INBOX: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_SEED: Final = re.compile(r"S[A-Z2-7]{57}")


class ConnectOptions(Mapping[str, Any]):
    """Options as nats-py's `connect` takes them, plus `tls_ca`, `tls_cert`, `tls_key`. Shows no secret."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return f"ConnectOptions({ {name: self._shown(name) for name in self._options} })"

    def _shown(self, name: str) -> Any:
        value = self._options[name]
        if name == "servers":
            return [hide_login(server) for server in value]
        return "…" if name in _SECRET else value

    @property
    def shown_servers(self) -> str:
        """The servers without credentials, for messages."""
        return ", ".join(hide_login(server) for server in self._options["servers"])


def merge_options(
    given: str | Sequence[str] | Mapping[str, Any] | None,
    environ: Mapping[str, str],
    file: Mapping[str, Any],
) -> ConnectOptions:
    """The options to connect with: argument, then environment, then file, then `nats://localhost:4222`.

    Who we are is taken from one place only: a login in the argument, or in its URL, lets none of another place in.

    Raises:
        ConfigError: no URL, or options that contradict each other; shows no credentials.
    """
    sources = (_argument(given), _environment(environ), dict(file))
    merged: dict[str, Any] = {}
    logged_in = False
    for source in sources:
        for name, value in source.items():
            if name not in merged and not (logged_in and name in _LOGIN):
                merged[name] = value
        logged_in = logged_in or any(name in merged for name in _LOGIN) or _has_login(merged.get("servers") or ())
    named = (place for place, source in zip(_PLACES, sources, strict=True) if "servers" in source)
    merged["servers"] = _servers(merged.get("servers") or [DEFAULT_SERVER], next(named, ""))
    _tell_seed_from_path(merged)
    _check(merged)
    return ConnectOptions(merged)


def hide_login(server: str) -> str:
    """The URL without user, password or token.

    >>> hide_login("nats://me:secret@localhost:4222")
    'nats://…@localhost:4222'
    """
    scheme, mark, rest = server.partition("://")  # the first one: a password may hold another
    if not mark:
        scheme, rest = "", server
    login, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{'…' if login or at else ''}{at}{host}"


def file_options(table: Mapping[str, Any], resolve: Callable[[str], str], origin: str) -> dict[str, Any]:
    """The connect options of a `[tool.jetjobs]` table; `resolve` turns its relative paths into absolute ones.

    Raises:
        ConfigError: a secret is in the file.
    """
    found: dict[str, Any] = {}
    for key, option in FILE_KEYS.items():
        if key not in table:
            continue
        if option in {"password", "token"}:
            raise ConfigError(
                f"{key} in {origin}: a secret doesn't belong into a file that is shared; "
                f"set the environment variable {key.upper()}"
            )
        found[option] = resolve(table[key]) if option in _PATHS else table[key]
    return found


def _argument(given: str | Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        options = dict(given)
        if "url" in options:
            options["servers"] = options.pop("url")
        return {name: value for name, value in options.items() if value is not None}
    return {"servers": given}


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {option: environ[name] for name, option in VARIABLES.items() if environ.get(name)}


def _servers(given: object, place: str) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, (list, tuple)):
        raise ConfigError(f'{place}servers must be a URL such as "{DEFAULT_SERVER}" or a list of them, not {parts!r}')
    servers = [_server(part, place) for part in cast("Sequence[object]", parts) if not _is_blank(part)]
    if not servers:
        raise ConfigError(f'{place}there is no server to connect to; write a URL such as "{DEFAULT_SERVER}"')
    return servers


def _is_blank(part: object) -> bool:
    return isinstance(part, str) and not part.strip()


def _server(given: object, place: str) -> str:
    if not isinstance(given, str):
        raise ConfigError(f'{place}a server is a URL such as "{DEFAULT_SERVER}", not of type {type(given).__name__}')
    text = given.strip()
    url = text if "://" in text else f"nats://{text}"
    fault = _fault(url)
    if fault is not None:
        raise ConfigError(
            f"{place}{hide_login(text)!r} is no NATS URL{fault and f': {fault}'}; "
            f'write "{DEFAULT_SERVER}", or tls:// ws:// wss://'
        )
    return url


def _fault(url: str) -> str | None:
    """What is wrong with a URL; nothing of it is told, since any part may be a password. `None` for a good one."""
    if any(letter.isspace() for letter in url):
        return "it holds a space (several URLs have commas between them)"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its host can't be read"
    if parts.scheme not in _SCHEMES:
        return ""
    after_port = f"{parts.path}{parts.query}{parts.fragment}"
    if "@" in after_port:
        return "user and password can't hold / ? or # there; set NATS_USER and NATS_PASSWORD"
    return _fault_of_place(parts, after_port)


def _fault_of_place(parts: SplitResult, after_port: str) -> str | None:
    if not parts.hostname:
        return "it names no host"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return "its port must be a number from 1 to 65535"
    if after_port not in {"", "/"} and parts.scheme in {"nats", "tls"}:
        return "nothing can follow host and port"
    return None


def _has_login(servers: object) -> bool:
    texts = cast("Sequence[object]", servers) if isinstance(servers, (list, tuple)) else (servers,)
    return any(isinstance(text, str) and "@" in text for text in texts)


def _tell_seed_from_path(options: dict[str, Any]) -> None:
    seed = options.get("nkeys_seed")
    if isinstance(seed, str) and _SEED.fullmatch(seed):
        options["nkeys_seed_str"] = options.pop("nkeys_seed")


def _check(options: Mapping[str, Any]) -> None:
    ways = [name for name in ("user", "token", "user_credentials", "nkeys_seed", "nkeys_seed_str") if name in options]
    if len(ways) > 1:
        raise ConfigError(f"{' and '.join(ways)} are given, but one way to log in is enough; leave out all but one")
    if "password" in options and "user" not in options:
        raise ConfigError("a password is given without a user; set NATS_USER, or user= beside it")
    inbox = options.get("inbox_prefix")
    if isinstance(inbox, str) and not _INBOX.fullmatch(inbox):
        raise ConfigError(f'inbox_prefix must be a subject without wildcards, such as "_INBOX_billing", not {inbox!r}')
    if ("tls_cert" in options) != ("tls_key" in options):
        there, missing = ("tls_cert", "tls_key") if "tls_cert" in options else ("tls_key", "tls_cert")
        raise ConfigError(f"{there} is given without {missing}; a client certificate needs both")
