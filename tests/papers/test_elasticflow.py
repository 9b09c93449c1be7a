"""`elasticflow`: shares, promises, spare devices and places, in small pictures."""

from dataclasses import replace
from typing import Any

import pytest
from tests.policies.pictures import (
    GPU,
    Table,
    codes,
    counts,
    decide,
    fraction,
    held,
    job,
    picture,
    reason,
)

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.papers.elasticflow.elasticflow import Elasticflow

POWERS = (1, 2, 4, 8)
#: Two are hardly faster than one.
FLAT = Table(((1, 1.0), (2, 1.2), (4, 1.3)))


def elastic(name: str, *, steps: float = 100.0, n: tuple[int, ...] = POWERS, **more: Any) -> JobView:
    return job(name, n, steps=steps, preemptible=True, **more)


def decided(jobs: list[JobView], nodes: dict[str, Any], *, carry: object = None, **parameters: Any) -> Plan:
    return decide(Elasticflow(**parameters), jobs, nodes, carry=carry)


def admitted(*names: str) -> dict[str, object]:
    return {"shares": {name: {"kind": "", "steps": []} for name in names}}


def test_a_job_that_no_node_can_hold_keeps_nobody_waiting() -> None:
    jobs = [fraction("huge", 6.0, floor=6.0), fraction("small", 1.0, at=1.0)]
    plan = decided(jobs, {"a": Resources(4.0), "b": Resources(4.0)})
    assert codes(plan) == {"huge": "never-fits", "small": "starts"}


# Promises.


def test_a_deadline_that_can_be_met_is_promised() -> None:
    plan = decided([elastic("a", deadline_s=30.0)], {"n": 8})
    assert not plan.declines
    assert plan.carry == {"hardware": [8, 0.0, 0, 1], "shares": {"a": {"kind": "", "steps": [[0.0, 4.0]]}}}


def test_a_job_that_cannot_be_on_time_alone_is_declined() -> None:
    plan = decided([elastic("a", deadline_s=12.0)], {"n": 8})
    found = plan.declines[next(iter(plan.declines))]
    assert found.code == "too-soon"
    assert found.text == "declined: with 8 workers it takes 12 s, its deadline is in 12 s"
    assert found.facts == {"until_s": 12.0, "alone_s": 12.5, "n_promised": 0.0}
    assert not plan.grants


def test_the_second_of_two_that_exclude_each_other_is_declined() -> None:
    first, second = elastic("a", deadline_s=20.0), elastic("b", deadline_s=16.0, at=1.0)
    plan = decided([second, first], {"n": 8})
    assert counts(plan, [first, second]) == {"a": 8}
    assert {name: found.code for name, found in plan.declines.items()} == {"b": "no-room"}


def test_what_was_promised_is_kept_against_what_comes() -> None:
    waiting, new = elastic("a", deadline_s=20.0, at=1.0), elastic("b", deadline_s=16.0)
    assert [*decided([waiting, new], {"n": 8}).declines] == ["a"]
    assert [*decided([waiting, new], {"n": 8}, carry=admitted("a")).declines] == ["b"]


def test_a_job_that_has_run_is_promised() -> None:
    paused = replace(elastic("a", deadline_s=5.0), started_at=1.0)
    assert not decided([paused], {"n": 8}).declines


def test_without_admission_nobody_is_declined() -> None:
    jobs = [elastic("a", deadline_s=12.0), elastic("b", deadline_s=16.0)]
    plan = decided(jobs, {"n": 8}, admission=False)
    assert not plan.declines
    assert counts(plan, jobs) == {"a": 8}
    assert "cannot be met any more" in reason(plan, "a").text


def test_margin() -> None:
    assert decided([elastic("a", deadline_s=12.9)], {"n": 8}).declines
    assert not decided([elastic("a", deadline_s=12.9)], {"n": 8}, margin_s=0.2).declines
    assert not decided([elastic("a", deadline_s=12.9)], {"n": 8}, carry=admitted("a")).declines


def test_a_start_up_is_counted() -> None:
    assert decided([elastic("a", deadline_s=15.0, startup_s=30.0)], {"n": 8}).declines
    assert not decided([elastic("a", deadline_s=15.0, startup_s=5.0)], {"n": 8}).declines


def test_what_is_not_known_is_not_declined() -> None:
    jobs = [job("a", POWERS, deadline_s=5.0, preemptible=True), elastic("b", deadline_s=60.0)]
    plan = decided(jobs, {"n": 8})
    assert not plan.declines
    assert set(counts(plan, jobs)) == {"a", "b"}


# Shares.


