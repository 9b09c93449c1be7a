import ast
import importlib
from math import inf
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.optim.instances import cluster

import punctual
from punctual.core.errors import InvalidSpec
from punctual.optim import mip
from punctual.optim.mip import SparseRows, exact_knapsack, exact_vector_knapsack, solve_mip

SOURCE = Path(punctual.__file__).parent


@pytest.fixture
def highspy() -> ModuleType:
    found: ModuleType = pytest.importorskip("highspy")
    return found


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InvalidSpec, match=r"punctual\[mip\]"):
        solve_mip([1.0], [[1.0]], 0, 1)


def test_only_one_file_names_it() -> None:
    def names_it(path: Path) -> bool:
        return any(
            "highspy" in ast.unparse(node)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        )

    assert [path.name for path in SOURCE.rglob("*.py") if names_it(path)] == [Path(mip.__file__).name]


def test_a_small_programme(highspy: ModuleType) -> None:
    found = solve_mip([2, 3], [[1, 2]], -inf, 4, upper=3)
    assert (found.choices.tolist(), found.value, found.status) == ([2.0, 1.0], 7.0, "optimal")
    assert found.bound == pytest.approx(7.0)


def test_variables_may_be_continuous(highspy: ModuleType) -> None:
    mixed = solve_mip([2, 3], [[1, 2]], -inf, 4, upper=3, integral=[True, False])
    assert mixed.choices == pytest.approx([3.0, 0.5])
    linear = solve_mip([2, 3], [[1, 2]], -inf, 4, upper=2.5, integral=False)
    assert (linear.value, linear.status) == (pytest.approx(7.25), "optimal")


def test_three_ways_to_give_a_matrix(highspy: ModuleType) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    rows = SparseRows(np.array([0, 2, 3]), np.array([0, 2, 1]), np.array([1.0, 2.0, 3.0]))
    answers = [
        solve_mip([1, 1, 1], each, -inf, [4.0, 7.0], upper=10).value for each in (dense, rows, sparse.csc_array(dense))
    ]
    assert answers == [6.0, 6.0, 6.0]


def test_what_cannot_be_done_is_a_status(highspy: ModuleType) -> None:
    found = solve_mip([1.0], [[1.0]], 2, 1)
    assert (found.status, found.bound) == ("infeasible", -inf)
    assert exact_knapsack([[3], [3]], [[1.0], [1.0]], 5).status == "infeasible"
    assert exact_knapsack([[0]], [[-inf]], 5).status == "infeasible"


def test_a_limit_leaves_a_valid_answer(highspy: ModuleType) -> None:
    one = cluster(60, 250, 0)
    found = exact_knapsack(one.costs, one.values, 250, gap_limit=0.05)
    exact = exact_knapsack(one.costs, one.values, 250, time_limit_s=20.0)
    assert found.status in {"feasible", "optimal"}
    assert found.gap <= 0.05
    assert found.value <= exact.value * (1 + 1e-9) <= found.bound * (1 + 1e-8)
    assert one.costs[found.choices].sum() <= 250


def test_one_resource_is_a_vector_of_one(highspy: ModuleType) -> None:
    one = cluster(30, 100, 1)
    single = exact_knapsack(one.costs, one.values, 100, time_limit_s=20.0)
    vector = exact_vector_knapsack(one.costs[:, None], one.values, [100.0], time_limit_s=20.0)
    assert single.value == pytest.approx(vector.value, rel=1e-9)


def test_a_malformed_programme_is_refused(highspy: ModuleType) -> None:
    with pytest.raises(InvalidSpec, match="one column per variable"):
        solve_mip([1.0, 2.0], [[1.0]], 0, 1)
