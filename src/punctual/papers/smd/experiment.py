"""The experiments of SMD: admit jobs and choose their workers and parameter servers, once.

They have no time, so nothing is simulated: the policies' own code computes the pairs and the admission.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from pathlib import Path

import numpy as np

from punctual import registry
from punctual.core.units import DAY_S, HOUR_S, MINUTE_S
from punctual.papers.reproduction import Reproduction, Row, nearest
from punctual.papers.smd.case import (
    UNIT,
    Array,
    Case,
    Forward,
    Interpretation,
    Kind,
    Limit,
    Pair,
    best_together,
    cases,
    in_units,
)

#: Total utilities read off the figures: SMD, ESW, Optimus.
_CAPACITY = {
    "sync": {1: (1211, 969, 1044), 2: (1929, 1497, 1624), 3: (2509, 1799, 2155), 4: (2990, 1900, 2545), 5: (3396, 1999, 2896)},
    "async": {1: (1193, 1040, 1092), 2: (1846, 1662, 1648), 3: (2393, 2005, 2119), 4: (2790, 2156, 2387), 5: (3105, 2253, 2521)},
}  # fmt: skip
_JOBS = {
    "sync": {40: (2445, 1475, 2360), 80: (4974, 3119, 4742), 120: (7460, 4658, 6449), 160: (9989, 6301, 8430), 200: (16122, 9673, 13151)},
    "async": {40: (2184, 1401, 1898), 80: (4488, 2515, 3780), 120: (6657, 3870, 5783), 160: (9849, 5979, 8102), 200: (14006, 8253, 11792)},
}  # fmt: skip
_OPTIMUM = {
    "sync": {10: 0.761, 20: 0.768, 30: 0.837, 40: 0.900, 50: 0.918},
    "async": {10: 0.974, 20: 0.983, 30: 0.994, 40: 0.995, 50: 1.0},
}  # fmt: skip
#: Share of the limits that is used, at one and at five units.
_USED = {"sync": {1: 0.51, 5: 0.36}, "async": {1: 0.44, 5: 0.34}}

KINDS: tuple[Kind, ...] = ("sync", "async")
#: The paper does not state the unit of time of γ2 and γ3. Of these the one is taken with which ESW's ratio fits best.
_UNITS_S = (2 * MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, 30 * MINUTE_S, HOUR_S, 3 * HOUR_S, 8 * HOUR_S, DAY_S, 3 * DAY_S)
_FORWARDS: tuple[Forward, ...] = ("batch", "sample")
_LIMITS: tuple[Limit, ...] = (
    "worker",
    "worker and server",
    "mean worker",
    "another job's worker",
    "worker, by resource",
)
_ORDERS: dict[str, Callable[[Case], float]] = {
    "smallest first": lambda case: float((case.limit / UNIT).max()),
    "shortest first": lambda case: case.marginal[2],
    "most useful first": lambda case: -case.worth(case.marginal),
}
_N_JOBS = 50
#: Capacity for each job: it grows in proportion to the jobs, like the published totals.
_UNITS_PER_JOB = 5 / _N_JOBS

#: Points at which the readings are compared, by figure.
_POINTS = {
    "SMD / ESW": " at capacity 3",
    "SMD / Optimus, limits": " at capacity 3",
    "SMD / Optimus, use": " at capacity 3",
    "SMD / optimum": f" at capacity 1, {_N_JOBS} jobs,",
}
#: Ratio from which the rival is worth next to nothing.
_NEXT_TO_NOTHING = 1e3

NOTE = """\
Ratios of total utilities over all seeds; all jobs are there at once and decided about once.
The paper does not say in which unit completion times enter the utility, what t_f is the time of, nor what exactly a job's
limit is a multiple of. In the main rows t_f is the forward pass of a batch, as in the source's model of layers, and a limit
a multiple of one worker's amounts. The unit of time is fitted: of nine from two minutes to three days the one with which
ESW's ratio at three units of capacity is nearest to the published one, for each kind and each reading by itself. So that
ESW fits there says nothing; how it changes with capacity, and all other ratios, do. No one unit serves both kinds.
All readings that were tried have rows at the end, with all ratios at three units of capacity, the distance to the optimum
at one, and the use at one and five. A reading is named as a reason where it brings a figure there from more than 10 % off
to within 10 %; where none does, the reason is not known. Other rows quote the readings at that point: none was tried with
the capacity or the jobs of the row. The totals themselves cannot be had: with heights
from 1 to 100 two hundred jobs are worth 10,100 at most on average, and 14,006 and 16,122 are published for them.
Sums that grow in proportion to the jobs mean that capacity does; so it does here, 5 units for 50 jobs.
Optimus chooses pairs by marginal gain with the same speeds; the row in which they are admitted as SMD's are shows how much
of the ratio is in the pairs. Of two readings of its admission, "limits" admits in order of submission and charges limits;
"use" gives everyone a worker and a server, then single units by marginal gain until the cluster is full. Rows with other
orders follow.
smd-exact is worth far more where capacity is short. From three units for 50 jobs on it reaches what all jobs would be worth
at their best, which no policy can pass.
Disk counts as the fourth resource in all of this."""


def run(*, quick: bool, seeds: int, data: Path | None) -> Reproduction:  # noqa: ARG001 -- this one needs no data
    """Sweep over capacity and jobs, and report the distance to the optimum, the use, and the gain of `smd-exact`."""
    sweep = Sweep((1, 3, 5), (40, 120), (10, 50)) if quick else Sweep()
    rows = [row for kind in (KINDS[:1] if quick else KINDS) for row in rows_of(kind, seeds, sweep)]
    return Reproduction(title="[smd2021]: total utility of the admitted jobs", rows=tuple(rows), note=NOTE)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points: units of capacity for 50 jobs, numbers of jobs, and numbers of jobs in one unit."""

    capacities: Sequence[int] = (1, 2, 3, 4, 5)
    n_jobs: Sequence[int] = (40, 80, 120, 160, 200)
    n_jobs_few: Sequence[int] = (10, 20, 30, 40, 50)


