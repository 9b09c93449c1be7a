"""Two numbers of workers, one after the other, that do an amount of work in a given time at least cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from punctual.controllers._step_time import Speed


@dataclass(frozen=True, slots=True)
class CountPlan:
    """`first` workers for `first_s` seconds, then `second`; equal: one number to the end.

    Attributes
    ----------
    cost_s
        Worker-seconds from now to the end, those of stopped training and the price of each change included.
    """

    first: int
    second: int
    first_s: float
    cost_s: float

    @property
    def is_level(self) -> bool:
        return self.first == self.second


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProjection:
    """Remaining work, and the known speeds for it.

    Attributes
    ----------
    steps
        Work left, in steps.
    time_s
        Seconds until it should be done.
    held
        Number of workers now.
    speeds
        Speeds by number of workers.
    stop_s
        Training time lost by one change of the number, seconds.
    price_s
        Worker-seconds that a change must save beyond its cost.
    sigmas_kept, sigmas_changed
        Standard deviations of a step's time that a number must make room for: one that is held, and one that is
        changed to for the rest.
    grace_s
        Near the end nothing is changed for being expected so much later than it should be.
    unit_s
        Seconds that the largest unit takes now.
    """

    steps: float
    time_s: float
    held: int
    speeds: Mapping[int, Speed]
    stop_s: float
    price_s: float
    sigmas_kept: float
    sigmas_changed: float
    grace_s: float = 0.0
    unit_s: float = 0.0

    def held_s(self) -> float:
        """Seconds of a step to expect of the present number, if it is kept.

        Who waits for what is slow now to pass, and is wrong, finds that nothing makes up for it: half of it counts.
        """
        speed = self.speeds[self.held]
        return max(speed.safe_s(self.sigmas_kept), sqrt(speed.step_s * speed.slow_step_s))

    def end_s(self, n: int) -> float:
        """Seconds expected until all is done with `n` workers, a change to them included."""
        return self.steps * self.speeds[n].step_s + (self.stop_s if n != self.held else 0.0)


def level(outlook: WorkerProjection, n: int) -> CountPlan | None:
    """Return a plan of `n` workers to the end; None if they do not suffice."""
    kept = n == outlook.held
    step_s = outlook.held_s() if kept else outlook.speeds[n].safe_s(outlook.sigmas_kept)
    stop_s = 0.0 if kept else outlook.stop_s
    if outlook.steps * step_s + stop_s > outlook.time_s:
        return None
    changed_s = 0.0 if kept else outlook.price_s + stop_s * max(outlook.held - n, 0)
    return CountPlan(n, n, outlook.time_s, n * outlook.time_s + changed_s)


def more_first(outlook: WorkerProjection, more: int, fewer: int) -> CountPlan | None:
    """Return a plan of `more` workers until `fewer` suffice; None if they do not, or one number is as good."""
    kept = more == outlook.held
    n_changes = 1 if kept else 2
    more_s = outlook.speeds[more].step_s
    # The plan after a number that was never held is made again once that is measured.
    sigmas = outlook.sigmas_changed if outlook.speeds[more].is_seen else 0.0
    fewer_s = outlook.speeds[fewer].safe_s(sigmas)
    usable_s = outlook.time_s - n_changes * outlook.stop_s
    at_more_s = _at_more_s(outlook.steps, usable_s, more_s, fewer_s)
    if at_more_s is None:
        return None
    cost_s = more * at_more_s + fewer * (usable_s - at_more_s) + n_changes * (outlook.stop_s * more + outlook.price_s)
    return CountPlan(more, fewer, at_more_s, cost_s)


def trial(outlook: WorkerProjection, fewer: int) -> CountPlan | None:
    """Return a plan that tries `fewer` workers at once, in case they are faster than expected; None: too late."""
    fewer_s = outlook.speeds[fewer].safe_s(-0.5 * outlook.sigmas_kept)
    usable_s = outlook.time_s - 2 * outlook.stop_s
    at_held_s = _at_more_s(outlook.steps, usable_s, outlook.speeds[outlook.held].step_s, fewer_s)
    if at_held_s is None:
        return None
    at_fewer_s = usable_s - at_held_s
    cost_s = outlook.held * at_held_s + fewer * at_fewer_s + 2 * (outlook.stop_s * outlook.held + outlook.price_s)
    return CountPlan(fewer, outlook.held, at_fewer_s, cost_s)


def more_later(outlook: WorkerProjection, more: int, wait_frac: float) -> CountPlan | None:
    """Return a plan that holds the present number until `more` are needed; None if that is before `wait_frac`."""
    more_s = outlook.speeds[more].safe_s(outlook.sigmas_kept)
    usable_s = outlook.time_s - outlook.stop_s
    at_more_s = _at_more_s(outlook.steps, usable_s, more_s, outlook.held_s())
    if at_more_s is None or at_more_s > wait_frac * usable_s:
        return None
    at_held_s = usable_s - at_more_s
    cost_s = more * at_more_s + outlook.held * at_held_s + outlook.stop_s * more + outlook.price_s
    return CountPlan(outlook.held, more, at_held_s, cost_s)


def _at_more_s(steps: float, usable_s: float, more_s: float, fewer_s: float) -> float | None:
    """Seconds with the larger number until the smaller does the rest; None: never enough, or no faster."""
    if usable_s <= 0.0 or more_s >= fewer_s:
        return None
    at_more_s = max(0.0, (steps - usable_s / fewer_s) / (1.0 / more_s - 1.0 / fewer_s))
    return at_more_s if at_more_s < usable_s else None


def best(outlook: WorkerProjection, allowed: Iterable[int], wait_frac: float) -> CountPlan | None:
    """Return the cheapest plan that begins with the present number or one of `allowed`; None if none suffices."""
    allowed, held = set(allowed), outlook.held
    hull = lower_hull(outlook.speeds)
    plans = [level(outlook, n) for n in sorted({held, *allowed})]
    plans += [more_first(outlook, held, n) for n in outlook.speeds if n < held]
    plans += [more_first(outlook, more, fewer) for fewer, more in pairwise(hull) if more in allowed]
    fewer = [n for n in allowed if n < held]
    if fewer and sum(speed.is_seen for speed in outlook.speeds.values()) == 1:
        plans.append(trial(outlook, max(fewer)))
    plans += [more_later(outlook, n, wait_frac) for n in outlook.speeds if n > held]
    return min((plan for plan in plans if plan is not None), key=lambda plan: (plan.cost_s, plan.first), default=None)


def last(outlook: WorkerProjection) -> CountPlan:
    """Return a plan for the end: the present number; if late, the least that is not, or the fastest.

    A change must save twice its stop and a unit: it waits for the one in flight, and may stop the job for longer.
    """
    by_end = sorted(outlook.speeds, key=lambda n: (outlook.end_s(n), n))
    worth_s = outlook.end_s(outlook.held) - outlook.stop_s - outlook.unit_s
    enough = [n for n in by_end if outlook.end_s(n) <= min(outlook.time_s, worth_s)]
    keeps = outlook.end_s(outlook.held) <= outlook.time_s + outlook.grace_s
    fastest = by_end[0] if outlook.end_s(by_end[0]) <= worth_s else outlook.held
    n = outlook.held if keeps else min(enough, default=fastest)
    return CountPlan(n, n, outlook.time_s, n * outlook.time_s)


def lower_hull(speeds: Mapping[int, Speed]) -> list[int]:
    """Return the numbers on the lower convex hull of workers over rate, ascending; mixtures of these beat the others.

    Numbers that are no faster than a smaller one are left out: they cost more and do less.
    """
    hull: list[int] = []
    for n in sorted(speeds):
        if hull and speeds[n].step_s >= speeds[hull[-1]].step_s:
            continue
        while len(hull) > 1 and _is_beaten(speeds, hull[-2], hull[-1], n):
            hull.pop()
        hull.append(n)
    return hull


def _is_beaten(speeds: Mapping[int, Speed], low: int, middle: int, high: int) -> bool:
    """Whether mixing `low` and `high` costs no more than `middle`."""
    low_sps, middle_sps, high_sps = (1.0 / speeds[n].step_s for n in (low, middle, high))
    return (middle - low) * (high_sps - low_sps) >= (high - low) * (middle_sps - low_sps)
