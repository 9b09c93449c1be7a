"""One decision of `smd`: a pair for each job by itself, then which jobs to admit."""

from collections.abc import Sequence
from typing import Literal, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike

from punctual.core.cluster import Snapshot
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.optim.frieze_clarke import exact_packing, frieze_clarke
from punctual.optim.solution import BoolArray, FloatArray
from punctual.optim.sum_of_ratios import PairChoice, PairProblem, approximate_pair, fastest_pair, pairs
from punctual.policies._interval import Interval, Offer, Wish
from punctual.policies._pairs import formula_of, limit_of, vector

#: With more jobs than this a linear programme for each would take seconds.
_N_SUBSETS_MAX = 100


class Parameters(Protocol):
    """What a round takes from the policy."""

    @property
    def pairing(self) -> Literal["rounded", "exact", "equal"]: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def scale(self) -> float: ...
    @property
    def n_tries(self) -> int: ...
    @property
    def admission(self) -> Literal["frieze-clarke", "exact"]: ...
    @property
    def subset_size(self) -> int: ...


def decide(snapshot: Snapshot, parameters: Parameters) -> Plan:
    """The plan: what the waiting jobs get that are admitted."""
    interval = Interval(snapshot)
    wishes = [
        Wish(offers[0], _index(interval, offers[0], parameters))
        for view in interval.waiting
        if (offers := interval.offers(view))
    ]
    if not wishes:
        return interval.plan()
    costs = np.stack([_charge(interval, wish.offer.view.spec, wish.offer.kind) for wish in wishes])
    taken = [_charge(interval, view.spec, interval.kind_of(interval.draft.held(view))) for view in interval.running]
    left = np.maximum(interval.capacity() - sum(taken, np.zeros(costs.shape[1])), 0.0)
    admitted = admit(parameters, [wish.worth for wish in wishes], costs, left)
    started = interval.start([wish for wish, yes in zip(wishes, admitted, strict=True) if yes])
    return interval.plan(objective=started)


def _charge(interval: Interval, spec: JobSpec, kind: str) -> FloatArray:
    """What the job is charged for: its limit."""
    return interval.on_kind(kind, vector(limit_of(interval.draft.hardware, spec, kind)))


def _index(interval: Interval, offer: Offer, parameters: Parameters) -> int:
    """The pair that the job gets if it is admitted."""
    spec, found = offer.view.spec, offer.pairs
    if spec.worker is None or spec.server is None or parameters.pairing == "exact":
        return int(found.step_s.argmin())
    kind, theta = formula_of(found)
    limits = vector(limit_of(interval.draft.hardware, spec, offer.kind))
    problem = PairProblem.of(kind, theta, vector(spec.worker), vector(spec.server), limits)
    seed = crc32(f"{interval.draft.snapshot.seed} {spec.id}".encode())
    choice = choose_pair(parameters, problem, seed)
    return found.index(choice.workers, choice.servers)


def choose_pair(parameters: Parameters, problem: PairProblem, seed: int) -> PairChoice:
    """The pair of one job, by itself."""
    if parameters.pairing == "exact":
        return fastest_pair(problem)
    if parameters.pairing == "equal":
        return _fastest_equal(problem)
    return approximate_pair(
        problem, epsilon=parameters.epsilon, seed=seed, n_tries=parameters.n_tries, scale=parameters.scale
    )


def _fastest_equal(problem: PairProblem) -> PairChoice:
    """The best of the pairs with as many servers as workers."""
    workers, servers, times = pairs(problem)
    equal = workers == servers
    if not equal.any():
        return fastest_pair(problem)  # infeasible
    i = int(np.where(equal, times, np.inf).argmin())
    value = float(times[i])
    return PairChoice(status="feasible", value=value, bound=0.0, workers=int(workers[i]), servers=int(servers[i]))


def admit(parameters: Parameters, profits: Sequence[float], costs: ArrayLike, capacities: ArrayLike) -> BoolArray:
    """Which jobs are admitted."""
    if parameters.admission == "exact":
        return exact_packing(profits, costs, capacities).admitted
    size = parameters.subset_size if len(profits) <= _N_SUBSETS_MAX else 0
    return frieze_clarke(profits, costs, capacities, subset_size=size).admitted
