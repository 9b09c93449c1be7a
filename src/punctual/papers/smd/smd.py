"""Choose each job's workers and servers by itself, then admit jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike

from punctual.core.cluster import Snapshot
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.papers.smd.frieze_clarke import exact_packing, frieze_clarke
from punctual.papers.smd.starting_round import ChosenPair, Offer, StartingRound
from punctual.papers.smd.sum_of_ratios import PairChoice, PairProblem, approximate_pair, fastest_pair, pairs
from punctual.papers.smd.worker_server_pairs import formula_of, limit_of, vector
from punctual.policies._base import PolicyBase
from punctual.solvers.solution import FloatArray

#: Choice of a job's numbers: the published way, exactly, or as many servers as workers.
Pairing = Literal["rounded", "exact", "equal"]
Admission = Literal["frieze-clarke", "exact"]

#: Number of jobs above which a linear programme for each would take seconds.
_N_SUBSETS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Smd(PolicyBase):
    """Gives each waiting job the numbers of workers and servers that are best for it alone, then admits the most useful.

    The scheduler of [smd2021] as published. Use `smd-exact` instead, which solves the same problem better; this one is
    for comparison. Jobs that run keep what they have, and each is charged for its limit, its ceiling, whether it uses
    that or not.

    Formula, properties and differences: `docs/explanation/policies/smd.md`.

    Parameters
    ----------
    pairing
        *rounded*: the published way; *exact*: the fastest pair; *equal*: as many servers as workers, the baseline ESW.
    epsilon
        Ratio of neighbours on the grid of the published way, less 1.
    scale
        Factor on its point before rounding.
    n_tries
        Most roundings.
    admission
        *frieze-clarke*: the published way; *exact*: branch and bound.
    subset_size
        Most jobs that are fixed together in the published way.
    interval_s
        Waiting jobs are decided about together at the multiples of this, as in the source; 0: each change is an occasion.
    delta
        δ of the published guarantee, above 0 and up to 1.
    """

    pairing: Pairing = "rounded"
    epsilon: float = 0.05
    scale: float = 1.0
    n_tries: int = 100
    admission: Admission = "frieze-clarke"
    subset_size: int = 1
    interval_s: float = 0.0
    delta: float = 1.0

    def __post_init__(self) -> None:
        self._check_choice("pairing", "rounded", "exact", "equal")
        self._check_choice("admission", "frieze-clarke", "exact")
        self._check_not_negative("subset_size", "jobs")
        self._check_not_negative("interval_s", "s")
        for name in ("epsilon", "scale", "n_tries", "delta"):
            self._check_positive(name)
        if self.delta > 1:
            raise self._wrong("`delta` must be a share", f"{self.delta}", "Give a number above 0 and up to 1.")

    @property
    def guarantee(self) -> float:
        """Bound of a job's time with the published pair, in multiples of the shortest, by [smd2021]."""
        return (24.0 / self.scale + 4.0) / self.delta

    def allocate(self, snapshot: Snapshot) -> Plan:
        """Admit waiting jobs."""
        start = StartingRound(self._builder(snapshot), self.interval_s)
        chosen_pairs = [self._chosen(start, offers[0]) for view in start.waiting if (offers := start.offers(view))]
        if not chosen_pairs:
            return start.plan()
        costs = np.stack([_charge(start, chosen.offer.view.spec, chosen.offer.kind) for chosen in chosen_pairs])
        taken = [_charge(start, view.spec, start.kind_of(start.builder.held(view))) for view in start.running]
        left = np.maximum(start.capacity() - sum(taken, np.zeros(costs.shape[1])), 0.0)
        worths = [chosen.worth for chosen in chosen_pairs]
        admitted = filled(self.admit(worths, costs, left), worths, costs, left)
        started = start.start([chosen for chosen, yes in zip(chosen_pairs, admitted, strict=True) if yes])
        return start.plan(objective=started)

    def admit(self, profits: Sequence[float], costs: ArrayLike, capacities: ArrayLike) -> list[bool]:
        """Return for each job whether it is admitted, given its worth and its charge for each resource."""
        if self.admission == "exact":
            return [bool(yes) for yes in exact_packing(profits, costs, capacities).choices]
        size = self.subset_size if len(profits) <= _N_SUBSETS_MAX else 0
        return [bool(yes) for yes in frieze_clarke(profits, costs, capacities, subset_size=size).choices]

    def _chosen(self, start: StartingRound, offer: Offer) -> ChosenPair:
        """The pair that the job gets if it is admitted."""
        spec, offered = offer.view.spec, offer.pairs
        if spec.worker is None or spec.server is None or self.pairing == "exact":
            return ChosenPair(offer, int(offered.step_s.argmin()))
        kind, theta = formula_of(offered)
        hardware = start.builder.hardware
        amounts = spec.worker, spec.server, limit_of(hardware, spec, offer.kind)
        problem = PairProblem.of(kind, theta, *(vector(hardware, amount) for amount in amounts))
        choice = self.pair(problem, crc32(f"{start.builder.snapshot.seed} {spec.id}".encode()))
        facts = {"guarantee": self.guarantee, "proven": choice.value / choice.bound} if choice.bound > 0 else {}
        return ChosenPair(offer, offered.index(choice.workers, choice.servers), facts)

    def pair(self, problem: PairProblem, seed: int = 0) -> PairChoice:
        """Return the pair of one job by itself; `seed` drives the rounding."""
        if self.pairing == "exact":
            return fastest_pair(problem)
        if self.pairing == "equal":
            return _fastest_equal(problem)
        return approximate_pair(problem, epsilon=self.epsilon, seed=seed, n_tries=self.n_tries, scale=self.scale)


def filled(
    admitted: Sequence[bool], worths: Sequence[float], costs: FloatArray, capacities: FloatArray
) -> Sequence[bool]:
    """Return the admitted jobs and, by worth, those that fit in the room that rounding down leaves."""
    yes = np.array(admitted, dtype=bool)
    left = capacities - costs[yes].sum(axis=0)
    for i in np.argsort(-np.asarray(worths), kind="stable"):
        if not yes[i] and np.all(costs[i] <= left):
            yes[i], left = True, left - costs[i]
    return [bool(each) for each in yes]


def _charge(start: StartingRound, spec: JobSpec, kind: str) -> FloatArray:
    """Return the amount that the job is charged for: its limit."""
    hardware = start.builder.hardware
    return start.on_kind(kind, vector(hardware, limit_of(hardware, spec, kind)))


def _fastest_equal(problem: PairProblem) -> PairChoice:
    """The best of the pairs with as many servers as workers."""
    workers, servers, times = pairs(problem)
    equal = workers == servers
    if not equal.any():
        return fastest_pair(problem)  # infeasible
    i = int(np.where(equal, times, np.inf).argmin())
    value = float(times[i])
    return PairChoice(status="feasible", value=value, bound=0.0, workers=int(workers[i]), servers=int(servers[i]))