def rows_of(kind: Kind, n_seeds: int, sweep: Sweep) -> list[Row]:
    """Return all figures for one way of training."""
    interpretation, fifty = fitted(kind, Interpretation(), n_seeds)
    many = {n: _draws(kind, n_seeds, n, interpretation) for n in sweep.n_jobs}
    by_capacity = {n: _totals(fifty, n * UNIT) for n in sweep.capacities}
    by_jobs = {n: _totals(draws, n * _UNITS_PER_JOB * UNIT) for n, draws in many.items()}
    readings = list(_readings(kind, n_seeds))
    same = _same_admission(fifty, 3 * UNIT)
    admission = f"at capacity 3, with its pairs admitted as SMD's are, {same:.3f}"
    rows = [*_against(kind, "ESW", 1, nearest_reading(readings, "SMD / ESW"), by_capacity, by_jobs)]
    for i, name in ((2, "Optimus, limits"), (3, "Optimus, use")):
        why = f"{admission}; {nearest_reading(readings, f'SMD / {name}')}"
        rows += _against(kind, name, i, why, by_capacity, by_jobs)
    for n in sweep.n_jobs_few:
        draws = _draws(kind, n_seeds, n, interpretation)
        why = (
            f"with exact pairs {to_optimum(draws, exact_pairs=True):.3f}; {nearest_reading(readings, 'SMD / optimum')}"
        )
        rows.append(_row(f"{kind}, {n} jobs: SMD / optimum", _OPTIMUM[kind][n], to_optimum(draws), why))
    for n, published in _USED[kind].items():
        why = nearest_reading(readings, f"share of limits used, capacity {n}")
        rows.append(_row(f"{kind}, capacity {n}: share of limits used", published, _used(fifty, n * UNIT), why))
    for n in sweep.capacities:
        ratio = exact_total(fifty, n * UNIT) / by_capacity[n][0]
        most = _at_best(fifty) / by_capacity[n][0]
        rows.append(Row(f"{kind}, capacity {n}: smd-exact / SMD", None, ratio, f"every job at its best: {most:.2f}"))
    crowd = many[max(many)]
    ratio = exact_total(crowd, 5 * UNIT) / smd_total(crowd, 5 * UNIT)
    rows.append(Row(f"{kind}, capacity 5, {max(many)} jobs: smd-exact / SMD", None, ratio))
    return [
        *rows,
        Row(f"{kind}, capacity 3: SMD / Optimus' pairs, same admission", None, same),
        *_orders(kind, fifty),
        *readings,
    ]


def _draws(kind: Kind, n_seeds: int, n_jobs: int, interpretation: Interpretation) -> list[list[Case]]:
    return [cases(kind, n_jobs, seed, interpretation) for seed in range(n_seeds)]


def _row(what: str, published: float, obtained: float, why: str) -> Row:
    row = Row(what, published, obtained)
    return row if row.is_near else replace(row, why=why)


