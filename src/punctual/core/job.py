"""What is declared of a job, and what a policy sees of it."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import NOTHING, Resources

#: A job is *queued* until its launch is asked for, *starting* until it has started, *running* until it is asked to
#: stop or ends, and *finished* or *failed* from then on.
JobStatus = Literal["queued", "starting", "running", "stopping", "finished", "failed"]

#: Where a job's grant lies: node -> amount. Empty: the job holds nothing.
Allocation = dict[NodeId, Resources]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What was declared about a job.

    Attributes
    ----------
    work_steps
        Steps the job will do; None until its training loop declares them.
    deadline_s
        Seconds from submission to the deadline; None: no deadline, the job runs at its ceiling.
    floor, ceiling
        Least and most the job may hold while it runs.
    weight
        How much the job counts against others, above zero.
    resize_cost_s
        Training time lost by one resize, in seconds.
    preemptible
        Whether a policy may take everything away from the job while it runs.
    controller
        Registered name of the controller that turns its readings into demand.
    margin_frac
        Fraction of the deadline the controller aims to be early; None: the controller's own rule.
    """

    id: JobId
    ceiling: Resources
    floor: Resources = NOTHING
    work_steps: float | None = None
    deadline_s: float | None = None
    weight: float = 1.0
    resize_cost_s: float = 0.0
    preemptible: bool = False
    controller: str = "remaining-cost"
    margin_frac: float | None = None

    def __post_init__(self) -> None:
        self._check(bool(self.id), "`id` must not be empty", repr(self.id), "Give the job a name.")
        self._check(
            self.work_steps is None or self.work_steps > 0,
            "`work_steps` must be above zero", f"{self.work_steps} steps", "Declare how many steps the job will do.",
        )  # fmt: skip
        self._check(
            self.deadline_s is None or (isfinite(self.deadline_s) and self.deadline_s > 0),
            "`deadline` must be later than the submission", f"{self.deadline_s} s",
            "Give a duration (`--deadline 90m`) or a later time.",
        )  # fmt: skip
        self._check(bool(self.ceiling), "`ceiling` must not be empty", str(self.ceiling), "Allow some cores.")
        self._check(
            self.floor.fits_in(self.ceiling),
            "`floor` must fit in `ceiling`", f"{self.floor} over {self.ceiling}", "Lower the floor.",
        )  # fmt: skip
        self._check(self.weight > 0, "`weight` must be above zero", str(self.weight), "Give a positive weight.")
        self._check(
            self.margin_frac is None or 0 <= self.margin_frac < 0.5,
            "`margin` must be from 0 to below 0.5", str(self.margin_frac), "Give a share of the deadline, as 0.001.",
        )  # fmt: skip

    def _check(self, holds: bool, must: str, got: str, remedy: str) -> None:
        if not holds:
            raise InvalidSpec(must, got, f"job '{self.id}'", remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What a policy sees of a job; instants in seconds on the scheduler's clock."""

    spec: JobSpec
    status: JobStatus
    submitted_at: float
    done_steps: float
    demand: Resources
    granted: Allocation
