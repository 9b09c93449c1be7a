"""Cost of machines over time: by pool and by job, from the messages of a journal."""

import pytest

from punctual.core.bill import Bill, Payment
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    MachinesAsked,
    NodeLost,
    PoolOffered,
    SteeringResumed,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.history.costs import CostCurve, CostHistory

A, B = JobId("a"), JobId("b")
FIRST, SECOND = NodeId("spot-0"), NodeId("spot-1")
HOUR = 3600.0


def offered(at: float, usd_h: float, pool: str = "spot", least_billed_s: float = 0.0) -> PoolOffered:
    spec = PoolSpec(name=pool, capacity=Resources(4.0), most=3, least_billed_s=least_billed_s)
    return PoolOffered(at=at, pool=spec, price_usd_h=usd_h, obtainable=3)


def asked(at: float, *nodes: NodeId, pool: str = "spot") -> MachinesAsked:
    return MachinesAsked(at=at, pool=pool, nodes=nodes)


def submitted(job: JobId) -> JobSubmitted:
    return JobSubmitted(at=0.0, spec=JobSpec(id=job, ceiling=Resources(8.0)))


def started(at: float, job: JobId, request: int = 1, **cores: float) -> JobStarted:
    granted = {NodeId(node.replace("_", "-")): Resources(amount) for node, amount in cores.items()}
    return JobStarted(at=at, job=job, request=request, granted=granted)


def costs_of(*messages: Event, at: float) -> CostHistory:
    costs = CostHistory()
    for message in messages:
        costs.add(message)
    costs.settle(at)
    return costs


def per_hour(costs: CostHistory, *edges_h: float) -> dict[str, list[float]]:
    edges = [edge * HOUR for edge in edges_h]
    return {pool: [round(usd_h, 6) for usd_h in curve.usd_h(edges)] for pool, curve in costs.by_pool.items()}


def test_a_pool_costs_its_machines_at_the_price_of_the_time() -> None:
    costs = costs_of(
        offered(0.0, 1.0), asked(HOUR, FIRST), asked(2 * HOUR, SECOND), offered(3 * HOUR, 2.0),
        NodeLost(at=3.5 * HOUR, node=FIRST), at=5 * HOUR,
    )  # fmt: skip
    assert per_hour(costs, 0, 1, 2, 3, 4, 5) == {"spot": [0.0, 1.0, 2.0, 3.0, 2.0]}
    assert costs.bill.by_pool == {"spot": pytest.approx(8.0)}
    assert costs.since_at == HOUR


def test_looking_often_changes_nothing() -> None:
    messages: list[Event] = [offered(0.0, 1.0), asked(0.0, FIRST), started(HOUR, A, spot_0=4.0)]
    once, often = costs_of(*messages, at=2 * HOUR), CostHistory()
    for at in range(0, 2 * 3600 + 1, 60):
        while messages and messages[0].at <= at:
            often.add(messages.pop(0))
        often.settle(at)
    edges = [0.0, HOUR, 2 * HOUR]
    assert often.by_job[A]["spot"].usd(edges) == pytest.approx(once.by_job[A]["spot"].usd(edges))
    assert len(often.by_job[A]["spot"]) == len(often.by_pool["spot"]) == 2, (
        "a change where the price changes, and no other"
    )


def test_a_job_pays_for_the_time_in_which_its_machine_came() -> None:
    costs = costs_of(offered(0.0, 1.0), asked(0.0, FIRST), started(0.5 * HOUR, A, spot_0=4.0), at=HOUR)
    assert costs.by_job[A]["spot"].usd_h([0.0, 0.5 * HOUR, HOUR]) == pytest.approx([1.0, 1.0])


def test_jobs_on_one_machine_share_its_cost_by_what_they_hold() -> None:
    costs = costs_of(
        offered(0.0, 1.0), asked(0.0, FIRST), started(0.0, A, spot_0=3.0), started(0.0, B, spot_0=1.0), at=HOUR
    )
    assert {job: curves["spot"].usd_h([0.0, HOUR]) for job, curves in costs.by_job.items()} == {
        A: pytest.approx([0.75]), B: pytest.approx([0.25]),
    }  # fmt: skip


def test_what_is_billed_at_least_counts_for_the_time_that_is_paid() -> None:
    costs = costs_of(
        offered(0.0, 1.0, least_billed_s=HOUR), asked(0.0, FIRST), started(0.0, A, spot_0=4.0),
        NodeLost(at=0.25 * HOUR, node=FIRST), at=0.5 * HOUR,
    )  # fmt: skip
    assert per_hour(costs, 0, 0.25, 0.5, 1, 2) == {"spot": [1.0, 1.0, 1.0, 0.0]}
    assert costs.bill.by_job == {A: pytest.approx(1.0)}


def test_budget_and_displays_count_the_least_time_billed_alike_and_at_once() -> None:
    """The job that comes first has it all, also once another one holds the machine."""
    offers = (offered(0.0, 1.0, least_billed_s=HOUR), asked(0.0, FIRST))
    costs = costs_of(*offers, started(0.1 * HOUR, A, spot_0=4.0), at=0.2 * HOUR)
    bill = costs.bill
    assert bill.spent_usd(A, 0.2 * HOUR) == bill.claims_usd(0.2 * HOUR)[A] == pytest.approx(1.0)
    assert bill.total_usd_at(0.2 * HOUR) == pytest.approx(1.0)
    costs.add(GrantApplied(at=0.5 * HOUR, job=A, request=2, granted={}))
    costs.add(started(0.5 * HOUR, B, spot_0=4.0))
    costs.settle(3 * HOUR)
    for usd in (bill.by_job, bill.claims_usd(3 * HOUR), {job: bill.spent_usd(job, 3 * HOUR) for job in (A, B)}):
        assert usd == pytest.approx({A: 1.0, B: 2.0})
    assert per_hour(costs, 0, 1, 2, 3) == {"spot": pytest.approx([1.0, 1.0, 1.0])}


