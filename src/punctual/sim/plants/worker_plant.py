"""A simulated training by a number of workers, under the real scheduler, for closed-loop tests of controllers.

The training goes on unit by unit with its present workers. A change of their number takes a while to prepare, in
which it goes on with the old number, then stops it for a moment between two units. Everything random comes from the
seed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, WarnUser
from punctual.core.control import Demand
from punctual.core.events import GrantApplied, Message
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.protocols import Controller, PerfModel, Sink
from punctual.core.resources import Resources, total
from punctual.sim.plants.closed_loop import NODE, Plant, WorkUnit, steer
from punctual.sim.plants.quota_plant import CostFactors, Landing, Noise, PlantWorld

#: Amount of one worker of the simulated job.
WORKER = Resources(cores=1.0)

_JOB = JobId("simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Seconds of a step: a serial part, a divided part, and a part that grows with the workers."""

    undivided_s: float = 0.01
    divided_s: float = 0.12
    per_peer_s: float = 0.001

    def step_s(self, n_workers: int) -> float:
        return self.undivided_s + self.divided_s / n_workers + self.per_peer_s * (n_workers - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticTraining:
    """The training in the plant.

    Attributes
    ----------
    n_epochs, epoch_steps
        Steps of the whole job; after each epoch comes an evaluation and a checkpoint.
    evaluation_units, evaluation_unit_steps
        Units of an evaluation, and what one takes, in steps: it is shared among the workers.
    newcomer_s, stop_s
        Seconds of a change in which new workers are prepared, and for which training stops.
    """

    scaling: Scaling = Scaling()
    counts: tuple[int, ...] = (1, 2, 3, 4)  # Numbers of workers it can have.
    n_epochs: int = 4
    epoch_steps: int = 250
    evaluation_units: int = 8
    evaluation_unit_steps: float = 3.0
    checkpoint_s: float = 0.02  # Seconds that a checkpoint takes, whatever the number of workers.
    startup_s: float = 3.0  # Seconds before anything is declared.
    n_rehearsals: int = 2  # Units of evaluation timed before training.
    newcomer_s: float = 0.3
    stop_s: float = 0.3

    @property
    def n_steps(self) -> int:
        return self.n_epochs * self.epoch_steps

    def train_s(self, n_workers: int, noise: Noise) -> float:
        """Seconds from the first step to the landing to be expected with one number all the way."""
        steps = self.n_steps + self.n_epochs * self.evaluation_units * self.evaluation_unit_steps
        return (steps * self.scaling.step_s(n_workers) + self.n_epochs * self.checkpoint_s) * noise.mean_factor

    def before_s(self, n_workers: int, noise: Noise) -> float:
        """Seconds before the first step."""
        rehearsals = self.n_rehearsals * self.evaluation_unit_steps
        return self.startup_s + rehearsals * self.scaling.step_s(n_workers) * noise.mean_factor

    def fastest_s(self, noise: Noise) -> float:
        """The earliest landing to be expected."""
        return min(self.before_s(self.counts[-1], noise) + self.train_s(n, noise) for n in self.counts)

    def least_worker_s(self, deadline_s: float, noise: Noise) -> float:
        """Worker-seconds of the best mix of numbers that lands at `deadline_s`, changed without loss.

        The time before the first step is spent with the largest number. Infinite if nothing lands in time.
        """
        most = self.counts[-1]
        time_s = deadline_s - self.before_s(most, noise)
        before_worker_s = deadline_s * most - time_s * most
        costs = [inf]
        for fewer in self.counts:
            fewer_s = self.train_s(fewer, noise)
            if fewer_s <= time_s:
                costs.append(fewer * time_s)
                continue
            for more in self.counts:
                more_s = self.train_s(more, noise)
                if more_s < time_s:
                    at_more_s = (1.0 - time_s / fewer_s) / (1.0 / more_s - 1.0 / fewer_s)
                    costs.append(more * at_more_s + fewer * (time_s - at_more_s))
        return before_worker_s + min(costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRun(Landing):
    """Record of one run.

    Attributes
    ----------
    numbers
        Instant of every change, and the number of workers from then on; the first at launch.
    """

    worker_s: float  # Worker-seconds until the landing; new workers count from their request on.
    numbers: tuple[tuple[float, int], ...]
    demands: tuple[tuple[float, Demand], ...]  # Demands of the controller, with the instants of their ticks.
    warnings: tuple[str, ...]  # Codes of the user's warnings, in order.

    @property
    def n_resizes(self) -> int:
        return len(self.numbers) - 1


@dataclass(slots=True)
class _ResizeUnderWay:
    """A change that was asked for: from `ready_at_s` on it is made at the end of a unit, which ends at `until_s`."""

    n_workers: int
    request: int
    ready_at_s: float
    until_s: float = inf


def run_elastic(
    controller: Controller[Any],
    training: ElasticTraining | None = None,
    *,
    deadline_s: float,
    world: PlantWorld | None = None,
    seed: int = 0,
    models: Mapping[str, PerfModel[Any]] | None = None,
    margin_frac: float | None = None,
) -> WorkerRun:
    """Let `controller` steer the simulated training to its end, through the scheduler.

    Parameters
    ----------
    deadline_s
        The deadline at submission, in seconds; `world.deadline_changes` may change it. Infinite: none.
    world
        Its noise, its contention, its changes of the deadline, and whether pacing lines are obeyed.
    seed
        Seed of all randomness.
    models
        Models by name; the first learns the job's speed.
    """
    training, world = training or ElasticTraining(), world or PlantWorld(can_pace=True)
    spec = JobSpec(
        id=_JOB,
        ceiling=WORKER * training.counts[-1],
        floor=WORKER * training.counts[0],
        worker=WORKER,
        counts=training.counts,
        deadline_s=None if deadline_s == inf else deadline_s,
        model=next(iter(models), None) if models else None,
        margin_frac=margin_frac,
    )
    plant, warnings = _WorkerPlant(training, world, seed), list[str]()

    def listen(message: Message) -> None:
        if isinstance(message, WarnUser):
            warnings.append(message.reason.code)

    changes = world.deadline_changes
    ticks = steer(controller, spec, plant, deadline_changes=changes, models=models, patience=10.0, listeners=[listen])
    return WorkerRun(
        landed_s=plant.landed_at,
        deadline_s=world.deadline_s(plant.at_s, deadline_s),
        worker_s=plant.used_core_s,
        numbers=tuple(plant.numbers),
        demands=tuple((reading.elapsed_s, demand) for reading, demand in ticks),
        warnings=tuple(warnings),
    )


class _WorkerPlant(Plant):
    """The training, which gets a new number of workers when it is ready for it. A worker has a core."""

    def __init__(self, training: ElasticTraining, world: PlantWorld, seed: int) -> None:
        planned = {"evaluate": training.n_epochs * training.evaluation_units, "checkpoint": training.n_epochs}
        self._training, self._world = training, world
        self._n_workers = 0
        #: Share of the unit in flight that is left to be done.
        self._left_frac = 1.0
        self.numbers = list[tuple[float, int]]()
        self._change: _ResizeUnderWay | None = None
        draw_factor = CostFactors(world.noise, Random(seed)).draw
        super().__init__(
            training.n_steps, planned, _units(training), draw_factor, can_pace=world.can_pace,
            jitter_s=world.pacing_jitter_s, seed=seed,
        )  # fmt: skip

    def work(self, until_at: float) -> float:
        while self.at_s < until_at and self.landed_at == inf:
            change = self._change
            if change is None or change.until_s == inf:
                self._train(until_at)
            elif change.until_s > until_at:
                self._spend(until_at)
            else:
                self._spend(change.until_s)
                self._changed(change)
                return self.at_s
        return until_at

    def perform(self, command: JobCommand, sink: Sink) -> None:
        if isinstance(command, LaunchJob):
            self._n_workers = _n_workers(command)
            self.numbers.append((0.0, self._n_workers))
        super().perform(command, sink)

    def resize(self, command: ResizeJob, sink: Sink) -> None:
        n_workers = _n_workers(command)
        if n_workers == self._n_workers:
            sink(GrantApplied(at=command.at, job=_JOB, request=command.request, granted=command.grant))
        else:  # the latest request counts
            ready_s = self._training.newcomer_s if n_workers > self._n_workers else 0.0
            self._change = _ResizeUnderWay(n_workers, command.request, self.at_s + ready_s)

    def _train(self, until_s: float) -> None:
        """Work on the unit in flight for one stretch of time."""
        speed = self._world.delivered_frac(self.at_s) / (self._unit_s() or 1.0)
        ends_s = self.at_s + self._left_frac / speed
        if self._left_frac > 0 and ends_s > until_s:
            self._left_frac -= speed * (until_s - self.at_s)
            self._spend(until_s)
            return
        self._left_frac = 0.0
        self._spend(max(ends_s, self.at_s))
        self._end_unit(until_s)

    def _unit_s(self) -> float:
        """Seconds of the unit in flight with the present workers."""
        steps_s = self._unit.cost * self._training.scaling.step_s(self._n_workers)
        return (steps_s + self._unit.extra_s) * self._factor

    def _spend(self, until_s: float) -> None:
        asked = self._change.n_workers if self._change else 0
        self.used_core_s += max(self._n_workers, asked) * (until_s - self.at_s)
        super()._spend(until_s)

    def _changed(self, change: _ResizeUnderWay) -> None:
        self._change = None
        if change.n_workers != self._n_workers:
            self.numbers.append((self.at_s, change.n_workers))
        self._n_workers = change.n_workers
        granted = {NODE: WORKER * change.n_workers}
        self.clock.post(GrantApplied(at=self.at_s, job=_JOB, request=change.request, granted=granted))

    def _begin(self, unit: WorkUnit) -> None:
        super()._begin(unit)
        self._left_frac = 1.0
        if self._change is not None and self.at_s >= self._change.ready_at_s:
            same = self._change.n_workers == self._n_workers
            self._change.until_s = self.at_s + (0.0 if same else self._training.stop_s)


def _n_workers(command: LaunchJob | ResizeJob) -> int:
    return round(total(command.grant.values()).cores)


def _units(training: ElasticTraining) -> Iterator[WorkUnit]:
    """The units, with their costs in steps."""
    evaluation = WorkUnit(training.evaluation_unit_steps, "evaluate")
    yield WorkUnit(0.0, counted=False, extra_s=training.startup_s)
    yield from [evaluation._replace(counted=False)] * training.n_rehearsals
    for i_step in range(training.n_steps):
        yield WorkUnit(1.0)
        if (i_step + 1) % training.epoch_steps == 0:
            yield from [evaluation] * training.evaluation_units
            yield WorkUnit(0.0, "checkpoint", extra_s=training.checkpoint_s)
