from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jetjobs import Cron, JobContext, Module
from jetjobs._core.models import JobAddress
from jetjobs._core.renames import Named, collision, origin, served_names

NAMES = st.sampled_from("abcdef")


@st.composite
def jobs(draw: st.DrawFn) -> Named:
    own, *old = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return Named(JobAddress(draw(st.sampled_from(["m", "n"])), own), tuple(old), f"file.py:{draw(st.integers(1, 99))}")


@given(jobs())
def test_a_job_is_served_under_each_of_its_names_once_and_known_by_its_oldest(job: Named):
    names = served_names(job.address, job.aliases)
    assert names[0] == job.address
    assert sorted(names) == sorted({JobAddress(job.address.module, each) for each in (job.address.job, *job.aliases)})
    assert origin(job.address, job.aliases) in names
    assert origin(job.address, ()) == job.address


@given(jobs(), st.lists(jobs(), max_size=4))
def test_jobs_collide_when_they_have_a_name_in_common(new: Named, others: list[Named]):
    mine = set(served_names(new.address, new.aliases))
    rivals = [other for other in others if mine & set(served_names(other.address, other.aliases))]
    problem = collision(new, others)
    assert (problem is not None) == bool(rivals)
    if problem is not None:
        assert new.where in problem
        assert any(rival.where in problem for rival in rivals)


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_a_chain_of_renames_keeps_one_origin(chain: list[str]):
    """Each release lists what it was called before, the oldest first: the origin is the first name of all."""
    for known in range(1, len(chain) + 1):
        *old, name = chain[:known]
        assert origin(JobAddress("m", name), tuple(old)) == JobAddress("m", chain[0])


def handler(ctx: JobContext) -> str:
    return "done"


def test_under_its_old_name_a_job_is_the_same_but_for_what_it_brings_about():
    module = Module("shop")
    job = module.expose_job("mail", handler, aliases=("send", "post"), triggers=[Cron("@daily")], max_concurrency=3)
    send, post = job.under_old_names()
    assert (str(send.address), str(post.address)) == ("shop.send", "shop.post")
    assert send.handler is job.handler
    assert send.policy.max_concurrency == 3
    assert send.now_called is job
    assert (send.triggers, send.policy.aliases) == ((), ())
    assert job.origin == send.address == send.origin


def test_the_schedules_of_a_renamed_job_are_those_it_had():
    before = Module("shop").expose_job("send", handler, triggers=[Cron("@daily")])
    after = Module("shop").expose_job("mail", handler, triggers=[Cron("@daily")], aliases=("send",))
    assert after.descriptor().triggers == before.descriptor().triggers
    other = Module("shop").expose_job("mail", handler, triggers=[Cron("@daily")])
    assert other.descriptor().triggers != before.descriptor().triggers


def test_an_old_name_is_described_as_such():
    module = Module("shop")
    job = module.expose_job("mail", handler, aliases=("send",))
    (old,) = job.under_old_names()
    assert (old.descriptor().job, old.descriptor().now_called) == ("send", "mail")
    assert job.descriptor().now_called is None
    assert old.descriptor().digest != Module("shop").expose_job("send", handler).descriptor().digest