def test_jobs_and_pools_add_up_to_the_bill() -> None:
    costs = costs_of(
        offered(0.0, 1.0), offered(0.0, 3.0, "dear"), asked(0.0, FIRST), asked(0.0, NodeId("dear-0"), pool="dear"),
        asked(0.0, SECOND), started(100.0, A, spot_0=2.0, dear_0=4.0), started(200.0, B, spot_0=1.0),
        GrantApplied(at=900.0, job=A, request=2, granted={FIRST: Resources(3.0)}), offered(1000.0, 1.5),
        JobFinished(at=1500.0, job=B, landed_at=1500.0), NodeLost(at=1800.0, node=SECOND), at=HOUR,
    )  # fmt: skip
    end = [2 * HOUR]
    by_pool = {pool: curve.usd(end)[0] for pool, curve in costs.by_pool.items()}
    by_job = {job: sum(curve.usd(end)[0] for curve in curves.values()) for job, curves in costs.by_job.items()}
    assert by_pool == pytest.approx(costs.bill.by_pool)
    assert by_job == pytest.approx(costs.bill.by_job)
    idle_usd = (HOUR - 900.0) / HOUR * 3.0
    assert sum(by_job.values()) + costs.bill.unused_usd + idle_usd == pytest.approx(costs.bill.total_usd)
    assert {job: costs.bill.spent_usd(job, HOUR) for job in by_job} == pytest.approx(by_job)


def test_a_bill_tells_what_was_spent_until_now_without_counting_it() -> None:
    bill = Bill()
    for message in (offered(0.0, 1.0), asked(0.0, FIRST), asked(0.0, SECOND), started(0.0, A, spot_0=4.0)):
        bill.add(message)
    assert bill.spent_usd(A, HOUR) == pytest.approx(1.0)
    assert bill.total_usd_at(HOUR) == pytest.approx(2.0)
    assert bill.total_usd == 0.0
    assert {node: (machine.usd_h, machine.jobs) for node, machine in bill.machines().items()} == {
        FIRST: (1.0, (A,)), SECOND: (1.0, ()),
    }  # fmt: skip


def test_machines_without_a_price_have_no_cost() -> None:
    costs = costs_of(offered(0.0, 0.0), asked(0.0, FIRST), started(0.0, A, spot_0=4.0), at=HOUR)
    assert not costs.bill.has_price
    assert costs.by_pool == costs.by_job == {}


def test_a_job_that_is_gone_when_another_process_steers_pays_no_longer() -> None:
    costs = costs_of(
        offered(0.0, 1.0), asked(0.0, FIRST, SECOND), started(0.0, A, spot_0=4.0), started(0.0, B, spot_1=4.0),
        SteeringResumed(at=2 * HOUR, lost_at=HOUR, granted={B: {SECOND: Resources(4.0)}}), at=3 * HOUR,
    )  # fmt: skip
    assert costs.bill.by_job == pytest.approx({A: 1.0, B: 3.0})


@pytest.mark.parametrize(
    "late",
    [
        GrantApplied(at=HOUR, job=A, request=1, granted={FIRST: Resources(4.0)}),
        JobFailed(at=HOUR, job=A, cause="late", retryable=True, request=1),
    ],
)
def test_an_answer_that_comes_late_changes_nothing(late: Event) -> None:
    moved = GrantApplied(at=0.0, job=A, request=2, granted={SECOND: Resources(4.0)})
    costs = costs_of(
        offered(0.0, 1.0), asked(0.0, FIRST, SECOND), started(0.0, A, spot_0=4.0), moved, late, at=2 * HOUR
    )
    assert costs.bill.by_job == pytest.approx({A: 2.0}), "the other machine is idle"


def test_an_answer_about_a_process_that_is_gone_changes_nothing() -> None:
    costs = costs_of(
        offered(0.0, 1.0), asked(0.0, FIRST), started(0.0, A, spot_0=4.0),
        JobFailed(at=HOUR, job=A, cause="its node", retryable=True, is_lost=True),
        GrantApplied(at=HOUR, job=A, request=2, granted={FIRST: Resources(4.0)}), at=2 * HOUR,
    )  # fmt: skip
    assert costs.bill.by_job == pytest.approx({A: 1.0})


def test_of_many_changes_every_second_is_forgotten_and_the_sum_stays() -> None:
    curve = CostCurve()
    for i in range(101):
        curve.add(Payment("spot", None, 10.0 * i, 10.0 * i + 10.0, 1.0 + i % 7))
    edges = [0.0, 500.0, 1010.0]
    before, n_before = curve.usd(edges), len(curve)
    curve.thin()
    assert len(curve) < 0.6 * n_before
    assert curve.usd(edges)[::2] == pytest.approx(before[::2])
    assert curve.usd(edges)[1] == pytest.approx(before[1], rel=0.02)
