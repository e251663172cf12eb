"""Where logs go while a command runs: stderr, for people or as JSON lines. Configured here only, never at import."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from jetjobs.cli.failures import hide_logins
from jetjobs.cli.shown import shown

SILENT = logging.CRITICAL

_MANY_LINES = frozenset({"exception", "stack", "traceback"})


def configure_logs(*, level: int, as_json: bool = False) -> None:
    """Send structlog and the standard library's logs to stderr from `level` on."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=as_json),
    ]
    shown = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [
            structlog.processors.format_exc_info,
            _shown,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
    structlog.configure(
        processors=[*shared, _without_logins, *shown],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _without_logins],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shown],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(max(level, logging.WARNING))
    # The client library repeats at error level what ours says once, with a traceback.
    logging.getLogger("nats").setLevel(SILENT)


def _without_logins(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str) and "@" in value:
            event[name] = hide_logins(value)
    return event


def _shown(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Jobs log what callers sent: it makes no line of its own, and orders the terminal nothing."""
    for name, value in event.items():
        if name in _MANY_LINES:
            event[name] = f"  {shown(str(value).rstrip())}".replace("\n", "\n  ")
        elif isinstance(value, str):
            event[name] = shown(value).replace("\n", "\\n")
    return event
