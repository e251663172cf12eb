"""Two releases side by side: whose word about a schedule, a job's description or its limit counts.

* What is missing is written by anybody.
* The newer release decides. An older one that starts again (a crash, a roll-back) changes nothing, and says so.
* Without a release a host changes only what another one without declared that lives no more. One with a release may
  change what has none.

A job's limit follows from its description, and that is written under compare-and-set: of two hosts that start at once
no older one has the last word.
"""

from __future__ import annotations

from typing import NamedTuple

from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.versions import not_older


class Sign(NamedTuple):
    """Who declared something last: the release of the code, and the host."""

    version: str | None
    host_id: str | None


def may_change(mine: Sign, theirs: Sign, *, theirs_lives: bool) -> bool:
    """Whether one declaration may take the place of another; `theirs_lives`: its host, another one, is alive.

    >>> may_change(Sign("2", "a"), Sign("1", "b"), theirs_lives=True)
    True
    >>> may_change(Sign("1", "a"), Sign("2", "b"), theirs_lives=False)
    False
    """
    if theirs.version is not None:
        return mine.version is not None and not_older(mine.version, theirs.version)
    return mine.version is not None or theirs.host_id == mine.host_id or not theirs_lives


def is_newer(version: str | None, other: str | None) -> bool:
    """Whether a release is newer than another; any is newer than none.

    >>> is_newer("2", "1"), is_newer("1.0", "1"), is_newer("1", None), is_newer(None, None)
    (True, False, True, False)
    """
    return version is not None and not (other and not_older(other, version))


def may_describe(mine: JobDescriptor, found: JobDescriptor, *, theirs_lives: bool) -> bool:
    """Whether a host's description of a job is to be written over the one that is there.

    One that says the same is written only to bear the sign of a newer release: an older one may not change it then.
    """
    if mine.digest == found.digest:
        return is_newer(mine.version, found.version)
    return may_change(_sign(mine), _sign(found), theirs_lives=theirs_lives)


def why_it_stands(mine: JobDescriptor, found: JobDescriptor) -> str | None:
    """Why another description than this host's holds, for its log; `None` when it says the same."""
    if mine.digest == found.digest:
        return None
    theirs = f"release {found.version}" if found.version is not None else f"host {found.host_id}"
    if mine.version is not None:
        return f"as {theirs} described it, since release {mine.version} is older"
    return f"as {theirs} described it, since this host has no release; give JobHost(version=…)"


def _sign(descriptor: JobDescriptor) -> Sign:
    return Sign(descriptor.version, descriptor.host_id)
