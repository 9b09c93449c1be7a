from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from tests.examples import examples
from tests.solvers.exact import exact_vector_knapsack
from tests.solvers.instances import cluster, small, vector_cluster

from punctual.core.errors import InvalidSpec
from punctual.solvers.knapsack import solve_knapsack
from punctual.solvers.solution import Solution
from punctual.solvers.vector_knapsack import solve_vector_knapsack

SEEDS = st.integers(0, 2**32 - 1)


def tiny(seed: int, n_jobs: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Three resources without structure, one of them perhaps with nothing at all."""
    rng = np.random.default_rng(seed)
    one = small(rng, n_jobs, 4, 0)
    costs = np.stack([one.costs, rng.integers(0, 5, one.costs.shape), rng.integers(0, 3, one.costs.shape)], axis=2)
    return costs.astype(float), one.values, rng.integers(0, 16, 3).astype(float)


def brute_force(costs: NDArray[np.float64], values: NDArray[np.float64], capacities: NDArray[np.float64]) -> float:
    rows, best = range(len(values)), -inf
    for choice in product(*(range(n) for n in [values.shape[1]] * len(values))):
        columns = list(choice)
        if (costs[rows, columns].sum(axis=0) <= capacities).all():
            best = max(best, float(values[rows, columns].sum()))
    return best


def check(
    found: Solution, costs: NDArray[np.float64], values: NDArray[np.float64], limits: NDArray[np.float64]
) -> None:
    rows = np.arange(len(values))
    assert (costs[rows, found.choices].sum(axis=0) <= limits * (1 + 1e-8)).all()
    assert found.value == pytest.approx(values[rows, found.choices].sum(), rel=1e-12)
    assert found.bound >= found.value > -inf


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=examples(200))
def test_value_and_bound_enclose_the_best(seed: int, n_jobs: int) -> None:
    costs, values, capacities = tiny(seed, n_jobs)
    best = brute_force(costs, values, capacities)
    found = solve_vector_knapsack(costs, values, capacities)
    assert best <= found.bound + 1e-9 * (1 + abs(found.bound) if np.isfinite(found.bound) else 0)
    if found.status == "infeasible":
        assert found.value == -inf
        assert best == -inf or found.bound > -inf
    else:
        check(found, costs, values, capacities)
        assert found.value <= best + 1e-9


@given(SEEDS, st.integers(2, 5))
@settings(max_examples=examples(200))
def test_with_nothing_as_a_choice_a_choice_is_always_found(seed: int, n_jobs: int) -> None:
    costs, values, capacities = tiny(seed, n_jobs)
    costs[:, 0], values[:, 0] = 0.0, 0.0
    found = solve_vector_knapsack(costs, values, capacities)
    check(found, costs, values, capacities)
    assert found.value >= 0


@pytest.mark.parametrize("seed", range(3))
def test_the_gap_on_clusters_is_below_a_percent(seed: int) -> None:
    one = vector_cluster(300, 1200, seed)
    found = solve_vector_knapsack(one.costs, one.values, one.capacities)
    check(found, one.costs, one.values, one.capacities)
    assert found.status in {"feasible", "optimal"}
    assert found.gap <= 1e-2


def test_the_bound_is_that_of_one_resource() -> None:
    one = cluster(200, 800, 1)
    exact = solve_knapsack(one.costs, one.values, 800)
    found = solve_vector_knapsack(one.costs[:, None], one.values, [800.0])
    assert found.bound == pytest.approx(exact.bound, rel=1e-3)
    assert found.bound >= exact.value
    assert found.value >= 0.99 * exact.value


@pytest.mark.parametrize("seed", range(2))
def test_highs_lies_between_value_and_bound(seed: int) -> None:
    one = vector_cluster(40, 120, seed, most=8)
    reference = exact_vector_knapsack(one.costs, one.values, one.capacities, gap_limit=1e-4, time_limit_s=20.0)
    found = solve_vector_knapsack(one.costs, one.values, one.capacities, gap_limit=1e-4)
    assert found.value <= reference.bound * (1 + 1e-9)
    assert found.bound >= reference.value * (1 - 1e-9)
    assert found.value >= 0.97 * reference.value


def test_jobs_that_are_all_alike() -> None:
    # One multiplier ties all 500 jobs: the fractions have to be spread over them.
    costs = np.array([[0.0, 0.0], [1.0, 4.0], [2.0, 4.0]])
    values = np.tile([0.0, 2.0, 3.0], (500, 1))
    found = solve_vector_knapsack(costs, values, [600.0, 1500.0])
    check(found, np.broadcast_to(costs, (500, 3, 2)), values, np.array([600.0, 1500.0]))
    assert found.gap <= 1e-2


def test_multipliers_are_prices_per_unit() -> None:
    one = vector_cluster(200, 800, 4)
    found = solve_vector_knapsack(one.costs, one.values, one.capacities)
    more = solve_vector_knapsack(one.costs, one.values, one.capacities * 1.02)
    assert more.value <= found.bound + found.multipliers @ one.capacities * 0.02 + 1e-9


def test_a_resource_without_capacity_forbids_what_needs_it() -> None:
    costs = [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]]
    found = solve_vector_knapsack(costs, [[0.0, 1.0, 9.0]], [4.0, 0.0])
    assert (found.choices.tolist(), found.value) == ([1], 1.0)


def test_what_cannot_be_done_is_a_status() -> None:
    found = solve_vector_knapsack([[[3.0, 1.0]], [[3.0, 1.0]]], [[1.0], [1.0]], [5.0, 9.0])
    assert (found.status, found.bound, found.gap) == ("infeasible", -inf, inf)
    assert solve_vector_knapsack([[[9.0]]], [[1.0]], [5.0]).status == "infeasible"


def test_no_jobs() -> None:
    found = solve_vector_knapsack(np.empty((0, 2, 3)), np.empty((0, 2)), [1.0, 1.0, 0.0])
    assert (found.status, found.value) == ("optimal", 0.0)


def test_equal_values_everywhere() -> None:
    found = solve_vector_knapsack([[0.0], [1.0]], np.ones((20, 2)), [5.0])
    assert (found.status, found.value) == ("optimal", 20.0)


def test_of_what_there_is_none_nothing_is_taken_in_whatever_unit_it_is_counted() -> None:
    found = solve_vector_knapsack([[[0.0, 0.0], [1.0, 1e-10]]], [[1.0, 2.0]], [5.0, 0.0])
    assert found.choices.tolist() == [0]


def test_the_answer_repeats_and_input_is_left_alone() -> None:
    one = vector_cluster(100, 300, 2)
    before = one.costs.copy(), one.values.copy()
    first, second = (solve_vector_knapsack(one.costs, one.values, one.capacities) for _ in range(2))
    assert first.choices.tolist() == second.choices.tolist()
    assert np.array_equal(before[0], one.costs)
    assert np.array_equal(before[1], one.values)


@pytest.mark.parametrize(
    ("arguments", "must"),
    [
        (([[[0.0], [-1.0]]], [[0.0, 1.0]], [3.0]), "negative"),
        (([[[0.0], [inf]]], [[0.0, 1.0]], [3.0]), "finite"),
        (([[[0.0], [1.0]]], [[0.0, np.nan]], [3.0]), "values"),
        (([[[0.0], [1.0]]], [[0.0, 1.0]], [-3.0]), "capacities"),
        (([[[0.0], [1.0]]], [[0.0, 1.0]], [[3.0]]), "dimension"),
        (([[[0.0, 0.0], [1.0, 1.0]]], [[0.0, 1.0]], [3.0, 3.0, 3.0]), "shape"),
    ],
)
def test_malformed_input_is_refused(arguments: tuple[ArrayLike, ArrayLike, ArrayLike], must: str) -> None:
    with pytest.raises(InvalidSpec, match=must):
        solve_vector_knapsack(*arguments)
