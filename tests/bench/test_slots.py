"""Plans over slots: they are plans, their values and bounds are true, and they are close to the optimum."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slots import (
    SlotPlan,
    SlotProblem,
    cost_bound,
    least_cost,
    least_tardiness,
    minimum_share,
    most_on_time,
    on_time_bound,
    tardiness,
    tardiness_bound,
)
from tests.bench.slot_reference import (
    fewest_device_slots,
    instance,
    least_weighted_tardiness,
    most_weight,
    small_problems,
)
from tests.examples import examples

from punctual.core.errors import InvalidSpec

#: Enough for the tiny problems, and little enough for many of them.
N_PLANS = 200


def quickly(solve: Callable[..., SlotPlan]) -> Callable[[SlotProblem], SlotPlan]:
    return partial(solve, n_plans_max=N_PLANS)


SOLVERS: list[Callable[[SlotProblem], SlotPlan]] = [
    quickly(least_cost),
    quickly(least_tardiness),
    minimum_share,
    quickly(most_on_time),
]
TINY = settings(max_examples=examples(60), deadline=None)


def linear(work: list[float], deadlines: list[int], free: list[int], weights: list[float] | None = None) -> SlotProblem:
    """Jobs that are as fast as they have devices, 0 to 4."""
    rates = [[0, 1, 2, 3, 4]] * len(work)
    return SlotProblem.of(
        counts=range(5), rates=rates, work=work, deadlines=deadlines, weights=weights or [1.0] * len(work), free=free
    )


def assert_is_a_plan(problem: SlotProblem, plan: SlotPlan) -> None:
    """Allowed counts within what is free; `on_time` is true."""
    assert plan.counts.shape == (problem.n_jobs, problem.n_slots)
    assert (plan.counts.sum(axis=0) <= problem.free).all()
    for i in range(problem.n_jobs):
        done = 0.0
        for t, count in enumerate(plan.counts[i].tolist()):
            column = problem.counts.tolist().index(count)
            assert count == 0 or problem.rates[i, column] > 0
            done += problem.rates[i, column] if t < problem.ends[i] else 0.0
        assert plan.on_time[i] == (done >= problem.work[i] * (1 - 1e-9))


@given(problem=small_problems(), solver=st.sampled_from(SOLVERS))
@TINY
def test_every_answer_is_a_plan(problem: SlotProblem, solver: Callable[[SlotProblem], SlotPlan]) -> None:
    assert_is_a_plan(problem, solver(problem))


@given(problem=small_problems())
@TINY
def test_the_most_weight_lies_between_value_and_bound(problem: SlotProblem) -> None:
    plan, optimum = quickly(most_on_time)(problem), most_weight(problem)
    assert plan.value == pytest.approx(problem.weights[plan.on_time].sum())
    assert plan.value <= optimum.value + 1e-6
    assert optimum.value <= plan.bound + 1e-6
    assert plan.value >= minimum_share(problem).value
    if plan.status == "optimal":
        assert plan.value >= optimum.value - 1e-6


@given(problem=small_problems())
@TINY
def test_the_least_cost_lies_between_bound_and_value(problem: SlotProblem) -> None:
    plan, optimum = quickly(least_cost)(problem), fewest_device_slots(problem)
    if plan.status == "infeasible":
        assert not optimum.feasible
    elif np.isfinite(plan.value):
        assert plan.on_time.all()
        assert plan.value == plan.cost_device_slots
        assert plan.bound - 1e-6 <= optimum.value <= plan.value + 1e-6
    else:
        assert not plan.on_time.all()


@given(problem=small_problems())
@TINY
def test_the_least_tardiness_lies_between_bound_and_value(problem: SlotProblem) -> None:
    plan, optimum = quickly(least_tardiness)(problem), least_weighted_tardiness(problem)
    assert plan.value == pytest.approx(float(problem.weights @ tardiness(problem, plan.counts)))
    assert plan.bound - 1e-6 <= optimum.value <= plan.value + 1e-6


@given(problem=small_problems(), prices=st.lists(st.floats(0, 3), min_size=4, max_size=4))
@TINY
def test_any_prices_bound_all_objectives(problem: SlotProblem, prices: list[float]) -> None:
    chosen = np.array(prices[: problem.n_slots])
    assert on_time_bound(problem, chosen) >= most_weight(problem).value - 1e-6
    assert tardiness_bound(problem, chosen) <= least_weighted_tardiness(problem).value + 1e-6
    optimum = fewest_device_slots(problem)
    if optimum.feasible:
        assert cost_bound(problem, chosen) <= optimum.value + 1e-6


@pytest.mark.parametrize("tightness", [0.9, 1.3, 2.0])
def test_prices_of_a_plan_prove_its_bound(tightness: float) -> None:
    problem = instance(60, 128, 20, tightness, seed=3)
    plan = most_on_time(problem)
    assert plan.prices is not None
    assert plan.bound == np.floor(min(on_time_bound(problem, plan.prices), problem.weights.sum()))
    assert plan.bound < problem.weights.sum() or tightness < 1
    assert plan.gap < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_cost_and_tardiness_are_close_to_their_bounds(seed: int) -> None:
    easy = instance(60, 128, 20, 0.5, seed=seed, slack=0.4)
    cheap = least_cost(easy)
    assert cheap.on_time.all()
    assert cheap.gap < 0.05
    share = minimum_share(easy)
    assert cheap.value <= share.cost_device_slots or not share.on_time.all()
    assert least_tardiness(easy).value == 0
    tight = instance(60, 128, 20, 1.3, seed=seed)
    wide = replace(tight, free=np.concatenate([tight.free, tight.free]))
    late = least_tardiness(wide)
    assert 0 < late.bound < late.value


@pytest.mark.parametrize("seed", range(4))
def test_few_jobs_are_placed_almost_as_by_the_exact_programme(seed: int) -> None:
    problem = instance(6, 16, 6, 1.3, seed=seed, most=8)
    assert most_on_time(problem).value >= 0.9 * most_weight(problem).value


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_same_problem_has_the_same_answer_and_is_not_changed(solver: Callable[[SlotProblem], SlotPlan]) -> None:
    problem, same = instance(20, 64, 12, 1.3, seed=5), instance(20, 64, 12, 1.3, seed=5)
    first, second = solver(problem), solver(problem)
    assert (first.counts == second.counts).all()
    assert first.bound == second.bound
    assert all((getattr(problem, name) == getattr(same, name)).all() for name in ("free", "rates", "work"))


@pytest.mark.parametrize("solver", SOLVERS)
def test_nothing_to_do(solver: Callable[[SlotProblem], SlotPlan]) -> None:
    nobody = SlotProblem.of(counts=[0, 1], rates=np.zeros((0, 2)), work=[], deadlines=[], weights=[], free=[3, 3])
    assert solver(nobody).status == "optimal"
    done = linear([0.0], [0], [1])
    assert solver(done).on_time.all()
    assert solver(done).cost_device_slots == 0


def test_minimum_share_is_the_least_constant_one_filled_backwards() -> None:
    # The first job needs 2 in each of 3 slots; the second finds 2, 2, 2, 4, and 3 are enough from the deadline on.
    plan = minimum_share(linear([6, 6], [3, 4], [4, 4, 4, 4]))
    assert plan.counts.tolist() == [[2, 2, 2, 0], [0, 2, 2, 2]]
    plan = minimum_share(linear([6, 9], [3, 4], [4, 4, 4, 4]))
    assert plan.counts.tolist() == [[2, 2, 2, 0], [2, 2, 2, 3]]
    assert plan.status == "optimal"


def test_minimum_share_declines_in_the_given_order() -> None:
    problem = linear([6, 6], [2, 2], [4, 4])
    assert minimum_share(problem).on_time.tolist() == [True, False]
    assert minimum_share(problem, order=[1, 0]).on_time.tolist() == [False, True]


def test_the_heavier_job_is_kept() -> None:
    plan = most_on_time(linear([8, 4, 4], [2, 2, 2], [4, 4], [5, 3, 3]))
    assert plan.on_time.tolist() == [False, True, True]
    assert plan.status == "optimal"


def test_diminishing_returns_are_spread_over_slots() -> None:
    problem = SlotProblem.of(
        counts=[0, 1, 4], rates=[[0, 1, 2]], work=[4], deadlines=[4], weights=[1], free=[4, 4, 4, 4]
    )
    assert least_cost(problem).counts.tolist() == [[1, 1, 1, 1]]
    assert least_cost(problem).status == "optimal"


def test_an_impossible_deadline_is_a_status() -> None:
    alone = least_cost(linear([9], [2], [4, 4]))
    assert (alone.status, alone.bound) == ("infeasible", np.inf)
    together = least_cost(linear([6, 6], [2, 2], [4, 4]))
    assert together.status == "infeasible"
    assert together.on_time.sum() == 1


def test_a_job_that_never_ends_counts_as_ended_behind_the_horizon() -> None:
    plan = least_tardiness(linear([9, 2], [1, 2], [4, 4], [2, 1]))
    assert plan.value == 2 * 2
    assert plan.on_time.tolist() == [False, True]


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"free": [1, -1]}, "-1"),
        ({"work": [np.nan]}, "nan"),
        ({"work": [1, 2]}, "shape"),
        ({"counts": [1, 2]}, "[1, 2] devices"),
        ({"counts": [0, 0]}, "[0, 0] devices"),
        ({"rates": [[1, 2]]}, "1.0 work per slot"),
        ({"deadlines": [1.5]}, "1.5"),
        ({"weights": ["x"]}, "could not convert"),
    ],
)
def test_malformed_input_is_refused(change: dict[str, object], got: str) -> None:
    good: dict[str, object] = {
        "counts": [0, 1], "rates": [[0, 1]], "work": [1], "deadlines": [1], "weights": [1], "free": [1, 1],
    }  # fmt: skip
    with pytest.raises(InvalidSpec) as caught:
        SlotProblem.of(**(good | change))
    assert got in caught.value.got


@pytest.mark.parametrize("prices", [np.array([1.0]), np.array([1.0, -1.0]), np.array([1.0, np.inf])])
def test_malformed_prices_are_refused(prices: np.ndarray) -> None:
    with pytest.raises(InvalidSpec):
        on_time_bound(linear([1], [1], [1, 1]), prices)
