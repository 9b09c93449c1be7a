"""The exchange between scheduler and controller: a reading in, a demand out."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from punctual.core.fast_init import fast_init
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProgress:
    """Progress of one kind of phase (evaluations, checkpoints, ...), as its training process reports it.

    A *unit* is a part of an occurrence that the process reports: one batch of an evaluation. A rehearsal is measured
    but not counted as done: two batches timed before training tell what evaluation will cost.

    Attributes
    ----------
    units_planned, units_done
        Over the whole job; `units_planned` may be learned while the job runs.
    units_measured, core_s, wall_s, device_s
        Over all units timed so far, rehearsals included: how many, and their seconds of CPU, wall and device.
    cost_steps
        Declared cost of one unit in steps; None: not declared.
    """

    name: str
    units_planned: float
    units_done: int
    units_measured: int = 0
    core_s: float = 0.0
    wall_s: float = 0.0
    cost_steps: float | None = None
    device_s: float = 0.0

    @property
    def is_checkpoint(self) -> bool:
        """Whether it saves what another process goes on from."""
        return self.name == "checkpoint"

    @property
    def is_measured(self) -> bool:
        """Whether the cost of a unit has been measured."""
        return self.units_measured > 0 or self.cost_steps is not None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A controller's view of its job at a tick. All instants are seconds since the job's submission.

    Attributes
    ----------
    elapsed_s
        Now.
    deadline_s
        The deadline in force; infinite: there is none, and of the answer only the forecast is used.
    held_since_s
        Instant from which the job has held something without a pause, in the same process.
    granted
        The amount that the job holds now; a request without an answer does not count.
    granted_core_s
        Integral of the granted cores since the job started.
    used_core_s
        CPU seconds used by the whole job, up to `report_age_s` ago.
    in_flight_core_s
        The part of `used_core_s` spent since the last unit was completed.
    busy_s, device_s
        Seconds up to the last unit in which the training process did not wait for Punctual, and in which its device computed
        for it; 0: it does not tell, or has no device.
    active_s
        Seconds in which its main thread computed or waited for a processor; 0: not known.
    unit_at_s
        Instant of the last completed unit (step, or part of a phase).
    steps_done, steps_total
        Steps done; steps declared (None: nothing declared yet), or expected until the goal.
    steps_total_std
        Standard deviation of `steps_total`: 0 unless the job trains to a goal.
    phases
        Work that is not a step.
    landed
        Every declared step and phase is done: what follows is the process leaving.
    ceiling
        Most the job could hold: its own ceiling or the cluster's capacity, whichever is less.
    can_pace
        Whether the training process can be told to pace itself.
    can_cap
        Whether a grant is enforced: if not, the job takes what it finds and only pacing slows it.
    shape
        Shape of the grant, with the number of workers; None: the job holds nothing.
    curve
        Learned speed in all shapes; None: it has no performance model.
    report_age_s
        Age of the counts: those of another machine come from time to time.
    """

    elapsed_s: float
    deadline_s: float
    granted: Resources
    granted_core_s: float
    used_core_s: float
    in_flight_core_s: float
    unit_at_s: float
    steps_done: float
    steps_total: float | None
    ceiling: Resources
    held_since_s: float = 0.0
    steps_total_std: float = 0.0
    phases: tuple[PhaseProgress, ...] = ()
    landed: bool = False
    can_pace: bool = False
    can_cap: bool = True
    shape: Shape | None = None
    curve: RateCurve | None = None
    report_age_s: float = 0.0
    busy_s: float = 0.0
    device_s: float = 0.0
    active_s: float = 0.0

    @property
    def reported_s(self) -> float:
        """Instant of the last report, to which the counts belong; seconds since submission."""
        return self.elapsed_s - self.report_age_s

    @property
    def reported_granted_core_s(self) -> float:
        """`granted_core_s` at the last report, if the grant has not changed since."""
        return self.granted_core_s - self.granted.cores * self.report_age_s

    def to_remember(self) -> "Reading":
        """Return the reading without its curve and plug-ins, so that a controller can keep it in its state."""
        return self if self.curve is None else replace(self, curve=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingLine:
    """A straight line of work over time that the training process does not run ahead of, anchored at its end.

    Work is counted in steps, a phase unit as `phase_cost_steps[name]` steps. After each unit with work W done the
    process sleeps until ``end_s - (end_work - W) * s_per_step``.

    Attributes
    ----------
    end_s
        Instant of the line's end, seconds since submission.
    end_work
        Work done at the line's end, in steps.
    s_per_step
        Slope, seconds per step.
    """

    end_s: float
    end_work: float
    s_per_step: float
    phase_cost_steps: dict[str, float] = field(default_factory=dict)

    def work_done(self, steps_done: float, phases: Iterable[PhaseProgress]) -> float:
        """Return the work done, in steps."""
        costs = self.phase_cost_steps
        return steps_done + sum(phase.units_done * costs.get(phase.name, 0.0) for phase in phases)

    def allows_s(self, work: float) -> float:
        """Return the instant at which the line allows this much work to be done; seconds since submission."""
        return self.end_s - (self.end_work - work) * self.s_per_step


#: Standard deviations from the expected value to either end of the interval that holds nine of ten cases.
INTERVAL_SIGMAS = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expected landing of a job; seconds since submission.

    Attributes
    ----------
    finish_s, std_s
        Expected landing under the demand just made, and its standard deviation.
    earliest_finish_s
        Expected landing if the job held its ceiling from now on.
    feasible
        Whether the deadline can still be met; changes with hysteresis.
    """

    finish_s: float
    std_s: float
    earliest_finish_s: float
    feasible: bool

    @property
    def interval_s(self) -> tuple[float, float]:
        """Interval that holds the landing in nine of ten cases."""
        return self.finish_s - INTERVAL_SIGMAS * self.std_s, self.finish_s + INTERVAL_SIGMAS * self.std_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreWork:
    """Remaining work of a job on a share of cores; half of the cores for twice the time do the same work.

    Attributes
    ----------
    core_s, std_core_s
        Core-seconds that it must be granted, and their standard deviation. Where a neighbour takes half of what is
        granted they are twice as many.
    usable_cores
        The most cores, as granted, that it can use.
    due_s
        Instant by which they must be done, seconds since submission: its deadline, less a margin and less the time left
        that no cores make shorter.
    slack_s
        Seconds by which it may be later and still be in time: the margin.
    delivered_frac
        Usage over grant, over some time in which the grant limited the job.
    is_steady
        Whether cores alone say when it is done. If not, no deadline can be promised on them.
    """

    core_s: float
    std_core_s: float
    usable_cores: float
    due_s: float
    slack_s: float = 0.0
    delivered_frac: float = 1.0
    is_steady: bool = True


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A controller's demand for its job.

    Attributes
    ----------
    resources
        The amount wanted.
    next_tick_s
        Seconds until the controller wants its next reading: above 0, and finite.
    pacing
        The line the process is to keep to; None: run freely.
    forecast
        None while nothing is known yet.
    work
        Remaining work of a job on a share of cores; None: unknown.
    """

    resources: Resources
    next_tick_s: float
    reason: Reason
    pacing: PacingLine | None = None
    forecast: Forecast | None = None
    work: CoreWork | None = None
