from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.rollout import Sign, is_newer, may_change, may_describe, why_it_stands
from jetjobs._core.versions import not_older

VERSIONS = st.sampled_from([None, "1", "1.5", "2", "2.0", "10", "main"])
HOSTS = st.sampled_from(["a", "b", None])
SIGNS = st.builds(Sign, VERSIONS, HOSTS)
DESCRIPTORS = st.builds(
    JobDescriptor,
    st.just("shop"),
    st.just("mail"),
    max_concurrency=st.integers(1, 3),
    version=VERSIONS,
    host_id=HOSTS,
    digest=st.sampled_from(["d1", "d2"]),
)


@given(mine=SIGNS, theirs=SIGNS, lives=st.booleans())
def test_a_newer_release_may_an_older_one_may_not(mine: Sign, theirs: Sign, *, lives: bool):
    may = may_change(mine, theirs, theirs_lives=lives)
    if theirs.version is not None:
        assert may == (mine.version is not None and not_older(mine.version, theirs.version))
    elif mine.version is not None:
        assert may
    else:
        assert may == (mine.host_id == theirs.host_id or not lives)


@given(st.lists(DESCRIPTORS, min_size=1, max_size=8), st.sets(HOSTS))
def test_whoever_comes_in_whatever_order_the_newest_release_has_the_last_word(
    comers: list[JobDescriptor], living: set[str | None]
):
    """Each host describes the job as it starts, in any order, some more than once: no older word is left standing."""
    stands: JobDescriptor | None = None
    for comer in [*comers, *reversed(comers)]:
        if stands is None or may_describe(comer, stands, theirs_lives=stands.host_id in living):
            stands = comer
    assert stands is not None
    versions = [comer.version for comer in comers if comer.version is not None]
    if versions:
        assert stands.version is not None
        assert all(not_older(stands.version, version) for version in versions)


@given(mine=DESCRIPTORS, found=DESCRIPTORS, lives=st.booleans())
def test_what_says_the_same_is_written_only_for_a_newer_sign(mine: JobDescriptor, found: JobDescriptor, *, lives: bool):
    same = replace(mine, digest=found.digest)
    assert may_describe(same, found, theirs_lives=lives) == is_newer(mine.version, found.version)
    assert why_it_stands(same, found) is None


@pytest.mark.parametrize(
    "mine, theirs, said",
    [
        ("1", "2", "as release 2 described it, since release 1 is older"),
        (None, "2", "as release 2 described it, since this host has no release; give JobHost(version=…)"),
        (None, None, "as host b described it, since this host has no release; give JobHost(version=…)"),
    ],
)
def test_why_another_description_stands(mine: str | None, theirs: str | None, said: str):
    here = JobDescriptor("shop", "mail", version=mine, host_id="a", digest="d1")
    there = JobDescriptor("shop", "mail", version=theirs, host_id="b", digest="d2")
    assert why_it_stands(here, there) == said
