"""The policies `smd` and `smd-exact`."""

from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.pictures import codes, cores, counts, decide, fraction, job, linear

from punctual.core.cluster import Node
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.resources import Resources, total
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.core.utility import Sigmoid
from punctual.papers.smd.smd import Smd
from punctual.papers.smd.smd_exact import SmdExact, undominated
from punctual.papers.smd.sum_of_ratios import PairProblem
from punctual.papers.smd.worker_server_pairs import _utilities, formula_of, pairs_of, utility_of
from punctual.policies._hardware import Hardware
from punctual.solvers.placement import place_together

POLICIES: list[Policy] = [Smd(), SmdExact()]
WORKER, SERVER = Resources(cores=2.0, gpus=1), Resources(cores=1.0)


@dataclass(frozen=True, slots=True)
class Formula:
    """A performance model that is the published formula; it asks to be told about no shape that it was not asked for."""

    theta: tuple[float, ...]

    def init(self, spec: JobSpec) -> None:
        return None

    def update(self, state: None, seen: SeenRate) -> None:
        return None

    def rate_sps(self, state: None, shape: Shape) -> float:
        w, p = shape.n_workers, shape.n_servers
        terms = (w, p, 1, w / p, 1 / w) if len(self.theta) == 5 else (1, p / w, 1 / w, 1 / p)
        return 1 / sum(theta * term for theta, term in zip(self.theta, terms, strict=True))

    def std_sps(self, state: None, shape: Shape) -> float:
        return 0.0


def served(
    name: str, ceiling: Resources, theta: tuple[float, ...] = (0.1, 0.1, 0.0, 1.0, 10.0), *, steps: float = 100.0,
    at: float = 0.0, **spec: Any,
) -> JobView:  # fmt: skip
    """A waiting job with parameter servers."""
    declared = JobSpec(
        id=JobId(name), worker=WORKER, server=SERVER, ceiling=ceiling, work_steps=steps, controller=None, **spec
    )
    return JobView(
        spec=declared, status="queued", submitted_at=at, done_steps=0.0, demand=ceiling, granted={},
        curve=RateCurve(Formula(theta), None),
    )  # fmt: skip


def parts(plan: Plan, jobs: list[JobView]) -> dict[str, tuple[int, int] | None]:
    specs = {view.spec.id: view.spec for view in jobs}
    return {str(id): specs[id].parts_of(total(grant.values())) for id, grant in plan.grants.items()}


def falling(height: float, middle_s: float, steepness_per_s: float = 0.1) -> Sigmoid:
    return Sigmoid(height=height, steepness_per_s=steepness_per_s, middle_s=middle_s)


# One job.


@pytest.mark.parametrize("policy", POLICIES)
def test_workers_and_servers_are_the_fastest_within_the_limit(policy: Policy) -> None:
    one = served("a", Resources(cores=16.0, gpus=6))
    plan = decide(policy, [one], {"n": Resources(cores=64.0, gpus=8)})
    times = {
        (w, p): 0.1 * w + 0.1 * p + w / p + 10 / w
        for w, p in product(range(1, 7), range(1, 15))
        if 2 * w + p <= 16
    }  # fmt: skip
    assert parts(plan, [one]) == {"a": min(times, key=lambda pair: times[pair])}


def test_with_equal_numbers() -> None:
    one = served("a", Resources(cores=16.0, gpus=6))
    plan = decide(Smd(pairing="equal"), [one], {"n": Resources(cores=64.0, gpus=8)})
    assert parts(plan, [one]) == {"a": (5, 5)}


def test_the_published_way_may_round_otherwise_but_keeps_the_limit() -> None:
    jobs = [served(f"job-{i}", Resources(cores=7.0 + i, gpus=6)) for i in range(8)]
    rounded, exact = (
        parts(decide(Smd(pairing=pairing), jobs, {"n": Resources(cores=200.0, gpus=64)}), jobs)
        for pairing in ("rounded", "exact")
    )  # fmt: skip
    assert rounded.keys() == exact.keys() == {view.id for view in jobs}
    assert rounded != exact
    assert all(rounded.values())


def test_without_servers_the_fastest_number() -> None:
    slowing = replace(linear(), rates=((1, 1.0), (2, 1.8), (4, 1.5)))
    jobs = [job("a", (1, 2, 4), steps=100.0, speed=slowing)]
    for policy in POLICIES:
        assert counts(decide(policy, jobs, {"n": 8}), jobs) == {"a": 2}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_without_workers_gets_its_demand(policy: Policy) -> None:
    plan = decide(policy, [fraction("a", 1.5, ceiling=3.0)], {"n": Resources(cores=4.0)})
    assert cores(plan) == {"a": 1.5}


