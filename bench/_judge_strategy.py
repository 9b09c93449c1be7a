"""`least-cost` for one machine in one zone, as a strategy of the simulator that SkyNomad and Frontier-CS share.

They load this file by its path. The policy sees what they tell it tick by tick, and nothing from before the window.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _market_windows import Task, Watcher, Zone, rigid_rule
from sky_spot.strategies.strategy import Strategy
from sky_spot.utils import ClusterType

_WORDS = {ClusterType.SPOT: "spot", ClusterType.ON_DEMAND: "certain", ClusterType.NONE: ""}
_TYPES = {word: kind for kind, word in _WORDS.items()}


class Solution(Strategy):
    NAME = "punctual_least_cost"

    def solve(self, _spec_path: str) -> "Solution":
        return self

    @classmethod
    def _from_args(cls, parser: Any) -> "Solution":
        return cls(parser.parse_known_args()[0])

    def reset(self, env: Any, task: Any) -> None:
        super().reset(env, task)
        self._counts: list[int] = []
        self._watcher: Watcher | None = None

    def _step(self, _last_cluster_type: Any, has_spot: bool) -> Any:
        self._counts.append(int(has_spot))
        prices = self.env.get_price()
        zone = Zone("", self._counts, self.env.gap_seconds, prices[ClusterType.SPOT], prices[ClusterType.ON_DEMAND])
        if self._watcher is None:
            job = Task((0.0, 1.0), self.task_duration, self.deadline, self.restart_overhead)
            self._watcher = Watcher(zone, job, 0, restarts=True)
            self._rule = rigid_rule(self._watcher, 1)
        self._watcher.zone = zone
        left_s = self.task_duration - sum(self.task_done_time)
        if left_s <= 1e-3:
            return ClusterType.NONE
        held = _WORDS[self.env.cluster_type]
        start_s = self.remaining_restart_overhead if held else 0.0
        return _TYPES[self._rule(self.env.tick, held, has_spot, left_s, start_s)]
