"""The policy `goodput`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import ceil, inf
from random import Random
from typing import Any

import pytest
from tests.policies.pictures import Table, codes, counts, decide, gpus, held, job, reason

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobView
from punctual.core.speed import Shape
from punctual.papers.pollux.goodput import Goodput

ANY = tuple(range(1, 9))
#: Twice as fast with twice as many, and hardly faster with more.
KNEE = Table(((1, 1.0), (2, 2.0), (3, 2.1), (4, 2.2), (5, 2.3), (6, 2.4), (7, 2.5), (8, 2.6)))
EXACT = Goodput(gap_limit=1e-9)


def mean_of(
    jobs: Sequence[JobView],
    numbers: Sequence[int],
    n_devices: int,
    policy: Goodput,
    at: float,
    restarts: dict[str, int],
) -> float:
    """The objective by the formula."""
    n_fair, terms, weights = ceil(n_devices / len(jobs)), 0.0, 0.0
    for view, n in zip(jobs, numbers, strict=True):
        allowed = view.spec.worker_counts()
        fair = max((count for count in allowed if count <= n_fair), default=allowed[0])
        now = sum(amount.gpus for amount in view.planned.values())
        speedup = _rate(view, n) / _rate(view, fair)
        if n != now:
            delay_s = view.spec.resize_cost_s if now else view.spec.startup_s
            age_s = at - view.submitted_at + (0.0 if now else delay_s)
            if delay_s:
                speedup *= max(0.0, age_s - restarts.get(view.id, 0) * delay_s) / (age_s + delay_s)
        terms += view.spec.weight * (speedup + policy.idle_speedup) ** policy.power
        weights += view.spec.weight
    return float((terms / weights) ** (1 / policy.power))


def _rate(view: JobView, n: int) -> float:
    assert view.curve is not None
    return view.curve.rate_sps(Shape(n_workers=n)) if n else 0.0


def drawn(draw: Random, n_devices: int) -> list[JobView]:
    """Jobs with a concave speed or not, some of which run."""
    jobs, free = [], n_devices
    for i in range(draw.randint(1, 4)):
        numbers = sorted(draw.sample(range(1, 7), draw.randint(1, 4)))
        speed = Table(tuple((n, round(draw.uniform(0.5, 1.0) * n, 3)) for n in range(1, 7)))
        n = draw.choice([0, *(n for n in numbers if n <= free)])
        free -= n
        jobs.append(
            job(
                f"{i}", numbers, speed=speed, at=draw.uniform(0.0, 500.0), on={"n": n} if n else None,
                preemptible=draw.random() < 0.5, weight=draw.choice([1.0, 2.0]),
                resize_cost_s=draw.choice([0.0, 30.0]), startup_s=draw.choice([0.0, 60.0]),
            )
        )  # fmt: skip
    return jobs


@pytest.mark.parametrize("power", [-3.0, -1.0, 0.5, 1.0])
def test_the_objective_is_that_of_the_formula_and_no_choice_is_better(power: float) -> None:
    policy = Goodput(power=power, gap_limit=1e-9)
    for seed in range(40):
        draw = Random(seed)
        n_devices = draw.randint(6, 12)
        jobs, at = sorted(drawn(draw, n_devices), key=lambda view: view.submitted_at), draw.uniform(500.0, 900.0)
        restarts = {str(view.id): draw.randint(0, 3) for view in jobs}
        plan = decide(policy, jobs, {"n": n_devices}, at=at, carry={"restarts": restarts})
        given = counts(plan, jobs)
        choices = product(
            *(
                (*(() if view.planned and not view.spec.preemptible else (0,)), *view.spec.worker_counts())
                for view in jobs
            )
        )
        means = [
            mean_of(jobs, numbers, n_devices, policy, at, restarts) for numbers in choices if sum(numbers) <= n_devices
        ]
        assert plan.objective is not None
        assert plan.bound is not None
        found = mean_of(jobs, [given.get(view.id, 0) for view in jobs], n_devices, policy, at, restarts)
        assert plan.objective == pytest.approx(found)
        assert plan.objective == pytest.approx(max(means))
        assert plan.bound >= max(means) - 1e-9


def test_the_slowest_count_most() -> None:
    jobs = [job("knee", ANY, speed=KNEE), job("line", ANY, steps=1e4)]
    assert counts(decide(EXACT, jobs, {"n": 8}), jobs) == {"knee": 2, "line": 6}
    # A fair share is four devices: one more is 2.3 / 2.2 to one and 5 / 4 to the other.
    plan = decide(EXACT, jobs, {"n": 8})
    assert plan.objective == pytest.approx(2 / (1 / (2.0 / 2.2 + 0.004) + 1 / (6 / 4 + 0.004)))


def test_less_power_is_fairer() -> None:
    jobs = [job("slow", ANY, speed=Table(tuple((n, n**0.3) for n in ANY))), job("line", ANY, steps=1e4)]
    least = [counts(decide(Goodput(power=power), jobs, {"n": 8}), jobs)["slow"] for power in (1.0, -1.0, -8.0)]
    assert least == sorted(least)
    assert least[0] < least[-1]


def test_the_length_does_not_matter() -> None:
    jobs = [job("short", ANY, steps=10.0), job("long", ANY, steps=1e7)]
    assert counts(decide(EXACT, jobs, {"n": 8}), jobs) == {"short": 4, "long": 4}


def test_weights() -> None:
    jobs = [job("heavy", ANY, steps=1e4, weight=9.0), job("light", ANY, steps=1e4)]
    assert counts(decide(EXACT, jobs, {"n": 8}), jobs) == {"heavy": 6, "light": 2}


def test_a_new_job_starts_at_once() -> None:
    jobs = [
        job("old", ANY, steps=1e4, on={"n": 8}, preemptible=True, resize_cost_s=30.0, startup_s=30.0),
        job("new", ANY, steps=1e4, at=1000.0, resize_cost_s=30.0, startup_s=30.0),
    ]
    plan = decide(EXACT, jobs, {"n": 8}, at=1000.0)
    assert counts(plan, jobs).keys() == {"old", "new"}
    assert codes(plan) == {"old": "shrinks", "new": "starts"}


@pytest.mark.parametrize(("age_s", "restarts", "n"), [(3000.0, 0, 4), (3000.0, 80, 2), (30.0, 0, 2), (60.0, 0, 4)])
def test_a_young_job_and_one_that_was_changed_often_are_left_alone(age_s: float, restarts: int, n: int) -> None:
    # Four instead of two workers are twice as fast, so that half is enough of the factor.
    jobs = [job("a", (2, 4), steps=1e4, on={"n": 2}, resize_cost_s=30.0)]
    plan = decide(EXACT, jobs, {"n": 4}, at=age_s, carry={"restarts": {"a": restarts}})
    assert counts(plan, jobs) == {"a": n}


def test_changes_are_counted_for_as_long_as_the_job_is_there() -> None:
    running = job("a", (2, 4), steps=1e4, on={"n": 2}, resize_cost_s=30.0)
    started = [_started(running), job("b", (2, 4), steps=1e4)]
    plan = decide(EXACT, started, {"n": 8}, at=3000.0, carry={"restarts": {"a": 2, "gone": 5}})
    assert counts(plan, started) == {"a": 4, "b": 4}
    assert isinstance(plan.carry, dict)
    assert plan.carry["restarts"] == {"a": 3}


def _started(view: JobView) -> JobView:
    return replace(view, started_at=view.submitted_at)


def test_where_there_are_too_few_devices_the_oldest_go_on_and_start() -> None:
    jobs = [
        job("first", ANY, steps=1e4, on={"n": 1}, preemptible=True, startup_s=30.0),
        job("second", ANY, steps=1e4, at=10.0, startup_s=30.0),
        job("third", ANY, steps=10.0, at=20.0, startup_s=30.0),
    ]
    plan = decide(EXACT, jobs, {"n": 2}, at=30.0)
    assert counts(plan, jobs) == {"first": 1, "second": 1}
    assert codes(plan)["third"] == "waits"


def test_one_large_job_makes_way_for_several_small_ones_if_it_may() -> None:
    def pictured(*, preemptible: bool) -> list[JobView]:
        large = job("large", 4, steps=1e4, on={"n": 4}, preemptible=preemptible)
        return [large, *(job(f"{i}", 1, steps=1e4, at=1.0) for i in range(4))]

    jobs = pictured(preemptible=True)
    plan = decide(EXACT, jobs, {"n": 4}, at=2.0)
    assert counts(plan, jobs) == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert codes(plan)["large"] == "paused"
    kept = pictured(preemptible=False)
    assert counts(decide(EXACT, kept, {"n": 4}, at=2.0), kept) == {"large": 4}


def test_a_count_that_stays_keeps_its_nodes() -> None:
    jobs = [job("a", 4, steps=1e5, on={"m": 1, "n": 3}), job("b", 4, steps=1e5, on={"m": 3, "n": 1})]
    assert decide(EXACT, jobs, {"m": 4, "n": 4}).grants == {}


def test_a_fair_share_of_several_kinds_is_some_of_each() -> None:
    old, new = Table(((1, 1.0), (2, 2.0)), device="old"), Table(((1, 4.0), (2, 8.0)), device="new")
    nodes = {"m": gpus(2, device="old"), "n": gpus(2, device="new")}
    jobs = [job("a", (1, 2), speed=old), job("b", (1, 2), speed=new, at=1.0)]
    plan = decide(EXACT, jobs, nodes, at=1.0)
    assert held(plan, jobs) == {"a": {"m": 2}, "b": {"n": 2}}
    # Half of two devices each, on the only kind on which it runs.
    assert plan.objective == pytest.approx(2.004)


def test_a_job_goes_to_faster_devices_if_that_pays() -> None:
    both = Table(((1, 1.0),))

    class Faster(Table):
        def rate_sps(self, state: None, shape: Shape) -> float:
            return super().rate_sps(state, shape) * (3.0 if shape.device == "new" else 1.0)

    nodes = {"m": gpus(1, device="old"), "n": gpus(1, device="new")}
    jobs = [job("a", 1, speed=Faster(both.rates), on={"m": 1}, preemptible=True, resize_cost_s=30.0)]
    assert held(decide(EXACT, jobs, nodes, at=3000.0), jobs) == {"a": {"n": 1}}
    assert held(decide(EXACT, jobs, nodes, at=10.0), jobs) == {"a": {"m": 1}}
    fixed = [job("a", 1, speed=Faster(both.rates), on={"m": 1}, resize_cost_s=30.0)]
    assert held(decide(EXACT, fixed, nodes, at=3000.0), fixed) == {"a": {"m": 1}}


def test_an_unknown_speed_counts_as_proportional() -> None:
    jobs = [job("unknown", ANY), job("line", ANY, steps=1e4)]
    assert counts(decide(EXACT, jobs, {"n": 8}), jobs) == {"unknown": 4, "line": 4}


def test_what_a_change_is_worth_is_said() -> None:
    jobs = [job("a", (2, 4), steps=2640.0, on={"n": 2}), job("b", 4, steps=1e4, on={"n": 4})]
    said = reason(decide(EXACT, jobs, {"n": 8}), "a")
    assert said.text == "2 -> 4 workers: 1.00 times as fast as with a fair share of 4 instead of 0.50"
    assert said.facts["speedup"] == pytest.approx(1.0)
    starts = reason(decide(EXACT, [*jobs[:1], job("c", 1)], {"n": 8}), "c")
    assert starts.text.startswith("starts with 1 worker: 1.00 times as fast")


def test_it_asks_again_as_long_as_a_job_could_be_faster() -> None:
    jobs = [job("a", (2, 4), steps=1e4, on={"n": 2}, resize_cost_s=30.0)]
    assert decide(EXACT, jobs, {"n": 4}, at=10.0).ask_again_at == 310.0
    assert decide(EXACT, jobs, {"n": 4}, at=1000.0).ask_again_at is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"power": 0.0}, {"power": 2.0}, {"power": -11.0}, {"idle_speedup": 0.0}, {"idle_speedup": -1.0},
        {"interval_s": 0.0}, {"interval_s": inf}, {"gap_limit": -1e-4},
    ],
)  # fmt: skip
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as raised:
        Goodput(**wrong)
    assert next(iter(wrong)) in raised.value.must
    assert raised.value.where == "policy 'goodput'"
