"""The configuration version of a stream or consumer, kept in its metadata: an older host leaves a newer one alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

VERSION_KEY: Final = "jetjobs-config-version"


def version_of(config: Mapping[str, Any]) -> int:
    """The version that a stream's or consumer's configuration carries; 0 when jetjobs didn't make it.

    >>> version_of({"metadata": {"jetjobs-config-version": "3"}}), version_of({})
    (3, 0)
    """
    metadata: Mapping[str, str] = config.get("metadata") or {}
    text = metadata.get(VERSION_KEY, "0")
    return int(text) if text.isdigit() else 0
