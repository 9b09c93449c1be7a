"""Who runs the policy."""

from typing import Protocol

from punctual.core.cluster import Snapshot
from punctual.core.events import PlanProposed
from punctual.core.plan import Plan
from punctual.core.protocols import Policy, Sink


class Planner(Protocol):
    """Has a plan made of a snapshot and sends it, or the failure, to `sink` as `PlanProposed`."""

    def request(self, snapshot: Snapshot, sink: Sink) -> None: ...


class InlinePlanner:
    """Runs the policy at once, in the loop's thread.

    Right for policies that take microseconds. One that solves an optimisation problem would hold up every job's tick
    and belongs in a worker process with a time limit, which comes with the cluster policies.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        plan, cause = self._allocate(snapshot)
        sink(PlanProposed(at=snapshot.at, plan=plan, revision=snapshot.revision, cause=cause))

    def _allocate(self, snapshot: Snapshot) -> tuple[Plan | None, str]:
        try:
            return self._policy.allocate(snapshot), ""
        except Exception as error:  # noqa: BLE001 -- a policy is a plug-in: its failure is an event like any other
            return None, f"{type(error).__name__}: {error}"
