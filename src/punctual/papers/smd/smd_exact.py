"""Choose workers, servers and admission of all waiting jobs in one knapsack of the amounts they use."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.papers.smd.starting_round import ChosenPair, Offer, StartingRound
from punctual.policies._base import PolicyBase
from punctual.solvers.solution import FloatArray, IntArray, Solution
from punctual.solvers.vector_knapsack import solve_vector_knapsack

#: Rows of a table are padded to the longest list of ways.
_NOT_THERE = -np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class SmdExact(PolicyBase):
    """Chooses which waiting jobs start, and with how many workers and servers, so that they are worth most together.

    The problem of [smd2021], with three changes that make it worth more: a job is charged for what it uses, it may get
    less than what is best for it alone, and both questions are one programme with a proven bound. Use it where jobs
    differ in what an early end is worth. Jobs that run keep what they have.

    Formula, properties and differences: `docs/explanation/policies/smd-exact.md`.

    Parameters
    ----------
    gap_limit
        Share of the objective by which a decision may fall short of the best one before nodes are found for it.
    interval_s
        Waiting jobs are decided about together at the multiples of this; 0: at every change.
    """

    gap_limit: float = 0.01
    interval_s: float = 0.0

    def allocate(self, snapshot: Snapshot) -> Plan:
        """Start waiting jobs."""
        start = StartingRound(self._builder(snapshot), self.interval_s)
        jobs = [_PairOptions(start, offers) for view in start.waiting if (offers := start.offers(view))]
        if not jobs:
            return start.plan()
        uses, utilities = [job.uses for job in jobs], [job.utilities for job in jobs]
        chosen = fill(uses, utilities, start.free(), gap_limit=self.gap_limit)
        chosen_pairs = [job.chosen(int(way) - 1) for job, way in zip(jobs, chosen.choices, strict=True) if way]
        started = start.start(chosen_pairs)
        return start.plan(objective=started, bound=max(chosen.bound, started))


class _PairOptions:
    """The ways in which one job can run that no other way beats, on all kinds of nodes."""

    def __init__(self, start: StartingRound, offers: list[Offer]) -> None:
        self._offers = offers
        kept = [undominated(offer.pairs.amounts, offer.worths) for offer in offers]
        self._of_offer: IntArray = np.concatenate([np.full(len(ways), i) for i, ways in enumerate(kept)])
        self._of_pair: IntArray = np.concatenate(kept)
        parts = [start.on_kind(offer.kind, offer.pairs.amounts[ways]) for offer, ways in zip(offers, kept, strict=True)]
        self.uses: FloatArray = np.concatenate(parts)
        self.utilities: FloatArray = np.concatenate(
            [offer.worths[ways] for offer, ways in zip(offers, kept, strict=True)]
        )

    def chosen(self, way: int) -> ChosenPair:
        return ChosenPair(self._offers[int(self._of_offer[way])], int(self._of_pair[way]))


def undominated(uses: FloatArray, utilities: FloatArray) -> IntArray:
    """Indices of the ways that no other beats: as useful, for no more of anything; the most useful first.

    Parameters
    ----------
    uses
        Shape (k, R).
    utilities
        Shape (k,); those of zero or below are left out.
    """
    # Sort equally useful ways by size, so that the smallest one stays.
    order = np.lexsort((uses.sum(axis=1), -utilities))
    kept: list[int] = []
    for i in order[utilities[order] > 0].tolist():
        if not kept or not (uses[kept] <= uses[i]).all(axis=1).any():
            kept.append(i)
    return np.array(kept, dtype=np.int64)


def fill(
    uses: Sequence[FloatArray], utilities: Sequence[FloatArray], capacity: FloatArray, *, gap_limit: float
) -> Solution:
    """Choose a way for each job, or none; `choices` counts ways from 1, and 0 is none.

    Parameters
    ----------
    uses, utilities
        Arrays of each job, shapes (k, R) and (k,), with its own k.
    capacity
        Shape (R,).
    """
    n_ways = max((len(worths) for worths in utilities), default=0)
    costs = np.zeros((len(uses), n_ways + 1, len(capacity)))
    values = np.full((len(uses), n_ways + 1), _NOT_THERE)
    values[:, 0] = 0.0
    for i, (use, utility) in enumerate(zip(uses, utilities, strict=True)):
        costs[i, 1 : len(use) + 1], values[i, 1 : len(utility) + 1] = use, utility
    return solve_vector_knapsack(costs, values, capacity, gap_limit=gap_limit)
