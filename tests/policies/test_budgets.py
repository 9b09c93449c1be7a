"""Budgets of jobs under `least-cost`: never exceeded, and a deadline that costs more gives way, early and told."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.examples import examples
from tests.policies.test_least_cost import Run, job, pools

from punctual.core.cluster import Snapshot
from punctual.core.commands import WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.pools import PoolTable
from punctual.core.speed import RateCurve
from punctual.estimators.speed.tabulated import Tabulated
from punctual.policies.least_cost import LeastCost
from punctual.sim.job import SimJob


def with_budget(budget_usd: float, name: str = "a", **more: Any) -> SimJob:
    return job(name, budget_usd=budget_usd, preemptible=True, **more)


def told(run: Run, name: str = "a") -> list[str]:
    return [warning.reason.code for warning in run.of(WarnUser) if warning.job == JobId(name)]


def test_a_budget_that_pays_for_the_deadline_changes_nothing() -> None:
    free = Run([job("a", work_h=20, deadline_h=12)], pools([(-48, 4), (2.0, 1), (3.0, 4)]))
    paid = Run([with_budget(500.0, work_h=20, deadline_h=12)], pools([(-48, 4), (2.0, 1), (3.0, 4)]))
    assert paid.bill.total_usd == pytest.approx(free.bill.total_usd)
    assert paid.all_on_time()
    assert not {"over-budget", "budget-spent"} & set(told(paid))


def test_a_deadline_that_costs_more_than_the_budget_gives_way_and_its_user_is_told_at_once() -> None:
    """On machines that stay alone it costs $80 by then; on spot machines, which come after a day, $21."""
    counts = [(-48.0 + 4 * i, 4 if i % 6 == 0 else 0) for i in range(60)]
    run = Run([with_budget(30.0, work_h=20, deadline_h=6)], pools(counts))
    assert run.jobs[JobId("a")].landed_at is not None
    assert not run.all_on_time()
    assert run.bill.total_usd <= 30.0
    warning = next(warning for warning in run.of(WarnUser) if warning.reason.code == "over-budget")
    assert warning.at < 600.0
    assert "after it" in warning.reason.text


def test_a_budget_too_small_for_the_work_is_spent_on_as_much_progress_as_it_buys() -> None:
    run = Run([with_budget(10.0, work_h=20, deadline_h=30)], pools([(-48, 4)]))
    record = run.jobs[JobId("a")]
    assert record.landed_at is None
    assert 9.0 <= run.bill.total_usd <= 10.0
    assert run.usd("stays") == 0.0, "an hour of spot does as much for a quarter"
    assert told(run) == ["over-budget", "budget-spent"]


def test_on_demand_machines_are_bought_within_the_budget() -> None:
    run = Run([with_budget(40.0, work_h=20, deadline_h=12)], pools([(-48, 0)]))
    assert run.jobs[JobId("a")].landed_at is None
    assert 34.0 <= run.bill.total_usd <= 40.0
    assert run.usd("stays") == run.bill.total_usd


def test_a_deadline_is_promised_only_where_machines_that_stay_are_within_the_budget() -> None:
    steady = pools([(-48, 4)])
    poor = Run([with_budget(30.0, work_h=20, deadline_h=12, guarantee=True)], steady)
    assert not poor.bill.by_job, "it is turned away: the worst case is $80"
    rich = Run([with_budget(90.0, work_h=20, deadline_h=12, guarantee=True)], steady)
    assert rich.all_on_time()


@pytest.mark.parametrize("seed", range(examples(40)))
def test_no_bill_exceeds_its_budget_on_random_markets(seed: int) -> None:
    random = Random(seed)
    counts, at_h = list[tuple[float, int]](), -72.0
    while at_h < 96.0:
        counts.append((at_h, random.randint(0, 4)))
        at_h += random.choice((0.2, 1.0, 3.0, 12.0))
    market = pools(counts, startup_s=random.choice((0.0, 60.0, 300.0, 720.0)))
    n_jobs = random.choice((1, 1, 3))
    jobs = [
        with_budget(
            random.choice((0.5, 3.0, 12.0, 30.0, 70.0)), f"job-{i}", work_h=random.uniform(2, 24),
            deadline_h=random.uniform(1, 36), counts=random.choice(((1, 2, 3, 4), (2,), (1, 2, 4), (1,))),
        )
        for i in range(n_jobs)
    ]  # fmt: skip
    run = Run(jobs, market, days=4.0)
    for each in jobs:
        assert each.spec.budget_usd is not None
        assert run.bill.by_job.get(each.spec.id, 0.0) <= each.spec.budget_usd
    assert run.bill.total_usd <= sum(each.spec.budget_usd or 0.0 for each in jobs)


def test_a_spent_budget_is_told_once_and_again_after_another_one_was_spent() -> None:
    spec = with_budget(10.0, work_h=20, deadline_h=30).spec
    curve, table = RateCurve(Tabulated(), Tabulated().init(spec)), PoolTable()
    for each in pools([(-48, 4)]):
        for at, price_usd_h, n in each.course:
            table.offer(at, each.spec, price_usd_h, n)

    def plan(budget_usd: float, carry: object) -> Plan:
        view = JobView(
            spec=replace(spec, budget_usd=budget_usd), status="queued", submitted_at=0.0, done_steps=0.0,
            demand=spec.ceiling, granted={}, curve=curve,
        )  # fmt: skip
        snapshot = Snapshot.of(0.0, [], [view], pools=table.views(), spent_usd={spec.id: budget_usd - 0.001})
        return LeastCost().allocate(replace(snapshot, carry=carry))

    first = plan(10.0, None)
    assert [first.warnings[spec.id].code, first.reasons[spec.id].code] == ["budget-spent"] * 2
    assert "of $10 are left" in first.reasons[spec.id].text
    again = plan(10.0, first.carry)
    assert not again.warnings
    assert again.reasons[spec.id].code == "budget-spent"
    assert plan(20.0, again.carry).warnings[spec.id].code == "budget-spent"


@pytest.mark.parametrize("budget_usd", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_is_a_number_of_dollars(budget_usd: float) -> None:
    with pytest.raises(InvalidSpec, match="budget"):
        with_budget(budget_usd, work_h=1, deadline_h=1)


def test_a_job_that_may_not_be_paused_can_have_no_budget() -> None:
    with pytest.raises(InvalidSpec, match="paused"):
        job("a", work_h=1, deadline_h=2, budget_usd=10.0, preemptible=False)
