"""Start jobs whole, in an order, and pause those that come later in it."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from math import inf

from punctual.core.fast_init import fast_init
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.policies._hardware import RigidRequest
from punctual.policies._jobs import Size, is_steered, may_pause, n_workers, never_fits, starts, waits
from punctual.policies._plan_builder import PlanBuilder, Space
from punctual.policies._repair import apply_demands, repair

#: (rank, submitted_at, id, view, request): ties never reach the view.
Ranked = tuple[float, float, str, JobView, RigidRequest]

#: Stands for "behind everything" where an infinite number could not be written into a journal.
_LAST_OF_ALL = 1e300


@fast_init
@dataclass(frozen=True, slots=True)
class Order:
    """The order in which jobs are served: the lowest rank first.

    Attributes
    ----------
    waiting, shift
        The rank of a job that would get the request now: `waiting`, which does not change as long as the view of the job
        stays, and `shift`, which is the same for all.
    running
        The rank of a job that holds something, in the same unit. It does not change with time while the job runs as
        expected, so that what was found out about it in one round holds in the next.
    """

    waiting: Callable[[JobView, RigidRequest], float]
    running: Callable[[JobView], float]
    shift: float = 0.0


class WaitingQueue:
    """The waiting jobs in their order, kept from plan to plan: most of a long queue stays the same.

    A job is known by the identity of its view, which the scheduler shows until something about it changes.
    """

    def __init__(self) -> None:
        #: All jobs by the identities of their views, which are kept so that no others can have them.
        self._known: dict[int, tuple[JobView, Ranked | None]] = {}
        #: Jobs in their order, without the offset common to all ranks.
        self.ranked: list[Ranked] = []
        #: Number of these jobs by the number of devices they ask for.
        self._gpus: Counter[float] = Counter()
        #: Jobs that are being paused: they go on until they are, and have the rank of running ones.
        self.going: dict[int, tuple[JobView, RigidRequest]] = {}
        #: Jobs for which there is no node.
        self.unfit: dict[int, JobView] = {}

    @property
    def least_gpus(self) -> float:
        """The fewest devices that one of `ranked` asks for."""
        return min(self._gpus, default=inf)

    def update(
        self, views: Sequence[JobView], request_of: Callable[[JobView], RigidRequest | None], order: Order
    ) -> None:
        """Replace the jobs that wait."""
        known, there = self._known, dict(zip(map(id, views), views, strict=True))
        new = list(filterfalse(known.__contains__, there))
        if len(known) + len(new) > len(there):
            for left in list(filterfalse(there.__contains__, known)):
                self._remove(left)
        for key in new:
            self._add(there[key], request_of, order)

    def _add(self, view: JobView, request_of: Callable[[JobView], RigidRequest | None], order: Order) -> None:
        key, ranked = id(view), None
        request = None if view.status == "stopping" else request_of(view)
        if request is None:
            if view.status != "stopping":
                self.unfit[key] = view
        elif view.rate_sps > 0:
            self.going[key] = view, request
        else:
            ranked = (order.waiting(view, request), view.submitted_at, view.spec.id, view, request)
            insort(self.ranked, ranked)
            self._gpus[request.amount.gpus] += 1
        self._known[key] = view, ranked

    def _remove(self, key: int) -> None:
        _, ranked = self._known.pop(key)
        self.going.pop(key, None)
        self.unfit.pop(key, None)
        if ranked is not None:
            del self.ranked[bisect_left(self.ranked, ranked)]
            gpus = ranked[4].amount.gpus
            self._gpus[gpus] -= 1
            if not self._gpus[gpus]:
                del self._gpus[gpus]


def serve(builder: PlanBuilder, order: Order, *, size: Size, margin: float = 0.0) -> Plan:
    """Start waiting jobs by rank; to fit one, pause running jobs that rank more than `margin` behind it.

    What runs is only looked at when a waiting job could take its place: the plan carries the rank of the last running
    job that may be paused (`last`), and whether something besides starting jobs may be due (`watch`).
    """
    watch = bool(builder.carry.get("watch", True))
    if not watch and not builder.snapshot.waiting:
        return builder.build(watch=False, last=builder.carry.get("last", _LAST_OF_ALL), first=None)
    return _RigidRound(builder, order, size, margin).plan(watch=watch)


class _RigidRound:
    """State of one plan while it is built."""

    def __init__(self, builder: PlanBuilder, order: Order, size: Size, margin: float) -> None:
        self._builder, self._order, self._size, self._margin = builder, order, size, margin
        self._request = builder.hardware.requests[size]
        #: Upper bounds of the ranks of running jobs that may be paused, and of jobs that this plan starts.
        self._last = float(builder.carry.get("last", _LAST_OF_ALL))
        self._last_started = -_LAST_OF_ALL
        #: Running jobs that may be paused, with their ranks; found when the first of them may have to go.
        self._running: list[Ranked] | None = None
        self._waiting = builder.hardware.kept(WaitingQueue)
        #: Jobs that hold something, or did until this plan, and are looked at in their turn among those that wait.
        self._others: list[Ranked] = []
        #: Made when the first job does not fit: in short queues that is rare.
        self._space: Space | None = None
        #: More devices than are free and held behind a job that was served before: so it is for those that come after it.
        self._too_many_gpus = inf
        self._watch = False
        self._first: str | None = None

    def plan(self, *, watch: bool) -> Plan:
        builder = self._builder
        idle: list[JobView] = []
        if watch:
            idle = repair(builder)
            self._watch = apply_demands(builder)
        waiting = builder.snapshot.waiting
        self._waiting.update((*waiting, *idle) if idle else waiting, self._request, self._order)
        self._serve()
        # A job that is being paused is not among the waiting ones until it is.
        self._watch |= any(not builder.held(view) for view in idle)
        last = min(max(self._last, self._last_started), _LAST_OF_ALL)
        return builder.build(watch=self._watch, last=last, first=self._first)

    def _serve(self) -> None:
        """Start the jobs in their order; jobs that are paused on the way come in their turn."""
        waiting, shift, others = self._waiting, self._order.shift, self._others
        least_gpus = waiting.least_gpus
        for view in waiting.unfit.values():
            self._builder.explain(view, never_fits(view))
        for view, request in waiting.going.values():
            insort(others, (self._order.running(view), view.submitted_at, view.spec.id, view, request))
        for rank, submitted_at, name, view, request in waiting.ranked:
            rank += shift  # noqa: PLW2901 -- the rank of now
            while others and others[0][:3] < (rank, submitted_at, name):
                self._look_at(others.pop(0))
            if self._cannot_have(rank, request.amount.gpus):
                if not others and self._cannot_have(rank, least_gpus):
                    break  # the same holds for all that follow
                continue  # `_try` would find the same; most waiting jobs end here
            self._try((rank, submitted_at, name, view, request))
        while others:
            self._look_at(others.pop(0))

    def _look_at(self, ranked: Ranked) -> None:
        if not self._cannot_have(ranked[0], ranked[4].amount.gpus):
            self._try(ranked)

    def _cannot_have(self, rank: float, n_gpus: float) -> bool:
        """Whether jobs from this rank on certainly cannot have so many devices, judged without a search of nodes."""
        if self._space is None:
            return False
        return n_gpus > self._space.gpus if rank + self._margin >= self._last else n_gpus >= self._too_many_gpus

    def _try(self, ranked: Ranked) -> None:
        """Start the job if it fits, or if room can be made."""
        rank, _, _, view, request = ranked
        may_fit = self._space is None or self._space.may_hold(request.amount)
        allocation = self._place(view, request) if may_fit else None
        if allocation is None and self._space is None:
            self._space = Space(self._builder.free.values())
            self._explain_first(view, request)
        if allocation is None and rank + self._margin < self._last:
            allocation = self._make_room(ranked)
        if allocation is not None:
            self._start(ranked, allocation)

    def _explain_first(self, view: JobView, request: RigidRequest) -> None:
        """Say why the first job that waits does so, once."""
        self._first = view.spec.id
        if self._builder.carry.get("first") != self._first:
            self._builder.explain(view, waits(request.amount, self._builder.free))

    def _place(self, view: JobView, request: RigidRequest) -> Allocation | None:
        """Return the job's old place, if this plan paused it and the place is still free; otherwise any place."""
        free = self._builder.free
        had = {} if self._builder.hardware.is_broken(view) else view.planned
        if had and all(amount.fits_in(free[node]) for node, amount in had.items()):
            return had
        return self._builder.find(view, request.n, request.worker)

    def _start(self, ranked: Ranked, allocation: Allocation) -> None:
        rank, _, _, view, _ = ranked
        self._builder.put(view, allocation, starts(view, allocation))
        if self._space is not None:
            for amount in allocation.values():
                self._space.take(amount)
        self._watch |= is_steered(view)
        if view.spec.preemptible:
            self._last_started = max(self._last_started, rank)

    def _make_room(self, ranked: Ranked) -> Allocation | None:
        """Pause the jobs that rank last until the request fits, if they are enough; they queue up again."""
        rank, _, _, view, request = ranked
        chosen = self._fewest(self._behind(rank + self._margin), view, request)
        if chosen is None:
            return None
        victims, allocation = chosen
        for victim in victims:
            self._pause(victim[3], view)
            insort(self._others, victim)
        return allocation

    def _behind(self, rank: float) -> Iterator[Ranked]:
        """Yield running jobs that may be paused and rank behind `rank`, the last one first."""
        held = self._builder.held
        for ranked in self._ranked_running():
            if ranked[0] <= rank:
                return
            if held(ranked[3]):
                yield ranked

    def _ranked_running(self) -> list[Ranked]:
        """Return the running jobs that may be paused, the last one first; computed once in a round."""
        if self._running is None:
            rank_of, holding = self._order.running, self._builder.snapshot.holding
            ranks = [(rank_of(view), view) for view in holding if view.spec.preemptible and view.planned]
            # Jobs that are starting count here: in the next round they may run.
            self._last = max([rank for rank, _ in ranks], default=-_LAST_OF_ALL)
            self._running = sorted(
                [
                    (rank, view.submitted_at, view.spec.id, view, request)
                    for rank, view in ranks
                    if may_pause(view) and (request := self._request(view)) is not None
                ],
                reverse=True,
            )
        return self._running

    def _fewest(
        self, victims: Iterable[Ranked], view: JobView, request: RigidRequest
    ) -> tuple[list[Ranked], Allocation] | None:
        """Return the fewest of the last jobs to pause, and the allocation for the request after that."""
        builder, free = self._builder, self._builder.free
        space = self._space.copy() if self._space else Space(free.values())
        chosen: list[Ranked] = []
        n_freed = 0
        for victim in victims:
            chosen.append(victim)
            for amount in builder.held(victim[3]).values():
                space.add(amount)
            if space.may_hold(request.amount):  # mostly all of them together are not enough: then no node is looked at
                free = builder.freed((other[3] for other in chosen[n_freed:]), free)
                n_freed = len(chosen)
                allocation = builder.find(view, request.n, request.worker, free)
                if allocation is not None:
                    return chosen, allocation
        if request.amount.gpus > space.gpus:
            self._too_many_gpus = min(request.amount.gpus, self._too_many_gpus)
        return None

    def _pause(self, victim: JobView, gainer: JobView) -> None:
        held = self._builder.held(victim)
        reason = Reason(
            "paused",
            f"paused: '{gainer.spec.id}' comes first and needs the room",
            {"n_workers": float(n_workers(victim.spec, held))},
        )
        self._builder.put(victim, {}, reason)
        if self._space is not None:
            for amount in held.values():
                self._space.add(amount)
        self._watch = True
