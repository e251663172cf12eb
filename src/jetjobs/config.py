"""Settings: argument > environment > `[tool.jetjobs]` of pyproject.toml > default.

A setting `ack_wait` is `JETJOBS_ACK_WAIT` in the environment and `ack_wait` in the file; those of the retention are
`JETJOBS_RETENTION_FINISHED` and `[tool.jetjobs.retention] finished`. `_core.connect_options` has the table of the
connection's variables. Plain numbers are seconds. Values that contradict each other are refused, whatever place
they came from, naming both and their places.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, cast

from jetjobs._core import names
from jetjobs._core.connect_options import FILE_KEYS, ConnectOptions, file_options, merge_options
from jetjobs._core.policy import JobRetention as JobRetention
from jetjobs._core.settings import CLIENT_CHECKS, HOST_CHECKS, check_host, fill, refuse_unknown
from jetjobs._core.settings import ClientOptions as ClientOptions
from jetjobs._core.settings import ClientSettings as ClientSettings
from jetjobs._core.settings import HostOptions as HostOptions
from jetjobs._core.settings import HostSettings as HostSettings
from jetjobs._core.settings import HostSwitches as HostSwitches
from jetjobs.errors import ConfigError

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,9})?", re.ASCII)
_RETENTION_NAMES: Final = tuple(entry.name for entry in fields(JobRetention))
_FILE_NAMES: Final = frozenset({"project", "disable", "enabled", "schedules", *FILE_KEYS, *HOST_CHECKS, *CLIENT_CHECKS})
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Environment and file, read once: `file` is the table `[tool.jetjobs]`, `path` where it was found."""

    environ: Mapping[str, str]
    file: Mapping[str, Any]
    path: Path | None = None

    @property
    def origin(self) -> str:
        """The file, for messages."""
        return str(self.path) if self.path is not None else "pyproject.toml"


