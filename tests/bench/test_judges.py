"""The adapter of bench/judges.py: what it tells the policy, and what it answers, in a simulator made up of the same words."""

import sys
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("_market_windows")

from judges import frontier_cs, frontier_cs_section, skynomad, skynomad_section

_BENCH = Path(__file__).parents[2] / "bench"


class _ClusterType(Enum):
    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on demand"


class _Strategy:
    def __init__(self, args: Any = None) -> None:
        self.args = args

    def reset(self, env: Any, task: Any) -> None:
        self.env, self.task_duration, self.deadline, self.restart_overhead = (
            env,
            task.hours * 3600.0,
            20 * 3600.0,
            300.0,
        )
        self.task_done_time: list[float] = []
        self.remaining_restart_overhead = 0.0

    def step(self, last: _ClusterType, has_spot: bool) -> Any:
        return self._step(last, has_spot)

    def _step(self, last: _ClusterType, has_spot: bool) -> Any:
        raise NotImplementedError


@pytest.fixture
def solution(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the adapter, with a package of their name in place of theirs."""
    for name, held in (("utils", {"ClusterType": _ClusterType}), ("strategies.strategy", {"Strategy": _Strategy})):
        module = ModuleType(f"sky_spot.{name}")
        vars(module).update(held)
        monkeypatch.setitem(sys.modules, f"sky_spot.{name}", module)
    monkeypatch.setitem(sys.modules, "sky_spot", ModuleType("sky_spot"))
    monkeypatch.setitem(sys.modules, "sky_spot.strategies", ModuleType("sky_spot.strategies"))
    monkeypatch.syspath_prepend(str(_BENCH))
    monkeypatch.delitem(sys.modules, "_judge_strategy", raising=False)
    from _judge_strategy import Solution  # type: ignore[import-not-found, unused-ignore]

    return Solution().solve("")


def _played(solution: Any, counts: list[bool], hours: float) -> list[_ClusterType]:
    """Play ticks of ten minutes as their loop does; return what was had in each."""
    prices = {_ClusterType.NONE: 0.0, _ClusterType.SPOT: 1.0, _ClusterType.ON_DEMAND: 3.0}
    env = SimpleNamespace(gap_seconds=600.0, tick=0, cluster_type=_ClusterType.NONE, get_price=lambda: prices)
    solution.reset(env, SimpleNamespace(hours=hours))
    had = []
    for tick, has_spot in enumerate(counts):
        env.tick, last = tick, env.cluster_type
        if last is _ClusterType.SPOT and not has_spot:
            env.cluster_type = _ClusterType.NONE
        wanted = solution.step(last, has_spot)
        if wanted not in (env.cluster_type, _ClusterType.NONE):
            solution.remaining_restart_overhead = solution.restart_overhead
        env.cluster_type = wanted
        done_s = 0.0 if wanted is _ClusterType.NONE else 600.0 - solution.remaining_restart_overhead
        solution.remaining_restart_overhead = 0.0
        solution.task_done_time.append(done_s)
        had.append(wanted)
    return had


def test_spot_alone_where_it_stays(solution: Any) -> None:
    had = _played(solution, [True] * 120, 12)
    assert set(had) == {_ClusterType.SPOT, _ClusterType.NONE}
    assert had.count(_ClusterType.SPOT) == 73, "twelve hours and a start"


@pytest.mark.parametrize("counts", [[False] * 120, [True, False] * 60, [True] * 30 + [False] * 90])
def test_in_time_where_it_does_not(solution: Any, counts: list[bool]) -> None:
    _played(solution, counts, 12)
    assert sum(solution.task_done_time) >= 12 * 3600.0


def test_without_the_clones_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUNCTUAL_SKYNOMAD", raising=False)
    monkeypatch.delenv("PUNCTUAL_FRONTIER_CS", raising=False)
    for section in (skynomad_section(skynomad()), frontier_cs_section(frontier_cs())):
        assert not section.rows
        assert all(target.reached is not False for target in section.targets)


def test_a_late_window_is_told() -> None:
    runs = [
        {"job": "48 h", "rule": rule, "zone": "a", "start_h": 0.0, "usd": usd}
        for rule, usd in (("on demand", 9.0), ("Uniform Progress", 6.0), ("least-cost", None), ("optimum", 4.0))
    ]
    section = skynomad_section(runs)
    assert section.targets[0].got == 1
    assert "$0.00 (1 late)" in section.rows[0]