@pytest.mark.parametrize("policy", POLICIES)
def test_one_node_for_a_pair_if_possible(policy: Policy) -> None:
    one = served("a", Resources(cores=6.0, gpus=2))
    nodes = {"small": Resources(cores=5.0, gpus=8), "large": Resources(cores=6.0, gpus=2)}
    plan = decide(policy, [one], nodes)
    assert list(plan.grants[JobId("a")]) == ["large"]


def test_servers_lie_where_workers_leave_room() -> None:
    free = {NodeId("a"): Resources(cores=4.0, gpus=2), NodeId("b"): Resources(cores=3.0, gpus=0)}
    assert place_together(2, WORKER, 3, SERVER, free) == {
        "a": Resources(cores=4.0, gpus=2), "b": Resources(cores=3.0),
    }  # fmt: skip
    assert place_together(2, WORKER, 4, SERVER, free) is None
    assert place_together(3, WORKER, 1, SERVER, free) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_what_runs_with_workers_and_servers_is_left_alone(policy: Policy) -> None:
    nodes = {"n": Resources(cores=16.0, gpus=8)}
    one = served("a", Resources(cores=7.0, gpus=2))
    held = decide(policy, [one], nodes).grants[JobId("a")]
    running = replace(one, status="running", granted=held, planned=held)
    other = served("b", Resources(cores=7.0, gpus=2), at=1.0)
    plan = decide(policy, [running, other], nodes)
    assert list(plan.grants) == ["b"]
    assert other.spec.parts_of(total(plan.grants[JobId("b")].values())) == one.spec.parts_of(total(held.values()))


# Several jobs.


def test_smd_charges_limits_and_smd_exact_what_is_used() -> None:
    # More than two workers make the jobs slower; each is charged for its limit of eight.
    slowing = replace(linear(), rates=tuple((n, 2.0 if n == 2 else 1.0) for n in range(1, 9)))
    jobs = [job(name, range(1, 9), steps=100.0, speed=slowing) for name in "abcd"]
    assert counts(decide(Smd(), jobs, {"n": 8}), jobs) == {"a": 2}
    assert counts(decide(SmdExact(), jobs, {"n": 8}), jobs) == dict.fromkeys("abcd", 2)


@pytest.mark.parametrize(
    ("policy", "least_frac"),
    [(Smd(pairing="exact", admission="exact"), 1.0), (SmdExact(gap_limit=0.0), 1.0), (Smd(), 0.5)],
    ids=["exact", "smd-exact", "published"],
)
def test_a_resource_that_only_has_a_name_binds(policy: Policy, least_frac: float) -> None:
    """Only the disk limits how many jobs start: those do that an exhaustive search finds, or nearly."""
    disks, heights = [100.0, 200.0, 50.0, 250.0, 150.0, 300.0], [5.0, 7.0, 1.0, 6.0, 8.0, 9.0]
    jobs = [
        served(f"job-{i}", replace(WORKER + SERVER, others=(("disk_mbps", disk),)), utility=falling(height, 1e4))
        for i, (disk, height) in enumerate(zip(disks, heights, strict=True))
    ]  # fmt: skip
    jobs = [
        replace(view, spec=replace(view.spec, worker=replace(WORKER, others=(("disk_mbps", disk),))))
        for view, disk in zip(jobs, disks, strict=True)
    ]
    room = Resources(cores=1000.0, gpus=100, others={"disk_mbps": 500.0})
    sets = [chosen for n in range(7) for chosen in combinations(range(6), n) if sum(disks[i] for i in chosen) <= 500]
    best = max(sets, key=lambda chosen: sum(heights[i] for i in chosen))
    plan = decide(policy, jobs, {"n": room})
    worth = sum(height for view, height in zip(jobs, heights, strict=True) if view.id in plan.grants)
    assert least_frac * sum(heights[i] for i in best) <= worth <= sum(heights[i] for i in best)
    assert total(grant[NodeId("n")] for grant in plan.grants.values()).fits_in(room)
    everybody = decide(policy, jobs, {"n": replace(room, others=(("disk_mbps", 2000.0),))})
    assert len(everybody.grants) == len(jobs), "nothing else binds"


