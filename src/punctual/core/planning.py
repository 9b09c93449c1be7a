"""Timing of plans and check of answers: one plan is in flight at a time, and it may get lost.

A plan that takes amounts or promises away is made without knowing what that leaves. If a job that it gives nothing would fit
there, the clock asks for another plan, which knows. A policy that leaves cores free on purpose is asked once more, and not
again until something changes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from punctual.core.ids import JobId
from punctual.core.units import span

#: Shortest time between a plan and one that it asks for or makes room for, in seconds.
_SOONEST_S = 0.1
#: A policy that asks for the next plan within so many seconds need not be asked before.
_ROOM_S = 1.0
#: So many plans in a row may be asked for by the clock and change nothing. From then on the clock asks for no other one
#: within a time that grows with each, within these bounds: a policy that looks out for something that stays away looks ever
#: less often. It grows slowly, and not with the time that has passed: an instant that a promise asks for may be known only when
#: it is near, after a few plans that were made long before.
_N_IDLE, _IDLE_LEAST_S, _IDLE_FACTOR, _IDLE_MOST_S = 2, 1.0, 1.01, 60.0
#: Number of idle plans from which the time no longer grows.
_N_IDLE_MOST = 500


@dataclass(slots=True)
class Planning:
    """Requests for plans and their answers.

    Attributes
    ----------
    revision
        Revision of the last request.
    is_due
        Something has changed since that a plan should know.
    requested_at
        Instant of the request of the plan in flight; None: none is.
    last_requested_at
        Instant of the last request.
    has_new_demands
        Demands have changed since, and a plan may be requested for them later.
    retry_at
        None is requested before this instant.
    stale_revision
        Revision in force when capacity, or the plan in force, last changed while a plan was in flight. Plans that are
        no newer may not fit any more; those are dropped without a warning.
    used_revision
        Revision of the plan in force.
    is_late
        The user was told that plans do not come in time.
    is_fallback
        The user was told that another policy makes the plans.
    promised
        Promised deadlines.
    is_by_clock
        Nothing has changed: it is only the instant that the last plan named for another one.
    n_idle
        Number of plans in a row that the clock alone asked for and that changed nothing, or left room again and started
        nobody; one in flight counts.
    """

    revision: int = 0
    is_due: bool = False
    requested_at: float | None = None
    last_requested_at: float = -inf
    has_new_demands: bool = False
    retry_at: float = 0.0
    stale_revision: int = 0
    used_revision: int = 0
    is_late: bool = False
    is_fallback: bool = False
    promised: dict[JobId, float] = field(default_factory=dict)
    is_by_clock: bool = False
    n_idle: int = 0

    def dump(self) -> dict[str, Any]:
        """The fields as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def may_request(self, at: float) -> bool:
        """Whether a plan is due and none is in flight."""
        return self.is_due and self.requested_at is None and at >= self.retry_at

    def request(self, at: float) -> int:
        """Number of the request that is made now."""
        self.revision += 1
        self.requested_at = self.last_requested_at = at
        self.has_new_demands = False
        self.n_idle = self.n_idle + 1 if self.is_by_clock else 0
        self.is_by_clock = False
        return self.revision

    def demands_change(self, at: float, gather_s: float) -> float:
        """Note that a demand has changed; return the seconds until a plan is due for it; infinite: that is known already.

        Demands that change within `gather_s` seconds of a request are gathered, and get one plan.
        """
        wait_s = self.last_requested_at + gather_s - at
        if wait_s <= 0.0:
            self.is_due = True
        if self.is_due or self.has_new_demands:
            return inf
        self.has_new_demands = True
        return wait_s

    def clock_asks(self) -> None:
        """The instant has come for which the last plan asked for another one."""
        self.is_by_clock = not self.is_due
        self.is_due = True

    def ask_again_s(self, at: float, ask_again_at: float | None, leaves_room: bool = False) -> float:
        """Seconds until the clock asks for the next plan, if the plan of instant `at` wants it at `ask_again_at`.

        If it `leaves_room` that it was made without knowing of, the next one comes soon all the same.
        """
        if ask_again_at is None or (leaves_room and ask_again_at > at + _ROOM_S):
            ask_again_at = at
        least_s = _SOONEST_S
        if self.n_idle >= _N_IDLE:
            least_s = min(_IDLE_LEAST_S * _IDLE_FACTOR ** min(self.n_idle, _N_IDLE_MOST), _IDLE_MOST_S)
        return max(least_s, ask_again_at - at)

    def answer(self, revision: int) -> bool:
        """Note the answer to request number `revision`; return whether it is newer than the plan in force.

        A late one does not end the wait for a newer one.
        """
        if revision == self.revision:
            self.requested_at, self.is_late = None, False
        return self.used_revision <= revision <= self.revision

    def use(self, revision: int, *, is_news: bool) -> None:
        """The plan of request number `revision` is in force, and gets somewhere if it `is_news`.

        One in flight was made without knowing of it.
        """
        self.used_revision = revision
        if is_news:
            self.n_idle = 0
        if self.requested_at is not None:
            self.stale_revision, self.is_due = self.revision, True

    def promise(self, promises: Mapping[JobId, float] | None, may_have: Callable[[JobId], bool]) -> Iterable[JobId]:
        """Note a plan's promises to jobs that `may_have` one. Returns the jobs whose promise has changed."""
        if promises is None:
            return ()
        kept = {job: until_at for job, until_at in promises.items() if may_have(job)}
        news = {job for job, _ in self.promised.items() ^ kept.items()}
        self.promised = kept
        return sorted(news)

    def falls_back(self, cause: str) -> bool:
        """Note why another policy made the plan, if one did; return whether that cause is new."""
        is_news = bool(cause) and not self.is_fallback
        self.is_fallback = bool(cause)
        return is_news

    def give_up(self, at: float, plan_s: float) -> str:
        """Take the plan in flight as lost, and another one as due, if it has not come for `plan_s` seconds.

        Returns
        -------
        str
            Warning for the user; empty: nothing was lost, or no plan has come in time since the last one was.
        """
        if self.requested_at is None or at < self.requested_at + plan_s:
            return ""
        is_news = not self.is_late
        self.requested_at, self.is_due, self.is_late = None, True, True
        return (
            f"no plan came within {span(plan_s)}; the last one stays in force and another is asked for"
            if is_news
            else ""
        )

    def exchange_policy(self, *, keeps_promises: bool) -> Iterable[JobId]:
        """Void the plan in flight, because another policy plans now. Returns the jobs whose promise is void."""
        self.reset()
        self.used_revision = self.revision + 1
        return () if keeps_promises else self.promise({}, lambda _: True)

    def reset(self) -> None:
        """Forget the plan in flight, which is lost."""
        self.is_due, self.requested_at, self.retry_at = True, None, -inf