def _against(
    kind: Kind, rival: str, i: int, why: str, by_capacity: dict[int, Array], by_jobs: dict[int, Array]
) -> Iterable[Row]:
    """SMD over a rival, published and obtained; `i` is the rival's place among the obtained totals."""
    i_published = min(i, 2)
    for n, totals in by_capacity.items():
        published = _CAPACITY[kind][n]
        yield _row(f"{kind}, capacity {n}: SMD / {rival}", published[0] / published[i_published], totals[0] / totals[i], why)  # fmt: skip
    for n, totals in by_jobs.items():
        published = _JOBS[kind][n]
        yield _row(f"{kind}, {n} jobs: SMD / {rival}", published[0] / published[i_published], totals[0] / totals[i], why)  # fmt: skip


def _totals(draws: Sequence[Sequence[Case]], capacity: Array) -> Array:
    """Total utilities over all seeds: SMD, ESW, Optimus in both readings."""
    return np.array([
        smd_total(draws, capacity),
        _equal(draws, capacity),
        sum(first_come(several, capacity) for several in draws),
        sum(marginal_gains(several, capacity) for several in draws),
    ])  # fmt: skip


def smd_total(draws: Sequence[Sequence[Case]], capacity: Array) -> float:
    """Total utility of SMD."""
    return sum(_admitted(several, [case.rounded for case in several], capacity) for several in draws)


def _equal(draws: Sequence[Sequence[Case]], capacity: Array) -> float:
    return sum(_admitted(several, [case.equal for case in several], capacity) for several in draws)


def _at_best(draws: Sequence[Sequence[Case]]) -> float:
    """Total utility without a limit on capacity."""
    return sum(case.worth(case.exact) for several in draws for case in several)


def _admitted(several: Sequence[Case], pairs: Sequence[Pair], capacity: Array, **parameters: object) -> float:
    """Return the utility of the jobs that SMD admits."""
    worths = np.array([case.worth(pair) for case, pair in zip(several, pairs, strict=True)])
    return float(worths[_chosen(several, worths, capacity, **parameters)].sum())


def _chosen(several: Sequence[Case], worths: Array, capacity: Array, **parameters: object) -> Array:
    policy = registry.load("policies", "smd")(**parameters)
    return np.array(policy.admit(worths, [case.limit for case in several], capacity), dtype=bool)


def first_come(several: Sequence[Case], capacity: Array) -> float:
    """Utility where jobs are admitted in their order while their limits fit."""
    left, worth = capacity.copy(), 0.0
    for case in several:
        if (case.limit <= left).all():
            left, worth = left - case.limit, worth + case.worth(case.marginal)
    return worth


def marginal_gains(several: Sequence[Case], capacity: Array) -> float:
    """Return the utility of the greedy way: a pair for each job, then one more for the largest gain, while it fits."""
    left, held = capacity.copy(), {}
    for i, case in enumerate(several):
        if (case.worker + case.server <= left).all():
            left, held[i] = left - case.worker - case.server, (1, 1)
    gains = {i: several[i].best_unit(1, 1, capacity) for i in held}
    while found := [(gain, i) for i, gain in gains.items() if gain]:
        (_, dw, dp), i = max(found)
        amount = dw * several[i].worker + dp * several[i].server
        w, p = held[i][0] + dw, held[i][1] + dp
        if (amount <= left).all():
            left, held[i] = left - amount, (w, p)
        # A step that does not fit now never will: the job keeps its pair.
        gains[i] = several[i].best_unit(w, p, capacity) if held[i] == (w, p) else None
    return sum(several[i].worth((w, p, several[i].time_s(w, p))) for i, (w, p) in held.items())


def _same_admission(draws: Sequence[Sequence[Case]], capacity: Array) -> float:
    """SMD over Optimus' pairs, both admitted in SMD's way."""
    theirs = sum(_admitted(several, [case.marginal for case in several], capacity) for several in draws)
    return smd_total(draws, capacity) / theirs


def to_optimum(draws: Sequence[Sequence[Case]], *, exact_pairs: bool = False) -> float:
    """Return SMD over the optimum, in one unit of capacity; `exact_pairs`: its admission alone."""
    best = sum(_admitted(several, [case.exact for case in several], UNIT, admission="exact") for several in draws)
    if exact_pairs:
        return sum(_admitted(several, [case.exact for case in several], UNIT) for several in draws) / best
    return smd_total(draws, UNIT) / best


def _used(draws: Sequence[Sequence[Case]], capacity: Array) -> float:
    """Mean over the admitted jobs and the resources of their limits of the share that is used."""
    shares = []
    for several in draws:
        chosen = _chosen(several, np.array([case.worth(case.rounded) for case in several]), capacity)
        for case in [case for case, yes in zip(several, chosen, strict=True) if yes]:
            has = case.limit > 0
            shares.append(float((case.use(case.rounded)[has] / case.limit[has]).mean()))
    return float(np.mean(shares))


