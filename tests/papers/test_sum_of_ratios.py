"""The fastest pair of workers and servers, against enumeration and against linear programmes."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.examples import examples

from punctual.core.errors import InvalidSpec
from punctual.papers.smd.sum_of_ratios import (
    PairProblem,
    _best_vertices,
    _grid,
    _lines,
    _ratios,
    approximate_pair,
    best_servers,
    fastest_pair,
    pairs,
    relaxed_pair,
)

TINY = settings(max_examples=examples(60), deadline=None)
SYNC = PairProblem.of("sync", [0.5, 0.2, 3.0, 4.0, 90.0], [1, 4, 0], [2, 1, 0], [30, 40, 9])
ASYNC = PairProblem.of("async", [2.0, 1.5, 80.0, 6.0], [1, 4, 0], [2, 1, 0], [30, 40, 9])


@st.composite
def problems(draw: st.DrawFn) -> PairProblem:
    kind: Literal["sync", "async"] = draw(st.sampled_from(["sync", "async"]))
    n_theta = 5 if kind == "sync" else 4
    numbers = st.integers(0, 50).map(lambda k: k / 4)
    return PairProblem.of(
        kind,
        draw(st.lists(numbers, min_size=n_theta, max_size=n_theta)),
        [draw(st.integers(1, 4)), draw(st.integers(0, 4))],
        [draw(st.integers(1, 4)), draw(st.integers(0, 4))],
        [draw(st.integers(0, 30)), draw(st.integers(0, 30))],
    )


def enumerated(problem: PairProblem) -> list[tuple[float, int, int]]:
    every = [(w, p) for w in range(1, 31) for p in range(1, 31) if problem.allows(w, p)]
    return [(float(problem.time(w, p)), w, p) for w, p in every]


@given(problem=problems())
@TINY
def test_the_fastest_pair_is_the_fastest_of_all(problem: PairProblem) -> None:
    choice, every = fastest_pair(problem), enumerated(problem)
    assert (choice.status == "infeasible") == (not every)
    if every:
        assert problem.allows(choice.workers, choice.servers)
        assert choice.value == pytest.approx(min(every)[0])


@given(problem=problems())
@TINY
def test_pairs_are_all_pairs(problem: PairProblem) -> None:
    workers, servers, times = pairs(problem)
    found = list(zip(workers.tolist(), servers.tolist(), strict=True))
    assert found == [(w, p) for _, w, p in enumerated(problem)]
    assert times == pytest.approx([time for time, _, _ in enumerated(problem)])


@given(problem=problems(), epsilon=st.sampled_from([0.5, 0.2]))
@TINY
def test_the_relaxed_pair_is_within_its_factor(problem: PairProblem, epsilon: float) -> None:
    relaxed, exact = relaxed_pair(problem, epsilon=epsilon), fastest_pair(problem)
    if exact.status == "infeasible":
        assert relaxed.status == "infeasible"
        return
    assert relaxed.bound <= exact.value + 1e-6
    assert relaxed.value == pytest.approx(float(problem.time(relaxed.workers, relaxed.servers)))
    w, p = np.meshgrid(np.linspace(1, 31, 121), np.linspace(1, 31, 121))
    least = problem.time(w, p)[problem.allows(w, p)].min()
    assert relaxed.value <= least * (1 + epsilon) + 1e-6


@given(problem=problems(), seed=st.integers(0, 5))
@TINY
def test_rounding_keeps_the_limits(problem: PairProblem, seed: int) -> None:
    choice = approximate_pair(problem, epsilon=0.5, seed=seed)
    if choice.status == "infeasible":
        assert not problem.allows(1, 1)
        return
    assert problem.allows(choice.workers, choice.servers)
    assert choice.bound <= fastest_pair(problem).value + 1e-6 <= choice.value + 2e-6
    assert choice == approximate_pair(problem, epsilon=0.5, seed=seed)


@pytest.mark.parametrize("problem", [SYNC, ASYNC], ids=["sync", "async"])
def test_vertices_give_what_charnes_and_cooper_give(problem: PairProblem) -> None:
    objective, others, grid = _grid(problem, 0.3)
    numerators, denominators = _ratios(problem)
    n_compared = 0
    for point in grid[:: max(1, len(grid) // 30)]:
        bounded = numerators[others] / point[:, None] - denominators[others]
        rows = np.concatenate([_lines(problem), bounded])
        # Unknowns y = x t and t = 1/denominator: a linear programme.
        found = linprog(
            numerators[objective],
            A_ub=rows,
            b_ub=np.zeros(len(rows)),
            A_eq=denominators[objective][None, :],
            b_eq=[1.0],
        )
        vertices = _best_vertices(problem, objective, others, point[None, :])
        assert (found.status == 0) == (len(vertices) == 1)
        if found.status == 0:
            x = np.append(vertices[0], 1.0)
            assert numerators[objective] @ x / (denominators[objective] @ x) == pytest.approx(found.fun, rel=1e-6)
            n_compared += 1
    assert n_compared >= 3


@pytest.mark.parametrize("problem", [SYNC, ASYNC], ids=["sync", "async"])
def test_the_closed_form_is_a_minimum(problem: PairProblem) -> None:
    numbers = np.array([1.0, 3.0, 10.0])
    ideal = best_servers(problem, numbers)
    for factor in (0.99, 1.01):
        assert (problem.time(numbers, ideal) < problem.time(numbers, factor * ideal)).all()


def test_seeds_round_differently() -> None:
    made = {(c.workers, c.servers) for c in (approximate_pair(SYNC, epsilon=0.5, seed=seed) for seed in range(20))}
    assert len(made) > 1


@pytest.mark.parametrize(
    ("theta", "per_worker", "limits"),
    [([1, 1, 1], [1], [1]), ([1, 1, 1, 1, -1], [1], [1]), ([1] * 5, [0], [1]), ([1] * 5, [1, 1], [1])],
)
def test_malformed_input_is_refused(theta: list[float], per_worker: list[float], limits: list[float]) -> None:
    with pytest.raises(InvalidSpec):
        PairProblem.of("sync", theta, per_worker, [1], limits)


def test_a_grid_needs_a_width() -> None:
    with pytest.raises(InvalidSpec):
        relaxed_pair(SYNC, epsilon=0.0)
