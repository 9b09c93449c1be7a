"""A job's possible workers and parameter servers on the nodes of one kind, and its speed with them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
from scipy.optimize import nnls

from punctual.core.job import JobSpec, JobView
from punctual.core.resources import NOTHING, Resources
from punctual.core.speed import RateCurve, Shape
from punctual.core.utility import Sigmoid
from punctual.policies._hardware import Hardware
from punctual.policies._jobs import least
from punctual.solvers.solution import BoolArray, FloatArray, IntArray

#: A model is asked about so many pairs at most; beyond that, the formula that fits what it says speaks for it.
_N_ASKED_MAX = 256
#: Worth of any job beside its utility, as a share of its height: late jobs get the rest of the nodes.
_LATE_FRAC = 1e-3
#: A deadline without a utility: so many times as steep as one that takes the deadline itself to fall.
_DEADLINE_STEEPNESS = 10.0
_TOLERANCE = 1e-9
#: Beyond this a utility is nothing.
_EXPONENT_MAX = 700.0


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """All numbers of workers and servers that a job may have on the nodes of a kind; never empty.

    Attributes
    ----------
    workers, servers
        Shape (k,); both 0 for a job without workers, which has one amount.
    """

    workers: IntArray
    servers: IntArray
    amounts: FloatArray  # Shape (k, R), of each of the R kinds of hardware that the nodes have.
    step_s: FloatArray  # Shape (k,), seconds a step; infinite where the job cannot run.
    known: bool  # Whether the speed is known; otherwise it is assumed to be proportional to the workers.

    @property
    def relative(self) -> FloatArray:
        """Speed as a share of the highest one."""
        return np.asarray(self.step_s.min() / self.step_s)

    def index(self, workers: int, servers: int) -> int:
        """Return the index of the pair, or of the closest one that the job may have."""
        return int((np.abs(self.workers - workers) + np.abs(self.servers - servers)).argmin())


def pairs_of(hardware: Hardware, view: JobView, kind: str) -> Pairs | None:
    """Return the job's pairs on empty nodes of a kind; None if these cannot hold it or it cannot run there."""
    if view.spec.worker is None:
        return _one_amount(hardware, view, kind)
    return hardware.speed(view).derived(("pairs", kind), lambda: _pairs(hardware, view, kind))


def limit_of(hardware: Hardware, spec: JobSpec, kind: str) -> Resources:
    """Return the most the job may take of a kind of nodes: its ceiling, or their whole capacity."""
    return spec.ceiling.at_most(hardware.total_of[kind])


def vector(hardware: Hardware, amount: Resources) -> FloatArray:
    """An amount as an array of shape (R,), for the R kinds of hardware that the nodes have."""
    return np.array(amount.vector(hardware.resource_names), dtype=np.float64)


def worths(view: JobView, pairs: Pairs, at: float) -> FloatArray:
    """Return the job's worth with each pair, if it started at instant `at`; above zero for pairs that can run."""
    height = view.spec.utility.height if view.spec.utility else view.spec.weight
    curve, steps = utility_of(view.spec), view.remaining_steps(at)
    if curve is None or steps is None or not pairs.known:
        return height * pairs.relative
    start_s = at - view.submitted_at + view.spec.startup_s
    utilities = _utilities(curve, start_s + steps * pairs.step_s if steps else np.full(len(pairs.step_s), start_s))
    return np.asarray(utilities + _LATE_FRAC * height * pairs.relative)


def _utilities(curve: Sigmoid, completion_s: FloatArray) -> FloatArray:
    """The curve at many times: a job has hundreds of pairs, and there may be a thousand jobs."""
    ends = np.isfinite(completion_s)
    late_s = np.where(ends, completion_s, 0.0) - curve.middle_s
    exponents = np.where(ends, curve.steepness_per_s * late_s, _EXPONENT_MAX)
    return np.asarray(curve.height / (1.0 + np.exp(np.minimum(exponents, _EXPONENT_MAX))))


def utility_of(spec: JobSpec) -> Sigmoid | None:
    """Return the declared utility, or one that falls around the deadline; None without either."""
    if spec.utility is not None or spec.deadline_s is None:
        return spec.utility
    steepness_per_s = _DEADLINE_STEEPNESS / spec.deadline_s
    return Sigmoid(height=spec.weight, steepness_per_s=steepness_per_s, middle_s=spec.deadline_s)


def formula_of(pairs: Pairs) -> tuple[Literal["sync", "async"], FloatArray]:
    """The sum of ratios, of the two published ones, that comes closest to the seconds of a step, and its coefficients."""
    runs = np.isfinite(pairs.step_s)
    step_s = pairs.step_s[runs]
    fits = {kind: _fit(kind, pairs.workers[runs], pairs.servers[runs], step_s) for kind in _FORMULAS}
    best = min(_FORMULAS, key=lambda kind: fits[kind][1])
    return best, fits[best][0]


_FORMULAS: tuple[Literal["sync", "async"], ...] = ("sync", "async")


def _terms(kind: Literal["sync", "async"], workers: IntArray, servers: IntArray) -> FloatArray:
    """Return the factors of the coefficients; shape (k, 5) or (k, 4)."""
    w, p = workers.astype(np.float64), servers.astype(np.float64)
    ones = np.ones_like(w)
    return np.stack([w, p, ones, w / p, 1 / w] if kind == "sync" else [ones, p / w, 1 / w, 1 / p], axis=1)


