"""A job of the simulated world: its declaration, and the truth about it."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from punctual.core.errors import InvalidSpec, check_above_zero
from punctual.core.fast_init import fast_init
from punctual.core.job import JobSpec
from punctual.sim.speed_laws import SpeedLaw


@fast_init
@dataclass(frozen=True, slots=True)
class SimJob:
    """One job to be submitted.

    Attributes
    ----------
    submitted_at
        Instant of its submission, seconds.
    spec
        The declaration for the scheduler.
    truth
        The job's real speed; if it changes, the average over its work.
    work_steps
        Steps it really does; `spec.work_steps` are the declared ones.
    restarts
        Whether every change of its grant stops and starts its processes, at the price of a start-up. Otherwise a
        change costs `spec.resize_cost_s`, as long as the job keeps one of its nodes.
    phases
        Speeds with the steps from which they hold, ascending from 0; empty: `truth` from beginning to end.
    declared_steps
        Steps in total that its training declares once it runs, where the spec says nothing; None: it declares none.
    """

    submitted_at: float
    spec: JobSpec
    truth: SpeedLaw
    work_steps: float
    restarts: bool = False
    phases: tuple[tuple[float, SpeedLaw], ...] = ()
    declared_steps: float | None = None

    def __post_init__(self) -> None:
        check_above_zero(f"job '{self.spec.id}'", work_steps=self.work_steps)
        begins = [begin for begin, _ in self.phases]
        if begins and (
            begins[0] != 0 or not all(begin < after for begin, after in pairwise([*begins, self.work_steps]))
        ):
            raise InvalidSpec(
                "`phases` must ascend from 0 to below `work_steps`", str(begins), f"job '{self.spec.id}'",
                "Sort them, and leave out what comes after the end.",
            )  # fmt: skip

    def speed_at(self, steps: float) -> tuple[SpeedLaw, float]:
        """Return the job's speed after `steps` steps, and the steps until which it stays."""
        if not self.phases:
            return self.truth, self.work_steps
        i = bisect_right(self.phases, steps, key=lambda phase: phase[0])
        return self.phases[i - 1][1], self.phases[i][0] if i < len(self.phases) else self.work_steps
