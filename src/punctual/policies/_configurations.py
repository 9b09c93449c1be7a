"""The configurations of jobs made of workers (kind of nodes × number of workers), with rates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from punctual.core.job import JobView
from punctual.core.resources import Resources
from punctual.policies._hardware import Hardware, JobRates
from punctual.policies._jobs import shares_of
from punctual.solvers.solution import BoolArray, FloatArray, IntArray
from punctual.solvers.timeline import Levels

#: GPUs, and cores where a worker has no GPU, are counted in sixteenths: a knapsack shares whole amounts.
PARTS = 16
#: Relative standard deviation of a rate that was not measured.
_GUESS_FRAC = 0.3
_GUESS_POWER = 0.7

#: Shared resource: the GPUs of one kind of nodes, or the cores beside them.
Pool = tuple[str, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Configurations:
    """Possible numbers of workers of a job on each kind of nodes; column 0 holds nothing.

    Attributes
    ----------
    kinds, counts
        Kind and count of each column; the kind of column 0 is empty.
    amounts
        Shape (m,), use of its pool by each column.
    rates, stds
        Shape (m,), steps per second on the fewest nodes, and their standard deviation.
    split_rates
        Shape (m,), steps per second if it lies on as many nodes as it can, of so many of each kind.
    n_nodes
        Number of nodes of each kind.
    uses_gpus
        Whether its pools are those of GPUs.
    known
        Whether anything is known of the speed; otherwise it is taken as proportional to the workers.
    per_worker
        Use of its pool by one worker, with a server if the job has some.
    reserved_per_worker
        Use of its pool by one worker, as promises count it: the largest share that a worker takes of anything on a node, so
        that cores and memory do not run out before the pool does.
    pools
        Pools that its columns use.
    columns
        Column of each kind and count.
    best
        Steps per second and GPU, or core, at the column where that is most; 0: the job cannot run.
    """

    kinds: tuple[str, ...]
    counts: tuple[int, ...]
    amounts: IntArray
    rates: FloatArray
    stds: FloatArray
    split_rates: Callable[[Mapping[str, int]], FloatArray]
    n_nodes: Mapping[str, int]
    uses_gpus: bool
    known: bool
    best: float
    per_worker: int
    reserved_per_worker: int
    pools: tuple[Pool, ...]
    columns: Mapping[tuple[str, int], int]
    _levels: dict[tuple[str, float, int], Levels] = field(default_factory=dict)

    @property
    def fastest(self) -> float:
        """Highest rate, in steps per second."""
        return float(self.rates.max())

    def surely_fastest(self, risk_sigmas: float) -> float:
        """Return the highest rate at any placement, less `risk_sigmas` standard deviations; steps per second."""
        return float(self._sure(risk_sigmas, self.n_nodes).max())

    def _sure(self, risk_sigmas: float, n_nodes: Mapping[str, int]) -> FloatArray:
        return np.maximum(0.0, np.minimum(self.rates, self.split_rates(n_nodes)) - risk_sigmas * self.stds)

    def best_on(self, kind: str) -> float:
        """Return the highest rate per unit on a kind; steps per second."""
        return max(float(self.rates[i] / self.amounts[i]) for i, on in enumerate(self.kinds) if on == kind and i)

    def counts_on(self, kind: str) -> list[int]:
        """Return the numbers of workers on a kind, ascending."""
        return [n for n, on in zip(self.counts, self.kinds, strict=True) if n and on == kind]

    def column(self, kind: str, count: int) -> int:
        """Return the column of `count` workers on `kind`; 0 if none has so many."""
        return self.columns.get((kind, count), 0) if count else 0

    def levels(self, kind: str, risk_sigmas: float, n_nodes: int) -> Levels:
        """Return the rates that a promise may use at any placement on `n_nodes` nodes: less `risk_sigmas` standard deviations."""
        known = self._levels.get((kind, risk_sigmas, n_nodes))
        if known is None:
            columns = [i for i, on in enumerate(self.kinds) if on == kind and i]
            safe = self._sure(risk_sigmas, {**self.n_nodes, kind: n_nodes})
            amounts = [self.counts[i] * self.reserved_per_worker for i in columns]
            known = Levels.of(amounts, safe[columns].tolist())
            self._levels[kind, risk_sigmas, n_nodes] = known
        return known


def parts_of(worker: Resources, rooms: Iterable[Resources] = ()) -> int:
    """Return the GPUs, or cores, of a worker in sixteenths; more if it takes a larger share of anything else in `rooms`."""
    own = worker.gpus or worker.cores
    pools = [(room, room.gpus if worker.gpus else room.cores) for room in rooms if worker.fits_in(room)]
    most = max([own, *(max(shares_of(worker, room)) * amount for room, amount in pools)])
    return max(1, ceil(most * PARTS - 1e-9))


def configurations_of(hardware: Hardware, view: JobView) -> Configurations | None:
    """Return the configurations of a job made of workers; None if the nodes cannot hold or run it."""
    worker, counts = view.spec.unit, hardware.counts_wanted(view)
    if worker is None or not counts:
        return None
    speed = hardware.speed(view)
    return speed.derived(("configurations", len(counts)), lambda: _configurations(hardware, speed, worker, counts))


def _configurations(
    hardware: Hardware, speed: JobRates, worker: Resources, counts: Sequence[int]
) -> Configurations | None:
    offered = {kind: counts_on_kind(hardware, worker, counts, kind) for kind in hardware.kinds}
    measured = [column for kind, own in offered.items() for column in _of_kind(speed, worker, kind, own)]
    # A rate of which nothing is known is taken to be the number of workers, on every kind.
    columns = measured or [
        _Column(kind, n, float(n), _GUESS_FRAC * n)
        for kind, own in offered.items()
        for n in own
        if speed.is_unknown(n, worker.cores * n, kind)
    ]
    if not columns:
        return None
    kinds, per_worker = dict.fromkeys(column.kind for column in columns), parts_of(worker)
    amounts = np.array([0, *(column.n * per_worker for column in columns)], dtype=np.int64)
    rates = np.array([0.0, *(column.rate_sps for column in columns)])
    return Configurations(
        kinds=("", *(column.kind for column in columns)),
        counts=(0, *(column.n for column in columns)),
        amounts=amounts,
        rates=rates,
        stds=np.array([0.0, *(column.std_sps for column in columns)]),
        split_rates=partial(_split_rates, speed, worker, columns, rates) if measured else lambda _: rates,
        n_nodes={kind: len(nodes) for kind, nodes in hardware.kinds.items()},
        uses_gpus=worker.gpus > 0,
        known=bool(measured),
        best=float((rates[1:] / amounts[1:]).max()) * PARTS,
        per_worker=per_worker,
        reserved_per_worker=parts_of(worker, (room for kind in kinds for room in hardware.room_sizes[kind])),
        pools=tuple((kind, worker.gpus > 0) for kind in kinds),
        columns={(column.kind, column.n): i for i, column in enumerate(columns, 1)},
    )


class _Column(NamedTuple):
    """A number of workers on a kind of nodes, and its rate."""

    kind: str
    n: int
    rate_sps: float
    std_sps: float


def _split_rates(
    speed: JobRates, worker: Resources, columns: Sequence[_Column], rates: FloatArray, n_nodes: Mapping[str, int]
) -> FloatArray:
    """`rates` of columns, but on as many of `n_nodes` nodes as the workers can lie on, where that is known."""
    split = [0.0, *(speed.split_sps(n, worker.cores * n, kind, n_nodes[kind]) for kind, n, _, _ in columns)]
    return np.where(np.array(split) > 0, split, rates)


def _of_kind(speed: JobRates, worker: Resources, kind: str, counts: Sequence[int]) -> list[_Column]:
    """Return a column for each of `counts` with which the job runs, as far as anything is known.

    Where only other numbers were measured, fewer workers are taken to be slower in proportion, and more of them to
    gain as the power `_GUESS_POWER` of their number.
    """
    rates = [_Column(kind, n, *speed.rate_and_std_sps(n, worker.cores * n, kind)) for n in counts]
    columns = [column for column in rates if column.rate_sps > 0]
    measured = [column for column in columns if column.std_sps < inf]
    return [column if column.std_sps < inf else _guess(column, measured) for column in columns]


def _guess(column: _Column, measured: Sequence[_Column]) -> _Column:
    rate_sps = column.rate_sps
    if measured:
        near = min(measured, key=lambda other: abs(other.n - column.n))
        rate_sps = near.rate_sps * (column.n / near.n) ** (1.0 if column.n < near.n else _GUESS_POWER)
    return column._replace(rate_sps=rate_sps, std_sps=_GUESS_FRAC * rate_sps)


def counts_on_kind(hardware: Hardware, worker: Resources, counts: Sequence[int], kind: str) -> Sequence[int]:
    """Return those of `counts` that fit on the nodes of a kind."""
    if len(hardware.kinds) == 1:
        return counts
    most = sum(hardware.capacity[node].n_times(worker) for node in hardware.kinds[kind])
    return [n for n in counts if n <= most]


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceTable:
    """The configurations of several jobs as one table; rows are padded with columns that are not allowed.

    Attributes
    ----------
    amounts, rates
        Shape (n, m).
    allowed
        Shape (n, m).
    pools
        Shape (n, m), index of the pool of each column.
    """

    amounts: IntArray
    rates: FloatArray
    allowed: BoolArray
    pools: IntArray

    @classmethod
    def of(cls, options: Sequence[Configurations], pools: Sequence[Pool]) -> "ChoiceTable":
        widths = np.array([len(option.counts) for option in options], dtype=np.int64)
        allowed = np.arange(widths.max(initial=1)) < widths[:, None]
        amounts, of_pool = np.zeros(allowed.shape, dtype=np.int64), np.zeros(allowed.shape, dtype=np.int64)
        rates = np.zeros(allowed.shape)
        if options:
            amounts[allowed] = np.concatenate([option.amounts for option in options])
            rates[allowed] = np.concatenate([option.rates for option in options])
        if len(pools) > 1:
            index = {pool: i for i, pool in enumerate(pools)}
            for i, option in enumerate(options):
                of_pool[i, 1 : widths[i]] = [index[kind, option.uses_gpus] for kind in option.kinds[1:]]
        return cls(amounts, rates, allowed, of_pool)