def _fit(
    kind: Literal["sync", "async"], workers: IntArray, servers: IntArray, step_s: FloatArray
) -> tuple[FloatArray, float]:
    """Coefficients of zero or above with the least relative errors, and the size of those."""
    shares = _terms(kind, workers, servers) / step_s[:, None]
    # Columns of one size: the solver's tolerance is absolute.
    scales = shares.max(axis=0)
    coefficients, misfit = nnls(shares / scales, np.ones(len(step_s)))
    return coefficients / scales, float(misfit)


def _one_amount(hardware: Hardware, view: JobView, kind: str) -> Pairs | None:
    """Return the single amount of a job without workers: its demand, as far as one node has it."""
    floor = least(view.spec)
    wanted = view.demand.at_most(view.spec.ceiling).at_least(floor)
    rooms = hardware.room_sizes[kind]
    offers = [wanted.at_most(room).at_least(floor) for room in rooms if floor.fits_in(room)]
    if not offers:
        return None
    amount = max(offers, key=lambda offer: offer.size)
    none = np.zeros(1, dtype=np.int64)
    shape = Shape(cores=amount.cores, device=kind)
    rate_sps = view.curve.rate_sps(shape) if view.curve else 0.0
    return Pairs(
        none, none, vector(hardware, amount)[None], np.array([1 / rate_sps if rate_sps > 0 else 1.0]), rate_sps > 0
    )


def _pairs(hardware: Hardware, view: JobView, kind: str) -> Pairs | None:
    workers, servers = _counts(hardware, view.spec, kind)
    worker, server = view.spec.worker or NOTHING, view.spec.server or NOTHING
    amounts = workers[:, None] * vector(hardware, worker) + servers[:, None] * vector(hardware, server)
    limit = vector(hardware, limit_of(hardware, view.spec, kind))
    fits = (amounts <= limit * (1 + _TOLERANCE) + _TOLERANCE).all(axis=1)
    if not fits.any():
        return None
    workers, servers, amounts = workers[fits], servers[fits], amounts[fits]
    asked = _asked(workers, servers)
    step_s, known = _steps_s(hardware, view, kind, workers[asked], servers[asked])
    if not known:
        step_s = 1.0 / workers
    elif not asked.all() and np.isfinite(step_s).any():
        formula, theta = formula_of(Pairs(workers[asked], servers[asked], amounts[asked], step_s, known))
        step_s = _terms(formula, workers, servers) @ theta
    # A model that knows a rate of zero says that the job cannot run.
    return Pairs(workers, servers, amounts, step_s, known) if np.isfinite(step_s).any() else None


def _counts(hardware: Hardware, spec: JobSpec, kind: str) -> tuple[IntArray, IntArray]:
    """Return all pairs whose workers alone and servers alone fit on the nodes of a kind."""
    rooms = hardware.room_sizes[kind]
    n_workers = _n_fitting(spec.worker or NOTHING, rooms)
    workers = [n for n in spec.worker_counts() if n <= n_workers]
    servers = range(1)
    if spec.server is not None and workers:
        left = spec.ceiling - (spec.worker or NOTHING) * workers[0]
        servers = range(1, min(left.n_times(spec.server), _n_fitting(spec.server, rooms)) + 1)
    grid = np.meshgrid(np.array(workers, dtype=np.int64), np.array(servers, dtype=np.int64), indexing="ij")
    return grid[0].ravel(), grid[1].ravel()


def _n_fitting(part: Resources, rooms: Counter[Resources]) -> int:
    return sum(room.n_times(part) * n_nodes for room, n_nodes in rooms.items())


def _asked(workers: IntArray, servers: IntArray) -> BoolArray:
    """Return a mask of the pairs to ask the model about: all, or an evenly spread part of many."""
    if len(workers) <= _N_ASKED_MAX:
        return np.ones(len(workers), dtype=bool)
    return np.asarray(np.isin(workers, _spread(workers)) & np.isin(servers, _spread(servers)))


def _spread(numbers: IntArray) -> IntArray:
    """A dozen of the numbers, their ratios alike."""
    different = np.unique(numbers)
    ranks = np.geomspace(1, len(different), 12).round().astype(np.int64) - 1
    return np.asarray(different[np.unique(ranks)])


def _steps_s(
    hardware: Hardware, view: JobView, kind: str, workers: IntArray, servers: IntArray
) -> tuple[FloatArray, bool]:
    """Seconds a step for each pair, and whether anything is known of them."""
    shapes = [_shape(hardware, view.spec, kind, w, p) for w, p in zip(workers.tolist(), servers.tolist(), strict=True)]
    rates = _rates(view.curve, shapes)
    known = view.curve is not None and (max(rates) > 0 or view.curve.std_sps(shapes[0]) < inf)
    return np.array([1 / rate if rate > 0 else inf for rate in rates]), known


def _rates(curve: RateCurve | None, shapes: Sequence[Shape]) -> list[float]:
    return [curve.rate_sps(shape) if curve else 0.0 for shape in shapes]


def _shape(hardware: Hardware, spec: JobSpec, kind: str, n_workers: int, n_servers: int) -> Shape:
    worker, server = spec.worker or NOTHING, spec.server or NOTHING
    return Shape(
        n_workers=n_workers,
        cores=worker.cores * n_workers + server.cores * n_servers,
        n_nodes=hardware.n_nodes(n_workers, worker, kind),
        device=kind,
        n_servers=n_servers,
    )
