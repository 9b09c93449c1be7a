"""Give workers and servers, one by one, where they shorten training most for their size."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from operator import attrgetter
from typing import NamedTuple

from punctual.core.cluster import Snapshot
from punctual.core.errors import check_share
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, TOLERANCE, Resources, total
from punctual.core.units import counted, span
from punctual.policies._base import PolicyBase
from punctual.policies._elastic_fill import share_by_rank
from punctual.policies._jobs import never_fits, seconds_for, seniority, shares_of, waits
from punctual.policies._plan_builder import PlanBuilder, Space
from punctual.policies._repair import prepare
from punctual.solvers.placement import Rooms, place_apart, place_evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimus(PolicyBase):
    """Gives every job its least, and the rest, piece by piece, to the largest gain of time.

    Use it for elastic jobs with parameter servers, where more workers or more servers is a question of the job's speed; it
    also takes jobs without servers. It pauses no job, does not look at deadlines, and favours jobs that are long and
    still speed up.

    Formula, properties and differences: `docs/explanation/policies/optimus.md`.

    Parameters
    ----------
    interval_s
        Running jobs are resized no more often than this; in between jobs only start, with their least. 0: all is decided
        anew at every change.
    young_frac
        A job counts as young until it has done this share of its declared steps.
    young_factor
        Factor on the gains of young jobs, whose length and speed are least certain.
    """

    interval_s: float = 600.0
    young_frac: float = 0.05
    young_factor: float = 0.95

    def __post_init__(self) -> None:
        self._check_not_negative("interval_s", "s")
        self._check_positive("young_factor")
        check_share("policy 'optimus'", young_frac=self.young_frac, young_factor=self.young_factor)

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        next_at = _instant(builder.carry.get("next_at"))
        is_due = next_at is None or snapshot.at >= next_at
        if is_due or next_at is None:
            next_at = snapshot.at + self.interval_s
        waiting = sorted(prepare(builder), key=seniority)
        allocator = self._allocated(builder, [view for view in waiting if view.spec.worker is not None], is_due=is_due)
        for kind, jobs in allocator.jobs.items():
            _BalancedPlacement(builder, kind).seat(jobs)
        has_jobs = any(allocator.jobs.values())
        again_at = next_at if self.interval_s and has_jobs else None
        return replace(builder.build(next_at=next_at), ask_again_at=again_at)

    def _allocated(self, builder: PlanBuilder, waiting: list[JobView], *, is_due: bool) -> "_Allocator":
        """Choose the numbers of each job made of workers."""
        allocator = _Allocator(builder, self._pressure)
        allocator.resume(sorted(builder.snapshot.holding, key=seniority), keep=not is_due)
        told = False
        for view in waiting:
            if view.status == "stopping":
                continue
            lacking = allocator.admit(view)
            if lacking == Resources():
                builder.explain(view, never_fits(view))
            elif lacking is not None and not told:
                builder.explain(view, waits(lacking, builder.free))
                told = True
        if is_due:
            allocator.run()
        return allocator

    def _pressure(self, view: JobView) -> float:
        is_young = view.done_steps < self.young_frac * (view.spec.work_steps or 0.0)
        return view.spec.weight * (self.young_factor if is_young else 1.0)


def _instant(carried: object) -> float | None:
    """The end of the interval, from the last plan."""
    return float(carried) if isinstance(carried, int | float) and isfinite(carried) else None


#: Numbers of workers and of servers; a job without servers has none of these at any time.
Parts = tuple[int, int]

_HOLDS_NOTHING: Parts = (0, 0)


class _Step(NamedTuple):
    """One more worker (or the next allowed number of them), or one more server: the new numbers, and the gain."""

    parts: Parts  # Numbers that the job would have.
    more: Resources  # Amount beyond the present one.
    end_s: float  # Seconds that the job would still take; infinite if unknown.
    known: bool  # Whether the speed is known; if not, `gain_s` compares only with other unknown jobs.
    gain_s: float  # Seconds gained for each unit of the dominant share of the cluster that the step takes.


class _JobState:
    """One job made of workers on nodes of one kind: its numbers before, its numbers so far, and the steps between."""

    def __init__(self, builder: PlanBuilder, view: JobView, kind: str, before: Parts, pressure: float) -> None:
        spec = view.spec
        self.view, self.kind, self.before, self.age = view, kind, before, seniority(view)
        self._pressure = pressure
        self._worker, self._server = spec.worker or spec.ceiling, spec.server or NOTHING
        #: Dominant shares of a worker and of a server.
        self._shares = (1.0, 1.0)
        self._limit = spec.ceiling if spec.controller is None else view.demand.at_most(spec.ceiling)
        self._counts = builder.hardware.worker_counts(spec) if spec.server else builder.hardware.counts(spec)
        #: Index of the next larger number of workers.
        self._i_after = 1
        self._speed = builder.hardware.speed(view)
        self._steps = view.remaining_steps(builder.snapshot.at)
        #: All that it had so far, its least first: what is tried where the last one does not fit on nodes.
        self.path: list[Parts] = [self.least] if self._counts else []
        self._end_s = inf
        #: Possible next steps, the most useful first.
        self.next_steps: list[_Step] = []

    @property
    def least(self) -> Parts:
        return self._counts[0], int(self._server is not NOTHING)

    @property
    def parts(self) -> Parts:
        return self.path[-1]

    def amount(self, parts: Parts) -> Resources:
        """Return the amount of so many workers and servers."""
        workers = self._worker * parts[0]
        return workers + self._server * parts[1] if parts[1] else workers

    def end_s(self, parts: Parts) -> float:
        """Seconds the job would still take; infinite if unknown."""
        return seconds_for(self._steps, self._rate_sps(parts))

    def keep(self) -> None:
        """Keep its numbers of before."""
        self.path = [self.before]

    def enter(self, capacity: Resources) -> None:
        """Enter the sharing of the free part of `capacity`."""
        self._shares = max(shares_of(self._worker, capacity)), max(shares_of(self._server, capacity))
        self._end_s = self.end_s(self.parts)
        self._look()

    def take(self, step: _Step) -> None:
        if step.parts[0] > self.parts[0]:
            self._i_after += 1
        self.path.append(step.parts)
        self._end_s = step.end_s
        self._look()

    def _look(self) -> None:
        """Find what could be taken next and gains something."""
        (n, n_servers), steps = self.parts, []
        if self._i_after < len(self._counts):
            after = self._counts[self._i_after]
            more = self._worker if after == n + 1 else self._worker * (after - n)
            steps.append(self._step((after, n_servers), more, self._shares[0] * (after - n)))
        if n_servers:
            steps.append(self._step((n, n_servers + 1), self._server, self._shares[1]))
        self.next_steps = sorted([step for step in steps if step is not None and step.gain_s > 0], key=_turn)

    def _step(self, parts: Parts, more: Resources, share: float) -> _Step | None:
        if not self._may_have(parts):
            return None
        end_s, known = self.end_s(parts), self._end_s < inf
        sooner = self._end_s - end_s if known else _guess(*self.parts) - _guess(*parts)
        return _Step(parts, more, end_s, known, self._pressure * sooner / share)

    def _may_have(self, parts: Parts) -> bool:
        (n, n_servers), worker, server, limit = parts, self._worker, self._server, self._limit
        # Spelled out because it is asked twice for each step: whether `amount(parts)` fits in the limit.
        if (
            worker.gpus * n + server.gpus * n_servers > limit.gpus
            or worker.cores * n + server.cores * n_servers > limit.cores + TOLERANCE
            or worker.memory_bytes * n + server.memory_bytes * n_servers > limit.memory_bytes
            or ((worker.others or server.others) and not self.amount(parts).fits_in(limit))
        ):
            return False
        # If a worker and a server hold the same kinds of hardware, an amount may read as other numbers of them.
        tells_apart = n_servers == 0 or (worker.gpus > 0 and server.gpus == 0)
        return tells_apart or self.view.spec.parts_of(self.amount(parts)) == parts

    def _rate_sps(self, parts: Parts) -> float:
        n, n_servers = parts
        if n_servers:
            rate_sps = self._speed.served_sps(n, n_servers, self.kind)
        else:
            rate_sps = self._speed.rate_sps(n, self._worker.cores * n, self.kind)
        if rate_sps <= 0 and self.view.rate_sps > 0 and self.before != _HOLDS_NOTHING:
            return self._scaled_sps(parts)
        return rate_sps

    def _scaled_sps(self, parts: Parts) -> float:
        """Return a rate scaled from its present one, if only that is known."""
        if not self._speed.is_unknown(parts[0], self._worker.cores * parts[0], self.kind):
            return 0.0  # known not to run
        return self.view.rate_sps * _guess(*self.before) / _guess(*parts)


def _guess(n_workers: int, n_servers: int) -> float:
    """Return the guessed time of a step, in times of one worker, for a job of unknown speed."""
    return 1 / n_workers + (1 / n_servers if n_servers else 0.0)


def _turn(step: _Step) -> tuple[bool, float]:
    return not step.known, -step.gain_s


def _rank(job: _JobState) -> tuple[bool, float] | None:
    """The greatest gain first."""
    return _turn(job.next_steps[0]) if job.next_steps else None


def _take(space: Space, job: _JobState) -> bool:
    step = job.next_steps[0]
    if space.may_hold(step.more):
        space.take(step.more)
        job.take(step)
    else:  # what is free only becomes less: this step is tried no more, but the other may be smaller
        del job.next_steps[0]
    return True


class _Allocator:
    """Numbers of workers and servers of all jobs, counted for each kind of nodes as if it were one large node.

    Parameters
    ----------
    builder
        Builder whose free amounts are to be given.
    pressure
        Factor on a job's gains.
    """

    def __init__(self, builder: PlanBuilder, pressure: Callable[[JobView], float]) -> None:
        hardware = builder.hardware
        self._builder, self._pressure = builder, pressure
        self._capacity_of = hardware.total_of
        self._spaces = {kind: Space([builder.free[node] for node in nodes]) for kind, nodes in hardware.kinds.items()}
        self.jobs: dict[str, list[_JobState]] = {kind: [] for kind in hardware.kinds}

    def resume(self, views: Iterable[JobView], *, keep: bool) -> None:
        """Add running jobs: with all they hold (`keep`), or with their least, so that the rest is shared again."""
        for view in views:
            held = self._builder.held(view)
            parts = view.spec.parts_of(total(held.values()))
            if not held or parts is None or view.status == "stopping":
                continue
            kind = self._builder.hardware.kind_of[next(iter(held))]
            job = _JobState(self._builder, view, kind, parts, self._pressure(view))
            if keep:
                job.keep()
            else:
                for amount in held.values():
                    self._spaces[kind].add(amount)
                self._spaces[kind].take(job.amount(job.least))
            self.jobs[kind].append(job)

    def admit(self, view: JobView) -> Resources | None:
        """Let a job take part with its least. Returns None, or the amount that does not fit.

        Nothing: there will never be room for it.
        """
        job = _JobState(self._builder, view, "", _HOLDS_NOTHING, self._pressure(view))
        if not job.path:
            return NOTHING
        least = job.amount(job.least)
        kinds = [kind for kind in self._builder.kinds_for(view, least) if least.fits_in(self._capacity_of[kind])]
        if not kinds or not least.fits_in(view.spec.ceiling):
            return NOTHING
        for kind in kinds:
            if self._spaces[kind].may_hold(least):
                self._spaces[kind].take(least)
                job.kind = kind
                self.jobs[kind].append(job)
                return None
        return least

    def run(self) -> None:
        """Give the free amounts, one by one, to the jobs that gain most by them."""
        for kind, jobs in self.jobs.items():
            for job in jobs:
                job.enter(self._capacity_of[kind])
            space = self._spaces[kind]
            share_by_rank(jobs, _rank, partial(_take, space))


class _BalancedPlacement:
    """Finds nodes for the jobs of one kind of nodes, one after another.

    What shrinks goes first. Then every job that starts gets room for its least, the oldest first; then these and those
    that grow for all that they are to have, the smallest first. Each is placed on what is free when it is its turn, so that
    the changes can also be carried out one after another: no two jobs wait for each other's room. A job that does not fit
    with what it was to have gets what it had before its last steps in the allocator; if it would end up with less than it has
    although it was to have more, or if nothing fits, it stays as it is.
    """

    def __init__(self, builder: PlanBuilder, kind: str) -> None:
        self._builder = builder
        nodes = builder.hardware.kinds[kind]
        self._total = builder.hardware.total
        self._rooms = Rooms({node: builder.free[node] for node in nodes})

    def seat(self, jobs: Iterable[_JobState]) -> None:
        changed = [job for job in jobs if job.parts != job.before and _pays(job)]
        changed.sort(key=self._turn)
        for job in changed:
            if _is_less(job.parts, job.before):
                self._seat(job)
        starting = sorted((job for job in changed if not any(job.before)), key=attrgetter("age"))
        unplaced = {job.view.spec.id for job in starting if not self._start(job)}
        for job in changed:
            if not _is_less(job.parts, job.before) and job.view.spec.id not in unplaced:
                self._seat(job)

    def _turn(self, job: _JobState) -> tuple[float, float, str]:
        return max(shares_of(job.amount(job.parts), self._total)), *job.age

    def _start(self, job: _JobState) -> bool:
        """Find room for the least that the job may have."""
        placed = self._find(job, job.least, {})
        if placed is None:
            self._builder.explain(job.view, waits(job.amount(job.least), self._builder.free))
            return False
        self._take(placed)
        self._builder.put(job.view, placed, _why(job, job.least, placed))
        return True

    def _seat(self, job: _JobState) -> None:
        held = self._builder.held(job.view)
        self._free(held)
        parts, placed = self._most(job, held)
        if placed is None:
            self._take(held)
        else:
            self._take(placed)
            self._builder.put(job.view, placed, _why(job, parts, placed))

    def _most(self, job: _JobState, held: Allocation) -> tuple[Parts, Allocation | None]:
        """Find by bisection the allocator's last step with which the job fits, and its place."""
        candidates = _candidates(job)
        parts, best = job.least, None
        fails, fits, i = -1, len(candidates), 0
        while fits - fails > 1:
            placed = self._find(job, candidates[i], held)
            if placed is None:
                fails = i
            else:
                fits, parts, best = i, candidates[i], placed
            i = (fits + fails) // 2
        return parts, best

    def _find(self, job: _JobState, parts: Parts, held: Allocation) -> Allocation | None:
        """An equal part on each of the fewest nodes, where the job is already if that takes no more of them."""
        worker, server = _worker_and_server(job)
        home = Rooms({node: self._rooms.free[node] for node in held if node in self._rooms.free}) if held else None
        at_home = place_evenly(parts[0], worker, parts[1], server, home) if home else None
        fewer = None if at_home is None else len(at_home) - 1
        best = place_evenly(parts[0], worker, parts[1], server, self._rooms, fewer) or at_home
        if best is not None:
            return best
        if home and _is_less(parts, job.before):  # where it is there must be room
            return place_apart(parts[0], worker, parts[1], server, home.free)
        # One worker and one server have only the equal parts.
        if parts != job.least or parts[0] + parts[1] <= 2:
            return None
        return place_apart(parts[0], worker, parts[1], server, self._rooms.free)

    def _free(self, allocation: Allocation) -> None:
        for node, amount in allocation.items():
            if node in self._rooms.free:
                self._rooms.change(node, self._rooms.free[node] + amount)

    def _take(self, allocation: Allocation) -> None:
        for node, amount in allocation.items():
            if node in self._rooms.free:
                self._rooms.change(node, self._rooms.free[node] - amount)


