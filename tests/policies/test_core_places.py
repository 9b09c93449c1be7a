"""Where jobs on shares of cores find a place under our own policy, beside jobs with promises and with one of their own."""

from dataclasses import replace

import pytest
from tests.policies.pictures import after, cores, decide, fraction, job, reason
from tests.policies.test_core_sharing import SURE, TWO, background, promised, steered, warned

from punctual.core.ids import NodeId
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst


def test_a_promise_to_a_job_that_loses_its_place_holds_and_its_user_is_told_once() -> None:
    """The node has become too small for what it needs at least."""
    view = steered("job", 50.0, 100.0, floor=1.5)
    view = replace(view, granted={NodeId("a"): Resources(1.5)}, planned={NodeId("a"): Resources(1.5)})
    first = decide(SURE, [view], TWO)
    small = {"a": Resources(1.0)}
    displaced = decide(SURE, after(first, [view]), small, carry=first.carry)
    assert (promised(displaced), warned(displaced)) == ({"job"}, {"job": "promise-in-danger"})
    waiting = replace(view, granted={}, planned={}, status="queued")
    again = decide(SURE, after(displaced, [waiting]), small, carry=displaced.carry)
    assert (promised(again), warned(again)) == ({"job"}, {})


def test_what_a_job_needs_at_least_is_not_taken_from_a_promise() -> None:
    kept = replace(steered("kept", 180.0, 100.0), promised_until_at=100.0)
    late = fraction("late", 2.0, floor=1.0, ceiling=2.0)
    plan = decide(SURE, [kept, late], TWO)
    assert promised(plan) == {"kept"}
    assert not plan.warnings
    assert "late" not in cores(plan)
    assert reason(plan, "late").text.startswith("waits: with the 1 core that it needs at least")
    assert set(decide(SURE, [kept, late], {"a": Resources(2.0), "b": Resources(2.0)}).grants[late.id]) == {"b"}
    assert cores(decide(SURE, [kept, fraction("small", 2.0, floor=0.15, ceiling=2.0)], TWO))["small"] > 0.1


def test_what_a_job_needs_at_least_is_not_taken_from_promised_workers() -> None:
    """They have reserved all but half a core from 50 s on."""
    carry = decide(SURE, [background("free")], TWO).carry
    assert isinstance(carry, dict)
    carry["cores"]["workers"] = {"": [[0.0, 0.0], [50.0, 1.45], [200.0, 0.0]]}
    newcomers = [fraction("large", 2.0, floor=1.0, ceiling=2.0), fraction("small", 2.0, floor=0.5, ceiling=2.0)]
    plan = decide(SURE, [background("free"), *newcomers], TWO, carry=carry)
    assert "large" not in cores(plan)
    assert cores(plan)["small"] >= 0.5


def test_jobs_that_need_little_each_take_no_more_from_a_promise_together() -> None:
    """Nine tenths of the node are promised; in the best case a tenth less would do, which is nobody's to give away."""
    kept = replace(steered("kept", 180.0, 100.0), promised_until_at=100.0, granted_core_s=1.0)
    many = [fraction(f"late-{i}", 2.0, floor=0.05, ceiling=2.0) for i in range(10)]
    plan = decide(SURE, [kept, *many], TWO)
    assert promised(plan) == {"kept"}
    assert len(plan.grants.keys() - {kept.id}) == 4
    assert cores(plan)["kept"] == pytest.approx(1.8, abs=0.06)


def test_a_promised_job_that_is_started_again_finds_its_place_before_newcomers() -> None:
    kept = replace(fraction("kept", 1.5, floor=1.5, ceiling=2.0, at=1.0, deadline_s=99.0), promised_until_at=100.0)
    plan = decide(SURE, [fraction("late", 2.0, floor=1.0, ceiling=2.0), kept], TWO, at=10.0)
    assert set(cores(plan)) == {"kept"}


def test_what_is_reserved_for_jobs_of_workers_is_not_free_because_one_that_held_it_has_ended() -> None:
    """It has to hold a second half core for the last 50 s, which another one holds now."""
    policy = PromisesFirst(risk_sigmas=0, background_frac=0, promised_frac=1.0)
    half = Resources(0.5)
    workers = job("workers", (1, 2), steps=150.0, worker=half, on={"a": 1}, deadline_s=100.0, preemptible=True)
    other = job("other", 1, steps=1e3, worker=half, on={"a": 1}, weight=1e3, preemptible=True)
    calm = decide(policy, [workers, other, background("free")], TWO)
    assert promised(calm) == {"workers"}
    wide = steered("wide", 140.0, 100.0)
    plan = decide(policy, after(calm, [workers, background("free"), wide]), TWO, carry=calm.carry)
    assert promised(plan) == {"workers"}
