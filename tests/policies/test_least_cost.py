"""The policy `least-cost` in the simulated world: promises kept at least cost, on machines that come and go."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.sim.pieces import PERFECT, sim_job

from punctual.core.bill import Bill
from punctual.core.cluster import Node, Snapshot
from punctual.core.events import (
    JobFinished,
    MachinesAsked,
    MachinesRefused,
    Message,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PlanProposed,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.pools import Pool, PoolSpec, PoolTable
from punctual.core.protocols import Policy
from punctual.core.quoting import quote
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated
from punctual.history.cluster import ClusterHistory
from punctual.history.job import JobRecord
from punctual.policies.least_cost import LeastCost
from punctual.sim.job import SimJob
from punctual.sim.market import PoolCourse
from punctual.sim.simulation import Simulation
from punctual.solvers.machine_market import prices_text
from punctual.testing.policy_kit import PolicyConformance

MACHINE = Resources(cores=8.0, gpus=1)
HOUR_S = 3600.0
SPOT_USD_H, STAYS_USD_H = 1.0, 4.0
DAY_S = 86_400.0


def pools(counts: Sequence[tuple[float, int]], *, most: int = 4, startup_s: float = 300.0) -> list[PoolCourse]:
    """Return a spot pool with these counts over time, in hours, and a pool of machines that stay."""
    spot = PoolSpec(
        name="spot", capacity=MACHINE, device="V100", market="spot", most=most, startup_s=startup_s, notice_s=120.0
    )
    stays = PoolSpec(name="stays", capacity=MACHINE, device="V100", most=most, startup_s=startup_s)
    return [
        PoolCourse(spot, [(at * HOUR_S, SPOT_USD_H, n) for at, n in counts]),
        PoolCourse(stays, [(counts[0][0] * HOUR_S, STAYS_USD_H, most)]),
    ]


def job(name: str, *, work_h: float, deadline_h: float, counts: tuple[int, ...] = (1, 2, 3, 4), **more: Any) -> SimJob:
    """Return a job of perfect scaling with `work_h` hours of work on one machine."""
    profile = tuple(
        SeenRate(shape=Shape(n_workers=n, device="V100", n_nodes=n), rate_sps=float(n)) for n in range(1, 5)
    )
    declared = {"deadline_s": deadline_h * HOUR_S, "model": "tabulated", "profile": profile, "margin_frac": 0.0, **more}
    return sim_job(name, counts=counts, steps=work_h * HOUR_S, truth=PERFECT, **declared)


class Run:
    """A simulation that has ended, with its messages."""

    def __init__(
        self, jobs: Sequence[SimJob], market: Sequence[PoolCourse], nodes: Sequence[Node] = (), days: float = 14.0
    ) -> None:
        self.messages: list[Message] = []
        self.bill, record = Bill(), ClusterHistory()
        Simulation(
            jobs, nodes, LeastCost(), models={"tabulated": Tabulated()}, pools=market, end_at=days * DAY_S,
            listeners=(self.messages.append, self.bill.add, record.add),
        ).run()  # fmt: skip
        self.bill.close()
        self.jobs: dict[JobId, JobRecord] = {each.id: each for each in record.jobs()}

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]

    def usd(self, pool: str) -> float:
        return self.bill.by_pool.get(pool, 0.0)

    def all_on_time(self) -> bool:
        return all(each.on_time for each in self.jobs.values())


def test_spot_alone_is_used_where_there_is_enough_of_it() -> None:
    run = Run([job("a", work_h=20, deadline_h=30)], pools([(-48, 4)]))
    assert run.all_on_time()
    assert run.usd("stays") == 0.0
    assert 20.0 <= run.usd("spot") <= 21.0, "each machine is paid for while it starts"


def test_machines_that_stay_come_at_the_last_safe_moment() -> None:
    run = Run([job("a", work_h=20, deadline_h=30)], pools([(-48, 0)]))
    asked = run.of(MachinesAsked)
    assert run.all_on_time()
    assert {event.pool for event in asked} == {"stays"}
    assert 23.5 * HOUR_S <= asked[0].at <= 25 * HOUR_S, "5 h on four machines"
    assert 80.0 <= run.bill.total_usd <= 84.0


def test_a_machine_with_notice_is_left_in_time_and_nothing_is_lost() -> None:
    run = Run([job("a", work_h=20, deadline_h=12)], pools([(-48, 4), (2.0, 1)]))
    assert len(run.of(NodeNoticed)) == 3
    assert run.all_on_time()
    assert run.jobs[JobId("a")].n_failures == 0
    assert run.usd("stays") > 0.0
    paid_h = run.usd("spot") / SPOT_USD_H + run.usd("stays") / STAYS_USD_H
    assert paid_h <= 20 + 10 * 300 / HOUR_S + 3 * 120 / HOUR_S, "work, starts, and times of notice"


def test_a_rigid_job_saves_and_goes_on_elsewhere() -> None:
    one = job("a", work_h=20, deadline_h=30, counts=(2,), startup_s=60.0)
    run = Run([one], pools([(-48, 4), (3.0, 1), (8.0, 4)]))
    assert run.all_on_time()
    assert run.jobs[JobId("a")].n_failures == 0
    assert run.usd("spot") > run.usd("stays")


def test_own_nodes_are_used_first_and_the_cloud_only_where_the_deadline_needs_it() -> None:
    own = [Node(NodeId(f"own-{i}"), MACHINE, "V100") for i in range(2)]
    easy = Run([job("a", work_h=20, deadline_h=12)], pools([(-48, 4)]), own)
    assert easy.all_on_time()
    assert easy.bill.total_usd == 0.0
    hard = Run([job("a", work_h=20, deadline_h=8)], pools([(-48, 4)]), own)
    assert hard.all_on_time()
    assert 0.0 < hard.usd("spot") <= 2 * 8 * SPOT_USD_H
    assert hard.usd("stays") == 0.0


def test_several_jobs_share_the_machines_that_stay() -> None:
    jobs = [job(f"job-{i}", work_h=8, deadline_h=6 + 2 * i) for i in range(4)]
    run = Run(jobs, pools([(-48, 1), (5.0, 0)]))
    assert run.all_on_time()


def test_jobs_do_not_count_on_machines_that_they_cannot_use() -> None:
    """The two that stay and have a device are enough for both jobs, one after the other."""
    others = PoolSpec(name="cores", capacity=Resources(cores=64.0), most=20)
    run = Run(
        [job(f"job-{i}", work_h=5, deadline_h=6.5) for i in range(2)],
        [*pools([(-48, 0)], most=2), PoolCourse(others, [(-48 * HOUR_S, 1.0, 20)])],
    )
    assert run.all_on_time()


@pytest.mark.parametrize(("deadline_h", "is_bought"), [(12, False), (6, True)])
def test_own_nodes_of_another_kind_are_used_where_they_are_in_time(deadline_h: float, is_bought: bool) -> None:
    own = [Node(NodeId("own"), MACHINE * 2, "V100")]
    run = Run([job("a", work_h=20, deadline_h=deadline_h)], pools([(-48, 4)]), own)
    assert run.all_on_time()
    assert (run.bill.total_usd > 0.0) == is_bought


def test_a_job_whose_every_change_is_a_restart_is_in_time_on_fewer_machines_than_it_could_use() -> None:
    spot, stays = pools([(-48, 4), (1.0, 0)])
    few = PoolCourse(replace(stays.spec, most=2), [(at, usd_h, 2) for at, usd_h, _ in stays.course])
    run = Run([job("a", work_h=8, deadline_h=5.5, startup_s=300.0, resize_cost_s=300.0)], [spot, few])
    assert run.all_on_time()


def test_no_promise_is_given_that_takes_the_time_of_another_one() -> None:
    first = job("first", work_h=16, deadline_h=5)
    later = replace(job("later", work_h=10, deadline_h=6), submitted_at=0.2 * HOUR_S)
    run = Run([first, later], pools([(-48, 0)]))
    promised = {id for event in run.of(PlanProposed) for id in event.plan.promises or {}}
    assert promised == {"first"}
    assert run.jobs[JobId("first")].on_time


@pytest.mark.parametrize("unknown", [{"model": None, "profile": ()}, {"worker": MACHINE * 2, "ceiling": MACHINE * 8}])
def test_nothing_is_promised_to_a_job_of_unknown_speed_or_one_that_no_machine_can_hold(unknown: dict[str, Any]) -> None:
    one = job("a", work_h=1, deadline_h=24)
    run = Run([replace(one, spec=replace(one.spec, **unknown))], pools([(-48, 4)]), days=2.0)
    assert not any(event.plan.promises for event in run.of(PlanProposed))


def test_the_user_is_told_once_of_a_promise_that_machines_that_stay_cannot_keep() -> None:
    table = PoolTable()
    for each in pools([(-96, 0)]):
        for at, price_usd_h, n in each.course:
            table.offer(at, each.spec, price_usd_h, n)
    spec = job("a", work_h=20, deadline_h=6).spec
    view = JobView(
        spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted={},
        curve=RateCurve(Tabulated(), Tabulated().init(spec)), promised_until_at=6 * HOUR_S,
    )  # fmt: skip

    def told(hour: float, carry: object = None) -> Plan:
        return LeastCost().allocate(
            replace(Snapshot.of(hour * HOUR_S, [], [view], pools=table.views()), carry=carry or {})
        )

    assert not told(0.5).warnings
    first = told(1.5)
    assert first.warnings[view.id].code == "promise-in-danger"
    assert "needs 5 h" in first.warnings[view.id].text
    assert not told(1.6, first.carry).warnings


def test_refusals_do_not_make_it_late() -> None:
    run = Run([job("a", work_h=20, deadline_h=12)], pools([(-48, 4), (1.0, 2), (1.2, 4), (3.0, 0), (3.1, 3)]))
    assert run.all_on_time()


def test_a_job_without_a_deadline_waits_for_spot() -> None:
    one = job("a", work_h=2, deadline_h=1, deadline_s=None)
    run = Run([one], pools([(-48, 0), (5.0, 4)]))
    assert run.usd("stays") == 0.0
    assert run.jobs[JobId("a")].landed_at is not None


def test_each_plan_has_its_bound_and_says_the_price() -> None:
    run = Run([job("a", work_h=20, deadline_h=30)], pools([(-48, 4)]))
    plans = [event.plan for event in run.of(PlanProposed)]
    assert plans[0].bound == pytest.approx(20.0, rel=0.05)
    assert plans[0].bound <= run.bill.total_usd * 1.001
    assert "pool 'spot'" in plans[1].reasons[JobId("a")].text


def test_a_machine_on_demand_is_bought_for_a_reason_in_words() -> None:
    run = Run([job("a", work_h=20, deadline_h=8)], pools([(-48, 4), (2.0, 0)]))
    texts = [reason.text for event in run.of(PlanProposed) for reason in event.plan.reasons.values()]
    text = next(text for text in texts if "on demand because" in text)
    assert re.search(r"spot was last had .* ago and .* of work at its fastest must be done in .*", text)


def test_the_bill_is_that_of_the_machines() -> None:
    run = Run(
        [job("a", work_h=20, deadline_h=30), job("b", work_h=3, deadline_h=9)], pools([(-48, 4), (4.0, 1), (9.0, 3)])
    )
    since = {node: event.at for event in run.of(MachinesAsked) for node in event.nodes}
    pool = {node: event.pool for event in run.of(MachinesAsked) for node in event.nodes}
    until = {event.node: event.at for event in run.of(NodeLost)}
    end_at = run.messages[-1].at
    prices = {"spot": SPOT_USD_H, "stays": STAYS_USD_H}
    usd = sum(prices[pool[node]] * (until.get(node, end_at) - at) / HOUR_S for node, at in since.items())
    assert run.bill.total_usd == pytest.approx(usd)
    assert sum(run.bill.by_job.values()) + run.bill.unused_usd == pytest.approx(usd)


def test_all_that_is_asked_for_is_answered() -> None:
    run = Run([job("a", work_h=20, deadline_h=12)], pools([(-48, 4), (2.0, 1), (3.0, 4)]))
    assert run.of(NodeJoined)
    assert all(event.n_machines > 0 for event in run.of(MachinesRefused))


def test_an_earlier_deadline_has_a_higher_price() -> None:
    spot, stays = pools([(-96, 1), (-24, 2)])
    seen = [
        Pool(
            spec=each.spec,
            price_usd_h=each.course[-1][1],
            obtainable=each.course[-1][2],
            counts=tuple((at, n) for at, _, n in each.course),
        )
        for each in (spot, stays)
    ]
    spec = job("a", work_h=20, deadline_h=30).spec
    curve = RateCurve(Tabulated(), Tabulated().init(spec))
    view = JobView(
        spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted={}, curve=curve
    )
    snapshot = Snapshot.of(0.0, [], [view], pools=tuple(seen))
    usd = LeastCost().deadline_prices_usd(snapshot, view, [hour * HOUR_S for hour in (24, 12, 6, 4)])
    assert prices_text([("24:00", usd[0]), ("4:00", usd[3])]).endswith("cannot be by 4:00")
    late, sooner, soonest = (each for each in usd if each is not None)
    assert 19.5 <= late < sooner < soonest <= 80.0


@pytest.mark.parametrize("budget_usd", [None, 90.0, 40.0])
@pytest.mark.parametrize("counts", [[(-96, 4)], [(-96, 2), (-24, 0)]])
def test_a_quoted_deadline_can_be_promised_and_an_earlier_one_cannot(
    counts: list[tuple[float, int]], budget_usd: float | None
) -> None:
    table = PoolTable()
    for each in pools(counts):
        for at, price_usd_h, n in each.course:
            table.offer(at, each.spec, price_usd_h, n)
    spec = replace(job("a", work_h=20, deadline_h=30).spec, deadline_s=None, budget_usd=budget_usd, preemptible=True)
    curve = RateCurve(Tabulated(), Tabulated().init(spec))
    view = JobView(
        spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted={}, curve=curve
    )
    snapshot = Snapshot.of(0.0, [], [], pools=table.views())
    answer = quote(LeastCost(), snapshot, view)
    if budget_usd == 40.0:
        assert answer.earliest_at is None, "machines that stay would cost $80"
        assert "within its budget" in answer.reason.text
    else:
        assert answer.earliest_at is not None
        assert answer.earliest_at == pytest.approx(5 * HOUR_S + 600.0, rel=0.02), "20 h on four machines, and a start"
        for share, can_be in ((1.0, True), (0.97, False)):
            asked = view.with_deadline(share * answer.earliest_at)
            assert quote(LeastCost(), snapshot, asked).can_be_promised is can_be
    usd = [price.usd for price in answer.prices if price.usd is not None]
    assert usd == sorted(usd)
    assert (answer.bought_at is None) == (budget_usd is None)


def test_machines_that_were_asked_for_are_kept_while_the_job_stops_to_start_on_them() -> None:
    table = PoolTable()
    for each in pools([(-96, 0)]):
        for at, price_usd_h, n in each.course:
            table.offer(at, each.spec, price_usd_h, n)
    spec = job("a", work_h=20, deadline_h=5.2).spec
    curve = RateCurve(Tabulated(), Tabulated().init(spec))
    view = JobView(
        spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted={}, curve=curve
    )
    before = LeastCost().allocate(Snapshot.of(0.0, [], [view], pools=table.views()))
    assert before.machines["stays"] == 4
    node = Node(NodeId("spot-0"), MACHINE)
    stopping = replace(view, status="stopping", granted={node.id: MACHINE})
    snapshot = Snapshot.of(1.0, [node], [stopping], pools=table.views())
    plan = LeastCost().allocate(replace(snapshot, carry=before.carry))
    assert plan.machines == before.machines
    again = LeastCost().allocate(replace(snapshot, carry=plan.carry))
    assert again.machines == before.machines


@pytest.mark.parametrize("counts", [[(-96, 4)], [(-96, 4), (-1, 0)]])
def test_a_job_that_has_done_its_steps_keeps_a_machine_until_it_has_landed(counts: list[tuple[float, int]]) -> None:
    table = PoolTable()
    for each in pools(counts):
        for at, price_usd_h, n in each.course:
            table.offer(at, each.spec, price_usd_h, n)
    node = Node(NodeId("stays-0"), MACHINE)
    table.start(0.0, "stays", [node.id])
    table.join(300.0, node.id)
    spec = job("a", work_h=20, deadline_h=30).spec
    curve = RateCurve(Tabulated(), Tabulated().init(spec))
    view = JobView(
        spec=spec, status="running", submitted_at=0.0, done_steps=spec.work_steps or 0.0, demand=spec.ceiling,
        granted={node.id: Resources(gpus=1)}, curve=curve, started_at=300.0,
    )  # fmt: skip
    plan = LeastCost().allocate(Snapshot.of(400.0, [node], [view], pools=table.views()))
    assert set(plan.grants.get(view.id, view.granted)) == {node.id}
    assert plan.machines["stays"] == 1
    # If its process is lost just then, it still gets a machine at the last safe moment.
    waiting = replace(view, status="queued", granted={}, planned={})
    late = LeastCost().allocate(Snapshot.of(29.7 * HOUR_S, [], [waiting], pools=table.views()))
    assert sum(late.machines.values()) >= 1


@dataclass(frozen=True)
class _WithPools:
    """The policy on a cluster of which some nodes belong to pools."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        return LeastCost().allocate(replace(snapshot, pools=self._pools(snapshot.nodes)))

    def _pools(self, nodes: Sequence[Node]) -> tuple[Pool, ...]:
        specs = [
            PoolSpec(name="spot", capacity=MACHINE, market="spot", most=3, startup_s=60.0),
            PoolSpec(name="stays", capacity=MACHINE, most=2, startup_s=60.0),
        ]
        counts = ((-1e6, 2), (-1e5, 0), (5.0, 3))
        return tuple(
            Pool(
                spec=spec,
                price_usd_h=price,
                obtainable=2,
                there=tuple(node.id for node in nodes[i::3]),
                counts=counts if spec.market == "spot" else (),
            )
            for i, (spec, price) in enumerate(zip(specs, (1.0, 3.0), strict=True), 1)
        )


