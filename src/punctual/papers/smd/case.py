"""Jobs of SMD's experiments as one-shot problems, without a cluster: speed, amounts, limit and utility."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from punctual import registry
from punctual.core.speed import Shape
from punctual.core.utility import Sigmoid
from punctual.papers.smd.layered_model import Layered
from punctual.papers.smd.smd_exact import fill, undominated
from punctual.papers.smd.smd_jobs import SmdJobs
from punctual.papers.smd.sum_of_ratios import PairProblem, pairs
from punctual.sim.traces.job import TraceJob

Kind = Literal["sync", "async"]
#: Reading of the source's t_f: time of the forward pass of a whole batch, as in its model of layers, or of one sample.
Forward = Literal["batch", "sample"]
#: Base of a job's limit, a multiple of it; *by resource*: another multiple of the worker for each resource.
Limit = Literal["worker", "worker and server", "mean worker", "another job's worker", "worker, by resource"]
Pair = tuple[int, int, float]
Array = NDArray[np.float64]

#: One unit of capacity: cores, GPUs, memory and disk in GB.
UNIT = np.array([3400.0, 600.0, 1400.0, 1200.0])
#: Means of the ranges that a worker's amounts are drawn from.
_MEAN_WORKER = np.array([5.5, 2.0, 17.0, 7.5])
_GB = 1e9
NO_PAIR: Pair = (0, 0, inf)
#: Properties of a case that are computed once.
_PAIRS = ("rounded", "exact", "equal", "marginal")


@dataclass(frozen=True, slots=True)
class Interpretation:
    """One reading of the points that the source leaves open."""

    forward: Forward = "batch"
    limit: Limit = "worker"
    unit_s: float = 1.0  # Seconds in the unit of time of the utilities.

    def __str__(self) -> str:
        article = "" if self.limit.startswith("another") else "a "
        return f"t_f of a {self.forward}, limits of {article}{self.limit}"


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes
    ----------
    worker, server, limit
        Shape (4,).
    """

    id: int
    kind: Kind
    theta: tuple[float, ...]  # Coefficients of the sum of ratios, in seconds for all iterations.
    worker: Array
    server: Array
    limit: Array
    utility: Sigmoid  # Utility with its middle at γ3 units of time.

    def fits(self, workers: int, servers: int) -> bool:
        return bool((workers * self.worker + servers * self.server <= self.limit * (1 + 1e-9)).all())

    def time_s(self, w: int, p: int) -> float:
        terms = (w, p, 1, w / p, 1 / w) if self.kind == "sync" else (1, p / w, 1 / w, 1 / p)
        return sum(theta * term for theta, term in zip(self.theta, terms, strict=True))

    def use(self, pair: Pair) -> Array:
        return pair[0] * self.worker + pair[1] * self.server

    def worth(self, pair: Pair) -> float:
        return self.utility.at_s(pair[2])

    @cached_property
    def rounded(self) -> Pair:
        """The pair of the published algorithm."""
        return self._paired()

    @cached_property
    def exact(self) -> Pair:
        """The fastest pair."""
        return self._paired(pairing="exact")

    @cached_property
    def equal(self) -> Pair:
        """The fastest pair of as many servers as workers."""
        return self._paired(pairing="equal")

    @cached_property
    def marginal(self) -> Pair:
        """Optimus's pair within the limit: always the unit that gains most time for its dominant share of the limit."""
        w, p = (1, 1) if self.fits(1, 1) else (0, 0)
        while w and (step := self.best_unit(w, p, self.limit)):
            w, p = w + step[1], p + step[2]
        return (w, p, self.time_s(w, p)) if w else NO_PAIR

    def _paired(self, **parameters: object) -> Pair:
        problem = PairProblem.of(self.kind, self.theta, self.worker, self.server, self.limit)
        choice = registry.load("policies", "smd")(**parameters).pair(problem, self.id)
        return choice.workers, choice.servers, choice.value

    def best_unit(self, w: int, p: int, whole: Array) -> tuple[float, int, int] | None:
        """Return the best gain of time per dominant share of `whole` by one more worker or server; None: no gain."""
        units = [(1, 0, self.worker), (0, 1, self.server)]
        gains = [
            ((self.time_s(w, p) - self.time_s(w + dw, p + dp)) / _dominant(amount, whole), dw, dp)
            for dw, dp, amount in units
            if self.fits(w + dw, p + dp)
        ]
        return max((gain for gain in gains if gain[0] > 0), default=None)


def cases(kind: Kind, n_jobs: int, seed: int, interpretation: Interpretation) -> list[Case]:
    """Return the jobs of one experiment whose limit holds a worker and a server."""
    jobs = list(SmdJobs(n_jobs=n_jobs).jobs(seed))
    made = [_case(i, jobs, kind, interpretation) for i in range(n_jobs)]
    return [case for case in made if case.fits(1, 1)]


def in_units(several: Sequence[Case], factor: float) -> list[Case]:
    """Return the jobs with a unit of time `factor` times as long; their pairs, which do not change, are kept."""
    made = [replace(case, utility=_stretched(case.utility, factor)) for case in several]
    for case, before in zip(made, several, strict=True):
        case.__dict__.update({name: getattr(before, name) for name in _PAIRS})
    return made


def _stretched(utility: Sigmoid, factor: float) -> Sigmoid:
    return replace(utility, steepness_per_s=utility.steepness_per_s / factor, middle_s=utility.middle_s * factor)


def _dominant(amount: Array, whole: Array) -> float:
    return float(np.divide(amount, whole, out=np.zeros(len(amount)), where=whole > 0).max())


