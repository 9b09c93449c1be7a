"""One simulated job under the engine, steered by the controller under test."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from typing import Any, NamedTuple

from punctual.core.cluster import Snapshot
from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob
from punctual.core.control import Demand, PacingLine, PhaseProgress, Reading
from punctual.core.events import JobStarted, JobSubmitted, NodeJoined, PhaseReported, ProgressReported, SpecChanged
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


class _RecordingController:
    """A controller that keeps what another one was shown and demanded."""

    def __init__(self, controller: Controller[Any]) -> None:
        self.init = controller.init
        self._step = controller.step
        self.ticks: list[tuple[Reading, Demand]] = []

    def step(self, spec: JobSpec, state: object, reading: Reading) -> tuple[Demand, object]:
        demand, after = self._step(spec, state, reading)
        self.ticks.append((reading, demand))
        return demand, after


class WorkUnit(NamedTuple):
    """A unit of work: what it costs, the phase it is of (empty: start-up or a step), and whether it counts as done.

    `cost` is in CPU seconds, or in steps; `extra_s`: seconds besides.
    """

    cost: float
    phase: str = ""
    counted: bool = True
    extra_s: float = 0.0


class Plant(ABC):
    """An executor whose only job is a simulated training, which works unit by unit; the clock calls `work` as time goes on.

    Nothing is declared until the first unit, the start-up, is completed. A new pacing line holds at once.

    Parameters
    ----------
    n_steps, planned
        Steps of the whole training, and units of each phase by its name.
    units
        All units, in order.
    draw_factor
        Draws the factor on the cost of a unit that begins at an instant.
    jitter_s, seed
        Bound of the random delay of each unit that keeps to the line, and its seed.

    Attributes
    ----------
    landed_at
        Instant of the training's end; infinite: not yet.
    """

    clock: FakeClock

    def __init__(
        self, n_steps: int, planned: Mapping[str, int], units: Iterator[WorkUnit], draw_factor: Callable[[float], float], *,
        can_pace: bool, can_cap: bool = True, jitter_s: float, seed: int,
    ) -> None:  # fmt: skip
        self.at_s = self.used_core_s = self.in_flight_core_s = 0.0
        self.landed_at = inf
        self._n_steps, self._n_steps_done, self._unit_at_s = n_steps, 0, 0.0
        self._units, self._draw_factor = units, draw_factor
        self._can_pace, self._can_cap = can_pace, can_cap
        self._line: PacingLine | None = None
        self._declared = False
        self._phases = {name: PhaseProgress(name=name, units_planned=n, units_done=0) for name, n in planned.items()}
        self._reported: tuple[PhaseProgress, ...] = ()
        self._random, self._jitter_s = Random(seed), jitter_s
        self._late_s = self._random.uniform(0.0, jitter_s)
        self._begin(next(units))

    @abstractmethod
    def work(self, until_at: float) -> float:
        """Go on until `until_at`, or until something happens that is posted to the clock; return the instant."""

    @abstractmethod
    def resize(self, command: ResizeJob, sink: Sink) -> None:
        """Change what the training has, and answer."""

    def perform(self, command: JobCommand, sink: Sink) -> None:
        match command:
            case LaunchJob():
                started = JobStarted(
                    at=command.at, job=command.job, request=command.request, granted=command.grant,
                    can_pace=self._can_pace, can_cap=self._can_cap,
                )  # fmt: skip
                sink(started)
            case ResizeJob():
                self._line = command.pacing if self._can_pace else None
                self.resize(command, sink)
            case StopJob():
                raise AssertionError("nobody stops it")

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        """Report progress, and phases that have changed since the last report."""
        phases = tuple(self._phases.values()) if self._declared else ()
        if phases != self._reported:
            self._reported = phases
            sink(PhaseReported(at=at, job=job, phases=phases))
        progress = ProgressReported(
            at=at, job=job, steps_done=self._n_steps_done, steps_total=self._n_steps if self._declared else None,
            unit_at=self._unit_at_s, used_core_s=self.used_core_s, in_flight_core_s=self.in_flight_core_s,
        )  # fmt: skip
        sink(progress)

    def _begin(self, unit: WorkUnit) -> None:
        self._unit, self._begun_at_s = unit, self.at_s
        self._factor = self._draw_factor(self.at_s)

    def _spend(self, until_s: float) -> None:
        self.at_s = until_s

    def _end_unit(self, until_s: float) -> None:
        """End the unit in flight, all of whose work is done, when the pacing line allows it, and begin the next one."""
        may_end_s = self._may_end_s()
        if may_end_s > until_s:
            self._spend(until_s)
            return
        self._spend(max(self.at_s, may_end_s))
        self._count(self._unit)
        self.in_flight_core_s = 0.0
        following = next(self._units, None)
        if following is None:
            self.landed_at = self.at_s
        else:
            self._begin(following)

    def _may_end_s(self) -> float:
        """Instant before which the unit in flight is not reported."""
        line, unit = self._line, self._unit
        if line is None or not self._declared:
            return self.at_s
        costs = line.phase_cost_steps
        worth = costs.get(unit.phase, 0.0) if unit.phase else 1.0
        done = self._n_steps_done + sum(each.units_done * costs.get(each.name, 0.0) for each in self._phases.values())
        return line.allows_s(done + (worth if unit.counted else 0.0)) + self._late_s

    def _count(self, unit: WorkUnit) -> None:
        if unit.phase:
            before = self._phases[unit.phase]
            self._phases[unit.phase] = replace(
                before, units_done=before.units_done + unit.counted, units_measured=before.units_measured + 1,
                wall_s=before.wall_s + (self.at_s - self._begun_at_s), core_s=before.core_s + self.in_flight_core_s,
            )  # fmt: skip
        else:
            self._n_steps_done += unit.counted
        self._declared, self._unit_at_s = True, self.at_s
        self._late_s = self._random.uniform(0.0, self._jitter_s)


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
) -> list[tuple[Reading, Demand]]:
    """Have an engine run the job of `plant` until it has landed, or for `patience` times its deadline, if it has one.

    Return each reading, and the demand made on it.

    Parameters
    ----------
    deadline_changes
        Instants, and the deadlines from then on; both in seconds since submission.
    policy
        Policy; None: the job gets its demand.
    """
    spec, recording = replace(spec, controller="steers"), _RecordingController(controller)
    scheduler = Scheduler({"steers": recording}, models=models, strict=True, periods=Periods(first_tick_s=first_tick_s))
    clock = plant.clock = FakeClock(work=plant.work)
    engine = Engine(scheduler, plant, InlinePlanner(policy or DemandPolicy()), clock, listeners=listeners)
    engine.post(NodeJoined(at=0.0, node=NODE, capacity=spec.ceiling))
    engine.post(JobSubmitted(at=0.0, spec=spec))
    for at_s, deadline_s in deadline_changes:
        change = SpecChanged(at=at_s, spec=replace(spec, deadline_s=deadline_s))
        clock.call_at(at_s, partial(engine.post, change))
    deadline_s = inf if spec.deadline_s is None else spec.deadline_s
    patience_s = patience * max([deadline_s, *(later_s for _, later_s in deadline_changes)])
    engine.run(lambda: plant.landed_at < inf or clock.now() >= patience_s)
    return recording.ticks