def surroundings(environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Surroundings:
    """The environment, and the nearest pyproject.toml from `folder` (the working one) upwards.

    Raises:
        ConfigError: the file can't be read, or has keys that mean nothing; names close ones.
    """
    start = (folder or Path.cwd()).absolute()
    path = next(
        (each / "pyproject.toml" for each in (start, *start.parents) if (each / "pyproject.toml").is_file()), None
    )
    table: Mapping[str, Any] = {} if path is None else _read(path)
    found = Surroundings(os.environ if environ is None else environ, table, path)
    refuse_unknown(table, _FILE_NAMES, f"[tool.jetjobs] in {found.origin}")
    retention: object = table.get("retention", {})
    if not isinstance(retention, Mapping):
        raise ConfigError(f"retention in {found.origin} must be a table; write [tool.jetjobs.retention]")
    refuse_unknown(
        cast("Mapping[str, Any]", retention), _RETENTION_NAMES, f"[tool.jetjobs.retention] in {found.origin}"
    )
    return found


def resolve_host_settings(settings: HostSettings | None = None, around: Surroundings | None = None) -> HostSettings:
    """The host's settings; what `settings` leaves out comes from environment, file or default.

    Raises:
        ConfigError: a value is impossible or contradicts another; names where it came from.
    """
    if settings is not None and not isinstance(cast("object", settings), HostSettings):
        raise ConfigError(f'settings must be HostSettings(drain="5s", …), not {settings!r}')
    around = surroundings() if around is None else around
    values, origins = _collect(settings, [name for name in HOST_CHECKS if name != "retention"], around)
    if settings is not None and "retention" in settings.given:
        values["retention"] = settings.retention
    else:
        values["retention"] = _retention(around)
    made = object.__new__(HostSettings)
    fill(made, values, HOST_CHECKS, origins)
    check_host(made, origins)
    return made


def resolve_client_settings(
    settings: ClientSettings | None = None, around: Surroundings | None = None
) -> ClientSettings:
    """The client's settings; what `settings` leaves out comes from environment, file or default."""
    around = surroundings() if around is None else around
    values, origins = _collect(settings, list(CLIENT_CHECKS), around)
    made = object.__new__(ClientSettings)
    fill(made, values, CLIENT_CHECKS, origins)
    return made


def resolve_project(project: str | None = None, around: Surroundings | None = None) -> str:
    """The project's name: argument, then `JETJOBS_PROJECT`, then the file. There is no default.

    Raises:
        ConfigError: it is given nowhere.
        InvalidNameError: it can't be one.
    """
    if project is not None:
        return names.check_project(project)
    around = surroundings() if around is None else around
    found = around.environ.get("JETJOBS_PROJECT") or around.file.get("project")
    if not found:
        raise ConfigError(
            'no project is given; write project="shop", set JETJOBS_PROJECT, or put project = "shop" under '
            "[tool.jetjobs] in pyproject.toml"
        )
    return names.check_project(found)


def resolve_switches(switches: HostSwitches | None = None, around: Surroundings | None = None) -> HostSwitches:
    """What is switched off: here, by `JETJOBS_ENABLED`, `JETJOBS_DISABLE`, `JETJOBS_SCHEDULES`, or by the file.

    Each place can only switch off more. `JETJOBS_DISABLE` takes patterns with commas, as in `reports.*,shop.mail`.
    """
    switches = HostSwitches() if switches is None else switches
    around = surroundings() if around is None else around
    listed = around.environ.get("JETJOBS_DISABLE", "").split(",")
    disable = (*switches.disable, *_patterns(around), *(part.strip() for part in listed if part.strip()))
    return HostSwitches(
        enabled=switches.enabled and _switch("enabled", around),
        disable=tuple(dict.fromkeys(disable)),
        schedules=switches.schedules and _switch("schedules", around),
    )


def connect_options(
    nats: str | Sequence[str] | Mapping[str, Any] | None = None, around: Surroundings | None = None
) -> ConnectOptions:
    """What to connect with, for the adapter; its `repr` shows no secret. See `_core.connect_options`.

    Raises:
        ConfigError: no URL, or options that contradict each other.
    """
    around = surroundings() if around is None else around
    folder = Path.cwd() if around.path is None else around.path.parent

    def resolve(path: str) -> str:
        return str(folder / path)

    return merge_options(nats, around.environ, file_options(around.file, resolve, around.origin))


# ------------------------------------------------------------------ reading


def _read(path: Path) -> Mapping[str, Any]:
    try:
        whole_file = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}") from error
    tools: object = whole_file.get("tool", {})
    table: object = cast("dict[str, object]", tools).get("jetjobs", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, Mapping):
        raise ConfigError(f"tool.jetjobs in {path} must be a table; write [tool.jetjobs]")
    return cast("Mapping[str, Any]", table)


def _collect(settings: object, wanted: Sequence[str], around: Surroundings) -> tuple[dict[str, object], dict[str, str]]:
    """Values by name, and where each came from; what nobody set is left out."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    given: frozenset[str] = getattr(settings, "given", frozenset())
    for name in wanted:
        variable = f"JETJOBS_{name.upper()}"
        if name in given:
            values[name], origins[name] = getattr(settings, name), "given"
        elif around.environ.get(variable):
            values[name], origins[name] = _from_text(around.environ[variable]), f"from {variable}"
        elif name in around.file:
            values[name], origins[name] = around.file[name], f"from {around.origin}"
    return values, origins


def _retention(around: Surroundings) -> JobRetention:
    table = cast("Mapping[str, object]", around.file.get("retention", {}))
    values: dict[str, Any] = dict(table)
    for name in _RETENTION_NAMES:
        text = around.environ.get(f"JETJOBS_RETENTION_{name.upper()}")
        if text:
            values[name] = _from_text(text)
    return JobRetention(**values)


def _from_text(text: str) -> object:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        return float(stripped) if "." in stripped else int(stripped)
    return stripped


def _switch(name: str, around: Surroundings) -> bool:
    variable = f"JETJOBS_{name.upper()}"
    text, origin = around.environ.get(variable, "").strip().lower(), variable
    if not text:
        text, origin = str(around.file.get(name, True)).lower(), around.origin
    if text not in _YES | _NO:
        raise ConfigError(f"{name} (from {origin}) must be true or false, not {text!r}")
    return text in _YES


def _patterns(around: Surroundings) -> tuple[str, ...]:
    given = around.file.get("disable", [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in cast("list[object]", given)):
        raise ConfigError(f'disable in {around.origin} must be a list of texts, as in disable = ["reports.*"]')
    return tuple(cast("list[str]", given))
