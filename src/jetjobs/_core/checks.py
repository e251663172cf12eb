"""What an option may be: each check gives the value in the form that is kept, or refuses it by name."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeVar

from jetjobs._core.durations import duration
from jetjobs.errors import ConfigError

_T = TypeVar("_T")


def span(name: str, value: object, *, zero_ok: bool = False) -> timedelta:
    """A duration as `timedelta`, more than 0, or 0 too.

    Raises:
        ConfigError: it is no duration, or negative, or 0; names it.
    """
    found = duration(value, name)
    if not found and not zero_ok:
        raise ConfigError(f"{name} must be more than 0, not {value!r}")
    return found


def whole(name: str, value: object, *, least: int = 1) -> int:
    """A whole number, at least `least`; `True` is none.

    Raises:
        ConfigError: it is something else; names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number, {least} or more, not {value!r}")
    return value


def choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """One of the allowed words.

    Raises:
        ConfigError: another one; lists them.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name} must be {' or '.join(repr(word) for word in allowed)}, not {value!r}")
    return value


def instance(name: str, value: object, expected: type[_T], example: str) -> _T:
    """The value, which must be of that class; `example` shows what to write.

    Raises:
        ConfigError: it isn't.
    """
    if not isinstance(value, expected):
        raise ConfigError(f"{name} must be a {expected.__name__}, not {value!r}; write {example}")
    return value


def number(name: str, value: object, *, least: float, most: float = math.inf) -> float:
    """A finite number within bounds; `True` is none.

    Raises:
        ConfigError: it is something else, or out of bounds; names it.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{name} must be a number, not {value!r}")
    if not least <= value <= most:
        bounds = f"{least:g} or more" if most == math.inf else f"from {least:g} to {most:g}"
        raise ConfigError(f"{name} must be {bounds}, not {value!r}")
    return float(value)


def keep(target: object, **values: object) -> None:
    """Set attributes of a frozen value from its own constructor."""
    for name, value in values.items():
        object.__setattr__(target, name, value)
