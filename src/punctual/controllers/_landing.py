"""Landing on a pacing line: base of the controllers that do so."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from punctual.controllers._base import check_parameters, ends_with_work, work
from punctual.core.control import INTERVAL_SIGMAS, PacingLine, Reading
from punctual.core.job import JobSpec

#: A paced job may be ahead by this share of the time left. A job that has hardly any room then never reaches its line: it loses
#: no time by waiting that nothing could make up for.
LEAD_FRAC = 0.1
#: Number of units that must have ended on the line before the margin shrinks.
_LEAST_UNITS = 4
#: The margin is this many times the largest error, of which each unit on the line lets a twentieth be forgotten.
_SAFETY, _KEPT_FRAC = 2.0, 0.95
#: The largest margin that is learned: a multiple of `margin_first_s`, or this share of the deadline if that is more, since
#: beside many other programs a unit may be late by tenths of a second. Until this number of units was late it is
#: `margin_first_s`: a single late unit may have had too few cores.
_MOST_TIMES, _MOST_FRAC, _LATE_UNITS = 4.0, 0.01, 2
#: Ahead of its line by more than this the job waits for it.
_HELD_S = 0.02
#: Seconds for which a slightly infeasible forecast must last before it is believed.
_DOUBT_S = 3.0
#: Seconds of training that a forecast must rest on before a deadline is given up: the first half second alone is
#: several percent off.
_FIRST_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class LearnedMargin:
    """Exactness of a job's landing, learned from its own units.

    Attributes
    ----------
    line, since_s
        The present pacing line, and when it was first seen in force: earlier units may have kept to another.
    unit_at_s, late_s
        End of the last unit, and its lateness, seconds.
    n_units, n_late
        Units that ended on the line, and those of them that were later than the least margin covers.
    error_s
        The largest lateness of them, seconds; older ones count less.
    margin_s
        Seconds to aim early; None: too few measurements.
    """

    line: PacingLine | None = None
    since_s: float = 0.0
    unit_at_s: float = 0.0
    late_s: float = inf
    n_units: int = 0
    n_late: int = 0
    error_s: float = 0.0
    margin_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingState:
    """State between two readings of every controller that lands on a line.

    Attributes
    ----------
    mark
        The reading from which the next sample is taken.
    warm
        Whether the time since the mark is a sample.
    phase_steps
        Cost of one unit of each phase, in steps.
    line
        The pacing line demanded last.
    kind, learned_on
        Kind of the machines that the job holds, or held last; and the learned speeds on others.
    """

    mark: Reading | None = None
    warm: bool = False
    phase_steps: dict[str, float] = field(default_factory=dict)
    line: PacingLine | None = None
    margin: LearnedMargin = LearnedMargin()
    feasible: bool = True
    doubt_since_s: float | None = None
    deadline_s: float = 0.0
    kind: str = ""
    learned_on: dict[str, Any] = field(default_factory=dict)


_State = TypeVar("_State", bound=LandingState)
_Learned = TypeVar("_Learned")


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingController:
    """The parameters of the landing, and of the times between ticks.

    Parameters
    ----------
    margin_frac, margin_first_s
        Share of the deadline to land early when pacing lands the job, and the least, seconds, until the job has told
        how exactly it keeps to its line. `JobSpec.margin_frac` overrides this, what is learned, and the share below.
    margin_least_s
        The least margin that is learned, seconds: a quota has slices of 20 ms, and the loss of one is covered.
    margin_unpaced_frac
        Share of the deadline to land early where nothing paces the job.
    reserve_frac
        Share of the deadline by which the job aims earlier still until the landing: pacing can hold back a job that is
        early, but nothing can push one that is late at its ceiling.
    landing_s, landing_frac
        Pacing takes over this long before the end, or for this share of the deadline if that is longer.
    tick_s, tick_least_s, tick_long_s
        Control period, seconds: a tenth of the time left, within the first two; where hours are left a thousandth of
        it, up to the third, because each tick is kept in the journal.

    Raises
    ------
    InvalidSpec
        If a parameter is out of its range.
    """

    margin_frac: float = 0.0004
    margin_first_s: float = 0.05
    margin_least_s: float = 0.02
    margin_unpaced_frac: float = 0.003
    reserve_frac: float = 0.005
    landing_s: float = 2.0
    landing_frac: float = 0.05
    tick_s: float = 0.5
    tick_least_s: float = 0.1
    tick_long_s: float = 2.0

    def __post_init__(self) -> None:
        check_parameters(self)

    def seen(self, state: _State, reading: Reading) -> _State:
        """Return the state with the margin learned from the last unit."""
        return replace(state, margin=self._learned(state.margin, state.line, reading))

    def learned(
        self, state: LandingState, reading: Reading, known: _Learned | None, elsewhere: Callable[[Any], _Learned]
    ) -> tuple[_Learned | None, dict[str, Any]]:
        """Return the belief about speed on the machines that the job holds, and the fields that change with their kind.

        Parameters
        ----------
        known
            Belief about the kind that it held before; None: nothing is known.
        elsewhere
            Derives from it the belief about a kind on which the job never ran.
        """
        kind = state.kind if reading.shape is None else reading.shape.device
        if kind == state.kind:
            return known, {}
        if known is None:
            return None, {"kind": kind}
        here = state.learned_on.get(kind) or elsewhere(known)
        return here, {"kind": kind, "learned_on": {**state.learned_on, state.kind: known}}

    def margin_s(self, spec: JobSpec, state: LandingState, reading: Reading) -> float:
        """Seconds by which to aim early, for all uncertainty of the landing itself."""
        if spec.margin_frac is not None:
            return spec.margin_frac * reading.deadline_s
        if not reading.can_pace:
            return max(self.margin_unpaced_frac * reading.deadline_s, self.margin_first_s)
        if state.margin.margin_s is not None:
            return state.margin.margin_s
        return max(self.margin_frac * reading.deadline_s, self.margin_first_s)

    def is_landing(self, left_s: float, reading: Reading, unit_s: float) -> bool:
        """Whether pacing takes over, with `left_s` seconds left and units of `unit_s` seconds."""
        return left_s < max(self.landing_s, self.landing_frac * reading.deadline_s, 3.0 * unit_s)

    def longest_tick_s(self, left_s: float) -> float:
        """Longest time to the next tick with `left_s` seconds left."""
        return max(self.tick_s, min(0.001 * left_s, self.tick_long_s))

    def _learned(self, known: LearnedMargin, line: PacingLine | None, reading: Reading) -> LearnedMargin:
        if line is None:
            return known
        if line != known.line:
            return replace(known, line=line, since_s=reading.elapsed_s, late_s=inf)
        if reading.unit_at_s <= max(known.since_s, known.unit_at_s):
            return known
        late_s, before_s = max(0.0, lateness_s(line, reading)), known.late_s
        known = replace(known, unit_at_s=reading.unit_at_s, late_s=late_s)
        # A unit that is late by less than the one before may be of a job that has not reached its line yet.
        near_s = self.margin_least_s / _SAFETY
        if late_s > near_s and (late_s < before_s or before_s > self.margin_first_s):
            return known
        error_s = max(late_s, _KEPT_FRAC * known.error_s)
        n_late = known.n_late + (late_s > near_s)
        known = replace(known, n_units=known.n_units + 1, n_late=n_late, error_s=error_s)
        if known.n_units < _LEAST_UNITS:
            return known
        most_s = self.margin_first_s
        if n_late >= _LATE_UNITS:
            most_s = max(_MOST_TIMES * most_s, _MOST_FRAC * reading.deadline_s)
        margin_s = min(max(self.margin_least_s, _SAFETY * error_s), most_s)
        # One that is large enough is kept until half of it would be: each other margin is another line.
        if known.margin_s is not None and margin_s <= known.margin_s <= 2.0 * margin_s:
            return known
        return replace(known, margin_s=margin_s)


def lateness_s(line: PacingLine, reading: Reading) -> float:
    """Seconds by which the last unit ended later than the line allowed; negative: this line did not hold it back."""
    _, done = work(line.phase_cost_steps, reading)
    return reading.unit_at_s - line.allows_s(done)


def waits(line: PacingLine | None, reading: Reading) -> bool:
    """Whether the last unit was held back by the pacing line."""
    return line is not None and lateness_s(line, reading) < _HELD_S


def landing_std_s(landed_std_s: float, finish_s: float, earliest_s: float, earliest_std_s: float) -> float:
    """Standard deviation of a landing expected at `finish_s`, to tell with it.

    As long as there is room control lands the job as exactly as `landed_std_s`. The interval ends no earlier than the one
    of the earliest landing, which nothing makes earlier.
    """
    return max(landed_std_s, earliest_std_s + (earliest_s - finish_s) / INTERVAL_SIGMAS)


def is_kept(line: PacingLine | None, end_s: float, tolerance_s: float, reading: Reading) -> bool:
    """Whether the line in force still leads to the end of the work, at `end_s` within the tolerance."""
    return line is not None and abs(line.end_s - end_s) <= tolerance_s and ends_with_work(line, reading)


def line_to(end_s: float, s_per_step: float, costs: dict[str, float], reading: Reading) -> PacingLine:
    """Return the line of this slope on which the work ends at `end_s`; `costs` of a unit of each phase, in steps."""
    phase_cost_steps = {phase.name: costs.get(phase.name, 0.0) for phase in reading.phases}
    end_work, _ = work(phase_cost_steps, reading)
    return PacingLine(end_s=end_s, end_work=end_work, s_per_step=s_per_step, phase_cost_steps=phase_cost_steps)


def judged(state: _State, reading: Reading, *, earliest_s: float, doubt_s: float, seen_s: float) -> _State:
    """Return the state with the deadline's feasibility; it changes at once beyond doubt, or after it has lasted.

    Parameters
    ----------
    earliest_s, doubt_s
        The earliest expected landing, seconds since submission, and how wrong that may be.
    seen_s
        Seconds of training that this rests on.
    """
    late_s = earliest_s - reading.deadline_s
    if late_s <= max(doubt_s, 0.003 * reading.deadline_s):
        clear = state.feasible or late_s < -0.5 * doubt_s or reading.deadline_s != state.deadline_s
        return replace(state, feasible=clear, doubt_since_s=None)
    since_s = reading.elapsed_s if state.doubt_since_s is None else state.doubt_since_s
    certain = (late_s > 2.0 * doubt_s and seen_s >= _FIRST_LOOK_S) or reading.elapsed_s - since_s >= _DOUBT_S
    return replace(state, feasible=state.feasible and not certain, doubt_since_s=since_s)
