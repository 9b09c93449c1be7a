"""A job that shares a node's cores, as the plan of its node counts it."""

from dataclasses import dataclass, replace
from math import inf

from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.resources import Resources
from punctual.solvers.core_deadlines import CoreJob
from punctual.solvers.timeline import Share

#: A promise is given up when the deadline would be missed by more than this share of it.
_LATE_FRAC = 0.01
#: A promise is also kept while it could be kept with less work left: less by this share, which shrinks as the job is done. What a
#: training costs is overestimated while others start beside it.
_HOPE_FRAC = 0.1
#: Share by which the remaining work may cost more beside other jobs; it shrinks as the job is done: trainings
#: cost more beside others than they did in their first steps, and less of a crowded machine reaches them than they hold.
_DOUBT_FRAC = 0.2
#: Work that is due is taken to be due in so many seconds.
SOON_S = 0.25
#: A planned job that is due within so many seconds gets what its controller wants before all others: cores that its last
#: steps go without cannot be made up for later, and they are few.
_LANDING_S = 1.0
#: Until it has told how much work it has, a job with a promise is planned for as if it needed this part of what it can use.
_GUESSED_FRAC = 0.5


@dataclass(slots=True, eq=False)
class CoreJobState:
    """A job that shares the cores of a node.

    Attributes
    ----------
    base, wanted
        Its amount in any case, and its controller's demand.
    left_core_s, std_core_s, most_cores, due_s, slack_s
        Its remaining work, the seconds until that is due, and the delay that is still in time; a guess while
        it is `unmeasured`. `due_s` is infinite where nothing is known of it for long, and for a job without a deadline.
    unmeasured
        Whether it has a deadline and has held too little to know how much work it has.
    has_neighbors
        Whether other jobs are on its node.
    cores
        Cores over its base so far.
    share
        Its planned share over its base; None: it is not planned for.
    """

    view: JobView
    base: Resources
    wanted: Resources
    left_core_s: float = 0.0
    std_core_s: float = 0.0
    most_cores: float = 0.0
    due_s: float = inf
    slack_s: float = 0.0
    unmeasured: bool = False
    has_neighbors: bool = False
    cores: float = 0.0
    share: Share | None = None

    @classmethod
    def of(cls, view: JobView, base: Resources, wanted: Resources, at: float) -> "CoreJobState":
        """Return the job's state at instant `at`."""
        work, left_core_s = view.work, view.core_s_left(at)
        if view.deadline_at is None:
            return cls(view, base, wanted)
        if view.landed:
            return cls(view, base, wanted, most_cores=max(wanted.cores - base.cores, 0.0), due_s=view.deadline_at - at)
        if work is None or left_core_s is None:
            return cls._guessed(view, base, wanted, at)
        return cls(
            view=view,
            base=base,
            wanted=wanted,
            left_core_s=left_core_s,
            std_core_s=work.std_core_s,
            most_cores=max(work.usable_cores - base.cores, 0.0),
            due_s=view.submitted_at + work.due_s - at,
            slack_s=work.slack_s,
        )

    @classmethod
    def _guessed(cls, view: JobView, base: Resources, wanted: Resources, at: float) -> "CoreJobState":
        """The job as long as it has not told how much work it has."""
        running_s = 0.0 if view.started_at is None else at - view.started_at
        left_s = (view.deadline_at or at) - at
        # After so many seconds, and with so many core-seconds, a job is expected to tell how much work it has; others
        # of which nothing is known are like jobs without a deadline.
        if left_s <= 0 or (running_s >= 10.0 and view.granted_core_s >= 10.0):
            return cls(view, base, wanted)
        most_cores = max(wanted.cores - base.cores, 0.0)
        left_core_s = (base.cores + _GUESSED_FRAC * most_cores) * left_s
        return cls(view, base, wanted, left_core_s, most_cores=most_cores, due_s=left_s, unmeasured=True)

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def is_steady(self) -> bool:
        """Whether its deadline can be promised on cores at all."""
        return self.view.work is None or self.view.work.is_steady

    @property
    def is_landing(self) -> bool:
        """Whether its last steps are due."""
        return self.due_s < _LANDING_S and not self.unmeasured and not self.view.landed

    @property
    def more_cores(self) -> float:
        """Cores that its controller wants beyond its present share."""
        return max(0.0, self.wanted.cores - self.base.cores - self.cores)

    def job(self, sigmas: float = 0.0, late_s: float = 0.0) -> CoreJob:
        """Return its work beyond its base, `sigmas` standard deviations above the expected amount."""
        due_s = max(self.due_s + late_s, SOON_S)
        left_core_s = self.left_core_s + self.margin_core_s(sigmas) - self.base.cores * due_s
        return CoreJob(
            work_core_s=max(0.0, left_core_s), most_cores=self.most_cores, due_s=due_s, weight=self.view.spec.weight
        )

    def best(self, sigmas: float) -> CoreJob:
        """Return its work in the best case, due when its promise would be given up."""
        job = self.job(-sigmas, self.latest_s())
        if not self.view.granted_core_s:
            return job  # nothing was estimated yet
        hope_core_s = _HOPE_FRAC * self._left_frac() * self.left_core_s
        return replace(job, work_core_s=max(0.0, job.work_core_s - hope_core_s))

    def margin_core_s(self, sigmas: float) -> float:
        """Return `sigmas` standard deviations of its work; if positive, at least the extra cost beside other jobs."""
        is_cautious = self.has_neighbors and sigmas > 0
        doubt_core_s = _DOUBT_FRAC * self._left_frac() * self.left_core_s if is_cautious else 0.0
        return sigmas * max(self.std_core_s, doubt_core_s)

    def _left_frac(self) -> float:
        """Share of its work that is left."""
        return self.left_core_s / max(self.left_core_s + self.view.granted_core_s, 1e-9)

    def latest_s(self) -> float:
        """Seconds after its due time until its promise is given up."""
        return self.slack_s + _LATE_FRAC * (self.view.spec.deadline_s or 0.0)