class TestOnMixedMachines(PolicyConformance):
    def make(self) -> Policy:
        return _WithPools()


def test_a_job_that_is_late_gets_machines_once_there_are_some() -> None:
    run = Run([job("a", work_h=8, deadline_h=12)], pools([(-48, 0), (13.0, 4)])[:1])
    (finished,) = run.of(JobFinished)
    assert 15 * HOUR_S < finished.landed_at < 15.5 * HOUR_S, "8 h on four machines"


def test_a_simulation_of_a_job_for_which_machines_never_come_ends() -> None:
    record, one = ClusterHistory(), job("a", work_h=8, deadline_h=12)
    market = pools([(-48, 0)])[:1]
    Simulation([one], (), LeastCost(), models={"tabulated": Tabulated()}, pools=market, listeners=(record.add,)).run()
    assert not record.jobs()[0].on_time


def test_a_job_that_is_late_does_not_wait_for_one_that_has_time() -> None:
    late, early = job("a", work_h=40, deadline_h=8), job("b", work_h=8, deadline_h=40)
    run = Run([late, early], pools([(-48, 0)])[1:])
    landed = {event.job: event.landed_at for event in run.of(JobFinished)}
    assert landed[JobId("a")] < 10.5 * HOUR_S
    assert landed[JobId("b")] < 40 * HOUR_S


def test_a_job_that_runs_only_with_a_promise_has_a_quote_with_prices() -> None:
    table = PoolTable()
    for each in pools([(-96, 2)]):
        for at, price_usd_h, n in each.course:
            table.offer(at, each.spec, price_usd_h, n)
    spec = replace(job("a", work_h=20, deadline_h=30).spec, guarantee=True)
    view = JobView(
        spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=spec.ceiling, granted={},
        curve=RateCurve(Tabulated(), Tabulated().init(spec)),
    )  # fmt: skip
    answer = quote(LeastCost(), Snapshot.of(0.0, [], [], pools=table.views()), view)
    assert answer.can_be_promised
    assert any(price.usd for price in answer.prices)
