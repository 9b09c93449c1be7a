"""When a plan is asked for, and which answers count: one plan is in flight at a time, and it may get lost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from punctual.core.ids import JobId


@dataclass(slots=True)
class Planning:
    """Requests for plans and their answers.

    Attributes
    ----------
    revision
        Of the last request.
    is_due
        Something has changed since that a plan should know.
    requested_at
        When the plan in flight was requested; None: none is.
    retry_at
        None is requested before this instant.
    stale_revision
        Revision in force when capacity, or the plan in force, last changed while a plan was in flight. Plans that are
        no newer may not fit any more; those are dropped without a warning.
    used_revision
        Of the plan in force.
    is_late
        The user was told that plans do not come in time.
    is_fallback
        The user was told that another policy makes the plans.
    promised
        Until when jobs are promised to be done.
    """

    revision: int = 0
    is_due: bool = False
    requested_at: float | None = None
    retry_at: float = 0.0
    stale_revision: int = 0
    used_revision: int = 0
    is_late: bool = False
    is_fallback: bool = False
    promised: dict[JobId, float] = field(default_factory=dict)

    def may_request(self, at: float) -> bool:
        """Whether a plan is due and none is in flight."""
        return self.is_due and self.requested_at is None and at >= self.retry_at

    def request(self, at: float) -> int:
        """Number of the request that is made now."""
        self.revision += 1
        self.requested_at = at
        return self.revision

    def answer(self, revision: int) -> bool:
        """Take note of the answer to request number `revision`; whether it is newer than the plan in force.

        A late one does not end the wait for a newer one.
        """
        if revision == self.revision:
            self.requested_at, self.is_late = None, False
        return self.used_revision <= revision <= self.revision

    def use(self, revision: int) -> None:
        """The plan of request number `revision` is in force; one in flight was made without knowing of it."""
        self.used_revision = revision
        if self.requested_at is not None:
            self.stale_revision, self.is_due = self.revision, True

    def promise(self, promises: Mapping[JobId, float] | None) -> Iterable[JobId]:
        """Take note of what a plan promises, if it says so; the jobs for which that is news, in order."""
        if promises is None:
            return ()
        news = {job for job, _ in self.promised.items() ^ promises.items()}
        self.promised = dict(promises)
        return sorted(news)

    def falls_back(self, cause: str) -> bool:
        """Take note that a plan is used which another policy made because of `cause`, if any; whether that is news."""
        is_news = bool(cause) and not self.is_fallback
        self.is_fallback = bool(cause)
        return is_news

    def give_up(self, at: float, plan_s: float) -> bool:
        """Take the plan in flight as lost, and another one as due, if it has not come for `plan_s` seconds.

        Returns
        -------
        Whether that is news: no plan has come in time since the last one was lost.
        """
        if self.requested_at is None or at < self.requested_at + plan_s:
            return False
        is_news = not self.is_late
        self.requested_at, self.is_due, self.is_late = None, True, True
        return is_news

    def begin_anew(self) -> None:
        """Whatever was in flight is lost."""
        self.is_due, self.requested_at, self.retry_at = True, None, -inf