def exact_total(draws: Sequence[Sequence[Case]], capacity: Array) -> float:
    """Total utility of `smd-exact`."""
    return sum(
        best_together(
            several[0].kind, [case.theta for case in several], per_worker=[case.worker for case in several],
            per_server=[case.server for case in several], limits=[case.limit for case in several],
            utilities=[case.utility.at_s for case in several], capacity=capacity,
        )[1]
        for several in draws
    )  # fmt: skip


def fitted(kind: Kind, interpretation: Interpretation, n_seeds: int) -> tuple[Interpretation, list[list[Case]]]:
    """Choose the unit of time that gives ESW's ratio at three units of capacity; return it and draws of 50 jobs."""
    seconds = _draws(kind, n_seeds, _N_JOBS, replace(interpretation, unit_s=1.0))
    published = _CAPACITY[kind][3][0] / _CAPACITY[kind][3][1]

    def in_unit(unit_s: float) -> list[list[Case]]:
        return [in_units(several, unit_s) for several in seconds]

    unit_s = float(min(_UNITS_S, key=lambda unit_s: abs(_to_equal(in_unit(unit_s)) - published)))
    return replace(interpretation, unit_s=unit_s), in_unit(unit_s)


def _readings(kind: Kind, n_seeds: int) -> Iterable[Row]:
    """Yield the ratios of every reading, the main one first, and that one also with other units of time."""
    for forward, limit in product(_FORWARDS, _LIMITS):
        tried, draws = fitted(kind, Interpretation(forward, limit), n_seeds)
        yield from _figures(kind, str(tried), tried.unit_s, draws)
        for factor in (0.25, 4.0) if replace(tried, unit_s=1.0) == Interpretation() else ():
            others = [in_units(several, factor) for several in draws]
            yield from _figures(kind, f"{tried}, unit of time x {factor:g}", factor * tried.unit_s, others)


def _figures(kind: Kind, name: str, unit_s: float, draws: Sequence[Sequence[Case]]) -> Iterable[Row]:
    """Each ratio once: at three units of capacity, the optimum at one, use at one and at five."""
    published, totals = _CAPACITY[kind][3], _totals(draws, 3 * UNIT)
    found = {
        "SMD / ESW": (published[0] / published[1], totals[0] / totals[1]),
        "SMD / Optimus, limits": (published[0] / published[2], totals[0] / totals[2]),
        "SMD / Optimus, use": (published[0] / published[2], totals[0] / totals[3]),
        "SMD / optimum": (_OPTIMUM[kind][_N_JOBS], to_optimum(draws)),
        **{f"share of limits used, capacity {n}": (_USED[kind][n], _used(draws, n * UNIT)) for n in (1, 5)},
    }
    for figure, (its, ours) in found.items():
        yield Row(f"{kind}, {name}: {figure}", its, float(ours), unit_text(unit_s, float(ours)))


def unit_text(unit_s: float, ratio: float) -> str:
    """Name the unit of time, and whether a ratio rests on next to nothing."""
    unit = f"unit of {unit_s / MINUTE_S:g} min"
    return f"{unit}, in which the rival's jobs are worth next to nothing" if ratio > _NEXT_TO_NOTHING else unit


def nearest_reading(readings: Sequence[Row], figure: str) -> str:
    """The reading that comes nearest to a published figure, and at which point the readings are compared."""
    rows = [row for row in readings if row.what.endswith(f": {figure}")]
    best, known = nearest(rows)
    name = best.what.partition(", ")[2].rpartition(": ")[0]
    return f"{known}of {len(rows)} readings{_POINTS.get(figure, '')} nearest: {name}, {best.obtained:.2f} for {best.published:.2f}"


def _orders(kind: Kind, fifty: Sequence[Sequence[Case]]) -> Iterable[Row]:
    """Yield SMD over Optimus with other orders of admission than submission."""
    for name, key in _ORDERS.items():
        for n in (1, 3, 5):
            published = _CAPACITY[kind][n]
            theirs = sum(first_come(sorted(several, key=key), n * UNIT) for several in fifty)
            ratio = smd_total(fifty, n * UNIT) / theirs
            yield Row(f"{kind}, capacity {n}: SMD / Optimus, limits, {name}", published[0] / published[2], ratio)


def _to_equal(draws: Sequence[Sequence[Case]]) -> float:
    """Return SMD over ESW; infinite if ESW's pairs are worth nothing, as with too short a unit of time."""
    theirs = _equal(draws, 3 * UNIT)
    return smd_total(draws, 3 * UNIT) / theirs if theirs else inf
