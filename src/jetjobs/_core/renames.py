"""Renamed jobs: which names a job answers to, whose name its schedules and events carry, and who may have a name.

A name is more than a label: it is in every subject, record, key and durable. So an old name isn't rewritten, it is
served beside the new one for as long as the declaration lists it:

* every name has its own durable, with its own filters, exactly as a release that knows only that name makes it;
* runs keep the name they were triggered under, and with it their ids and what is promised for their keys;
* what the job itself brings about (ticks of its schedules, runs for events) carries its oldest name: an old and a new
  release side by side share one schedule and one queue group, instead of having one each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jetjobs._core.models import JobAddress


class Named(NamedTuple):
    """A job as declared: its name, its old names (oldest first), and the place in the code."""

    address: JobAddress
    aliases: tuple[str, ...]
    where: str


def served_names(address: JobAddress, aliases: tuple[str, ...]) -> tuple[JobAddress, ...]:
    """Every name whose triggers the job takes, its own first.

    >>> [str(name) for name in served_names(JobAddress("shop", "mail"), ("send",))]
    ['shop.mail', 'shop.send']
    """
    return (address, *(JobAddress(address.module, alias) for alias in aliases))


def origin(address: JobAddress, aliases: tuple[str, ...]) -> JobAddress:
    """The name under which the job's schedules and event triggers are known: its oldest.

    >>> str(origin(JobAddress("shop", "mail"), ("send", "post"))), str(origin(JobAddress("shop", "mail"), ()))
    ('shop.send', 'shop.mail')
    """
    return JobAddress(address.module, aliases[0]) if aliases else address


def collision(new: Named, others: Iterable[Named]) -> str | None:
    """Why a job can't be declared beside these, with both places; `None` when every name has one owner."""
    for other in others:
        if new.address == other.address:
            return (
                f"job {new.address} is declared twice, at {other.where} and {new.where}; give one of them another name"
            )
        # Most jobs were never renamed, and a module may have a thousand.
        shared = sorted(set(_names(new)) & set(_names(other))) if new.aliases or other.aliases else None
        if shared:
            return (
                f"job {shared[0]} is declared twice, {_as_what(shared[0], other)} and {_as_what(shared[0], new)}: "
                "the triggers of a name go to one job; drop the alias, or give the job another name"
            )
    return None


def _names(job: Named) -> tuple[JobAddress, ...]:
    return served_names(job.address, job.aliases)


def _as_what(name: JobAddress, job: Named) -> str:
    return f"at {job.where}" if name == job.address else f"as an alias of {job.address} at {job.where}"
