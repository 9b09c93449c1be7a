"""Minimum satisfactory shares, job after job in the order of deadlines."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.optim.timeline import Levels, Share, Timeline
from punctual.policies._hardware import Hardware, Speed
from punctual.policies._plan_builder import PlanBuilder

#: What is shared: the GPUs of one kind of nodes, or the cores of those nodes.
Pool = tuple[str, bool]

#: What a job is to hold: from an instant on, so much.
Steps = list[tuple[float, float]]

#: A margin may be smaller by this share of it: rounding.
_MARGIN_ROUNDING_FRAC = 1e-3

#: Order in which jobs take their shares: deadline, submission, name.
Rank = tuple[float, float, JobId]


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """The numbers of workers that a job may have on one kind of nodes, the first 0, and what they mean.

    Attributes
    ----------
    known
        Whether anything is known of the speed; otherwise it is taken as proportional to the workers.
    """

    counts: tuple[int, ...]
    levels: Levels
    known: bool


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """One job made of workers, on one kind of nodes.

    Attributes
    ----------
    n_before
        Workers it has.
    least
        Index of the count it has at least: 1 while it runs and may not be paused, otherwise 0.
    work
        Steps left, with those that a change costs; infinite where that is not known.
    at, until_s
        Now, and seconds until its deadline; infinite without one.
    """

    view: JobView
    pool: Pool
    ladder: Ladder
    n_before: int
    least: int
    work: float
    at: float
    until_s: float

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def rank(self) -> Rank:
        return self.until_s, self.view.submitted_at, self.id

    @property
    def has_goal(self) -> bool:
        """Whether there is a deadline, and enough is known to promise it."""
        return self.until_s < inf and self.ladder.known and self.work < inf

    def alone_s(self) -> float:
        """Seconds that it takes with as much as it can have."""
        return self.work / float(self.ladder.levels.rates[-1]) if self.ladder.known else inf


def claim_of(builder: PlanBuilder, view: JobView, kind: str, n_before: int, *, held: bool) -> Claim | None:
    """The claim of a job on the nodes of `kind`; None if they cannot hold it."""
    spec, at = view.spec, builder.snapshot.at
    ladder = _ladder(builder.hardware, view, kind, n_before)
    if ladder is None or spec.worker is None:
        return None
    steps = view.remaining_steps(at)
    cost_s = spec.resize_cost_s if held else spec.startup_s
    work = inf if steps is None else max(steps, 1e-9) + cost_s * float(ladder.levels.rates[1])
    until_s = inf if view.deadline_at is None else view.deadline_at - at
    least = int(held and not spec.preemptible)
    return Claim(view, (kind, spec.worker.gpus > 0), ladder, n_before, least, work, at, until_s)


def _ladder(hardware: Hardware, view: JobView, kind: str, n_before: int) -> Ladder | None:
    n_rungs, speed = len(hardware.counts_wanted(view)), hardware.speed(view)
    counts = hardware.counts(view.spec)[:n_rungs]
    return speed.derived(("ladder", kind, n_rungs, n_before), lambda: _new_ladder(view, speed, kind, counts, n_before))


def _new_ladder(view: JobView, speed: Speed, kind: str, counts: tuple[int, ...], n_before: int) -> Ladder | None:
    """Powers of two that are faster than the ones before them, and what the job has; all counts if none is a power."""
    worker = view.spec.worker
    powers = tuple(n for n in counts if n & (n - 1) == 0 or n == n_before) or counts
    if worker is None or not powers:
        return None
    rates = {n: speed.rate_sps(n, worker.cores * n, kind) for n in powers}
    known = any(rate > 0 for rate in rates.values())
    if not known and not any(speed.is_unknown(n, worker.cores * n, kind) for n in powers):
        return None
    pairs, best = [(0, 0.0)], 0.0
    for n in powers:
        rate = rates[n] if known else float(n)
        if rate > best:
            best = rate
            pairs.append((n, rate))
    size = float(worker.gpus or worker.cores or 1.0)
    levels = Levels(np.array([n * size for n, _ in pairs]), np.array([rate for _, rate in pairs]))
    return Ladder(tuple(n for n, _ in pairs), levels, known)


@dataclass(frozen=True, slots=True, eq=False)
class Book:
    """The shares of all jobs with deadlines in one pool. A value: another job makes another book.

    Attributes
    ----------
    timelines
        What is free before each of the claims, and after the last.
    strained
        Jobs that do not end a margin before their deadline.
    is_kept
        Whether the shares are those of the last plan; then others only get what they leave.
    """

    margin_s: float
    claims: tuple[Claim, ...]
    shares: tuple[Share, ...]
    timelines: tuple[Timeline, ...]
    strained: frozenset[JobId]
    is_kept: bool = False

    @classmethod
    def of(cls, timeline: Timeline, claims: Iterable[Claim], margin_s: float, last: Mapping[JobId, Steps]) -> "Book":
        """The shares of `claims`, beginning with what `timeline` has.

        The least shares of today need not fit where those of the last plan do: one that has become smaller lasts
        longer. If they do not, the shares of the `last` plan are kept.
        """
        empty = cls(margin_s, (), (), (timeline,), frozenset())
        ranked = sorted(claims, key=lambda claim: claim.rank)
        fresh = empty.extended(ranked)
        if not fresh.strained or not last:
            return fresh
        kept = replace(empty, is_kept=True)
        kept = kept.extended([claim for claim in ranked if claim.id in last], last)
        kept = kept.extended([claim for claim in ranked if claim.id not in last])
        return kept if len(kept.strained) < len(fresh.strained) else fresh

    @property
    def free(self) -> Timeline:
        """What the shares leave."""
        return self.timelines[-1]

    def plus(self, claim: Claim) -> "Book":
        """With one more claim. Earlier deadlines do not notice it, so their shares stay."""
        if self.is_kept:
            return self.extended([claim])
        i = bisect_right(self.claims, claim.rank, key=lambda one: one.rank)
        strained = self.strained.intersection(one.id for one in self.claims[:i])
        head = Book(self.margin_s, self.claims[:i], self.shares[:i], self.timelines[: i + 1], strained)
        return head.extended([claim, *self.claims[i:]])

    def steps(self, at: float) -> dict[JobId, Steps]:
        """What each job is to hold, for the next plan."""
        return {claim.id: _steps(share, at) for claim, share in zip(self.claims, self.shares, strict=True)}

    def extended(self, claims: Iterable[Claim], last: Mapping[JobId, Steps] | None = None) -> "Book":
        """With `claims` behind the others, one after the other; with the shares of the `last` plan, or the least ones."""
        found, shares, timelines, strained = (
            list(self.claims),
            list(self.shares),
            list(self.timelines),
            set(self.strained),
        )
        for claim in claims:
            # A job that may not be paused has its least amount already: it was not free.
            timeline = timelines[-1].plus(float(claim.ladder.levels.amounts[1]) if claim.least else 0.0)
            if last is not None:
                timeline = timeline.split([start - claim.at for start, _ in last[claim.id]])
            share = self._share(timeline, claim, last[claim.id] if last is not None else None)
            if share.end_s > claim.until_s - self.margin_s * (1 - _MARGIN_ROUNDING_FRAC):
                strained.add(claim.id)
            found.append(claim)
            shares.append(share)
            timelines.append(timeline.take(share))
        return Book(self.margin_s, tuple(found), tuple(shares), tuple(timelines), frozenset(strained), self.is_kept)

    def _share(self, timeline: Timeline, claim: Claim, steps: Steps | None) -> Share:
        """The share of the last plan, or the least one; of a job that cannot be on time all it can have."""
        levels, work, until_s, least = claim.ladder.levels, claim.work, claim.until_s, claim.least
        if steps is not None:
            starts_s, amounts = ([start - claim.at for start, _ in steps], [amount for _, amount in steps])
            share = timeline.follow(levels, work, starts_s, amounts, least=least)
            if share.end_s <= until_s:
                return share
        return (
            timeline.least_share(levels, work, until_s - self.margin_s, least=least)
            or timeline.least_share(levels, work, until_s, least=least)
            or timeline.soonest(levels, work, least=least)
        )  # fmt: skip


def _steps(share: Share, at: float) -> Steps:
    """When the amount changes, and to what."""
    steps: Steps = []
    for start_s, amount in zip(share.starts_s.tolist(), share.amounts.tolist(), strict=True):
        if not steps or steps[-1][1] != amount:
            steps.append((at + start_s, amount))
    return steps
