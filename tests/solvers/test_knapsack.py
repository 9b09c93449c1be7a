import doctest
from itertools import product
from math import inf
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.solvers.exact import exact_knapsack
from tests.solvers.instances import Counts, cluster, small

from punctual.core.errors import InvalidSpec
from punctual.solvers import _core_search, knapsack, solution, vector_knapsack
from punctual.solvers.knapsack import solve_knapsack
from punctual.solvers.solution import Solution, relative_gap

SEEDS = st.integers(0, 2**32 - 1)


def brute_force(costs: NDArray[np.int64], values: NDArray[np.float64], capacity: int) -> float:
    """The best value there is, -inf if nothing fits."""
    costs = np.broadcast_to(costs, values.shape)
    best = -inf
    for choice in product(*(range(n) for n in [values.shape[1]] * len(values))):
        columns = list(choice)
        if costs[range(len(values)), columns].sum() <= capacity:
            best = max(best, float(values[range(len(values)), columns].sum()))
    return best


def by_table(costs: NDArray[np.int64], values: NDArray[np.float64], capacity: int) -> float:
    """The best value there is, by the plain recursion over every amount of capacity."""
    costs = np.broadcast_to(costs, values.shape)
    best = np.zeros(capacity + 1)
    for cost, value in zip(costs, values, strict=True):
        after = np.full(capacity + 1, -inf)
        for c, v in zip(cost.tolist(), value.tolist(), strict=True):
            if c <= capacity:
                after[c:] = np.maximum(after[c:], best[: capacity + 1 - c] + v)
        best = after
    return float(best[-1])


