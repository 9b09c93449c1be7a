"""Workers and parameter servers of one job: the fastest pair within the job's limits.

The time of a job is a sum of linear ratios in the number of workers w and of servers p. With two whole numbers it can be
minimised exactly (`fastest_pair`). The published way, a grid of linear programmes and randomised rounding
(`approximate_pair`), is here so that it can be compared.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from punctual.core.errors import InvalidSpec
from punctual.core.plan import PlanStatus
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, relative_gap, status_of

#: Constraints are kept up to this share of the limit.
_TOLERANCE_FRAC = 1e-9
_N_POINTS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairProblem:
    """The time of one job as a function of its pair, and the pairs it may have.

    Parameters
    ----------
    kind
        Kind of the workers' training.
    theta
        Shape (5,) for sync, (4,) for async, not below zero; see Notes.
    per_worker, per_server
        Shape (R,), what one of each takes of each resource, not below zero.
    limits
        Shape (R,), the most that the job may take of each.

    Notes
    -----
    *Formula.* With w ≥ 1 workers and p ≥ 1 servers,

    sync: time = θ1 w + θ2 p + θ3 + θ4 w/p + θ5/w;

    async: time = θ1 + θ2 p/w + θ3/w + θ4/p;

    subject to w·per_worker + p·per_server ≤ limits.

    *Source.* [smd2021], equations 3 to 5.
    """

    kind: Literal["sync", "async"]
    theta: FloatArray
    per_worker: FloatArray
    per_server: FloatArray
    limits: FloatArray

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def of(cls, kind: Literal["sync", "async"], theta: ArrayLike, per_worker: ArrayLike, per_server: ArrayLike, limits: ArrayLike) -> "PairProblem":  # fmt: skip
        """The problem of anything that numpy can make arrays of."""
        theta, per_worker, per_server, limits = (
            np.asarray(values, dtype=np.float64) for values in (theta, per_worker, per_server, limits)
        )
        return cls(kind=kind, theta=theta, per_worker=per_worker, per_server=per_server, limits=limits)

    def time(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """Time of the job; broadcasts."""
        w, p = np.asarray(workers, dtype=np.float64), np.asarray(servers, dtype=np.float64)
        if self.kind == "sync":
            t1, t2, t3, t4, t5 = self.theta
            return np.asarray(t1 * w + t2 * p + t3 + t4 * w / p + t5 / w)
        t1, t2, t3, t4 = self.theta
        return np.asarray(t1 + t2 * p / w + t3 / w + t4 / p)

    def allows(self, workers: ArrayLike, servers: ArrayLike) -> BoolArray:
        """Whether the pair keeps the limits; broadcasts."""
        w, p = np.asarray(workers, dtype=np.float64)[..., None], np.asarray(servers, dtype=np.float64)[..., None]
        used = w * self.per_worker + p * self.per_server
        return np.asarray((used <= self.limits * (1.0 + _TOLERANCE_FRAC)).all(axis=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChoice:
    """A pair, its time, and a time that no pair can beat.

    Attributes
    ----------
    status
        *optimal*: proven best; *feasible*: proven to lie within the factor asked for; *partial*: not proven;
        *infeasible*: not even one worker and one server keep the limits, and both are 0.
    value, bound
        Time of the pair; a lower bound of it. Infinite if infeasible.
    workers, servers
        The pair.
    """

    status: PlanStatus
    value: float
    bound: float
    workers: int
    servers: int
    n_programmes: int = 0  # Linear programmes that were solved on the way.

    @property
    def gap(self) -> float:
        """(value − bound) / value."""
        return relative_gap(-self.value, -self.bound)


_NO_PAIR = PairChoice(status="infeasible", value=np.inf, bound=np.inf, workers=0, servers=0)


def pairs(problem: PairProblem) -> tuple[IntArray, IntArray, FloatArray]:
    """Return all pairs within the limits: workers, servers and times of shape (k,), by workers, then servers.

    For lists of (use, utility) from which an allocator chooses. O(most workers · most servers · R).
    """
    if not problem.allows(1, 1):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    workers = np.arange(1, _most(problem.limits, problem.per_worker) + 1)
    servers = np.arange(1, _most(problem.limits, problem.per_server) + 1)
    rows, columns = np.nonzero(problem.allows(workers[:, None], servers[None, :]))
    return workers[rows], servers[columns], problem.time(workers[rows], servers[columns])


def best_servers(problem: PairProblem, workers: ArrayLike) -> FloatArray:
    """Number of servers with the least time for each number of workers, neither whole nor within limits.

    Notes
    -----
    *Formula.* p* = sqrt(θ4 w / θ2), in both kinds; infinite if θ2 = 0 < θ4.
    """
    w = np.asarray(workers, dtype=np.float64)
    per_server, shared = problem.theta[1], problem.theta[3]
    return _root(shared * w, np.full_like(w, per_server))


def fastest_pair(problem: PairProblem) -> PairChoice:
    """The pair with the least time.

    Parameters
    ----------
    problem
        One job.
    """
    if not problem.allows(1, 1):
        return _NO_PAIR
    workers = np.arange(1, _most(problem.limits - problem.per_server, problem.per_worker) + 1)
    left = problem.limits - workers[:, None] * problem.per_worker
    most = _most_each(left, problem.per_server)
    ideal = np.minimum(best_servers(problem, workers), most)
    servers = np.stack([np.maximum(np.floor(ideal), 1.0), np.clip(np.ceil(ideal), 1.0, most)], axis=1)
    times = problem.time(workers[:, None], servers)
    row, column = np.unravel_index(int(times.argmin()), times.shape)
    value = float(times[row, column])
    return PairChoice(
        status="optimal", value=value, bound=value, workers=int(workers[row]), servers=int(servers[row, column])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxedPair:
    """A pair that need not be whole; `value` ≤ (1 + ε)·least, so `bound` = `value`/(1 + ε) holds for whole pairs too."""

    status: PlanStatus
    value: float
    bound: float
    workers: float
    servers: float
    n_programmes: int


def relaxed_pair(problem: PairProblem, *, epsilon: float = 0.01) -> RelaxedPair:
    """Algorithm 1 of [smd2021]: the sum of ratios, within a factor of 1 + ε, over pairs that need not be whole.

    Parameters
    ----------
    problem
        One job.
    epsilon
        Ratio of neighbours on the grid, less 1; above zero.
    """
    if not epsilon > 0:
        raise InvalidSpec("`epsilon` must be above 0", f"{epsilon}", "the grid of ratios", "Use 0.01, say.")
    if not problem.allows(1, 1):
        return RelaxedPair(status="infeasible", value=np.inf, bound=np.inf, workers=0.0, servers=0.0, n_programmes=0)
    objective, others, grid = _grid(problem, epsilon)
    best, best_value = np.ones(2), np.inf
    for begin in range(0, len(grid), _N_POINTS_AT_ONCE):
        for point in _best_vertices(problem, objective, others, grid[begin : begin + _N_POINTS_AT_ONCE]):
            value = float(problem.time(point[0], point[1]))
            if value < best_value:
                best, best_value = point, value
    return RelaxedPair(
        status="feasible",
        value=best_value,
        bound=best_value / (1.0 + epsilon),
        workers=float(best[0]),
        servers=float(best[1]),
        n_programmes=len(grid),
    )


def approximate_pair(
    problem: PairProblem, *, epsilon: float = 0.01, seed: int = 0, n_tries: int = 100, scale: float = 1.0
) -> PairChoice:
    """Algorithms 1 and 2 of [smd2021]: `relaxed_pair`, then randomised rounding.

    Parameters
    ----------
    problem
        One job.
    epsilon
        See `relaxed_pair`.
    seed
        Seed of the rounding.
    n_tries
        Most roundings; the first that keeps the limits is taken (F in the paper).
    scale
        The point is multiplied by this before it is rounded (M_δ in the paper, 1 in its experiments).
    """
    relaxed = relaxed_pair(problem, epsilon=epsilon)
    if relaxed.status == "infeasible":
        return _NO_PAIR
    point = scale * np.array([relaxed.workers, relaxed.servers])
    workers, servers = _rounded(problem, point, seed, n_tries)
    value = float(problem.time(workers, servers))
    bound = min(relaxed.bound, value)
    status = status_of(-value, -bound, epsilon)
    return PairChoice(
        status=status,
        value=value,
        bound=bound,
        workers=workers,
        servers=servers,
        n_programmes=relaxed.n_programmes,
    )


def _rounded(problem: PairProblem, point: FloatArray, seed: int, n_tries: int) -> tuple[int, int]:
    """The first rounding of `point` that keeps the limits."""
    low = np.floor(point + _TOLERANCE_FRAC)
    ups = np.random.default_rng(seed).random((n_tries, 2)) < point - low
    tries = np.concatenate([np.maximum(low + ups, 1.0), np.maximum(low, 1.0)[None, :], np.ones((1, 2))])
    kept = problem.allows(tries[:, 0], tries[:, 1])
    workers, servers = tries[int(kept.argmax())]
    return int(workers), int(servers)


def _ratios(problem: PairProblem) -> tuple[FloatArray, FloatArray]:
    """Numerators and denominators, each row the factors of w, p and 1."""
    if problem.kind == "sync":
        t1, t2, t3, t4, t5 = problem.theta
        return np.array([[t1, t2, t3], [t4, 0, 0], [0, 0, t5]]), np.array([[0.0, 0, 1], [0, 1, 0], [1, 0, 0]])
    t1, t2, t3, t4 = problem.theta
    return np.array([[0, 0, t1], [0, t2, t3], [0, 0, t4]]), np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])


def _lines(problem: PairProblem) -> FloatArray:
    """The polytope as rows (a, b, c), each meaning a w + b p + c ≤ 0."""
    limits = np.stack([problem.per_worker, problem.per_server, -problem.limits], axis=1)
    # Rows are scaled so that one tolerance serves all.
    scales = np.maximum(problem.limits, problem.per_worker + problem.per_server)
    limits = limits[scales > 0] / scales[scales > 0, None]
    return np.concatenate([limits, [[-1.0, 0.0, 1.0], [0.0, -1.0, 1.0]]])


def _grid(problem: PairProblem, epsilon: float) -> tuple[int, IntArray, FloatArray]:
    """The ratio that is the objective, the others, and the points (k, others) of their grid."""
    numerators, denominators = _ratios(problem)
    vertices, _ = _vertices(_lines(problem)[None])
    values = _values(vertices[0], numerators) / _values(vertices[0], denominators)
    least, largest = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    varying = np.flatnonzero((largest > least * (1.0 + 1e-12)) & (least > 0))
    if len(varying) == 0:
        return 0, varying, np.zeros((1, 0))
    spreads = largest[varying] / least[varying]
    objective = int(varying[int(spreads.argmax())])
    others = varying[varying != objective]
    axes = [_geometric(float(least[j]), float(largest[j]), epsilon) for j in others]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(others)) if axes else np.zeros((1, 0))
    return objective, others, grid


def _geometric(least: float, largest: float, epsilon: float) -> FloatArray:
    """`least` · (1 + ε)^n from its first point on, up to the first that is not below `largest`."""
    n = int(np.ceil(np.log(largest / least) / np.log1p(epsilon)))
    return np.asarray(least * (1.0 + epsilon) ** np.arange(n + 1), dtype=np.float64)


def _best_vertices(problem: PairProblem, objective: int, others: IntArray, grid: FloatArray) -> FloatArray:
    """Return the vertex of least objective for each point of the grid with a non-empty polytope."""
    numerators, denominators = _ratios(problem)
    fixed = np.broadcast_to(_lines(problem), (len(grid), *_lines(problem).shape))
    bounded = numerators[others] / grid[:, :, None] - denominators[others]
    vertices, exists = _vertices(np.concatenate([fixed, bounded], axis=1))
    ratios = _values(vertices, numerators[objective]) / _values(vertices, denominators[objective])
    best = np.where(np.isnan(ratios), np.inf, ratios).argmin(axis=1)
    return np.asarray(vertices[np.arange(len(grid)), best][exists])


def _vertices(lines: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return intersections of two lines that keep all others, (k, pairs, 2), NaN elsewhere; and whether one exists."""
    first, second = np.triu_indices(lines.shape[1], 1)
    a, b = lines[:, first], lines[:, second]
    determinant = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    safe = np.where(np.abs(determinant) > 1e-14, determinant, np.nan)
    w = (a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1]) / safe
    p = (a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2]) / safe
    points = np.stack([w, p], axis=-1)
    # Each constraint up to its own size at the point: w and p may be large.
    size = np.abs(w)[..., None] * np.abs(lines[:, None, :, 0]) + np.abs(p)[..., None] * np.abs(lines[:, None, :, 1]) + np.abs(lines[:, None, :, 2])  # fmt: skip
    kept = (_values(points, lines) <= _TOLERANCE_FRAC * size).all(axis=-1)
    points[~kept] = np.nan
    return points, kept.any(axis=1)