def test_the_earlier_deadline_takes_its_share_first() -> None:
    jobs = [elastic("a", deadline_s=27.0, on={"n": 1}), elastic("b", deadline_s=26.0, at=1.0, on={"n": 1})]
    plan = decided(jobs, {"n": 8}, slot_s=0.0)
    assert counts(plan, jobs) == {"a": 4, "b": 4}
    assert "its deadline asks for 4" in reason(plan, "a").text
    assert reason(plan, "a").facts["slack_s"] == pytest.approx(2.0)


def test_a_job_with_time_makes_way_and_is_told_until_when() -> None:
    urgent = elastic("u", steps=80.0, deadline_s=11.5)
    patient = elastic("p", steps=20.0, deadline_s=100.0, on={"n": 8}, n=(8,))
    plan = decided([urgent, patient], {"n": 8})
    assert counts(plan, [urgent, patient]) == {"u": 8}
    assert reason(plan, "p").text.startswith("paused for at most 10 s")
    assert plan.ask_again_at == pytest.approx(10.0)


def test_a_job_that_should_have_ended_is_waited_for_and_not_looked_at_again_and_again() -> None:
    overdue = replace(elastic("o", deadline_s=15.0, on={"n": 8}, n=(8,)), done_steps=100.0)
    urgent = elastic("u", steps=80.0, deadline_s=20.0, at=1.0)
    plan = decided([overdue, urgent], {"n": 8})
    assert counts(plan, [overdue, urgent]) == {"o": 8}
    assert plan.ask_again_at == pytest.approx(60.0), "its end is heard"
    assert decided([overdue, urgent], {"n": 8}, slot_s=5.0).ask_again_at == pytest.approx(5.0)


def test_who_waits_is_told_what_for() -> None:
    busy = elastic("u", steps=80.0, deadline_s=11.5, on={"n": 8}, n=(8,))
    jobs = [busy, elastic("p", steps=10.0, deadline_s=600.0), elastic("e", at=1.0), elastic("f", at=2.0)]
    plan = decided(jobs, {"n": 8})
    assert codes(plan) == {"p": "promised", "e": "waits"}
    assert reason(plan, "p").text == "promised: it begins within 10 s and is on time"
    assert codes(decided(jobs, {"n": 8}, carry=plan.carry)) == {"e": "waits"}


def test_a_share_that_rises_soon_rises_at_once() -> None:
    # 1 worker for 50 s, then 2 for 50 s: both rise when the other one ends, in 30 s.
    jobs = [
        elastic("a", steps=150.0, deadline_s=91.0, on={"n": 1}),
        elastic("b", steps=30.0, deadline_s=31.0, on={"n": 1}),
    ]
    plan = decided(jobs, {"n": 2})
    assert counts(plan, jobs) == {"a": 1, "b": 1}
    assert plan.ask_again_at == pytest.approx(30.0)
    assert counts(decided(jobs, {"n": 3}), jobs) == {"a": 2, "b": 1}


def test_only_powers_of_two_that_are_faster() -> None:
    slow_at_four = Table(((1, 1.0), (2, 2.0), (4, 1.9), (8, 3.0)))
    some = [elastic("a", deadline_s=90.0, speed=slow_at_four), elastic("b", n=(3,), deadline_s=90.0)]
    assert counts(decided(some[:1], {"n": 7}), some[:1]) == {"a": 2}
    assert counts(decided(some[1:], {"n": 7}), some[1:]) == {"b": 3}


def test_a_job_that_may_not_be_paused_keeps_its_least() -> None:
    fixed = job("f", POWERS, steps=1000.0, on={"n": 8})
    urgent = elastic("u", deadline_s=26.5)
    plan = decided([fixed, urgent], {"n": 8})
    assert counts(plan, [fixed, urgent]) == {"f": 4, "u": 4}
    assert decided([fixed, elastic("u", deadline_s=14.0)], {"n": 8}).declines  # it would need all of them


