"""Reserve future shares for jobs with deadlines, one job after the other."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from punctual.core.ids import JobId
from punctual.policies._configurations import Pool
from punctual.solvers.solution import FloatArray
from punctual.solvers.timeline import Levels, Share, Timeline

#: Order in which jobs take their shares: deadline, submission, name.
Rank = tuple[float, float, JobId]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReservationRequest:
    """Request of a job that is due in time, for devices of one pool.

    Attributes
    ----------
    pool
        Pool of its share.
    levels
        The amounts that it may hold.
    work
        Remaining work in the unit of the rates; infinite if unknown.
    until_s
        Seconds until its deadline; infinite without one.
    """

    id: JobId
    submitted_at: float
    pool: Pool
    levels: Levels
    work: float
    until_s: float

    @property
    def rank(self) -> Rank:
        return self.until_s, self.submitted_at, self.id


R = TypeVar("R", bound=ReservationRequest)
#: The share of a job, and the timeline that it is taken from; None if there is no room.
Rule = Callable[[Timeline, R], tuple[Timeline, Share] | None]


class ReservationLedger(Generic[R]):
    """The reservations in one pool, in the order in which they were made.

    Parameters
    ----------
    timeline
        Free devices before the first reservation.
    spare_s
        A job is late if its share ends more than this after its deadline; negative: a margin before it.

    Attributes
    ----------
    requests, shares
        Requests and shares of the jobs that have a reservation.
    late
        Jobs among them that are late.
    """

    __slots__ = ("_timelines", "late", "requests", "shares", "spare_s")

    def __init__(self, timeline: Timeline, spare_s: float = 0.0) -> None:
        #: Free timelines before each of the reservations, and after the last.
        self._timelines = [timeline]
        self.spare_s = spare_s
        self.requests: list[R] = []
        self.shares: list[Share] = []
        self.late: set[JobId] = set()

    @property
    def free(self) -> Timeline:
        """Timeline that the reservations leave free."""
        return self._timelines[-1]

    def reserve(self, request: R, rule: Rule[R]) -> bool:
        """Reserve a share by `rule`; False if it does not fit."""
        reserved = rule(self.free, request)
        if reserved is not None:
            self.take(request, *reserved)
        return reserved is not None

    def take(self, request: R, timeline: Timeline, share: Share) -> None:
        """Reserve a share of `timeline`."""
        if share.end_s > request.until_s + self.spare_s:
            self.late.add(request.id)
        self.requests.append(request)
        self.shares.append(share)
        self._timelines.append(timeline.take(share))

    def most_reserved(self) -> float:
        """The most that is reserved at one time."""
        starts_s = [share.starts_s for share in self.shares]
        return float(self.reserved_at(np.unique(np.concatenate(starts_s or [np.zeros(1)]))).max())

    def reserved_at(self, points_s: FloatArray) -> FloatArray:
        """Return the amount reserved at each of these points, seconds from now."""
        reserved = np.zeros(len(points_s))
        for share in self.shares:
            reserved += share.each_at(points_s)
        return reserved

    def withhold(self, amount: float) -> None:
        """Reduce the free amount for later requests by `amount`."""
        self._timelines[-1] = self.free.less(amount)

    def first(self, n: int) -> "ReservationLedger[R]":
        """A ledger with the first `n` reservations of this one."""
        ledger: ReservationLedger[R] = ReservationLedger(self._timelines[0], self.spare_s)
        ledger.requests, ledger.shares = self.requests[:n], self.shares[:n]
        ledger._timelines = self._timelines[: n + 1]
        ledger.late = self.late.intersection(request.id for request in ledger.requests)
        return ledger

    def plus(self, request: R, rule: Rule[R]) -> "ReservationLedger[R]":
        """Return a ledger with one more request; requests of lower rank keep their shares."""
        i = bisect_right(self.requests, request.rank, key=lambda other: other.rank)
        ledger = self.first(i)
        for each in (request, *self.requests[i:]):
            ledger.reserve(each, rule)
        return ledger
