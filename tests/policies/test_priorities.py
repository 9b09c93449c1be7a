"""The policies that pause: `shortest-remaining`, `earliest-deadline`, `least-laxity`."""

from dataclasses import replace

import pytest
from tests.policies.pictures import Table, codes, counts, decide, gpus, grant, held, job, picture, reason

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.policies.earliest_deadline import EarliestDeadline
from punctual.policies.least_laxity import LeastLaxity
from punctual.policies.shortest_remaining import ShortestRemaining


def may(name: str, n: int, steps: float | None = None, **more: object) -> JobView:
    """A job that may be paused."""
    return job(name, n, steps=steps, preemptible=True, **more)  # type: ignore[arg-type]


def test_the_shortest_first_and_smaller_ones_pass() -> None:
    jobs = [job("long", 4, steps=400.0), job("short", 4, steps=40.0, at=1.0), job("small", 1, steps=900.0, at=2.0)]
    assert counts(decide(ShortestRemaining(), jobs, {"n": 5}), jobs) == {"short": 4, "small": 1}


def test_unknown_jobs_come_after_known_ones_in_order_of_submission() -> None:
    jobs = [job("a", 2), job("b", 2, at=1.0), job("c", 2, steps=1e9, at=2.0)]
    assert counts(decide(ShortestRemaining(), jobs, {"n": 4}), jobs) == {"c": 2, "a": 2}


def test_a_longer_job_is_paused_for_a_shorter_one() -> None:
    jobs = [may("long", 8, 8000.0, on={"n": 8}), job("short", 4, steps=40.0, at=1.0)]
    plan = decide(ShortestRemaining(), jobs, {"n": 8})
    assert counts(plan, jobs) == {"short": 4}
    assert grant(plan, "long") == {}
    assert reason(plan, "long").text == "paused: 'short' comes first and needs the room"


def test_the_longest_goes_first_and_no_more_than_needed() -> None:
    jobs = [
        may("one", 2, 200.0, on={"n": 2}), may("two", 4, 1200.0, on={"n": 4}), may("three", 2, 400.0, on={"n": 2}),
        job("short", 3, steps=3.0, at=1.0),
    ]  # fmt: skip
    assert counts(decide(ShortestRemaining(), jobs, {"n": 8}), jobs) == {"one": 2, "three": 2, "short": 3}


def test_a_job_that_was_paused_for_nothing_keeps_its_place() -> None:
    # The longest, "one", is taken first and is not enough; with "eight" gone it fits again.
    jobs = [may("one", 1, 1e6, on={"n": 1}), may("eight", 8, 8e4, on={"n": 8}), job("short", 8, steps=8.0, at=1.0)]
    plan = decide(ShortestRemaining(), jobs, {"n": 9})
    assert counts(plan, jobs) == {"one": 1, "short": 8}
    assert "one" not in plan.grants


def test_a_small_job_has_room_made_behind_one_for_which_there_cannot_be_enough() -> None:
    jobs = [
        may("long", 2, 8000.0, on={"n": 2}), job("fixed", 6, on={"n": 6}), job("large", 8, steps=8.0, at=1.0),
        job("also-large", 8, steps=16.0, at=2.0), job("small", 2, steps=40.0, at=3.0),
    ]  # fmt: skip
    plan = decide(ShortestRemaining(), jobs, {"n": 8})
    assert counts(plan, jobs) == {"fixed": 6, "small": 2}


def test_nobody_is_paused_in_vain() -> None:
    jobs = [may("long", 2, 8000.0, on={"n": 2}), job("fixed", 6, on={"n": 6}), job("short", 4, steps=4.0, at=1.0)]
    assert decide(ShortestRemaining(), jobs, {"n": 8}).grants == {}


