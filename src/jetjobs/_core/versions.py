"""Which of two releases is newer, by PEP 440. Only that: no specifiers, no normal form."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, cast

from jetjobs.errors import ConfigError

_VERSION: Final = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_n>\d*))?"
    r"(?P<post>-(?P<post_bare>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_n>\d*))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.ASCII | re.IGNORECASE,
)
_PRE: Final = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_LONGEST: Final = 200

VersionKey = tuple[object, ...]


@lru_cache(maxsize=1024)
def version_key(text: str) -> VersionKey | None:
    """What sorts releases as PEP 440 does; `None` when the text is none.

    >>> version_key("1.0.dev3") < version_key("1.0rc1") < version_key("1.0") < version_key("1.0.post1")
    True
    """
    found = _VERSION.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return int(found["epoch"] or 0), tuple(release), *_suffix_key(found), _local_key(found["local"])


def _suffix_key(found: re.Match[str]) -> tuple[tuple[int, ...], ...]:
    # A missing part sorts before or after every present one: (-1,) and (3,) are out of the numbers' reach.
    dev = (0, int(found["dev_n"] or 0)) if found["dev"] else (1,)
    post = (0, int(found["post_bare"] or found["post_n"] or 0)) if found["post"] else (-1,)
    if found["pre"]:
        pre = (_PRE[found["pre"].lower()], int(found["pre_n"] or 0))
    else:
        pre = (-1,) if found["dev"] and not found["post"] else (3,)
    return pre, post, dev


def _local_key(local: str | None) -> tuple[tuple[int, int, str], ...]:
    parts = re.split(r"[-_.]", local.lower()) if local else []
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def check_version(text: str | None) -> str | None:
    """The release of a host's code, or `None` for none.

    Raises:
        ConfigError: it names no release: whose word counts in a rollout could not be told.
    """
    if text is None or (isinstance(cast("object", text), str) and version_key(text) is not None):
        return text
    raise ConfigError(
        f"version {text!r} is none that others can be newer than; write it as PEP 440 does: 1.4.0, 2026.12.1, "
        "1.4.0+3f2a1c (the id of a commit alone doesn't sort)"
    )


def not_older(mine: str, other: str) -> bool:
    """Whether one release is the same as another or newer; a text that names no release is older than any.

    >>> not_older("1.10", "1.9"), not_older("2.0rc1", "2.0")
    (True, False)
    """
    my_key, other_key = version_key(mine), version_key(other)
    if other_key is None:
        return True
    return my_key is not None and my_key >= other_key