def _values(points: FloatArray, rows: FloatArray) -> FloatArray:
    """Linear functions at points: (..., 2) and (J, 3) or (k, J, 3) or (3,) give (..., J) or (...)."""
    if rows.ndim == 1:
        return np.asarray(points @ rows[:2] + rows[2])
    return np.asarray(points @ np.swapaxes(rows[..., :2], -1, -2) + rows[..., None, :, 2])


def _root(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """sqrt(numerator/denominator); 1 where both are zero, because then nothing depends on it."""
    ratio = np.divide(numerator, denominator, out=np.full(numerator.shape, np.inf), where=denominator > 0)
    return np.where((numerator == 0) & (denominator == 0), 1.0, np.sqrt(ratio))


def _most(limits: FloatArray, each: FloatArray) -> int:
    return int(_most_each(limits[None, :], each)[0])


def _most_each(limits: FloatArray, each: FloatArray) -> FloatArray:
    """Return the number that fits, for each row of limits."""
    used = each > 0
    return np.asarray(np.floor(limits[:, used] / each[used] * (1.0 + _TOLERANCE_FRAC) + _TOLERANCE_FRAC).min(axis=1))


def _check(problem: PairProblem) -> None:
    where = f"the {problem.kind} pair problem"
    n_theta = 5 if problem.kind == "sync" else 4
    shapes = {"theta": (n_theta,), "per_worker": problem.limits.shape, "per_server": problem.limits.shape}
    for name, shape in shapes.items():
        if getattr(problem, name).shape != shape:
            raise InvalidSpec(
                f"`{name}` must have shape {shape}", f"shape {getattr(problem, name).shape}", where,
                "Give five coefficients for sync, four for async, and one amount for each resource.",
            )  # fmt: skip
    for name in ("theta", "per_worker", "per_server", "limits"):
        values = getattr(problem, name)
        if not np.all(np.isfinite(values) & (values >= 0)):
            raise InvalidSpec(f"`{name}` must be finite and not below zero", f"{values.tolist()}", where, "Fit it again.")  # fmt: skip
    for name in ("per_worker", "per_server"):
        if not np.any(getattr(problem, name) > 0):
            raise InvalidSpec(
                f"`{name}` must be above zero for a resource", "0 for all", where, "Name a resource that it takes."
            )