def _candidates(job: _JobState) -> list[Parts]:
    """Return numbers to try: the allocator's, then earlier ones that are no slower than the present ones."""
    if _is_less(job.parts, job.before):
        return job.path[::-1]
    has = job.before if any(job.before) else job.least
    earlier = (parts for parts in job.path[-2::-1] if not _is_less(parts, has))
    has_s = job.end_s(has)
    return [job.parts, *(parts for parts in earlier if job.end_s(parts) <= has_s)] if job.parts != has else []


def _is_less(parts: Parts, before: Parts) -> bool:
    """Whether neither number is higher."""
    return parts[0] <= before[0] and parts[1] <= before[1]


def _pays(job: _JobState) -> bool:
    """Whether a running job that is to have more gains more time than the change costs, as far as known."""
    if not any(job.before) or not _is_less(job.before, job.parts):
        return True
    sooner_s = job.end_s(job.before) - job.end_s(job.parts)
    return not isfinite(sooner_s) or sooner_s > job.view.spec.resize_cost_s


def _worker_and_server(job: _JobState) -> tuple[Resources, Resources]:
    spec = job.view.spec
    return spec.worker or spec.ceiling, spec.server or NOTHING


def parts_text(parts: Parts) -> str:
    """Workers and servers for people: ``"2 workers, 1 server"``."""
    texts = [counted(n, word) for n, word in zip(parts, ("worker", "server"), strict=True) if n]
    return ", ".join(texts)


