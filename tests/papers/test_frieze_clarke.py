"""Admission by subsets and linear programmes, and exactly, against all subsets."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult
from tests.examples import examples

from punctual.core.errors import InvalidSpec
from punctual.papers.smd.frieze_clarke import exact_packing, frieze_clarke
from punctual.solvers.solution import Solution

TINY = settings(max_examples=examples(40), deadline=None)
Problem = tuple[np.ndarray, np.ndarray, np.ndarray]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n, n_resources = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    numbers = st.integers(0, 20)
    costs = [draw(st.lists(numbers, min_size=n_resources, max_size=n_resources)) for _ in range(n)]
    profits = draw(st.lists(numbers, min_size=n, max_size=n))
    capacities = draw(st.lists(st.integers(0, 40), min_size=n_resources, max_size=n_resources))
    return np.array(profits, dtype=float), np.array(costs, dtype=float), np.array(capacities, dtype=float)


def best(problem: Problem) -> float:
    profits, costs, capacities = problem
    choices = np.array(list(product([0, 1], repeat=len(profits))))
    return float((choices @ profits)[(choices @ costs <= capacities).all(axis=1)].max())


def assert_is_a_packing(problem: Problem, packing: Solution) -> None:
    profits, costs, capacities = problem
    assert (costs[packing.choices].sum(axis=0) <= capacities + 1e-9).all()
    assert packing.value == pytest.approx(profits[packing.choices].sum())
    assert packing.value <= best(problem) + 1e-9
    assert best(problem) <= packing.bound + 1e-6
    if packing.status == "optimal":
        assert packing.value == pytest.approx(best(problem))


@given(problem=problems(), size=st.integers(0, 3))
@TINY
def test_the_scheme_keeps_its_guarantee(problem: Problem, size: int) -> None:
    packing = frieze_clarke(*problem, subset_size=size)
    assert_is_a_packing(problem, packing)
    assert packing.value >= size / (size + problem[1].shape[1]) * best(problem) - 1e-9


def test_where_a_programme_is_given_up_the_packing_fits_and_its_bound_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = OptimizeResult(x=None, fun=None)
    monkeypatch.setattr("punctual.papers.smd.frieze_clarke.linprog", lambda *_, **__: given_up)
    problem = np.array([3.0, 2.0, 2.0]), np.array([[2.0], [1.0], [1.0]]), np.array([2.0])
    packing = frieze_clarke(*problem)
    assert_is_a_packing(problem, packing)
    assert packing.value == 3.0


@given(problem=problems())
@TINY
def test_the_exact_packing_is_the_best(problem: Problem) -> None:
    packing = exact_packing(*problem)
    assert_is_a_packing(problem, packing)
    assert packing.status == "optimal"


def test_larger_subsets_are_not_worse() -> None:
    random = np.random.default_rng(1)
    problem = random.uniform(1, 10, 14), random.uniform(1, 10, (14, 2)), np.array([25.0, 25.0])
    values = [frieze_clarke(*problem, subset_size=size) for size in range(3)]
    assert values[0].n_rounds < values[1].n_rounds < values[2].n_rounds
    assert values[0].value <= values[2].value <= exact_packing(*problem).value


@pytest.mark.parametrize(
    ("profits", "costs", "capacities"),
    [([1.0], [[1.0, 2.0]], [1.0]), ([-1.0], [[1.0]], [1.0]), ([1.0], [[np.nan]], [1.0]), ([1.0], [1.0], [1.0])],
)
def test_malformed_input_is_refused(profits: list[float], costs: ArrayLike, capacities: list[float]) -> None:
    with pytest.raises(InvalidSpec):
        frieze_clarke(profits, costs, capacities)
