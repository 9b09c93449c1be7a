"""Record of one kind of phase, with the number of units still to come."""

from dataclasses import dataclass, fields
from time import monotonic_ns, process_time_ns

from punctual.channel import PhaseEntry
from punctual.tracking.complaint import invalid
from punctual.tracking.declaration import Phase


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Planned steps: the begin and end of the count, and the length of an epoch if there are any.

    Raises `ValueError`: there are more steps than the page can hold.
    """

    start_step: int = 0
    total_steps: int = 0
    n_steps_per_epoch: int = 0

    def __post_init__(self) -> None:
        # A word of the page.
        if self.total_steps > 2**63 - 1:
            raise invalid(
                "the steps of a training must be below 2^63",
                f"{self.total_steps}",
                "this training",
                "Give fewer epochs or steps; one that may end earlier says so with `run.finish()`.",
            )

    def n_occurrences_left(self, phase: Phase) -> int | None:
        """Number of occurrences of `phase` from `start_step` on, declared or one after each epoch; None: unknown."""
        if phase.count is not None:
            return phase.count - phase.count * self.start_step // max(1, self.total_steps)
        if not self.n_steps_per_epoch:
            return None
        return -(-self.total_steps // self.n_steps_per_epoch) - self.start_step // self.n_steps_per_epoch


@dataclass(slots=True)
class PhaseRecord:
    """Record of one kind of phase. A rehearsal is measured, but neither begun nor done.

    * `n_planned`: occurrences this process is to make; None: learned from those seen.
    * `n_units_each`: units in one occurrence: as declared, or as the last one had.
    * `n_units_open`: units that the occurrence in progress still lacks.
    * `n_units_inherited`: units still to come by another process of the job; used until an occurrence is seen.
    * `first_step`, `last_step`: steps that were done when the first and the latest occurrence began.
    * `n_steps_ended`: steps that were done when a loop ended: none that is learned is left over from it.
    """

    name: str
    n_planned: int | None = None
    n_units_each: int = 1
    n_begun: int = 0
    n_units_open: int = 0
    n_units_inherited: int = 0
    first_step: int = 0
    last_step: int = 0
    n_steps_ended: int = 0
    n_units_done: int = 0
    n_units_measured: int = 0
    cpu_ns: int = 0
    wall_ns: int = 0
    device_ns: int = 0
    cost_steps: float = -1.0

    def declare(self, phase: Phase, n_planned: int | None) -> None:
        """Take the script's declaration; `n_planned` occurrences are still to come."""
        self.n_planned = None if n_planned is None else self.n_begun + n_planned
        if n_planned and self.n_units_inherited:
            self.n_units_each = max(1, round(self.n_units_inherited / n_planned))
        self.n_units_each = phase.units or self.n_units_each
        self.cost_steps = self.cost_steps if phase.cost_steps is None else phase.cost_steps

    def begin(self, n_steps: int, n_units: int) -> None:
        """Note the begin of an occurrence of `n_units` after `n_steps` steps."""
        self.first_step = n_steps if not self.n_begun else self.first_step
        self.last_step = n_steps
        self.n_begun += 1
        self.n_units_each = self.n_units_open = n_units

    def count(self, n_units: int) -> None:
        """Count `n_units` units of the occurrence in progress."""
        self.n_units_done += n_units
        self.n_units_open = max(0, self.n_units_open - n_units)

    def end(self, n_units: int) -> None:
        """Note the end of the occurrence in progress, with `n_units` units in all."""
        self.n_units_open = 0
        self.n_units_each = n_units or self.n_units_each

    def withdraw(self) -> None:
        """Take the begin of the occurrence in progress back."""
        self.n_begun -= 1
        self.n_units_open = 0

    def end_early(self, n_steps: int, n_more: int) -> None:
        """Note that no step follows `n_steps`: a later planned occurrence comes `n_more` times, unless it has come."""
        if self.n_planned is not None:
            has_come = self.n_begun > 0 and self.last_step == n_steps
            self.n_planned = min(self.n_planned, self.n_begun + (0 if has_come else n_more))
        elif not n_more:
            self.n_steps_ended, self.n_units_inherited = n_steps, 0

    def n_units_left(self, course: StepPlan) -> int:
        """Number of units still expected."""
        if self.n_planned is None and not self.n_begun:
            return self.n_units_inherited
        n_occurrences = _n_learned(self, course) if self.n_planned is None else self.n_planned - self.n_begun
        return self.n_units_open + max(0, n_occurrences) * self.n_units_each

    def entry(self, course: StepPlan) -> PhaseEntry:
        """Return the row of the page's table."""
        kept = {name: getattr(self, name) for name in _PUBLISHED}
        return PhaseEntry(units_planned=self.n_units_done + self.n_units_left(course), **kept)

    @classmethod
    def of(cls, entry: PhaseEntry) -> "PhaseRecord":
        """Return a record that goes on where the published one of another process ended."""
        n_left = max(0, round(entry.units_planned) - entry.n_units_done)
        return cls(n_units_inherited=n_left, **{name: getattr(entry, name) for name in _PUBLISHED})


#: Fields of a record that the page has, too.
_PUBLISHED = tuple(field.name for field in fields(PhaseEntry) if field.name != "units_planned")


def _n_learned(record: PhaseRecord, course: StepPlan) -> int:
    """Number of occurrences still expected if none were declared, at the rate so far."""
    n_steps_apart = _n_steps_apart(record, course)
    n_steps_left = course.total_steps - max(record.last_step, record.n_steps_ended)
    # An occurrence expected exactly at the last step must not be lost to rounding.
    return int((n_steps_left + 0.5) / n_steps_apart) if n_steps_apart and n_steps_left > 0 else 0


def _n_steps_apart(record: PhaseRecord, course: StepPlan) -> float:
    """Number of steps from one occurrence to the next; 0: unknown."""
    if record.last_step > record.first_step:
        return (record.last_step - record.first_step) / (record.n_begun - 1)
    if not record.n_begun:
        return 0.0
    return float(course.n_steps_per_epoch or max(0, record.last_step - course.start_step))


class Stopwatch:
    """Time since the last charge, without waits for the pacing line (`restart`)."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._cpu_ns, self._wall_ns = process_time_ns(), monotonic_ns()

    def charge(self, record: PhaseRecord, n_units: int) -> None:
        """Add the lap to the time of `n_units` units of `record`."""
        record.n_units_measured += n_units
        record.cpu_ns += process_time_ns() - self._cpu_ns
        record.wall_ns += monotonic_ns() - self._wall_ns
        self.restart()
