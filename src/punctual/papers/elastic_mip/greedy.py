"""Give spare nodes one by one to the job that gains most time by them."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain
from math import inf

from punctual.core.cluster import Snapshot
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.policies._base import PolicyBase
from punctual.policies._elastic_fill import share_by_rank
from punctual.policies._hardware import Hardware
from punctual.policies._jobs import least, n_workers, never_fits, seniority, starts, waits
from punctual.policies._layout import lay_out
from punctual.policies._plan_builder import PlanBuilder, Space
from punctual.policies._repair import all_waiting, apply_demands, repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy(PolicyBase):
    """Starts jobs in order of submission with their least, and gives spare workers to the best gain.

    The policy against which [hu2021] compares. Use it as a baseline for elastic jobs: it is cheap, keeps queues short
    and never pauses a job. It does not look at deadlines, and every step is the best one only by itself.

    Formula, properties and differences: `docs/explanation/policies/greedy.md`.
    """

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        idle = repair(builder)
        apply_demands(builder)
        allocation = _Allocation(builder)
        waiting = all_waiting(builder, idle)
        allocation.admit(waiting)
        allocation.hand_out()
        lay_out(builder, [(job.view, job.n_before, job.n) for job in allocation.changed()])
        return builder.build()


class _JobState:
    """One job made of workers: its allowed numbers, its number so far (`i`), and its time to the end with each.

    It is made once for each view: `begin` comes before each plan.
    """

    def __init__(self, hardware: Hardware, view: JobView, worker: Resources, n_before: int, kind: str) -> None:
        self.view, self.worker, self.n_before, self.kind = view, worker, n_before, kind
        self.counts = hardware.counts(view.spec)
        self._i_before = self.counts.index(n_before) if n_before else -1
        self._hardware = hardware
        #: Steps per second with each of its numbers, filled on demand.
        self._rates: list[float | None] = [None] * len(self.counts)

    def begin(self, at: float) -> "_JobState":
        """Start a plan at instant `at` from its present number."""
        self.i, self._at = max(0, self._i_before), at
        self._steps: float | None = -1.0  # found only when it is this job's turn to gain or lose
        return self

    @property
    def n(self) -> int:
        return self.counts[self.i]

    def gain_s(self, i: int, i_more: int) -> tuple[int, float]:
        """Seconds gained per device from one of its numbers to a larger one; only a ranking for unknown jobs."""
        more = (self.counts[i_more] - self.counts[i]) * (self.worker.gpus or self.worker.cores or 1.0)
        end_s, end_more_s = self._end_s(i), self._end_s(i_more)
        if end_s < inf and end_more_s < inf:
            return 1, (end_s - end_more_s) / more
        if end_s < inf:  # it cannot run with more
            return 1, -inf
        return 0, (1 / self.counts[i] - 1 / self.counts[i_more]) / more

    def _end_s(self, i: int) -> float:
        if self._steps == -1.0:
            self._steps = self.view.remaining_steps(self._at)
        rate_sps = self._rates[i]
        if rate_sps is None:
            rate_sps = self._rates[i] = self._rate_sps(self.counts[i])
        if self._steps is None or rate_sps <= 0:
            return inf
        resized = i != self._i_before and self._i_before >= 0
        return self._steps / rate_sps + (self.view.spec.resize_cost_s if resized else 0.0)

    def _rate_sps(self, n: int) -> float:
        speed, cores = self._hardware.speed(self.view), self.worker.cores * n
        rate_sps = speed.rate_sps(n, cores, self.kind)
        if rate_sps <= 0 and self.n_before and speed.is_unknown(n, cores, self.kind):
            return self.view.rate_sps * n / self.n_before
        return rate_sps


class _Allocation:
    """Numbers of workers of all jobs, counted for each kind of device as if it were one large node."""

    def __init__(self, builder: PlanBuilder) -> None:
        self._builder = builder
        hardware = builder.hardware
        self._spaces = {kind: Space([builder.free[node] for node in nodes]) for kind, nodes in hardware.kinds.items()}
        self._jobs: dict[str, list[_JobState]] = {kind: [] for kind in hardware.kinds}
        #: Amounts that the jobs of a kind could give up, and a heap of their losses; made on first use.
        self._slack: dict[str, Space] = {}
        self._losses: dict[str, list[tuple[tuple[int, float], float, str, _JobState]]] = {}
        holding = builder.snapshot.holding
        for view, job in zip(holding, hardware.remembered(_as_planned).each(holding), strict=True):
            self._continue(view, job)

    def admit(self, waiting: Iterable[JobView]) -> None:
        """Start jobs in order while they fit or room can be made for them."""
        for view in waiting:
            if view.status == "stopping":
                continue
            wanted = self._wanted(view)
            if wanted is None:
                self._builder.explain(view, never_fits(view))
            elif not (self._admit_whole(view) if view.spec.worker is None else self._admit_workers(view, wanted)):
                self._builder.explain(view, waits(wanted, self._builder.free))
                return

    def hand_out(self) -> None:
        """Give spare workers to the jobs that gain most by them."""
        for kind, jobs in self._jobs.items():
            self._hand_out(self._spaces[kind], jobs)

    def changed(self) -> list[_JobState]:
        return [job for jobs in self._jobs.values() for job in jobs if job.n != job.n_before]

    def _continue(self, view: JobView, as_planned: _JobState | None) -> None:
        """Keep a running job with its amount; `as_planned`: its state if it has just what the last plan gave it."""
        held = self._builder.held(view)
        job = as_planned if held is view.planned else _with_held(self._builder.hardware, view, held)
        if job is not None:
            self._jobs[job.kind].append(job.begin(self._builder.snapshot.at))

    def _wanted(self, view: JobView) -> Resources | None:
        """Return the amount to start the job with; None if the nodes cannot hold it."""
        if view.spec.worker is None:
            return self._builder.hardware.amount(view)
        return next(iter(self._builder.hardware.worker_amounts(view.spec)), None)

    def _admit_whole(self, view: JobView) -> bool:
        """Start a job without workers, in the room that jobs started before it leave."""
        allocation = self._builder.fit(view)
        if allocation is None:
            return False
        node, amount = next(iter(allocation.items()))
        space = self._spaces[self._builder.hardware.kind_of[node]]
        if not space.may_hold(amount):
            amount = space.part_of(amount).at_least(least(view.spec))
            if not space.may_hold(amount):
                return False
        space.take(amount)
        allocation = {node: amount}
        self._builder.put(view, allocation, starts(view, allocation))
        return True

    def _admit_workers(self, view: JobView, least: Resources) -> bool:
        """Start a job made of workers with its smallest number if it fits or room can be made; return whether."""
        kinds = self._builder.kinds_for(view, least)
        roomy = (kind for kind in kinds if self._spaces[kind].may_hold(least))
        made_roomy = (kind for kind in kinds if self._make_room(kind, least))
        kind = next(chain(roomy, made_roomy), None)
        if kind is None:
            return False
        self._spaces[kind].take(least)
        job = _JobState(self._builder.hardware, view, _unit(view), 0, kind)
        self._jobs[kind].append(job.begin(self._builder.snapshot.at))
        return True

    def _make_room(self, kind: str, least: Resources) -> bool:
        """Take workers from the jobs that lose least until the amount fits; False if that cannot be enough."""
        space, slack = self._spaces[kind], self._slack_of(kind)
        together = space.copy()
        together.add(slack)
        if not together.may_hold(least):
            return False
        losses = self._losses[kind]
        while not space.may_hold(least):
            job = losses[0][-1]
            n_given = job.counts[job.i] - job.counts[job.i - 1]
            job.i -= 1
            space.add(job.worker, n_given)
            slack.take(job.worker, n_given)
            if job.i:
                heapreplace(losses, _loss(job))
            else:
                heappop(losses)
        return True

    def _slack_of(self, kind: str) -> Space:
        if kind not in self._slack:
            slack = self._slack[kind] = Space(())
            givers = [job for job in self._jobs[kind] if job.i]
            for job in givers:
                slack.add(job.worker, job.n - job.counts[0])
            self._losses[kind] = [_loss(job) for job in givers]
            heapify(self._losses[kind])
        return self._slack[kind]

    def _hand_out(self, space: Space, jobs: Iterable[_JobState]) -> None:
        def rank(job: _JobState) -> tuple[int, float] | None:
            if not _can_grow(job, space):
                return None
            known, gain_s = job.gain_s(job.i, job.i + 1)
            return (-known, -gain_s) if gain_s > 0 else None

        def take(job: _JobState) -> bool:
            if not _can_grow(job, space):
                return False
            space.take(job.worker, job.counts[job.i + 1] - job.n)
            job.i += 1
            return True

        share_by_rank(jobs, rank, take)


def _as_planned(hardware: Hardware, view: JobView) -> _JobState | None:
    return _with_held(hardware, view, view.planned)


def _with_held(hardware: Hardware, view: JobView, held: Allocation) -> _JobState | None:
    """Return the state of a job made of workers that holds `held`; None if it takes no part in the sharing."""
    if not held or view.spec.worker is None or view.status == "stopping":
        return None
    n = n_workers(view.spec, held)
    kind = hardware.kind_of.get(next(iter(held)))
    if kind is None or n not in hardware.counts(view.spec):
        return None
    return _JobState(hardware, view, _unit(view), n, kind)


def _unit(view: JobView) -> Resources:
    return view.spec.unit or view.spec.ceiling


def _can_grow(job: _JobState, space: Space) -> bool:
    counts, i = job.counts, job.i
    return i + 1 < len(counts) and space.may_hold(job.worker, counts[i + 1] - counts[i])


def _loss(job: _JobState) -> tuple[tuple[int, float], float, str, _JobState]:
    """Return an entry for a heap: the least loss first, unknown ones before known ones."""
    return job.gain_s(job.i - 1, job.i), *seniority(job.view), job
