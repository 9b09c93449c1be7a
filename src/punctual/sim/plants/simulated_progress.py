"""Progress of a simulated training as it would report it, and the pacing of its next report."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from punctual.core.control import PacingLine, PhaseProgress
from punctual.core.events import PhaseReported, ProgressReported
from punctual.core.ids import JobId
from punctual.core.protocols import Sink


class SimulatedProgress:
    """Counts units of steps and phases. Nothing is declared until the first unit, the start-up, is completed.

    Parameters
    ----------
    n_steps
        Steps of the whole training.
    units_planned
        Planned units of each phase, by its name.
    jitter_s, seed
        Bound of the random delay of each unit that keeps to the line, and its seed.

    Attributes
    ----------
    line
        The pacing line to keep to; None: run freely.
    unit_at_s
        Instant of the last completed unit.
    landed_s
        Instant of the training's end; None: not yet.
    """

    def __init__(self, n_steps: int, units_planned: Mapping[str, int], *, jitter_s: float = 0.0, seed: int = 0) -> None:
        self.line: PacingLine | None = None
        self.n_steps_done = 0
        self.unit_at_s = 0.0
        self.landed_s: float | None = None
        self._n_steps = n_steps
        self._declared = False
        self._phases = {
            name: PhaseProgress(name=name, units_planned=n, units_done=0) for name, n in units_planned.items()
        }
        self._reported: tuple[PhaseProgress, ...] = ()
        self._random, self._jitter_s = Random(seed), jitter_s
        self._late_s = self._random.uniform(0.0, jitter_s)

    def may_end_s(self, phase: str, at_s: float, *, counted: bool) -> float:
        """Instant before which a unit of `phase` (empty: a step), all of whose work is done at `at_s`, is not reported."""
        line = self.line
        if line is None or not self._declared:
            return at_s
        costs = line.phase_cost_steps
        worth = costs.get(phase, 0.0) if phase else 1.0
        done = self.n_steps_done + sum(each.units_done * costs.get(each.name, 0.0) for each in self._phases.values())
        return line.allows_s(done + (worth if counted else 0.0)) + self._late_s

    def complete(self, phase: str, at_s: float, *, counted: bool, wall_s: float, core_s: float = 0.0) -> None:
        """A unit of `phase` (empty: a step, or the start-up) has ended, which took so long."""
        if phase:
            before = self._phases[phase]
            self._phases[phase] = replace(
                before,
                units_done=before.units_done + counted,
                units_measured=before.units_measured + 1,
                wall_s=before.wall_s + wall_s,
                core_s=before.core_s + core_s,
            )
        else:
            self.n_steps_done += counted
        self._declared, self.unit_at_s = True, at_s
        self._late_s = self._random.uniform(0.0, self._jitter_s)

    def report(self, job: JobId, at: float, sink: Sink, *, used_core_s: float, in_flight_core_s: float = 0.0) -> None:
        """Report progress to `sink`, and phases that have changed since the last report."""
        phases = tuple(self._phases.values()) if self._declared else ()
        if phases != self._reported:
            self._reported = phases
            sink(PhaseReported(at=at, job=job, phases=phases))
        progress = ProgressReported(
            at=at,
            job=job,
            steps_done=self.n_steps_done,
            steps_total=self._n_steps if self._declared else None,
            unit_at=self.unit_at_s,
            used_core_s=used_core_s,
            in_flight_core_s=in_flight_core_s,
        )
        sink(progress)
