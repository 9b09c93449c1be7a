"""True state of one job in the simulated world: its grant, its progress, and its next events."""

from math import floor, inf
from typing import Literal

from punctual.core.commands import StopJob
from punctual.core.job import Allocation
from punctual.core.resources import Resources
from punctual.sim.job import SimJob
from punctual.sim.traces.draw import Draw

#: A job is *waiting* until it is launched and after it has failed, *starting* until its process runs, *paused* while it
#: holds nothing after that, *stalled* while a change of its grant costs it time, and otherwise *training*.
Phase = Literal["waiting", "starting", "training", "stalled", "paused"]


class TrueState:
    """A job's true state. Progress is a straight line from `since_at` on, so that nothing is computed in between.

    Instants of what is to happen are infinite while nothing is. There is one entry in the event queue for the earliest of
    them; `version` tells it from entries that a change has made void.
    """

    __slots__ = (
        "asked_launch", "change", "change_at", "checkpoint_s", "checkpoint_steps", "cores", "draws", "fail_at", "finish_at",
        "grant", "hazard_left", "hazard_per_s", "id", "job", "phase", "rate_sps", "report_at", "request",
        "resume_at", "since_at", "steps", "stop", "stop_at", "told_dead", "trained_s", "until_steps", "used_core_s", "version",
    )  # fmt: skip

    def __init__(self, job: SimJob, checkpoint_s: float) -> None:
        self.job = job
        self.id = job.spec.id
        self.checkpoint_s = checkpoint_s
        self.version = 0
        #: Highest number of a command performed.
        self.request = 0
        #: Made when first drawn from: most worlds draw nothing.
        self.draws: dict[str, Draw] | None = None
        self.checkpoint_steps = 0.0
        self.used_core_s = 0.0
        self.stop: StopJob | None = None
        self.stop_at = inf
        #: Whether the scheduler was told that there is no process any more.
        self.told_dead = True
        self.since_at = 0.0
        self.hazard_per_s = 0.0
        self._reset()

    def _reset(self) -> None:
        """Return to the last checkpoint, without a process."""
        self.phase: Phase = "waiting"
        self.grant: Allocation = {}
        #: Grant from `change_at` on; None: no change is under way.
        self.change: Allocation | None = None
        self.change_at = self.resume_at = self.report_at = self.finish_at = self.fail_at = inf
        self.asked_launch = False
        self.steps = self.checkpoint_steps
        #: Steps at which its speed changes next or its work ends, at `finish_at`.
        self.until_steps = self.job.work_steps
        self.rate_sps = self.cores = self.trained_s = 0.0
        #: Rest of a unit-exponential amount of hazard, at whose end the process fails; None: none drawn yet.
        self.hazard_left: float | None = None

    @property
    def holds(self) -> Allocation:
        """Amount that the nodes reserve for this job now."""
        return self.change or {} if self.phase == "starting" else self.grant

    def next_at(self) -> float:
        """Instant of its next event."""
        return min(
            self.finish_at, self.change_at, self.resume_at, self.fail_at, self.report_at, self.stop_at
        )  # fmt: skip

    def steps_at(self, at: float) -> float:
        """Return the steps done at `at`; bounded by the end of the line, because of rounding."""
        return min(self.until_steps, self.steps + self.rate_sps * (at - self.since_at))

    def used_core_s_at(self, at: float) -> float:
        """CPU seconds used, by all its processes so far."""
        return self.used_core_s + (self.cores * (at - self.since_at) if self.phase == "training" else 0.0)

    def train(self, at: float, rate_sps: float, until_steps: float, amount: Resources, hazard_per_s: float) -> None:
        """Train from `at` on, at this speed, until `until_steps` steps are done."""
        self.phase, self.since_at = "training", at
        self.rate_sps, self.cores, self.hazard_per_s = rate_sps, amount.cores, hazard_per_s
        self.until_steps = until_steps
        self.finish_at = at + (until_steps - self.steps) / rate_sps if rate_sps > 0 else inf
        if self.hazard_left is not None and hazard_per_s > 0:
            self.fail_at = at + self.hazard_left / hazard_per_s

    def rest(self, at: float) -> None:
        """Make no more progress from `at` on."""
        if self.phase != "training":
            return
        over_s = at - self.since_at
        self._save_checkpoints(over_s)
        self.steps = self.steps_at(at)
        self.used_core_s += self.cores * over_s
        self.trained_s += over_s
        if self.hazard_left is not None:
            self.hazard_left -= self.hazard_per_s * over_s
        self.since_at, self.rate_sps = at, 0.0
        self.finish_at = self.fail_at = inf
        self.phase = "stalled"

    def _save_checkpoints(self, over_s: float) -> None:
        """Remember how far the job was at the last checkpoint within the `over_s` seconds since `since_at`."""
        last_s = floor((self.trained_s + over_s) / self.checkpoint_s) * self.checkpoint_s
        if last_s > self.trained_s:
            self.checkpoint_steps = self.steps + self.rate_sps * (last_s - self.trained_s)

    def save(self) -> None:
        """Record a checkpoint now; the job rests meanwhile."""
        self.checkpoint_steps = self.steps

    def die(self, at: float) -> None:
        """End the processes; the next launch goes on from the last checkpoint."""
        self.rest(at)
        self._reset()
