"""Promises cost work; counted in function calls, which a busy machine does not change."""

import sys
from types import FrameType
from typing import Any

from tests.policies.tight_deadlines import tight_jobs
from tests.sim.pieces import nodes

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.estimators.speed.tabulated import Tabulated
from punctual.papers.elasticflow.elasticflow import Elasticflow
from punctual.policies.promises_first import PromisesFirst
from punctual.sim.simulation import Simulation

#: The calls of one decision of so many are counted.
EACH = 20


class Counted:
    """A policy, and how many calls some of its decisions make."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._n_decisions, self._n_calls = policy, 0, 0
        self.at = 0.0

    @property
    def n_calls(self) -> int:
        """Calls of all decisions, about."""
        return self._n_calls * EACH

    def allocate(self, snapshot: Snapshot) -> Plan:
        self.at = snapshot.at
        self._n_decisions += 1
        if self._n_decisions % EACH:
            return self._policy.allocate(snapshot)

        def count(frame: FrameType, event: str, argument: Any) -> None:
            self._n_calls += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            return self._policy.allocate(snapshot)
        finally:
            sys.setprofile(before)


def calls_of(policy: Policy) -> int:
    """Calls that its decisions make while the first half of 500 jobs come that ask for three times what there is."""
    counted, jobs = Counted(policy), tight_jobs(0, 500, n_gpus=64)
    simulation = Simulation(jobs, nodes(8, 8), counted, models={"tabulated": Tabulated()})
    simulation.run(until=lambda: counted.at >= jobs[250].submitted_at)
    return counted.n_calls


def test_promises_first_makes_at_most_four_times_the_calls_of_the_next_policy_that_promises() -> None:
    assert calls_of(PromisesFirst()) <= 4 * calls_of(Elasticflow())
