"""A job of the simulated world: what is declared of it, and what is true."""

from dataclasses import dataclass
from math import inf

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobSpec
from punctual.sim.truth import Truth


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job that will be submitted.

    Attributes
    ----------
    submitted_at
        Instant of its submission, seconds.
    spec
        What the scheduler is told.
    truth
        How fast the job really is.
    work_steps
        Steps it really does; `spec.work_steps` is what was declared.
    restarts
        Whether every change of its grant stops and starts its processes, at the price of a start-up. Otherwise a
        change costs `spec.resize_cost_s`, as long as the job keeps one of its nodes.
    """

    submitted_at: float
    spec: JobSpec
    truth: Truth
    work_steps: float
    restarts: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.work_steps < inf:
            raise InvalidSpec(
                "`work_steps` must be finite and above zero", f"{self.work_steps} steps", f"job '{self.spec.id}'",
                "Leave the job out, or give it some work.",
            )  # fmt: skip