def test_shares_of_the_last_plan_are_kept_where_new_ones_do_not_fit() -> None:
    # Now 2 devices would do for a, but for so long that b could not have all 8 in time.
    a = elastic("a", steps=120.0, deadline_s=100.0, on={"m": 4})
    b = elastic("b", steps=700.0, deadline_s=110.0, at=1.0, on={"n": 4})
    promised = {"a": [[0.0, 4.0]], "b": [[0.0, 4.0], [30.0, 8.0]]}
    carry = {"shares": {name: {"kind": "", "steps": steps} for name, steps in promised.items()}}
    plan = decided([a, b], {"m": 4, "n": 4}, carry=carry)
    assert counts(plan, [a, b]) == {"a": 4, "b": 4}
    assert plan.ask_again_at == pytest.approx(30.0)
    assert isinstance(plan.carry, dict)
    assert plan.carry["shares"]["b"]["steps"] == [[0.0, 4.0], [30.0, 8.0]]
    # A new one gets what they leave, here from the end of b on.
    assert decided([a, b, elastic("c", steps=10.0, deadline_s=80.0)], {"m": 4, "n": 4}, carry=carry).declines
    assert not decided([a, b, elastic("c", steps=10.0, deadline_s=120.0)], {"m": 4, "n": 4}, carry=carry).declines
    fresh = decided([a, b], {"m": 4, "n": 4})
    assert isinstance(fresh.carry, dict)
    assert fresh.carry["shares"]["a"]["steps"] == [[0.0, 2.0]]


# What is spare.


def test_spare_devices_save_time_or_as_programmed_do_not() -> None:
    jobs = [elastic("flat", speed=FLAT, on={"n": 1}, n=(1, 2, 4)), elastic("linear", on={"n": 1}, at=1.0)]
    assert counts(decided(jobs, {"n": 4}), jobs) == {"flat": 2, "linear": 2}
    assert counts(decided(jobs, {"n": 3}), jobs) == {"flat": 1, "linear": 2}
    assert counts(decided(jobs, {"n": 3}, spare_to="costly"), jobs) == {"flat": 2, "linear": 1}


def test_jobs_without_a_deadline_take_what_is_left() -> None:
    best_effort, urgent = elastic("e", on={"n": 8}), elastic("u", deadline_s=14.0)
    plan = decided([best_effort, urgent], {"n": 8})
    assert counts(plan, [best_effort, urgent]) == {"u": 8}
    assert reason(plan, "e").text == "paused: deadlines of other jobs need what it had"


def test_who_holds_nothing_comes_before_who_grows() -> None:
    jobs = [elastic("a", on={"n": 1}), elastic("b", at=1.0), elastic("c", at=2.0)]
    assert counts(decided(jobs, {"n": 3}), jobs) == {"a": 1, "b": 1, "c": 1}


def test_jobs_without_workers_get_what_they_demand() -> None:
    jobs = [fraction("a", 1.5, ceiling=2.0)]
    assert codes(decided(jobs, {"n": GPU * 0 + replace(GPU, cores=4.0, gpus=0)})) == {"a": "starts"}


# Places.


def test_small_jobs_move_together_for_a_large_one() -> None:
    jobs = [
        elastic("a", steps=9e3, n=(1,), on={"m": 1}), elastic("b", steps=9e3, n=(1,), on={"n": 1}, at=1.0),
        elastic("c", n=(4,), deadline_s=30.0),
    ]  # fmt: skip
    plan = decided(jobs, {"m": 4, "n": 4})
    assert held(plan, jobs) == {"a": {"n": 1}, "b": {"n": 1}, "c": {"m": 4}}
    assert reason(plan, "a").text == "moved: 'c' gets a place in one piece"


def test_a_job_that_shrinks_is_not_moved_besides() -> None:
    # It would wait for room on n before it gives up room on m, for which others may wait. So the others move.
    jobs = [
        elastic("a", steps=9e3, n=(1, 2), on={"m": 2}, at=3.0), elastic("b", steps=9e3, n=(1,), on={"n": 1}, at=1.0),
        elastic("c", steps=9e3, n=(2,), on={"n": 2}, at=2.0), elastic("d", n=(4,), deadline_s=30.0),
    ]  # fmt: skip
    plan = decided(jobs, {"m": 4, "n": 4})
    assert held(plan, jobs) == {"a": {"m": 1}, "b": {"m": 1}, "c": {"m": 2}, "d": {"n": 4}}
    assert codes(plan)["a"] == "shrinks"


def test_of_several_kinds_the_fastest_on_which_it_is_on_time() -> None:
    known = Table(((1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0)))
    nodes = {"m": (GPU * 4, "A"), "n": (GPU * 8, "B")}
    jobs = [elastic("a", deadline_s=14.0, speed=known)]
    assert held(decided(jobs, nodes), jobs) == {"a": {"n": 8}}


@pytest.mark.parametrize("parameters", [{"spare_to": "all"}, {"slot_s": -1.0}, {"margin_s": float("nan")}])
def test_parameters_are_checked(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="policy 'elasticflow'"):
        Elasticflow(**parameters)


def test_the_picture_may_hold_jobs_that_end() -> None:
    ending = replace(elastic("a", on={"n": 4}), status="stopping")
    assert not Elasticflow().allocate(picture([ending], {"n": 8})).grants
