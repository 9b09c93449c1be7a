"""Read what could be had of a pool over time: `{"metadata": {"gap_seconds": 600, ...}, "data": [4, 4, 3, ...]}`."""

import json
from collections.abc import Iterable
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.pools import SEEN_S, PoolSpec
from punctual.request.cluster_file import PoolSection
from punctual.request.input_file import text_of
from punctual.sim.market import PoolCourse

#: Keys of a trace's metadata that hold the price of a machine-hour, by market.
_PRICES = {"spot": "spot_price", "on-demand": "on_demand_price", "own": ""}


def courses_of(pools: Iterable[PoolSection]) -> list[PoolCourse]:
    """Return the pools with their prices and counts over time; raises `InvalidSpec` if a trace cannot be used."""
    return [
        PoolCourse(pool.spec(), course_of(pool.spec(), pool.price_usd_h, pool.trace, pool.trace_start_s))
        for pool in pools
    ]


def course_of(
    pool: PoolSpec, price_usd_h: float | None, file: str | None, start_s: float
) -> list[tuple[float, float, int]]:
    """Return the price and count of a pool over time, as a trace or the pool's own price and size tell; raises as `courses_of`.

    Instants count from second `start_s` of the trace. None: there is no trace; the trace has the price.
    """
    if file is None:
        return [(-SEEN_S, price_usd_h or 0.0, pool.most)]
    trace, where = _read(Path(file)), f"'{file}', the trace of pool '{pool.name}'"
    try:
        about, counts = trace["metadata"], trace["data"]
        gap_s = float(about["gap_seconds"])
        if price_usd_h is None and "prices" in trace:
            prices = [float(price) for price in trace["prices"]]
        else:
            prices = [float(about[_PRICES[pool.market]]) if price_usd_h is None else price_usd_h] * len(counts)
        points = [
            (i * gap_s - start_s, price, min(int(n), pool.most))
            for i, (price, n) in enumerate(zip(prices, counts, strict=True))
        ]
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        must = "a trace of machines must have `metadata.gap_seconds`, `data`, and a price where the pool has none"
        remedy = "Give the pool `price_usd_h`, or mend the file."
        raise InvalidSpec(must, f"{type(error).__name__}: {error}", where, remedy) from None
    lasts_s = len(points) * gap_s
    if not 0 < lasts_s < inf or not all(isfinite(price) and price >= 0 and n >= 0 for _, price, n in points):
        must = "a trace must have counts and prices from 0 up, and an end"
        raise InvalidSpec(must, "others", where, "Mend the file.")
    if not start_s < lasts_s:
        raise InvalidSpec(
            f"`trace_start_s` must be within the trace, which lasts {lasts_s:g} s",
            f"{start_s:g}",
            where,
            "Give an earlier second.",
        )
    return [points[0], *[after for before, after in pairwise(points) if before[1:] != after[1:]]]


def _read(path: Path) -> dict[str, Any]:
    try:
        trace = json.loads(text_of(path))
    except InvalidSpec:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSpec(
            "a pool's trace must be JSON that can be read", str(error), f"'{path}'", "Name another file."
        ) from None
    if not isinstance(trace, dict):
        raise InvalidSpec(
            "a pool's trace must be a JSON object", type(trace).__name__, f"'{path}'", "Name another file."
        )
    return trace
