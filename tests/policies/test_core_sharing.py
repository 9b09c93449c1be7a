"""Jobs on shares of cores under our own policy: promises over time, what is left, and who never starves."""

from dataclasses import replace
from typing import Any

import pytest
from tests.policies.pictures import codes, cores, decide, fraction, job

from punctual.core.cluster import Node, Snapshot
from punctual.core.control import CoreWork
from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst

TWO = {"a": Resources(2.0)}
#: Speeds and costs are what they are said to be; nothing is kept free.
SURE = PromisesFirst(risk_sigmas=0, background_frac=0)


def steered(
    name: str, core_s: float, deadline_s: float, *, std_core_s: float = 0.0, most: float = 2.0, **more: Any
) -> JobView:
    """A running job that has told what is left of it, and demands that over the time left."""
    demand = min(most, core_s / deadline_s)
    view = fraction(name, demand, ceiling=most, on="a", held=0.01, deadline_s=deadline_s, **more)
    work = CoreWork(core_s=core_s, std_core_s=std_core_s, usable_cores=most, due_s=deadline_s)
    return replace(view, work=work, started_at=-100.0)


def background(name: str, **more: Any) -> JobView:
    return replace(fraction(name, 2.0, ceiling=2.0, on="a", held=0.01, **more), started_at=-100.0)


def carried(plan: Plan, key: str) -> object:
    assert isinstance(plan.carry, dict)
    return plan.carry["cores"][key]


def promised(plan: Plan) -> set[str]:
    names = carried(plan, "promised")
    assert isinstance(names, dict)
    return set(names)


def warned(plan: Plan) -> dict[str, str]:
    return {str(name): reason.code for name, reason in plan.warnings.items()}


def test_where_nothing_is_scarce_each_job_has_its_demand() -> None:
    jobs = [steered("near", 10.0, 10.0), steered("far", 50.0, 100.0)]
    plan = decide(SURE, jobs, TWO)
    assert cores(plan) == pytest.approx({"near": 1.0, "far": 0.5})
    assert promised(plan) == {"near", "far"}
    assert (plan.objective, plan.bound) == (2.0, 2.0)


def test_jobs_that_fit_only_one_after_the_other_are_planned_so() -> None:
    """Their constant demands, 1.98 and 0.99 cores, do not fit."""
    jobs = [steered("near", 99.0, 50.0), steered("far", 99.0, 100.0)]
    plan = decide(SURE, jobs, TWO)
    assert promised(plan) == {"near", "far"}
    assert cores(plan)["near"] == pytest.approx(1.98)
    assert codes(plan)["far"] == "planned"


def test_a_deadline_that_does_not_fit_beside_promised_ones_is_told_and_the_job_has_what_is_left() -> None:
    first = steered("first", 150.0, 100.0)
    carry = decide(SURE, [first], TWO).carry
    heavy = steered("heavy", 80.0, 90.0, weight=9.0, at=1.0)
    plan = decide(SURE, [first, heavy], TWO, carry=carry)
    assert promised(plan) == {"first"}
    assert warned(plan) == {"heavy": "not-promised"}
    assert "80 core-s in 91 s do not fit beside what is promised" in plan.warnings[heavy.id].text
    assert cores(plan)["first"] == pytest.approx(1.5)
    assert cores(plan)["heavy"] == pytest.approx(0.5)
    assert not decide(SURE, [first, heavy], TWO, carry=plan.carry).warnings, "it was told already"


def test_of_new_jobs_those_of_most_weight_are_promised() -> None:
    jobs = [steered("light", 150.0, 100.0), steered("heavy", 80.0, 90.0, weight=9.0)]
    plan = decide(SURE, jobs, TWO)
    assert promised(plan) == {"heavy"}
    assert (plan.objective, plan.bound) == (9.0, 9.0)


def test_jobs_that_exclude_each_other_are_not_promised_while_one_of_them_is_not_measured() -> None:
    unmeasured = replace(fraction("new", 2.0, ceiling=2.0, on="a", held=0.01, deadline_s=50.0), started_at=-1.0)
    jobs = [steered("light", 150.0, 100.0), steered("heavy", 80.0, 90.0), unmeasured]
    plan = decide(SURE, jobs, TWO)
    assert promised(plan) == set()
    assert not plan.warnings
    long_silent = replace(unmeasured, started_at=-11.0)
    assert promised(decide(SURE, [*jobs[:2], long_silent], TWO)) != set()


