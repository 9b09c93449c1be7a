"""What benchmarks say of costs must be what was measured."""

from typing import Any

import _reference
import pytest
from allocators import most_over_median


def test_a_cost_is_told_in_turns_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reference, "turn_s", lambda: 2e-6)
    found = _reference.in_turns(decision=0.01, start=2.0)
    assert found == pytest.approx({"decision": 5_000.0, "start": 1_000_000.0, "turn_us": 2.0})


def test_a_turn_takes_cpu_time() -> None:
    assert _reference.turn_s(1) > 0


def test_a_simulation_that_costs_much_more_than_others_of_its_policy_is_named() -> None:
    cell: dict[str, Any] = {"cpu_s": 1.0, "n_rounds": 100, "n_finished": 50}
    cells: dict[str, dict[str, dict[str, Any]]] = {
        "a": {"fifo": cell, "elasticflow": cell, "bound": {"n": 3}},
        "b": {"fifo": {**cell, "cpu_s": 2.0}, "elasticflow": {**cell, "cpu_s": 40.0, "n_rounds": 4000}},
        "c": {"fifo": cell, "elasticflow": cell, "greedy": {"failed": "no"}},
    }
    assert most_over_median(cells, "cpu_s") == ("fifo", 2.0)
    assert most_over_median(cells, "n_rounds") == ("elasticflow", 40.0)