def alike(seed: int, n_jobs: int, unit: int, n_kinds: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Few kinds of jobs, costs with a common divisor, values often proportional to cost: ties wherever there can be."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, (n_kinds, 5)) * rng.integers(0, 2, (n_kinds, 1)) + np.arange(5) * 2
    values = np.where(np.arange(5) == 0, 0, kinds)[rng.integers(0, n_kinds, n_jobs)].astype(float)
    costs = np.concatenate([[0], unit * np.cumsum(rng.integers(1, 4, 4))])
    return costs, values


def check(found: Solution, costs: NDArray[np.int64], values: NDArray[np.float64], capacity: int) -> None:
    """What is true of every answer that is a choice."""
    rows = np.arange(len(values))
    assert np.broadcast_to(costs, values.shape)[rows, found.choices].sum() <= capacity
    assert found.value == pytest.approx(values[rows, found.choices].sum(), rel=1e-12)
    assert found.bound >= found.value
    assert np.isfinite(found.value)


@given(SEEDS, st.integers(1, 5), st.integers(1, 4), st.integers(0, 30))
def test_exact_is_the_best_of_all_choices(seed: int, n_jobs: int, n_configurations: int, capacity: int) -> None:
    one = small(np.random.default_rng(seed), n_jobs, n_configurations, capacity)
    best = brute_force(one.costs, one.values, capacity)
    found = solve_knapsack(one.costs, one.values, capacity, gap_limit=0.0)
    if best == -inf:
        assert (found.status, found.bound, found.gap) == ("infeasible", -inf, inf)
        return
    check(found, one.costs, one.values, capacity)
    assert found.status == "optimal"
    assert found.value == pytest.approx(best, abs=1e-9)
    assert found.gap == 0


@given(SEEDS, st.integers(10, 60), st.integers(2, 8), st.integers(20, 200))
def test_exact_agrees_with_the_plain_recursion(seed: int, n_jobs: int, n_configurations: int, capacity: int) -> None:
    one = small(np.random.default_rng(seed), n_jobs, n_configurations, capacity)
    best = by_table(one.costs, one.values, capacity)
    found = solve_knapsack(one.costs, one.values, capacity, gap_limit=0.0)
    assert found.value == pytest.approx(best, abs=1e-9)
    assert found.status == ("infeasible" if best == -inf else "optimal")


@given(SEEDS, st.integers(5, 60), st.integers(1, 4), st.integers(1, 3), st.integers(20, 200))
def test_exact_is_exact_where_jobs_are_alike(seed: int, n_jobs: int, unit: int, n_kinds: int, capacity: int) -> None:
    costs, values = alike(seed, n_jobs, unit, n_kinds)
    found = solve_knapsack(costs, values, capacity, gap_limit=0.0)
    check(found, costs, values, capacity)
    assert found.value == by_table(costs, values, capacity)
    assert found.status == "optimal"


@given(SEEDS, st.integers(5, 60), st.integers(1, 4), st.integers(1, 3), st.integers(20, 200))
def test_looking_at_very_few_at_first_leads_to_the_same(
    seed: int, n_jobs: int, unit: int, n_kinds: int, capacity: int
) -> None:
    costs, values = alike(seed, n_jobs, unit, n_kinds)
    best = by_table(costs, values, capacity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knapsack, "_N_CANDIDATES", 1)
        patch.setattr(_core_search, "_N_SIFTED", 2)
        exact = solve_knapsack(costs, values, capacity, gap_limit=0.0)
        rough = solve_knapsack(costs, values, capacity, gap_limit=0.01)
    assert (exact.value, exact.status) == (best, "optimal")
    assert rough.value <= best <= rough.bound + 1e-9
    assert rough.status in {"feasible", "optimal"}


@given(SEEDS, st.integers(1, 5), st.integers(2, 4), st.integers(0, 30), st.integers(0, 40))
def test_every_bound_holds_however_little_is_searched(
    seed: int, n_jobs: int, n_configurations: int, capacity: int, n_states_max: int
) -> None:
    one = small(np.random.default_rng(seed), n_jobs, n_configurations, capacity)
    best = brute_force(one.costs, one.values, capacity)
    found = solve_knapsack(one.costs, one.values, capacity, gap_limit=0.05, n_states_max=n_states_max)
    assert (found.status == "infeasible") == (best == -inf)
    if best > -inf:
        check(found, one.costs, one.values, capacity)
        assert found.value - 1e-9 <= best <= found.bound + 1e-9
        assert (found.status == "partial") == (found.gap > 0.05)


@given(st.integers(2, 40), st.integers(0, 60))
def test_jobs_that_are_all_alike(n_jobs: int, capacity: int) -> None:
    # Everything is a tie: all jobs have the same slopes, and only sums of 3 and 8 can be used.
    costs, values = np.array([0, 3, 8]), np.tile([0.0, 3.0, 8.0], (n_jobs, 1))
    found = solve_knapsack(costs, values, capacity, gap_limit=0.0)
    reachable = {3 * a + 8 * b for a in range(n_jobs + 1) for b in range(n_jobs + 1 - a)}
    assert found.value == max(total for total in reachable if total <= capacity)
    assert found.status == "optimal"


@pytest.mark.parametrize("counts", ["all", "powers"])
@pytest.mark.parametrize(("n_jobs", "capacity"), [(50, 200), (300, 1000), (1000, 4096)])
def test_the_gap_asked_for_is_proven_on_clusters(n_jobs: int, capacity: int, counts: Counts) -> None:
    for seed in range(3):
        one = cluster(n_jobs, capacity, seed, counts=counts)
        found = solve_knapsack(one.costs, one.values, capacity, gap_limit=1e-4)
        check(found, one.costs, one.values, capacity)
        assert found.status in {"feasible", "optimal"}
        exact = solve_knapsack(one.costs, one.values, capacity, gap_limit=0.0)
        assert exact.status == "optimal"
        assert found.value <= exact.value * (1 + 1e-12) <= found.bound * (1 + 1e-12)


@pytest.mark.parametrize("counts", ["all", "powers"])
def test_exact_agrees_with_highs(counts: Counts) -> None:
    for seed in range(3):
        one = cluster(60, 250, seed, counts=counts)
        reference = exact_knapsack(one.costs, one.values, one.capacity, time_limit_s=20.0)
        found = solve_knapsack(one.costs, one.values, one.capacity, gap_limit=0.0)
        assert found.value == pytest.approx(reference.value, rel=1e-8)
        assert reference.status == "optimal"


def test_the_multiplier_is_the_price_of_capacity() -> None:
    one = cluster(200, 800, 3)
    found = solve_knapsack(one.costs, one.values, 800)
    more = solve_knapsack(one.costs, one.values, 840, gap_limit=0.0)
    # Concave in the capacity, up to the gap: the tangent lies above.
    assert more.value <= found.bound + 40 * found.multipliers[0]
    assert more.value > found.value


def test_enough_for_all_is_optimal_at_once() -> None:
    found = solve_knapsack([0, 1, 2], [[0, 5, 5], [0, 1, 3]], 100)
    assert (found.choices.tolist(), found.value, found.status) == ([1, 2], 8.0, "optimal")
    assert found.multipliers.tolist() == [0.0]


def test_no_jobs() -> None:
    found = solve_knapsack(np.empty((0, 3), dtype=int), np.empty((0, 3)), 4)
    assert (found.status, found.value, len(found.choices)) == ("optimal", 0.0, 0)


@pytest.mark.parametrize(
    ("costs", "values"),
    [([[3], [3]], [[1.0], [1.0]]), ([[0, 1]], [[-inf, -inf]]), ([[6, 7]], [[1.0, 9.0]])],
    ids=["together too much", "nothing allowed", "alone too much"],
)
def test_what_cannot_be_done_is_a_status(costs: list[list[int]], values: list[list[float]]) -> None:
    found = solve_knapsack(costs, values, 5)
    assert (found.status, found.bound, found.choices.size) == ("infeasible", -inf, 0)


def test_a_mask_forbids_like_minus_infinity() -> None:
    one = cluster(40, 100, 5)
    rng = np.random.default_rng(0)
    allowed = rng.random(one.values.shape) < 0.7
    allowed[:, 0] = True
    masked = solve_knapsack(one.costs, one.values, 100, allowed=allowed, gap_limit=0.0)
    infinite = solve_knapsack(one.costs, np.where(allowed, one.values, -inf), 100, gap_limit=0.0)
    assert masked.choices.tolist() == infinite.choices.tolist()
    assert allowed[np.arange(40), masked.choices].all()


def test_the_order_of_jobs_does_not_matter_to_the_value() -> None:
    one = cluster(80, 300, 9)
    order = np.random.default_rng(1).permutation(80)
    here = solve_knapsack(one.costs, one.values, 300, gap_limit=0.0)
    there = solve_knapsack(one.costs, one.values[order], 300, gap_limit=0.0)
    assert here.value == pytest.approx(there.value, rel=1e-12)


def test_input_is_left_alone_and_the_answer_repeats() -> None:
    one = cluster(100, 300, 2)
    values = one.values.copy()
    first, second = (solve_knapsack(one.costs, one.values, 300) for _ in range(2))
    assert np.array_equal(values, one.values)
    assert first.choices.tolist() == second.choices.tolist()


def test_values_of_very_different_size() -> None:
    # Slopes over twelve orders of magnitude; the large ones must not hide the small ones.
    rng = np.random.default_rng(4)
    values = np.outer(10.0 ** rng.uniform(-6, 6, 60), np.sqrt(np.arange(9)))
    found = solve_knapsack(np.arange(9), values, 200, gap_limit=0.0)
    check(found, np.arange(9), values, 200)
    assert found.status == "optimal"
    assert np.arange(9)[found.choices].sum() == 200


@pytest.mark.parametrize(
    ("arguments", "must"),
    [
        (([[0, 1]], [[0.0, np.nan]], 3), "values"),
        (([[0, 1]], [[0.0, inf]], 3), "values"),
        (([[0, 1]], [0.0, 1.0], 3), "two dimensions"),
        (([[0, -1]], [[0.0, 1.0]], 3), "negative"),
        (([[0.0, 1.5]], [[0.0, 1.0]], 3), "integers"),
        (([[0, 1, 2]], [[0.0, 1.0]], 3), "shape"),
        (([[0, 1]], [[0.0, 1.0]], -1), "capacity"),
        (([[0, 1]], [[0.0, 1.0]], 2.5), "capacity"),
    ],
)
def test_malformed_input_is_refused(arguments: tuple[list[list[int]], list[list[float]], int], must: str) -> None:
    with pytest.raises(InvalidSpec, match=must):
        solve_knapsack(*arguments)


@pytest.mark.parametrize("module", [knapsack, solution, vector_knapsack])
def test_examples_give_what_they_say(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_gaps() -> None:
    assert relative_gap(-inf, 3.0) == inf
    assert relative_gap(0.0, 1.0) == inf
    assert relative_gap(2.0, 2.0) == 0.0
    assert relative_gap(-4.0, -3.0) == 0.25


def test_costs_of_very_different_sizes_take_no_more_memory_than_the_limit_of_work() -> None:
    costs, values = [[0, 1, 10**11], [0, 3, 5], [2, 4, 10**11]], [[0.0, 2.0, 9.0], [0.0, 2.5, 3.0], [1.0, 2.0, 9.0]]
    found = solve_knapsack(costs, values, 10**11 + 3, gap_limit=0.0)
    assert found.value <= 11.0 <= found.bound
    assert found.status == "partial"