def test_smd_counts_running_jobs_with_their_limits() -> None:
    running = job("old", range(1, 5), on={"n": 1}, steps=100.0)
    new = job("new", range(1, 5), steps=100.0)
    assert counts(decide(Smd(), [running, new], {"n": 7}), [running, new]) == {"old": 1}
    assert counts(decide(Smd(), [running, new], {"n": 8}), [running, new]) == {"old": 1, "new": 4}
    assert counts(decide(SmdExact(), [running, new], {"n": 4}), [running, new]) == {"old": 1, "new": 3}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_most_useful_are_admitted(policy: Policy) -> None:
    jobs = [
        job("low", 4, steps=100.0, utility=falling(10.0, 1e4)),
        job("high", 4, steps=100.0, utility=falling(90.0, 1e4)),
        job("too-late", 4, steps=100.0, utility=falling(100.0, 1.0, 100.0)),
    ]
    assert counts(decide(policy, jobs, {"n": 4}), jobs) == {"high": 4}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_nobody_in_time_needs_goes_to_the_late(policy: Policy) -> None:
    jobs = [job("late", 4, steps=1e6, deadline_s=10.0)]
    assert counts(decide(policy, jobs, {"n": 4}), jobs) == {"late": 4}


def test_less_than_its_best_lets_another_job_in() -> None:
    jobs = [job(name, (1, 2, 4), steps=400.0, utility=falling(50.0, 300.0)) for name in "ab"]
    plan = decide(SmdExact(), jobs, {"n": 4})
    assert counts(plan, jobs) == {"a": 2, "b": 2}
    assert plan.objective == pytest.approx(sum(50.0 / (1 + np.exp(-10.0)) + 50.0e-3 / 2 for _ in jobs))
    assert counts(decide(Smd(), jobs, {"n": 4}), jobs) == {"a": 4}


@pytest.mark.parametrize("policy", POLICIES)
def test_says_what_a_start_is_worth_and_the_first_that_waits_what_for(policy: Policy) -> None:
    jobs = [
        job("a", 4, steps=400.0, utility=falling(80.0, 1e4)), job("b", 4, steps=400.0, at=1.0), job("c", 4, at=2.0)
    ]  # fmt: skip
    plan = decide(policy, jobs, {"n": 4})
    assert codes(plan) == {"a": "starts", "b": "waits"}
    assert plan.reasons[JobId("a")].text == "starts with 4 workers on 1 node, done in 1 min 40 s: worth 80.1"
    assert plan.reasons[JobId("a")].facts["n_workers"] == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_the_faster_kind_of_devices(policy: Policy) -> None:
    @dataclass(frozen=True, slots=True)
    class ByKind:
        def rate_sps(self, state: None, shape: Shape) -> float:
            return shape.n_workers * {"K80": 1.0, "V100": 3.0, "none": 0.0}[shape.device]

        def std_sps(self, state: None, shape: Shape) -> float:
            return 0.0

    jobs = [replace(job("a", 2, steps=100.0), curve=RateCurve(ByKind(), None))]
    nodes = {"a": (Resources(gpus=8), "K80"), "b": (Resources(gpus=8), "V100"), "c": (Resources(gpus=8), "none")}
    assert list(decide(policy, jobs, nodes).grants[JobId("a")]) == ["b"]
    assert codes(decide(policy, jobs, {"c": nodes["c"]})) == {"a": "never-fits"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pair_that_finds_no_nodes_is_made_smaller(policy: Policy) -> None:
    # Ten devices are free, but no worker of three fits beside three others.
    jobs = [job("a", range(1, 4), steps=100.0, worker=Resources(gpus=3))]
    assert counts(decide(policy, jobs, {"m": 5, "n": 5}), jobs) == {"a": 6}


@pytest.mark.parametrize("policy", [Smd(interval_s=100.0), SmdExact(interval_s=100.0)])
def test_jobs_that_come_within_an_interval_are_decided_about_together(policy: Policy) -> None:
    """At each change alone the first would be let in, and the one that is worth more would wait."""
    nodes = {"n": 4}
    first = job("first", 4, steps=400.0, utility=falling(10.0, 1e4))
    before = decide(policy, [first], nodes, at=10.0)
    assert codes(before) == {"first": "waits"}
    assert before.ask_again_at == 100.0
    jobs = [first, job("second", 4, steps=400.0, at=50.0, utility=falling(90.0, 1e4))]
    assert not decide(policy, jobs, nodes, at=50.0, carry=before.carry).grants
    together = decide(policy, jobs, nodes, at=100.0, carry=before.carry)
    assert counts(together, jobs) == {"second": 4}
    assert together.ask_again_at == 200.0
    assert counts(decide(type(policy)(), [first], nodes, at=10.0), [first]) == {"first": 4}


def test_a_start_says_what_is_guaranteed_and_what_is_proven_of_its_pair() -> None:
    one = served("a", Resources(cores=16.0, gpus=6))
    facts = decide(Smd(scale=0.5, delta=0.5), [one], {"n": Resources(cores=64.0, gpus=8)}).reasons[JobId("a")].facts
    assert facts["guarantee"] == (24 / 0.5 + 4) / 0.5
    assert 1.0 <= facts["proven"] <= facts["guarantee"]
    with pytest.raises(InvalidSpec, match="`delta` must be a share"):
        Smd(delta=2.0)


# The knapsack of smd-exact.


def test_only_ways_that_nothing_beats() -> None:
    uses = np.array([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0], [1.0, 1.0], [3.0, 3.0]])
    assert undominated(uses, np.array([5.0, 5.0, 6.0, 4.0, 0.0])).tolist() == [2, 0]
    assert undominated(uses, np.zeros(5)).tolist() == []


