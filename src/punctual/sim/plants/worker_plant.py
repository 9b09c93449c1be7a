"""A simulated training by a number of workers, under the real scheduler, for closed-loop tests of controllers.

The training goes on unit by unit with its present workers. A change of their number takes a while to prepare, in
which it goes on with the old number, then stops it for a moment between two units. Everything random comes from the
seed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, NamedTuple

from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob, WarnUser
from punctual.core.control import Demand
from punctual.core.events import GrantApplied, JobStarted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.protocols import Controller, Message, PerfModel, Sink
from punctual.core.resources import Resources, total
from punctual.sim.plants.closed_loop import NODE, Plant, RecordingController, steer
from punctual.sim.plants.quota_plant import CostFactors, Landing, Noise, PlantWorld
from punctual.sim.plants.simulated_progress import SimulatedProgress

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


class _WorkUnit(NamedTuple):
    """A unit of work: steps that it takes, seconds besides, the phase it is of, and whether it counts as done."""

    steps: float
    extra_s: float
    phase: str
    counted: bool


@dataclass(slots=True)
class _ResizeUnderWay:
    """A change that was asked for: from `ready_at_s` on it is made at the end of a unit, which ends at `until_s`."""

    n_workers: int
    request: int
    ready_at_s: float
    until_s: float = inf


class _ChangeMade(NamedTuple):
    at_s: float
    request: int
    n_workers: int


class SimulatedWorkers:
    """The training; time moves only in `advance`."""

    def __init__(self, training: ElasticTraining, world: PlantWorld, seed: int, n_workers: int) -> None:
        self.at_s = 0.0
        self.n_workers = n_workers
        planned = {"evaluate": training.n_epochs * training.evaluation_units, "checkpoint": training.n_epochs}
        self.progress = SimulatedProgress(training.n_steps, planned, jitter_s=world.pacing_jitter_s, seed=seed)
        self.worker_s = 0.0
        self.numbers = [(0.0, n_workers)]
        self._training, self._world = training, world
        self._factors = CostFactors(world.noise, Random(seed))
        self._change: _ResizeUnderWay | None = None
        #: Share of the unit in flight that is left to be done.
        self._left_frac = 1.0
        self._units = self._program()
        self._begin(next(self._units))

    def change(self, n_workers: int, request: int) -> None:
        """Request another number; the latest request counts."""
        ready_s = self._training.newcomer_s if n_workers > self.n_workers else 0.0
        self._change = _ResizeUnderWay(n_workers, request, self.at_s + ready_s)

    def advance(self, until_s: float) -> _ChangeMade | None:
        """Train until `until_s`, the landing, or the end of a change, which is returned."""
        while self.at_s < until_s and self.progress.landed_s is None:
            if self._change is not None and self._change.until_s < inf:
                if self._change.until_s > until_s:
                    self._spend(until_s)
                    return None
                return self._changed(self._change)
            self._work(until_s)
        return None

    def _work(self, until_s: float) -> None:
        """Work on the unit in flight for one stretch of time."""
        speed = self._world.delivered_frac(self.at_s) / (self._unit_s() or 1.0)
        ends_s = self.at_s + self._left_frac / speed
        if self._left_frac > 0 and ends_s > until_s:
            self._left_frac -= speed * (until_s - self.at_s)
            self._spend(until_s)
            return
        self._left_frac = 0.0
        self._spend(max(ends_s, self.at_s))
        may_end_s = self.progress.may_end_s(self._unit.phase, self.at_s, counted=self._unit.counted)
        if may_end_s > until_s:
            self._spend(until_s)
        else:
            self._spend(max(self.at_s, may_end_s))
            self._complete()

    def _unit_s(self) -> float:
        """Seconds of the unit in flight with the present workers."""
        return (self._unit.steps * self._training.scaling.step_s(self.n_workers) + self._unit.extra_s) * self._factor

    def _spend(self, until_s: float) -> None:
        asked = self._change.n_workers if self._change else 0
        self.worker_s += max(self.n_workers, asked) * (until_s - self.at_s)
        self.at_s = until_s

    def _changed(self, change: _ResizeUnderWay) -> _ChangeMade:
        self._spend(change.until_s)
        self._change = None
        if change.n_workers != self.n_workers:
            self.numbers.append((self.at_s, change.n_workers))
        self.n_workers = change.n_workers
        return _ChangeMade(self.at_s, change.request, self.n_workers)

    def _program(self) -> Iterator[_WorkUnit]:
        training = self._training
        evaluation = _WorkUnit(training.evaluation_unit_steps, 0.0, "evaluate", counted=True)
        yield _WorkUnit(0.0, training.startup_s, "", counted=False)
        for _ in range(training.n_rehearsals):
            yield evaluation._replace(counted=False)
        for i_step in range(training.n_steps):
            yield _WorkUnit(1.0, 0.0, "", counted=True)
            if (i_step + 1) % training.epoch_steps == 0:
                yield from [evaluation] * training.evaluation_units
                yield _WorkUnit(0.0, training.checkpoint_s, "checkpoint", counted=True)

    def _begin(self, unit: _WorkUnit) -> None:
        self._unit = unit
        self._begun_at_s = self.at_s
        self._left_frac = 1.0
        self._factor = self._factors.draw(self.at_s)
        if self._change is not None and self.at_s >= self._change.ready_at_s:
            same = self._change.n_workers == self.n_workers
            self._change.until_s = self.at_s + (0.0 if same else self._training.stop_s)

    def _complete(self) -> None:
        wall_s = self.at_s - self._begun_at_s
        self.progress.complete(self._unit.phase, self.at_s, counted=self._unit.counted, wall_s=wall_s)
        following = next(self._units, None)
        if following is None:
            self.progress.landed_s = self.at_s
        else:
            self._begin(following)


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
    plant, recording = _WorkerPlant(training, world, seed), RecordingController(controller)
    warnings: list[str] = []

    def listen(message: Message) -> None:
        if isinstance(message, WarnUser):
            warnings.append(message.reason.code)

    steer(
        recording, spec, plant, deadline_changes=world.deadline_changes, models=models, patience=10.0,
        listeners=[listen],
    )  # fmt: skip
    assert plant.workers is not None
    return WorkerRun(
        landed_s=inf if plant.workers.progress.landed_s is None else plant.workers.progress.landed_s,
        deadline_s=world.deadline_s(plant.workers.at_s, deadline_s),
        worker_s=plant.workers.worker_s,
        numbers=tuple(plant.workers.numbers),
        demands=tuple((reading.elapsed_s, demand) for reading, demand in recording.ticks),
        warnings=tuple(warnings),
    )


class _WorkerPlant(Plant):
    """The training as an executor: a new pacing line holds at once, a new number when the training is ready for it."""

    def __init__(self, training: ElasticTraining, world: PlantWorld, seed: int) -> None:
        self._training, self._world, self._seed = training, world, seed
        self.workers: SimulatedWorkers | None = None

    def work(self, until_at: float) -> float:
        workers = self.workers
        answer = None if workers is None else workers.advance(until_at)
        if answer is None:
            return until_at
        granted = {NODE: WORKER * answer.n_workers}
        self.clock.post(GrantApplied(at=answer.at_s, job=_JOB, request=answer.request, granted=granted))
        return answer.at_s

    def has_landed(self) -> bool:
        return self.workers is not None and self.workers.progress.landed_s is not None

    def perform(self, command: JobCommand, sink: Sink) -> None:
        match command:
            case LaunchJob():
                n_workers = round(total(command.grant.values()).cores)
                self.workers = SimulatedWorkers(self._training, self._world, self._seed, n_workers)
                started = JobStarted(
                    at=command.at, job=_JOB, request=command.request, granted=command.grant,
                    can_pace=self._world.can_pace,
                )  # fmt: skip
                sink(started)
            case ResizeJob():
                self._resize(command, sink)
            case StopJob():
                raise AssertionError("nobody stops it")

    def _resize(self, command: ResizeJob, sink: Sink) -> None:
        workers = self.workers
        assert workers is not None
        workers.progress.line = command.pacing if self._world.can_pace else None
        n_workers = round(total(command.grant.values()).cores)
        if n_workers == workers.n_workers:
            sink(GrantApplied(at=command.at, job=_JOB, request=command.request, granted=command.grant))
        else:
            workers.change(n_workers, command.request)

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        assert self.workers is not None
        self.workers.progress.report(job, at, sink, used_core_s=self.workers.worker_s)