def _case(i_job: int, jobs: Sequence[TraceJob], kind: Kind, interpretation: Interpretation) -> Case:
    job, unit_s = jobs[i_job], interpretation.unit_s
    p = job.parameters
    utility = Sigmoid(
        height=p["utility_height"], steepness_per_s=p["utility_steepness"] / unit_s,
        middle_s=p["utility_middle"] * unit_s,
    )  # fmt: skip
    worker, server = _amounts(job, "worker"), _amounts(job, "server")
    limit = _limit(i_job, jobs, interpretation.limit)
    return Case(i_job, kind, _theta(job, kind, interpretation.forward), worker, server, limit, utility)


def _limit(i_job: int, jobs: Sequence[TraceJob], of: Limit) -> Array:
    """The job's limit. What else is drawn for it is taken from the jobs after it, which are drawn independently."""
    worker, factor = _amounts(jobs[i_job], "worker"), jobs[i_job].parameters["limit_factor"]
    if of == "worker and server":
        return factor * (worker + _amounts(jobs[i_job], "server"))
    if of == "mean worker":
        return factor * _MEAN_WORKER
    if of == "another job's worker":
        return factor * _amounts(jobs[(i_job + 1) % len(jobs)], "worker")
    if of == "worker, by resource":
        others = (jobs[(i_job + 1 + k) % len(jobs)] for k in range(len(worker)))
        return np.array([other.parameters["limit_factor"] for other in others]) * worker
    return factor * worker


def _amounts(job: TraceJob, of: str) -> Array:
    p = job.parameters
    return np.array(
        [p[f"{of}_cores"], p.get(f"{of}_gpus", 0.0), p[f"{of}_memory_bytes"] / _GB, p[f"{of}_disk_bytes"] / _GB]
    )


def _theta(job: TraceJob, kind: Kind, forward: Forward) -> tuple[float, ...]:
    """Equations (4) and (5) of the paper, times the iterations."""
    p = job.parameters
    forward_s, backward_s, transfer_s = (_layers(job, what) for what in ("forward", "backward", "push"))
    exposed_frac = _exposed_frac(forward_s, backward_s, transfer_s)
    whole_s = 2 * exposed_frac * p["model_bytes"] / p["bandwidth_bytes_per_s"]
    # t_f, of one sample.
    sample_s = sum(forward_s) / (p["batch_per_worker"] if forward == "batch" else 1.0)
    each: tuple[float, ...]
    if kind == "sync":
        each = (p["worker_overhead_s"], p["server_overhead_s"], sum(backward_s), whole_s, p["global_batch"] * sample_s)
    else:
        each = (
            p["worker_overhead_s"], p["server_overhead_s"],
            p["batch_per_worker"] * sample_s + sum(backward_s), p["overlap_frac"] * whole_s,
        )  # fmt: skip
    return tuple(p["iterations"] * one for one in each)


def _layers(job: TraceJob, what: str) -> tuple[float, ...]:
    return tuple(job.parameters[f"{what}_{i}_s"] for i in range(1, int(job.parameters["n_layers"]) + 1))


def _exposed_frac(forward_s: Sequence[float], backward_s: Sequence[float], transfer_s: Sequence[float]) -> float:
    """Return η3 with wait-free back-propagation; exposed time counts as communication, so η1 = η2 = 1."""
    times = tuple(forward_s), tuple(backward_s), tuple(transfer_s)
    model = Layered(forward_s=times[0], backward_s=times[1], transfer_s=times[2], overlap="wait-free")
    return model.exposed_frac(Shape(n_workers=1, n_servers=1))


def best_together(
    kind: Kind,
    theta: Sequence[Sequence[float]],
    *,
    per_worker: Sequence[ArrayLike],
    per_server: Sequence[ArrayLike],
    limits: Sequence[ArrayLike],
    utilities: Sequence[Callable[[float], float]],
    capacity: ArrayLike,
    gap_limit: float = 0.01,
) -> tuple[list[tuple[int, int]], float, float]:
    """Return the decision of `smd-exact`: workers and servers of each job (zeros: none), total utility, and its bound.

    Parameters
    ----------
    kind, theta, per_worker, per_server, limits
        Data of each job, see `punctual.papers.smd.sum_of_ratios.PairProblem`: any number of resources.
    utilities
        Utility of each job by its completion time.
    capacity
        Capacity of each resource.
    """
    given = zip(theta, per_worker, per_server, limits, utilities, strict=True)
    jobs = [_ways(PairProblem.of(kind, *numbers), utility) for *numbers, utility in given]
    uses, worths = [uses for _, uses, _ in jobs], [worths for _, _, worths in jobs]
    filled = fill(uses, worths, np.asarray(capacity, dtype=np.float64), gap_limit=gap_limit)
    chosen = [ways[int(way) - 1] if way else (0, 0) for (ways, _, _), way in zip(jobs, filled.choices, strict=True)]
    return chosen, filled.value, filled.bound


def _ways(problem: PairProblem, utility: Callable[[float], float]) -> tuple[list[tuple[int, int]], Array, Array]:
    """The pairs of one job that no other beats, their uses (k, R) and utilities (k,)."""
    workers, servers, times = pairs(problem)
    uses = workers[:, None] * problem.per_worker + servers[:, None] * problem.per_server
    worths = np.array([utility(time) for time in times.tolist()], dtype=np.float64)
    kept = undominated(uses, worths)
    return list(zip(workers[kept].tolist(), servers[kept].tolist(), strict=True)), uses[kept], worths[kept]