def test_the_bound_is_that_of_the_plan() -> None:
    jobs = [job(f"job-{i}", (1, 2, 3), steps=100.0 * i, deadline_s=100.0) for i in range(1, 9)]
    plan = decide(SmdExact(), jobs, {"n": 8})
    assert plan.objective is not None
    assert plan.bound is not None
    assert 0 < plan.objective <= plan.bound <= 1.1 * plan.objective
    assert decide(Smd(), jobs, {"n": 8}).bound is None


# The inner problem of smd, its admission.


def test_pair_and_admit_are_the_two_halves() -> None:
    problem, tight = (
        PairProblem.of("sync", [0.1, 0.1, 0.0, 1.0, 10.0], [2.0, 1.0], [1.0, 0.0], limits)
        for limits in ([16.0, 6.0], [2.0, 6.0])
    )
    exact, equal = Smd(pairing="exact").pair(problem), Smd(pairing="equal").pair(problem)
    w, p = exact.workers, exact.servers
    assert exact.value == pytest.approx(0.1 * w + 0.1 * p + w / p + 10 / w)
    assert (equal.workers, equal.servers) == (5, 5)
    for policy in (Smd(), Smd(pairing="equal")):
        assert policy.pair(tight).status == "infeasible"
    for policy in (Smd(subset_size=2), Smd(admission="exact")):
        assert policy.admit([6.0, 5.0, 5.0], [[3.0], [2.0], [2.0]], [4.0]) == [False, True, True]


@pytest.mark.parametrize(("kind", "theta"), [("sync", (0.2, 0.1, 3.0, 2.0, 9.0)), ("async", (0.5, 0.3, 9.0, 2.0))])
def test_the_formula_is_found_again_and_speaks_for_pairs_that_were_not_asked_for(
    kind: str, theta: tuple[float, ...]
) -> None:
    one = served("a", Resources(cores=200.0, gpus=60), theta)
    hardware = Hardware((Node(NodeId("n"), Resources(cores=200.0, gpus=60)),))
    pairs = pairs_of(hardware, one, "")
    assert pairs is not None
    assert len(pairs.workers) > 1000
    exact = [1 / Formula(theta).rate_sps(None, Shape(n_workers=w, n_servers=p)) for w, p in zip(pairs.workers.tolist(), pairs.servers.tolist(), strict=True)]  # fmt: skip
    assert pairs.step_s == pytest.approx(exact, rel=1e-6)
    found_kind, found = formula_of(pairs)
    assert found_kind == kind
    assert found == pytest.approx(theta, rel=1e-5)


# Utilities and parameters.


def test_without_a_utility_one_falls_around_the_deadline() -> None:
    late, early = job("a", 1, deadline_s=100.0, weight=3.0), job("b", 1)
    assert utility_of(late.spec) == Sigmoid(height=3.0, steepness_per_s=0.1, middle_s=100.0)
    assert utility_of(early.spec) is None


@given(st.floats(0, 1e6), st.floats(0, 10), st.floats(0, 1e6))
def test_many_utilities_at_once(completion_s: float, steepness: float, middle_s: float) -> None:
    curve = Sigmoid(height=7.0, steepness_per_s=steepness, middle_s=middle_s)
    found = _utilities(curve, np.array([completion_s, inf]))
    assert found.tolist() == pytest.approx([curve.at_s(completion_s), 0.0], abs=1e-12)


@pytest.mark.parametrize(
    "wrong", [{"pairing": "no"}, {"admission": "no"}, {"epsilon": 0.0}, {"n_tries": 0}, {"scale": -1.0}, {"subset_size": -1}]
)  # fmt: skip
def test_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=next(iter(wrong))):
        Smd(**wrong)


def test_refuses_a_gap_below_zero() -> None:
    with pytest.raises(InvalidSpec, match="gap_limit"):
        SmdExact(gap_limit=-0.1)