@pytest.mark.parametrize("policy", [ShortestRemaining(), EarliestDeadline(), LeastLaxity()])
def test_a_job_that_may_not_be_paused_is_not(policy: Policy) -> None:
    jobs = [job("long", 8, steps=8e6, on={"n": 8}), job("short", 8, steps=8.0, deadline_s=10.0, at=1.0)]
    assert counts(decide(policy, jobs, {"n": 8}), jobs) == {"long": 8}


def test_a_job_that_is_starting_up_is_left_alone() -> None:
    jobs = [may("long", 8, 8000.0, on={"n": 8}, status="starting"), job("short", 4, steps=40.0, at=1.0)]
    assert counts(decide(ShortestRemaining(), jobs, {"n": 8}), jobs) == {"long": 8}


def test_a_job_that_was_starting_up_is_paused_once_it_runs() -> None:
    starting, short = may("long", 8, 8000.0, on={"n": 8}, status="starting"), job("short", 4, steps=40.0, at=1.0)
    carry = decide(ShortestRemaining(), [starting, short], {"n": 8}).carry
    jobs = [replace(starting, status="running"), short]
    assert counts(decide(ShortestRemaining(), jobs, {"n": 8}, carry=carry), jobs) == {"short": 4}


def test_the_margin() -> None:
    jobs = [may("long", 8, 800.0, on={"n": 8}), job("short", 8, steps=400.0, at=1.0)]
    assert "short" in counts(decide(ShortestRemaining(margin_s=49.0), jobs, {"n": 8}), jobs)
    assert "short" not in counts(decide(ShortestRemaining(margin_s=51.0), jobs, {"n": 8}), jobs)


def test_a_running_job_is_measured_by_what_it_has_left() -> None:
    # It would take 100 s from the start; at t = 90 it has 10 s left, which is less than 20.
    running = replace(may("long", 8, 800.0, on={"n": 8}), progress_at=0.0)
    jobs = [running, job("short", 8, steps=160.0, at=90.0)]
    assert counts(decide(ShortestRemaining(), jobs, {"n": 8}, at=90.0), jobs) == {"long": 8}
    assert counts(decide(ShortestRemaining(), jobs, {"n": 8}, at=50.0), jobs) == {"short": 8}


def test_the_plan_carries_when_the_last_job_ends() -> None:
    jobs = [may("long", 8, 800.0, on={"n": 8}), job("longer", 8, steps=1600.0, at=1.0)]
    plan = decide(ShortestRemaining(), jobs, {"n": 8}, at=10.0)
    assert isinstance(plan.carry, dict)
    assert plan.carry["last"] == pytest.approx(100.0)


def test_what_is_carried_changes_nothing() -> None:
    """Round by round: with and without the carry the same jobs run."""
    waiting = [may(f"job-{i}", 1 + i % 4, steps=float(50 + 37 * i % 211) * (1 + i % 4), at=float(i)) for i in range(30)]
    running: dict[str, JobView] = {}
    carry: object = None
    for i, new in enumerate(waiting):
        jobs = [running.get(view.id, view) for view in waiting[: i + 1]]
        plan = decide(ShortestRemaining(), jobs, {"m": 4, "n": 4}, at=new.submitted_at, carry=carry)
        assert plan.grants == decide(ShortestRemaining(), jobs, {"m": 4, "n": 4}, at=new.submitted_at).grants
        running |= {view.id: after(view, plan, new.submitted_at) for view in jobs}
        carry = plan.carry


def after(view: JobView, plan: Plan, at: float) -> JobView:
    """The job when the plan is in force and was told so at once."""
    allocation = plan.grants.get(view.id, view.planned)
    n_now = sum(amount.gpus for amount in allocation.values())
    done = view.done_steps + view.rate_sps * (at - view.progress_at)
    return replace(
        view, planned=allocation, granted=allocation, done_steps=done, progress_at=at, rate_sps=float(n_now),
        status="running" if allocation else view.status,
    )  # fmt: skip


