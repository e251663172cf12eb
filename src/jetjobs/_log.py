"""Loggers that can't harm who logs.

Where a log goes is the service's choice, and it can fail: the reader of a pipe has gone, a disk is full, a processor
raises. What was said is lost then, and nothing else: a host that ended a service or left a run unsaved over a log
line would be deaf, and could not even say so. The standard library's logging keeps it the same way.
"""

from __future__ import annotations

from typing import Any

import structlog


class Logger:
    """A structlog logger by name; it never raises."""

    __slots__ = ("_target",)

    def __init__(self, name: str) -> None:
        self._target: Any = structlog.get_logger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        """What only somebody who searches wants to know."""
        say(self._target, "debug", event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """What happens as it should."""
        say(self._target, "info", event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """What somebody should look at some day."""
        say(self._target, "warning", event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """What somebody should look at now."""
        say(self._target, "error", event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """The same with the traceback of the exception that is being handled."""
        say(self._target, "exception", event, fields)


def get_logger(name: str) -> Logger:
    """The logger of that name, as the service has configured structlog when it is first used."""
    return Logger(name)


def say(target: Any, level: str, event: str, fields: dict[str, Any]) -> None:
    """Write one line to any structlog logger, or lose it."""
    try:
        getattr(target, level)(event, **fields)
    except Exception:  # noqa: BLE001 - a listener, whom nobody has to hear
        return
