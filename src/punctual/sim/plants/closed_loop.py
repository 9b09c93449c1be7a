"""One simulated job under the engine, steered by the controller under test."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from punctual.core.cluster import Snapshot
from punctual.core.commands import JobCommand
from punctual.core.control import Demand, Reading
from punctual.core.events import JobSubmitted, NodeJoined, SpecChanged
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.protocols import Controller, Listener, PerfModel, Policy, Sink
from punctual.core.scheduler import Periods, Scheduler
from punctual.daemon.engine import Engine
from punctual.daemon.planner import InlinePlanner
from punctual.sim.fake_clock import FakeClock

#: Node of the simulated job.
NODE = NodeId("simulated")


class DemandPolicy:
    """Gives each job its demand, within its bounds, on the first node."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        node = snapshot.nodes[0].id
        grants = {
            view.id: {node: view.demand.at_most(view.spec.ceiling).at_least(view.spec.floor)} for view in snapshot.jobs
        }
        return Plan(revision=snapshot.revision, grants=grants)


class RecordingController:
    """A controller that keeps what another one was shown and demanded."""

    def __init__(self, controller: Controller[Any]) -> None:
        self._controller = controller
        self.ticks: list[tuple[Reading, Demand]] = []

    def init(self, spec: JobSpec) -> object:
        return self._controller.init(spec)

    def step(self, spec: JobSpec, state: object, reading: Reading) -> tuple[Demand, object]:
        demand, after = self._controller.step(spec, state, reading)
        self.ticks.append((reading, demand))
        return demand, after


class Plant(ABC):
    """A simulated process as an executor, with which the clock goes along."""

    clock: FakeClock

    @abstractmethod
    def work(self, until_at: float) -> float:
        """Go on until `until_at`, or until something happens that is posted to the clock."""

    @abstractmethod
    def has_landed(self) -> bool: ...

    @abstractmethod
    def perform(self, command: JobCommand, sink: Sink) -> None: ...

    @abstractmethod
    def observe(self, job: JobId, at: float, sink: Sink) -> None: ...


def steer(
    controller: Controller[Any],
    spec: JobSpec,
    plant: Plant,
    *,
    deadline_changes: Sequence[tuple[float, float]] = (),
    models: Mapping[str, PerfModel[Any]] | None = None,
    first_tick_s: float = 0.25,
    patience: float,
    listeners: Sequence[Listener] = (),
    policy: Policy | None = None,
) -> None:
    """Have an engine run the job of `plant` until it has landed, or for `patience` times its deadline, if it has one.

    Parameters
    ----------
    deadline_changes
        Instants, and the deadlines from then on; both in seconds since submission.
    policy
        Policy; None: the job gets its demand.
    """
    spec = replace(spec, controller="steers")
    scheduler = Scheduler(
        {"steers": controller}, models=models, strict=True, periods=Periods(first_tick_s=first_tick_s)
    )
    clock = plant.clock = FakeClock(work=plant.work)
    engine = Engine(scheduler, plant, InlinePlanner(policy or DemandPolicy()), clock, listeners=listeners)
    engine.post(NodeJoined(at=0.0, node=NODE, capacity=spec.ceiling))
    engine.post(JobSubmitted(at=0.0, spec=spec))
    for at_s, deadline_s in deadline_changes:
        change = SpecChanged(at=at_s, spec=replace(spec, deadline_s=deadline_s))
        clock.call_at(at_s, partial(engine.post, change))
    patience_s = patience * max(
        [inf if spec.deadline_s is None else spec.deadline_s, *(d for _, d in deadline_changes)]
    )
    engine.run(lambda: plant.has_landed() or clock.now() >= patience_s)