def test_a_job_that_is_being_paused_is_still_served() -> None:
    being = replace(may("being", 4, 4.0, on={"n": 4}), planned={})
    snapshot = replace(picture([], {"n": 8}), holding=(being,))
    plan = ShortestRemaining().allocate(snapshot)
    assert plan.grants == {"being": being.granted}
    assert reason(plan, "being").code == "starts"


def test_a_job_that_is_being_paused_is_measured_by_what_it_has_left() -> None:
    """Its last report says 100 steps, but it goes on until it is paused."""
    pausing = replace(may("pausing", 1, 100.0, on={"n": 1}), planned={})
    before = picture([job("other", 1, steps=50.0, at=1.0)], {"n": 1}, at=60.0)
    plan = ShortestRemaining().allocate(replace(before, holding=(pausing,)))
    assert counts(plan, [pausing]) == {"pausing": 1}
    assert "other" not in plan.grants


def test_the_earliest_deadline_first() -> None:
    jobs = [
        job("none", 4), job("late", 4, deadline_s=100.0, at=1.0), job("soon", 4, deadline_s=50.0, at=2.0),
    ]  # fmt: skip
    assert counts(decide(EarliestDeadline(), jobs, {"n": 8}), jobs) == {"soon": 4, "late": 4}


def test_deadlines_count_from_submission() -> None:
    jobs = [job("a", 4, deadline_s=10.0, at=20.0), job("b", 4, deadline_s=25.0)]
    assert counts(decide(EarliestDeadline(), jobs, {"n": 4}), jobs) == {"b": 4}


def test_a_later_deadline_is_paused() -> None:
    jobs = [may("late", 4, on={"n": 4}, deadline_s=100.0), job("soon", 4, deadline_s=50.0, at=2.0)]
    plan = decide(EarliestDeadline(), jobs, {"n": 4})
    assert counts(plan, jobs) == {"soon": 4}
    assert codes(plan)["late"] == "paused"


def test_the_one_that_can_wait_least_first() -> None:
    # Deadlines 100 and 120; 10 s and 100 s of work: laxities 90 and 20.
    jobs = [job("short", 1, steps=10.0, deadline_s=100.0), job("long", 1, steps=100.0, deadline_s=120.0, at=0.0)]
    assert counts(decide(LeastLaxity(), jobs, {"n": 1}), jobs) == {"long": 1}
    assert counts(decide(EarliestDeadline(), jobs, {"n": 1}), jobs) == {"short": 1}


def test_laxity_pauses_only_beyond_its_margin() -> None:
    running = may("runs", 1, 100.0, on={"n": 1}, deadline_s=200.0)  # 100 s to spare
    for work_s, starts in [(120.0, True), (20.0, False)]:  # 30 s to spare, 130 s to spare
        jobs = [running, job("new", 1, steps=work_s, deadline_s=150.0)]
        assert ("new" in counts(decide(LeastLaxity(), jobs, {"n": 1}), jobs)) == starts
        assert "new" not in counts(decide(LeastLaxity(margin_s=80.0), jobs, {"n": 1}), jobs)


def test_unknown_laxity_comes_last() -> None:
    jobs = [job("unknown", 1, deadline_s=1.0), job("known", 1, steps=1.0, deadline_s=1e6, at=1.0)]
    assert counts(decide(LeastLaxity(), jobs, {"n": 1}), jobs) == {"known": 1}


def test_the_faster_kind_of_device_is_taken() -> None:
    fast = Table(((2, 4.0),), device="V100")
    jobs = [job("a", 2, speed=fast)]
    plan = decide(ShortestRemaining(), jobs, {"a": gpus(2, device="K80"), "b": gpus(4, device="V100")})
    assert held(plan, jobs) == {"a": {"b": 2}}


@pytest.mark.parametrize("policy", [ShortestRemaining, LeastLaxity])
def test_refuses_a_margin_below_zero(policy: type) -> None:
    with pytest.raises(InvalidSpec, match="margin_s"):
        policy(margin_s=-1.0)
