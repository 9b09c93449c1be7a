"""A simulated training under a CPU quota, for closed-loop tests of controllers.

The process works unit by unit: start-up, rehearsals, steps, phases. It runs as fast as its cores allow until the quota
of the present period is used up, as the kernel's bandwidth control does, and every write of the quota refills it.
Everything random comes from the seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf, sqrt
from random import Random
from typing import Any

from punctual.core.commands import ResizeJob
from punctual.core.control import Demand, Reading
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantApplied
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.protocols import Controller, Policy, Sink
from punctual.core.resources import Resources, total
from punctual.sim.plants.closed_loop import Plant, WorkUnit, steer


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLoad:
    """Extra work after each epoch: `n_units` units of `unit_core_s` CPU seconds each."""

    name: str
    n_units: int
    unit_core_s: float


EVALUATION = PhaseLoad(name="evaluate", n_units=8, unit_core_s=0.07)
CHECKPOINT = PhaseLoad(name="checkpoint", n_units=1, unit_core_s=0.006)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Variation of the cost of a unit; `STEADY` has none.

    Attributes
    ----------
    spread_frac, correlation
        Standard deviation of a first-order autoregressive factor around 1, and its correlation from unit to unit.
    neighbour_factor, neighbour_dwell_s
        Factor on the cost while a neighbour on the same physical core is busy, and the mean time in which it stays
        busy, or idle.
    """

    spread_frac: float = 0.05
    correlation: float = 0.8
    neighbour_factor: float = 1.5
    neighbour_dwell_s: float = 6.0

    @property
    def mean_factor(self) -> float:
        return (1 + self.neighbour_factor) / 2


