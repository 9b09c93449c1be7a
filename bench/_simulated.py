"""One simulation of jobs under a policy that is watched: what came out, what was promised, how long its decisions took."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.estimators.speed.tabulated import Tabulated
from punctual.history.cluster import ClusterHistory
from punctual.sim.choice import PlugInChoice
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation


def policy_of(text: str) -> Policy:
    """Return the policy ``name`` or ``name:parameter=value``."""
    choice = PlugInChoice.model_validate(text)
    policy: Policy = registry.load("policies", choice.name)(**choice.parameters)
    return policy


class Watched:
    """A policy, with the wall and CPU seconds of each decision and the promises that it gives."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.promised: set[str] = set()
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    def allocate(self, snapshot: Snapshot) -> Plan:
        """Ask the policy."""
        begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
        plan = self._policy.allocate(snapshot)
        self.wall_s.append(time.perf_counter() - begun_s)
        self.cpu_s.append(time.process_time() - begun_cpu_s)
        self.promised.update(plan.promises or ())
        return plan


class Simulated:
    """A simulation that is over: its record, its policy, and its CPU seconds; jobs report each `report_s` seconds."""

    def __init__(
        self, policy: str, jobs: Iterable[SimJob], nodes: Sequence[Node], *, report_s: float | None = None
    ) -> None:  # fmt: skip
        self.watched, self.record = Watched(policy_of(policy)), ClusterHistory()
        begun_s = time.process_time()
        Simulation(
            list(jobs), nodes, self.watched, models={"tabulated": Tabulated()}, physics=Physics(report_s=report_s),
            listeners=(self.record.add,),
        ).run()  # fmt: skip
        self.row: dict[str, Any] = self.record.summary().row()
        self.cpu_s = time.process_time() - begun_s
