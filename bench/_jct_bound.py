"""A mean completion time that nobody can go below, not even with knowledge of the future.

Time is cut into intervals, and each device-second of an interval has a price. If all jobs could be done side by side as each
likes best, paying for what it takes, their completion times and payments together, less what all device-seconds cost, are
no more than the least possible sum of completion times: the Lagrangian dual of the interval-indexed programme. That holds
for any prices; the best ones are looked for by subgradients.

A job is done in whatever mixture of its counts is cheapest, on nodes as near as can be, and may stop at any time for
nothing: all of that only lowers the bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from punctual.core.speed import Shape
from punctual.sim.job import SimJob

Array = NDArray[np.float64]

#: Intervals in which jobs arrive, and after that.
_N_ARRIVING, _N_AFTER = 40, 20
#: Ratio of neighbouring ends that are tried for a job. The bound loses no more than this, about half of it on average.
_RATIO = 1.03
_N_AT_ONCE = 32
_N_ROUNDS = 120


@dataclass(frozen=True, slots=True)
class _Job:
    """A job as the bound sees it.

    Attributes
    ----------
    more_devices, more_sps
        Shape (s,): devices and rate that each step along the concave hull of its rates adds; the rate for each device falls.
    """

    submitted_at: float
    begins_at: float  # Its first step at the earliest.
    steps: float  # Its work.
    more_devices: Array
    more_sps: Array

    @property
    def alone_s(self) -> float:
        return self.steps / float(self.more_sps.sum())


def jct_bound_s(jobs: Sequence[SimJob], n_devices: int, *, n_rounds: int = _N_ROUNDS) -> float:
    """Return the lowest mean completion time that any policy can reach on `jobs` with so many equal devices.

    Raises
    ------
    ValueError
        There are no jobs.
    """
    seen = [_seen(job, n_devices) for job in jobs]
    edges = _edges(seen, n_devices)
    sizes = n_devices * np.diff(edges)
    prices = np.zeros(len(sizes))
    best, step = -np.inf, 1.0
    ends = [_ends(job, edges) for job in seen]
    for _ in range(n_rounds):
        value, used = _dual(seen, ends, edges, sizes, prices)
        step = step if value > best else 0.9 * step
        best = max(best, value)
        # Prices are scaled so that an interval counts by its length; the step aims a tenth above the best value so far.
        gradient = (used - sizes) / np.sqrt(sizes)
        gradient = np.where((prices <= 0) & (gradient < 0), 0.0, gradient)
        length = float(gradient @ gradient)
        if length == 0:
            break
        prices = np.maximum(0.0, prices + step * (1.1 * best - value) / length * gradient / np.sqrt(sizes))
    return best / len(seen)


def _seen(job: SimJob, n_devices: int) -> _Job:
    counts = [n for n in job.spec.worker_counts() if n <= n_devices]
    rates = [(n, job.truth.rate_sps(Shape(n_workers=n))) for n in counts]
    hull = [(0, 0.0)]
    for n, rate in sorted(rates):
        if rate <= hull[-1][1]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (n, rate)):
            hull.pop()
        hull.append((n, rate))
    corners = np.array(hull, dtype=np.float64)
    begins_at = job.submitted_at + job.spec.startup_s
    return _Job(job.submitted_at, begins_at, job.work_steps, np.diff(corners[:, 0]), np.diff(corners[:, 1]))


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


def _edges(jobs: Sequence[_Job], n_devices: int) -> Array:
    """Instants between the intervals; what comes after the last one is free."""
    begins = np.array([job.begins_at for job in jobs])
    cheapest = sum(job.steps * job.more_devices[0] / job.more_sps[0] for job in jobs)
    rest_s = max(*(job.alone_s for job in jobs), cheapest / n_devices)
    after = begins.max() + np.geomspace(rest_s / 100, 2 * rest_s, _N_AFTER)
    return np.unique(np.concatenate([np.quantile(begins, np.linspace(0, 1, _N_ARRIVING + 1)), after]))


def _ends(job: _Job, edges: Array) -> Array:
    """Instants between which a job can end; the last is after everything that costs."""
    spans_s = job.alone_s * _RATIO ** np.arange(np.ceil(np.log1p(edges[-1] / job.alone_s) / np.log(_RATIO)) + 1)
    within = job.begins_at + spans_s
    return np.append(within[within < edges[-1]], edges[-1])


def _dual(
    jobs: Sequence[_Job], ends: Sequence[Array], edges: Array, sizes: Array, prices: Array
) -> tuple[float, Array]:
    """The bound on the sum of completion times that these prices give, and the device-seconds that jobs then take."""
    used, value = np.zeros(len(sizes)), -float(prices @ sizes)
    for job, possible in zip(jobs, ends, strict=True):
        cost, taken = _cheapest(job, possible, edges, prices)
        value += cost
        used += taken
    return value, used


def _cheapest(job: _Job, ends: Array, edges: Array, prices: Array) -> tuple[float, Array]:
    """The least sum of completion time and payment of one job, and the device-seconds it takes for that.

    For each span between two possible ends the completion time is that of its beginning, the work may go on to its end.
    """
    free_at = np.append(ends[1:], np.inf)  # after the last edge work costs nothing
    first = max(0, int(np.searchsorted(edges, job.begins_at, side="right")) - 1)
    best, device_s = np.inf, np.zeros(len(prices))
    for begin in range(0, len(ends), _N_AT_ONCE):
        chunk = slice(begin, begin + _N_AT_ONCE)
        if ends[begin] - job.submitted_at >= best:
            break  # later ends cost more by themselves
        last = min(len(prices), int(np.searchsorted(edges, free_at[chunk][-1])))
        window = slice(first, max(last, first + 1))
        cost, taken = _cheapest_of(job, ends[chunk], free_at[chunk], edges, prices, window)
        if cost < best:
            best, device_s = cost, np.zeros(len(prices))
            device_s[window] = taken
    return best, device_s


def _cheapest_of(
    job: _Job, ends: Array, free_at: Array, edges: Array, prices: Array, window: slice
) -> tuple[float, Array]:
    """Return the bound for some ends, where only these intervals can be used."""
    overlap_s = np.minimum(free_at[:, None], edges[1:][window]) - np.maximum(job.begins_at, edges[:-1][window])
    per_step = (prices[window, None] * (job.more_devices / job.more_sps)).ravel()
    order = np.argsort(per_step, kind="stable")
    room = (np.maximum(overlap_s, 0.0)[:, :, None] * job.more_sps).reshape(len(ends), -1)[:, order]
    steps = np.clip(job.steps - (np.cumsum(room, axis=1) - room), 0.0, room)
    costs = ends - job.submitted_at + steps @ per_step[order]
    costs[(steps.sum(axis=1) < job.steps * (1 - 1e-9)) & (free_at < np.inf)] = np.inf
    i = int(costs.argmin())
    taken = np.zeros(len(per_step))
    taken[order] = steps[i]
    return float(costs[i]), (taken.reshape(-1, len(job.more_sps)) * (job.more_devices / job.more_sps)).sum(axis=1)