STEADY = Noise(spread_frac=0.0, correlation=0.0, neighbour_factor=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The job in the plant.

    Attributes
    ----------
    n_epochs, epoch_steps, step_core_s
        Steps and what one costs, in CPU seconds, while the neighbour is idle.
    cost_change_at_frac, cost_change_factor
        Share of the steps from which a step costs this factor more.
    dear_every, dear_core_s, n_dear_max
        Each so many steps one costs so many CPU seconds more, as an evaluation does that nobody declared, but not more of
        them than this; 0: none does.
    """

    n_epochs: int = 4
    epoch_steps: int = 250
    step_core_s: float = 0.016
    phases: tuple[PhaseLoad, ...] = (EVALUATION, CHECKPOINT)  # Done after each epoch, in this order.
    startup_core_s: float = 3.0  # CPU seconds before anything is declared.
    n_rehearsals: int = 2  # Units of the first phase timed before training.
    cores_max: float = 1.0  # The most cores that the process can use at once.
    cost_change_at_frac: float = 1.0
    cost_change_factor: float = 1.0
    dear_every: int = 0
    dear_core_s: float = 0.0
    n_dear_max: float = inf

    @property
    def n_steps(self) -> int:
        return self.n_epochs * self.epoch_steps

    def core_s(self, noise: Noise = STEADY) -> float:
        """CPU seconds of the whole job to be expected, changes of the step's cost left out."""
        steps = self.n_steps * self.step_core_s
        phases = self.n_epochs * sum(phase.n_units * phase.unit_core_s for phase in self.phases)
        rehearsals = self.n_rehearsals * self.phases[0].unit_core_s if self.phases else 0.0
        return (self.startup_core_s + steps + phases + rehearsals) * noise.mean_factor

    def step_cost(self, i_step: int) -> float:
        """CPU seconds of step `i_step` before noise."""
        changed = i_step >= self.cost_change_at_frac * self.n_steps
        n_dear, rest = divmod(i_step + 1, self.dear_every or inf)
        is_dear = rest == 0 and n_dear <= self.n_dear_max
        return self.step_core_s * (self.cost_change_factor if changed else 1.0) + is_dear * self.dear_core_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """A time in which the job is delivered only this share of its grant."""

    from_s: float
    until_s: float
    delivered_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantWorld:
    """Surroundings of the job.

    Attributes
    ----------
    deadline_changes
        Instant and new deadline, both in seconds since submission; seen at the next tick.
    can_pace, can_cap
        Whether pacing lines are obeyed, and whether the quota is enforced.
    """

    noise: Noise = Noise()
    quota_period_s: float = 0.02  # Period of the CPU quota.
    actuator_delay_s: float = 0.02  # Seconds from a demand to the grant.
    contention: tuple[Contention, ...] = ()  # Times in which less is delivered than granted.
    deadline_changes: tuple[tuple[float, float], ...] = ()
    can_pace: bool = False
    can_cap: bool = True
    pacing_jitter_s: float = 0.0  # Largest delay of a unit that waits for its line.

    def delivered_frac(self, at_s: float) -> float:
        shares = (each.delivered_frac for each in self.contention if each.from_s <= at_s < each.until_s)
        return min(shares, default=1.0)

    def deadline_s(self, at_s: float, first_s: float) -> float:
        """The deadline in force at `at_s`."""
        due = [change for change in self.deadline_changes if change[0] <= at_s]
        return max(due)[1] if due else first_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Landing and deadline of a job. `landed_s` is infinite if the plant gave up waiting."""

    landed_s: float
    deadline_s: float

    @property
    def deviation_frac(self) -> float:
        """Landing minus deadline, as a share of the deadline."""
        return (self.landed_s - self.deadline_s) / self.deadline_s

    @property
    def on_time(self) -> bool:
        return self.landed_s <= self.deadline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRun(Landing):
    """Record of one run."""

    used_core_s: float
    granted_core_s: float
    grants: tuple[tuple[float, float], ...]  # Instant and cores of every change of the grant, the first at launch.
    ticks: tuple[tuple[Reading, Demand], ...]  # Every reading and the demand made on it.

    @property
    def n_resizes(self) -> int:
        return len(self.grants) - 1


class CostFactors:
    """The factors that multiply costs, in the order of time."""

    def __init__(self, noise: Noise, random: Random) -> None:
        self._noise = noise
        self._random = random
        self._deviation = 0.0
        self._busy = random.random() < 0.5
        self._until_s = random.expovariate(1 / noise.neighbour_dwell_s)
        self._innovation = noise.spread_frac * sqrt(1 - noise.correlation**2)

    def draw(self, at_s: float) -> float:
        """The factor for a unit that begins at `at_s`."""
        while at_s >= self._until_s:
            self._busy = not self._busy
            self._until_s += self._random.expovariate(1 / self._noise.neighbour_dwell_s)
        self._deviation = self._noise.correlation * self._deviation + self._random.gauss(0.0, self._innovation)
        return max(0.1, 1 + self._deviation) * (self._noise.neighbour_factor if self._busy else 1.0)


def run_closed_loop(
    controller: Controller[Any],
    training: Training | None = None,
    *,
    deadline_s: float,
    world: PlantWorld | None = None,
    spec: JobSpec | None = None,
    seed: int = 0,
    policy: Policy | None = None,
) -> QuotaRun:
    """Let `controller` steer the simulated training to its end.

    Parameters
    ----------
    deadline_s
        The deadline at submission, in seconds; `world.deadline_changes` may change it. Infinite: none.
    spec
        Declaration of the job; by default a floor of 0.02 cores and a ceiling of `training.cores_max`.
    seed
        Seed of all randomness.
    policy
        Policy; None: the job gets its demand.
    """
    if not deadline_s > 0:
        raise InvalidSpec("`deadline_s` must be above zero", f"{deadline_s} s", "the plant", "Give a later deadline.")
    training, world = training or Training(), world or PlantWorld()
    due_s = None if deadline_s == inf else deadline_s
    spec = replace(spec or job_spec(training, due_s), work_steps=None, deadline_s=due_s)
    plant, changes = _QuotaPlant(training, world, seed, spec), world.deadline_changes
    ticks = steer(controller, spec, plant, deadline_changes=changes, first_tick_s=0.0, patience=20.0, policy=policy)
    return QuotaRun(
        landed_s=plant.landed_at,
        deadline_s=world.deadline_s(plant.at_s, deadline_s),
        used_core_s=plant.used_core_s,
        granted_core_s=plant.granted_core_s,
        grants=tuple(plant.grants),
        ticks=tuple(ticks),
    )


def job_spec(training: Training, deadline_s: float | None, margin_frac: float | None = None) -> JobSpec:
    """Return the declaration of `training` for the scheduler."""
    return JobSpec(
        id=JobId("simulated"),
        ceiling=Resources(cores=training.cores_max),
        floor=Resources(cores=0.02),
        work_steps=training.n_steps,
        deadline_s=deadline_s,
        margin_frac=margin_frac,
    )


class _QuotaPlant(Plant):
    """The process under a quota, a change of which takes `PlantWorld.actuator_delay_s`."""

    def __init__(self, training: Training, world: PlantWorld, seed: int, spec: JobSpec) -> None:
        planned = {phase.name: phase.n_units * training.n_epochs for phase in training.phases}
        self._training, self._world = training, world
        self._granted = spec.ceiling
        self._granted_at_s = self._granted_before_core_s = 0.0
        self.grants = [(0.0, spec.ceiling.cores)]
        self._period_end_s = self._bucket_core_s = self._speed_cores = 0.0
        draw_factor = CostFactors(world.noise, Random(seed)).draw
        super().__init__(
            training.n_steps, planned, _units(training), draw_factor, can_pace=world.can_pace, can_cap=world.can_cap,
            jitter_s=world.pacing_jitter_s, seed=seed,
        )  # fmt: skip

    @property
    def granted_core_s(self) -> float:
        return self._granted_before_core_s + self._granted.cores * (self.at_s - self._granted_at_s)

    def work(self, until_at: float) -> float:
        while self.at_s < until_at and self.landed_at == inf:
            if self._need_core_s > 0:
                self._compute(until_at)
            else:
                self._end_unit(until_at)
        return until_at

    def resize(self, command: ResizeJob, sink: Sink) -> None:
        self.clock.call_at(command.at + self._world.actuator_delay_s, partial(self._apply, command, sink))

    def _apply(self, command: ResizeJob, sink: Sink) -> None:
        self._grant(total(command.grant.values()))
        sink(GrantApplied(at=self.clock.now(), job=command.job, request=command.request, granted=command.grant))

    def _grant(self, amount: Resources) -> None:
        """Write the quota, which refills the present period."""
        if amount == self._granted:
            return  # writing the same quota again would refill it
        self._granted_before_core_s = self.granted_core_s
        self._granted, self._granted_at_s = amount, self.at_s
        self.grants.append((self.at_s, amount.cores))
        self._refill()

    def _begin(self, unit: WorkUnit) -> None:
        super()._begin(unit)
        self._need_core_s = unit.cost * self._factor

    def _compute(self, until_s: float) -> None:
        """Run until the unit, the quota, the period or the time is at its end, whichever comes first."""
        if self.at_s >= self._period_end_s:
            self._period_end_s = (self.at_s // self._world.quota_period_s + 1) * self._world.quota_period_s
            if self._period_end_s <= self.at_s:  # the division was rounded down
                self._period_end_s += self._world.quota_period_s
            self._refill()
        stop_s = min(until_s, self._period_end_s)
        amount = min(self._need_core_s, self._bucket_core_s)
        if amount <= 0 or amount > self._speed_cores * (stop_s - self.at_s):
            amount = max(0.0, min(amount, self._speed_cores * (stop_s - self.at_s)))
            self.at_s = stop_s
        else:
            self.at_s += amount / self._speed_cores
        self._need_core_s -= amount
        self._bucket_core_s -= amount
        self.used_core_s += amount
        self.in_flight_core_s += amount

    def _refill(self) -> None:
        share = self._world.delivered_frac(self.at_s)
        self._speed_cores = self._training.cores_max * share
        quota_core_s = self._granted.cores * self._world.quota_period_s * share
        self._bucket_core_s = quota_core_s if self._world.can_cap else inf


def _units(training: Training) -> Iterator[WorkUnit]:
    yield WorkUnit(training.startup_core_s, counted=False)
    for phase in training.phases[:1]:
        yield from [WorkUnit(phase.unit_core_s, phase.name, counted=False)] * training.n_rehearsals
    for i_step in range(training.n_steps):
        yield WorkUnit(training.step_cost(i_step))
        if (i_step + 1) % training.epoch_steps == 0:
            for phase in training.phases:
                yield from [WorkUnit(phase.unit_core_s, phase.name)] * phase.n_units
