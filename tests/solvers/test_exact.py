"""The exact reference for knapsacks."""

from math import inf

import pytest
from tests.solvers.exact import exact_knapsack, exact_vector_knapsack
from tests.solvers.instances import cluster


def test_what_cannot_be_done_is_a_status() -> None:
    found = exact_knapsack([[3], [3]], [[1.0], [1.0]], 5)
    assert (found.status, found.bound) == ("infeasible", -inf)
    assert exact_knapsack([[0]], [[-inf]], 5).status == "infeasible"


def test_a_limit_leaves_a_valid_answer() -> None:
    instance = cluster(60, 250, 0)
    found = exact_knapsack(instance.costs, instance.values, 250, gap_limit=0.05)
    exact = exact_knapsack(instance.costs, instance.values, 250)
    assert found.status in {"feasible", "optimal"}
    assert found.gap <= 0.05
    assert found.value <= exact.value * (1 + 1e-9) <= found.bound * (1 + 1e-8)
    assert instance.costs[found.choices].sum() <= 250


def test_one_resource_is_a_vector_of_one() -> None:
    instance = cluster(30, 100, 1)
    single = exact_knapsack(instance.costs, instance.values, 100)
    vector = exact_vector_knapsack(instance.costs[:, None], instance.values, [100.0])
    assert single.status == vector.status == "optimal"
    assert single.value == pytest.approx(vector.value, rel=1e-9)