def _why(job: _JobState, parts: Parts, allocation: Allocation) -> Reason:
    """Return the reason for new numbers: the time gained or given up, if known."""
    facts = {
        "n_workers_before": float(job.before[0]),
        "n_workers": float(parts[0]),
        "n_servers_before": float(job.before[1]),
        "n_servers": float(parts[1]),
        "n_nodes": float(len(allocation)),
    }
    if not any(job.before):
        verb = "starts" if job.view.started_at is None else "goes on"
        return Reason("starts", f"{verb} with {parts_text(parts)} on {_nodes_text(allocation)}", facts)
    sooner_s = job.end_s(job.before) - job.end_s(parts)
    change = f"{parts_text(job.before)} -> {parts_text(parts)}"
    if not isfinite(sooner_s):
        return Reason("shifts", f"{change}; its speed or length is not known and taken as average", facts)
    facts["sooner_s"] = sooner_s
    if sooner_s >= 0:
        text = f"{change}: finishes {span(sooner_s)} earlier, more for what it takes than others would gain by it"
        return Reason("grows", text, facts)
    text = f"{change}: finishes {span(-sooner_s)} later, less for what it gives up than others gain by it"
    return Reason("shrinks", text, facts)


def _nodes_text(allocation: Allocation) -> str:
    n = len(allocation)
    return f"node '{next(iter(allocation))}'" if n == 1 else f"{n} nodes"
