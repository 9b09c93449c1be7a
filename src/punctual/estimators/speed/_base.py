"""Shared rules of all performance models: choose measurements that count, and merge repeated ones."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isfinite

from punctual.core.speed import SeenRate, Shape

#: Slower or faster than this, in steps per second, nothing trains: such a measurement is a mistake.
RATE_SPS_MIN, RATE_SPS_MAX = 1e-9, 1e9


@dataclass(frozen=True, slots=True)
class Point:
    """All measurements of one shape: the mean speed, the total time, and the number of reports."""

    shape: Shape
    rate_sps: float
    over_s: float
    n_seen: int = 1


def usable(seen: SeenRate) -> bool:
    """Whether a measurement counts. A stalled job's rate of zero does not: its shape is not to blame."""
    shape = seen.shape
    return (
        RATE_SPS_MIN <= seen.rate_sps <= RATE_SPS_MAX
        and isfinite(seen.over_s)
        and seen.over_s > 0
        and possible(shape)
    )  # fmt: skip


def possible(shape: Shape) -> bool:
    """Whether a job can run in `shape` at all."""
    return shape.n_workers >= 1 and shape.n_nodes >= 1 and isfinite(shape.cores) and shape.cores >= 0


def with_seen(
    points: tuple[Point, ...], seen: Iterable[SeenRate], *, memory_s: float, n_points_max: int
) -> tuple[Point, ...]:
    """Return `points` with the usable part of `seen`: one point for each shape, the latest last.

    Parameters
    ----------
    memory_s
        A point never counts for longer than this against a new measurement of its shape, so that a speed that
        drifts is followed.
    n_points_max
        Number of shapes above which the oldest are dropped.
    """
    by_shape = {point.shape: point for point in points}
    for one in seen:
        if usable(one):
            by_shape[one.shape] = _merged(by_shape.pop(one.shape, None), one, memory_s)
    return tuple(by_shape.values())[-n_points_max:]


def _merged(point: Point | None, seen: SeenRate, memory_s: float) -> Point:
    if point is None:
        return Point(seen.shape, seen.rate_sps, min(seen.over_s, memory_s))
    kept_s = min(point.over_s, memory_s)
    share = kept_s / (kept_s + seen.over_s)
    return replace(
        point,
        rate_sps=share * point.rate_sps + (1 - share) * seen.rate_sps,
        over_s=min(kept_s + seen.over_s, memory_s),
        n_seen=point.n_seen + 1,
    )
