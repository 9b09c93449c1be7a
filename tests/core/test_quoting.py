"""Quotes: what they answer under a policy that promises deadlines and under one that does not."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from tests.policies.pictures import Table, after, decide, fraction, job, picture
from tests.policies.test_core_sharing import SURE, background, steered

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.quoting import Quote, quote, with_job
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst
from punctual.policies.proportional import Proportional

TWO: dict[str, Any] = {"a": Resources(2.0)}
ONE_NODE: dict[str, Any] = {"a": 4}
SURE_OF_WORKERS = PromisesFirst(promised_frac=1.0, risk_sigmas=0)


def new(name: str, work_core_s: float | None, deadline_s: float | None = None, *, most: float = 2.0) -> JobView:
    """A job on cores that does not run."""
    view = fraction(name, most, ceiling=most, work_core_s=work_core_s, deadline_s=deadline_s, controller="two-level")
    return view if deadline_s is None else view.with_deadline(deadline_s)


def promised_jobs(*jobs: JobView) -> list[JobView]:
    return after(decide(SURE, jobs, TWO), jobs)


def asked(view: JobView, *jobs: JobView) -> Quote:
    return quote(SURE, picture(promised_jobs(*jobs), TWO), view)


def test_the_earliest_deadline_of_a_job_that_is_alone_is_its_work_over_all_cores() -> None:
    answer = asked(new("new", 100.0))
    assert answer.earliest_at == pytest.approx(50.0, rel=0.02)
    assert (answer.can_be_promised, answer.hurt) == (None, ())
    assert [finish.finish_at for finish in answer.finishes] == pytest.approx([200.0, 100.0, 100 / 1.5, 50.0])


@pytest.mark.parametrize("deadline_s", [60.0, 1e4, 4e7])
def test_the_earliest_deadline_does_not_depend_on_the_one_asked_about(deadline_s: float) -> None:
    """Margins are a share of the deadline: of that in a year they are longer than the work."""
    assert asked(new("new", 100.0, deadline_s)).earliest_at == pytest.approx(50.0, rel=0.02)


def test_a_promised_job_leaves_a_later_deadline() -> None:
    """It needs 99 of the 200 core-s until 100 s: 101 are left by then."""
    other = steered("other", 99.0, 100.0)
    answer = asked(new("new", 120.0, 90.0), other)
    assert answer.can_be_promised is False
    assert answer.earliest_at == pytest.approx(109.5, rel=0.02)
    assert [(hurt.job, hurt.promised_until_at) for hurt in answer.hurt] == [("other", 100.0)]
    assert answer.reason.code == "breaks-promises"


def test_what_can_be_promised_hurts_only_jobs_without_a_promise() -> None:
    lazy = background("lazy")
    holding = replace(lazy, planned={**lazy.planned, next(iter(lazy.planned)): Resources(2.0)})
    answer = asked(new("new", 100.0, 55.0), holding)
    assert answer.can_be_promised
    assert [hurt.job for hurt in answer.hurt] == ["lazy"]
    assert answer.hurt[0].cores_after < 0.5
    assert answer.hurt[0].promised_until_at is None


def test_the_deadline_that_is_quoted_can_be_promised_and_an_earlier_one_cannot() -> None:
    others = (steered("near", 60.0, 50.0), steered("far", 150.0, 160.0))
    earliest_at = asked(new("new", 120.0), *others).earliest_at
    assert earliest_at is not None
    assert asked(new("new", 120.0, earliest_at), *others).can_be_promised
    assert asked(new("new", 120.0, 0.95 * earliest_at), *others).can_be_promised is False


def test_a_running_job_is_asked_about_as_if_its_own_promise_were_free() -> None:
    own, other = steered("own", 99.0, 100.0), steered("other", 90.0, 100.0)
    jobs = promised_jobs(own, other)
    answer = quote(SURE, picture(jobs, TWO), jobs[0].with_deadline(80.0))
    assert answer.can_be_promised
    assert answer.earliest_at == pytest.approx(50.0, rel=0.03)


def test_jobs_of_workers_are_quoted_by_their_speeds() -> None:
    bending = Table(((1, 1.0), (2, 1.6), (4, 2.4)))
    other = job("other", (1, 2, 4), steps=100.0, speed=bending, preemptible=True, deadline_s=100.0)
    jobs = after(decide(SURE_OF_WORKERS, [other], ONE_NODE), [other])
    view = job("new", (1, 2, 4), steps=120.0, speed=bending, preemptible=True, deadline_s=52.0)
    answer = quote(SURE_OF_WORKERS, picture(jobs, ONE_NODE), view)
    assert answer.earliest_at is not None
    assert 50.0 <= answer.earliest_at < 100.0
    assert [(finish.n_workers, finish.finish_at) for finish in answer.finishes] == [(1, 120.0), (2, 75.0), (4, 50.0)]
    again = quote(SURE_OF_WORKERS, picture(jobs, ONE_NODE), view.with_deadline(answer.earliest_at))
    assert again.can_be_promised


def test_a_job_that_needs_more_at_least_than_promises_leave_is_told_whose() -> None:
    """Beside the core that it is to hold in any case, the other one needs nine tenths of both."""
    view = fraction("new", 2.0, floor=1.0, ceiling=2.0, work_core_s=60.0, controller="two-level").with_deadline(90.0)
    answer = asked(view, steered("other", 180.0, 100.0))
    assert (answer.can_be_promised, answer.earliest_at, answer.reason.code) == (False, None, "breaks-promises")
    assert [(hurt.job, hurt.promised_until_at) for hurt in answer.hurt] == [("other", 100.0)]


BENDING = Table(((1, 1.0), (2, 1.6), (4, 2.4)))


def workers(name: str, steps: float, deadline_s: float) -> JobView:
    return job(name, (1, 2, 4), steps=steps, speed=BENDING, preemptible=True, deadline_s=deadline_s)


def test_promises_to_jobs_of_workers_that_stand_in_the_way_are_named() -> None:
    """Nobody is weighed there. The one that is due first could be kept beside the new one, the other could not."""
    others = [workers("soon", 15.0, 20.0), workers("other", 190.0, 100.0)]
    jobs = after(decide(SURE_OF_WORKERS, others, ONE_NODE), others)
    assert all(view.promised_until_at is not None for view in jobs)
    answer = quote(SURE_OF_WORKERS, picture(jobs, ONE_NODE), workers("new", 90.0, 52.0))
    assert (answer.can_be_promised, answer.reason.code) == (False, "breaks-promises")
    assert [(hurt.job, hurt.promised_until_at) for hurt in answer.hurt] == [("other", 100.0)]


def test_what_nobody_stands_in_the_way_of_is_too_early() -> None:
    jobs = after(decide(SURE_OF_WORKERS, [workers("other", 100.0, 100.0)], ONE_NODE), [workers("other", 100.0, 100.0)])
    answer = quote(SURE_OF_WORKERS, picture(jobs, ONE_NODE), workers("new", 120.0, 49.0))
    assert (answer.can_be_promised, answer.reason.code, answer.hurt) == (False, "too-early", ())


def test_what_only_margins_stand_in_the_way_of_hurts_nobody() -> None:
    """Three of four devices are never promised."""
    policy = PromisesFirst(promised_frac=0.25, risk_sigmas=0)
    answer = quote(policy, picture([], ONE_NODE), workers("new", 100.0, 52.0))
    assert (answer.can_be_promised, answer.reason.code, answer.hurt) == (False, "needs-margins", ())


def test_with_admission_of_none_the_policy_promises_nothing() -> None:
    answer = quote(PromisesFirst(admission="none"), picture([], ONE_NODE), workers("new", 100.0, 52.0))
    assert (answer.promises, answer.can_be_promised, answer.reason.code) == (False, None, "no-promises")


@pytest.mark.parametrize(
    "others", [(), (replace(background("lazy"), planned={NodeId("a"): Resources(2.0)}),)], ids=["alone", "beside"]
)
def test_of_unknown_work_nothing_is_promised(others: tuple[JobView, ...]) -> None:
    answer = asked(new("new", None, 100.0), *others)
    assert (answer.earliest_at, answer.finishes, answer.reason.code) == (None, (), "unknown-work")


class Crowded:
    """A policy that keeps the promise to the job `new` only beside four others, and counts its decisions."""

    def __init__(self) -> None:
        self.n = 0

    def allocate(self, snapshot: Snapshot) -> Plan:
        self.n += 1
        promises = {view.id: until_at for view in snapshot.jobs if (until_at := view.promised_until_at) is not None}
        if len(promises) > 5:
            promises.pop(JobId("new"), None)
        return Plan(revision=snapshot.revision, grants={}, promises=promises, keeps_others=True)

    def quoted(self, snapshot: Snapshot, job: JobId) -> tuple[Plan, float | None]:
        return self.allocate(snapshot), 1000.0


def test_many_promises_that_stand_in_the_way_cost_a_few_decisions() -> None:
    """A quote has the time of a few plans."""
    others = [replace(steered(f"other-{i}", 1.0, 100.0 + i), promised_until_at=100.0 + i) for i in range(64)]
    policy = Crowded()
    answer = quote(policy, picture(others, TWO), new("new", 50.0, 60.0))
    assert answer.reason.code == "breaks-promises"
    assert policy.n <= 7
    assert 60 <= len(answer.hurt) < 64


def test_a_policy_that_promises_nothing_says_so_and_forecasts() -> None:
    answer = quote(Proportional(), picture([steered("other", 99.0, 100.0)], TWO), new("new", 100.0, 60.0))
    assert (answer.promises, answer.can_be_promised, answer.earliest_at) == (False, None, None)
    assert answer.reason.code == "no-promises"
    assert answer.expected is not None
    assert len(answer.finishes) == 4


def test_a_quote_changes_nothing() -> None:
    jobs = promised_jobs(steered("near", 60.0, 50.0), steered("far", 150.0, 160.0))
    snapshot = picture(jobs, TWO)
    before = pickle.dumps(snapshot)
    quote(SURE, snapshot, new("new", 120.0, 30.0))
    assert pickle.dumps(snapshot) == before
    assert with_job(snapshot, new("new", 1.0)).waiting[-1].id == "new"
    assert not snapshot.waiting
