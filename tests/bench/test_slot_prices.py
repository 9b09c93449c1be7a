"""Hulls, and what jobs pay at given prices, against linear programmes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from slots.hull import upper_hulls
from slots.prices import Market, OnTime, descend, floored
from slots.problem import SlotProblem
from tests.bench.slot_reference import instance, small_problems
from tests.examples import examples

TINY = settings(max_examples=examples(80), deadline=None)


def least_price(problem: SlotProblem, job: int, prices: np.ndarray) -> float:
    """What the job pays at least if it may mix counts: a linear programme."""
    end, m = int(problem.ends[job]), len(problem.counts)
    if problem.work[job] <= 0:
        return 0.0
    if end == 0:
        return np.inf
    cost = (prices[:end, None] * problem.counts).ravel()
    done = np.tile(problem.rates[job], end)[None, :]
    one = np.kron(np.eye(end), np.ones(m))
    found = linprog(cost, A_ub=-done, b_ub=[-problem.work[job]], A_eq=one, b_eq=np.ones(end))
    return float(found.fun) if found.status == 0 else np.inf


@given(problem=small_problems())
@TINY
def test_hulls_are_concave_and_touch_the_table_from_above(problem: SlotProblem) -> None:
    hulls = upper_hulls(problem.counts, problem.rates)
    for i in range(problem.n_jobs):
        columns = hulls.columns[i, : hulls.n_steps[i] + 1]
        slopes = hulls.densities[i, : hulls.n_steps[i]]
        assert (np.diff(slopes) < 0).all()
        assert (slopes > 0).all()
        on_hull = np.interp(problem.counts, problem.counts[columns], problem.rates[i, columns])
        assert (on_hull >= problem.rates[i] - 1e-12).all()


def test_a_thinned_hull_keeps_its_ends_and_lies_below() -> None:
    counts = np.arange(65)
    rates = counts[None, :] ** np.array([[0.5], [0.9]])
    full, thin = upper_hulls(counts, rates), upper_hulls(counts, rates, 12)
    assert full.columns.shape == (2, 65)
    assert thin.columns.shape == (2, 13)
    for columns, row in zip(thin.columns, rates, strict=True):
        assert columns[0] == 0
        assert columns[-1] == 64
        assert (np.interp(counts, counts[columns], row[columns]) <= row + 1e-12).all()
    assert (np.diff(thin.densities[0, : thin.n_steps[0]]) < 0).all()


@given(problem=small_problems(), prices=st.lists(st.floats(0.01, 3), min_size=4, max_size=4))
@TINY
def test_a_job_pays_what_the_linear_programme_pays(problem: SlotProblem, prices: list[float]) -> None:
    chosen = np.array(prices[: problem.n_slots])
    market = Market(upper_hulls(problem.counts, problem.rates), problem.work, problem.ends)
    costs = market.respond(chosen).costs
    for i, cost in enumerate(costs.tolist()):
        expected = least_price(problem, i, chosen)
        assert cost <= expected + 1e-6
        assert cost >= expected * (1 - 0.01) - 1e-6 if np.isfinite(expected) else cost == np.inf


def test_usage_is_what_the_jobs_pay_for() -> None:
    problem = instance(40, 64, 20, 1.0, seed=1)
    market = Market(upper_hulls(problem.counts, problem.rates), problem.work, problem.ends)
    prices = np.random.default_rng(2).uniform(0.5, 2.0, 20)
    response = market.respond(prices)
    assert response.usage(np.ones(40)) @ prices == pytest.approx(response.costs.sum(), rel=1e-3)
    assert response.usage(np.zeros(40)).sum() == 0


def test_the_slope_is_a_subgradient() -> None:
    problem = instance(40, 64, 20, 1.3, seed=1)
    market = Market(upper_hulls(problem.counts, problem.rates), problem.work, problem.ends)
    dual, random = OnTime(problem, market), np.random.default_rng(3)
    for _ in range(20):
        here, there = random.uniform(0.001, 0.05, (2, 20))
        value, slope, _ = dual.evaluate(here)
        assert dual.evaluate(there)[0] >= value + slope @ (there - here) - 1e-2 * abs(value)


def test_steps_make_the_bound_smaller() -> None:
    problem = instance(40, 64, 20, 2.0, seed=1)
    market = Market(upper_hulls(problem.counts, problem.rates), problem.work, problem.ends)
    dual = OnTime(problem, market)
    start = np.full(20, 0.001)
    assert dual.bound(descend(dual, start, 40, floored)) < 0.9 * dual.bound(start)