def test_a_promise_is_kept_as_long_as_it_may_be_kept_and_its_loss_is_told() -> None:
    promise = decide(SURE, [steered("job", 100.0, 100.0, most=1.02)], TWO).carry
    doubtful = steered("job", 102.5, 100.0, std_core_s=2.0, most=1.02)
    assert promised(decide(PromisesFirst(), [doubtful], TWO, carry=promise)) == {"job"}
    hopeless = steered("job", 120.0, 100.0, most=1.02)
    plan = decide(PromisesFirst(), [hopeless], TWO, carry=promise)
    assert promised(plan) == set()
    assert warned(plan) == {"job": "promise-lost"}


def test_another_deadline_needs_another_promise() -> None:
    promise = decide(SURE, [steered("job", 100.0, 100.0)], TWO).carry
    plan = decide(SURE, [steered("job", 100.0, 20.0)], TWO, carry=promise)
    assert promised(plan) == set()
    assert warned(plan) == {"job": "not-promised"}


def test_a_job_without_a_deadline_keeps_a_share_and_gets_what_is_left() -> None:
    policy = PromisesFirst(risk_sigmas=0, background_frac=0.1)
    alone = decide(policy, [background("free"), steered("dated", 50.0, 100.0)], TWO)
    assert cores(alone) == pytest.approx({"dated": 0.5, "free": 1.5})
    crowded = [background("free"), steered("b", 90.0, 100.0), steered("c", 80.0, 100.0), steered("d", 50.0, 100.0)]
    plan = decide(policy, crowded, TWO)
    assert len(promised(plan)) == 2
    assert cores(plan)["free"] >= 0.19


def test_jobs_without_a_deadline_share_by_weight() -> None:
    plan = decide(SURE, [background("light"), background("heavy", weight=3.0)], TWO)
    assert cores(plan) == pytest.approx({"light": 0.505, "heavy": 1.495})


def test_a_job_works_ahead_of_what_workers_will_take() -> None:
    """Jobs of workers have reserved all but a tenth of a core from 50 s on."""
    view = steered("job", 60.0, 100.0)
    carry = decide(SURE, [view], TWO).carry
    assert isinstance(carry, dict)
    carry["cores"]["workers"] = {"": [[0.0, 0.0], [50.0, 1.9], [200.0, 0.0]]}
    plan = decide(SURE, [view], TWO, carry=carry)
    assert cores(plan)["job"] > 1.0
    assert codes(plan)["job"] == "works-ahead"
    assert plan.ask_again_at == pytest.approx(50.0)


def test_workers_are_promised_nothing_of_what_is_planned_for_shares() -> None:
    """The share needs both cores in the second half of the time, and little now."""
    core = Resources(1.0)
    worker = job("workers", 1, steps=90.0, worker=core, deadline_s=100.0)
    free = decide(PromisesFirst(promised_frac=1.0, risk_sigmas=0), [worker], TWO)
    assert isinstance(free.carry, dict)
    assert set(free.carry["promised"]) == {"workers"}
    near, far = steered("near", 60.0, 40.0), steered("far", 110.0, 100.0)
    plan = decide(PromisesFirst(promised_frac=1.0, risk_sigmas=0), [near, far, worker], TWO)
    assert isinstance(plan.carry, dict)
    assert promised(plan) == {"near", "far"}
    assert set(plan.carry["promised"]) == set()


def test_waiting_workers_find_the_room_that_their_smallest_number_needs() -> None:
    greedy = background("free", at=-1.0)
    core = Resources(1.0)
    small, large = job("small", (1, 2), steps=50.0, worker=core), job("large", 4, steps=50.0, worker=core)
    plan = decide(SURE, [greedy, small, large], TWO)
    assert cores(plan) == pytest.approx({"free": 1.0, "small": 1.0})


def test_promises_outlive_a_change_of_the_nodes() -> None:
    view = steered("job", 50.0, 100.0)
    carry = decide(SURE, [view], TWO).carry
    newcomer = steered("newcomer", 70.0, 100.0, weight=9.0)
    assert promised(decide(SURE, [view, newcomer], {"a": Resources(1.0)}, carry=carry)) == {"job"}


def test_a_waiting_job_goes_where_demands_leave_most() -> None:
    nodes = [Node(NodeId(name), Resources(2.0)) for name in ("a", "b")]
    busy, new = steered("busy", 150.0, 100.0), fraction("new", 2.0, ceiling=2.0, deadline_s=50.0)
    plan = SURE.allocate(Snapshot.of(0.0, nodes, [busy, new]))
    assert set(plan.grants[new.id]) == {NodeId("b")}


def test_jobs_are_not_promised_anything_if_nothing_is() -> None:
    plan = decide(PromisesFirst(admission="none"), [steered("job", 50.0, 100.0)], TWO)
    assert promised(plan) == set()
    assert not plan.warnings


def test_a_share_for_the_background_is_a_share() -> None:
    with pytest.raises(InvalidSpec, match="background_frac"):
        PromisesFirst(background_frac=1.0)
