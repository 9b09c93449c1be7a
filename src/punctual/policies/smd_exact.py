"""Workers, servers and admission of all waiting jobs in one knapsack, of what they use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.policies._base import check_not_negative
from punctual.policies._extra import check_libraries

_NAME = "smd-exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmdExact:
    """Chooses which waiting jobs start, and with how many workers and servers, so that they are worth most together.

    The problem of [smd2021], with three changes that make it worth more: a job is charged for what it uses, it may get
    less than what is best for it alone, and both questions are one programme with a proven bound. Use it where jobs
    differ in what an early end is worth. Jobs that run keep what they have.

    Parameters
    ----------
    gap_limit
        Share of the objective by which a decision may fall short of the best one before nodes are found for it.

    Raises
    ------
    InvalidSpec
        `gap_limit` is negative; or, when it decides, NumPy or SciPy is missing.

    Notes
    -----
    *Symbols.* As for `smd`.

    *Formula.* Maximise Σ_i μ_i(E_i / f_i(p_i, w_i)) x_i with Σ_i (O_i w_i + G_i p_i) x_i ≤ C and O_i w_i + G_i p_i ≤ v_i.
    Of the pairs of each job those are listed that no other pair beats in use and utility; one of each list, or none, is
    chosen by a vector knapsack.

    *Source.* [smd2021] for the problem.

    *Differs.* (1) From (2) of the source: what is used is charged, not the limit. (2) All pairs are listed instead of one
    approximated; of more than 256 pairs, the speeds of most come from the formula fitted to the others. (3) Several kinds
    of devices are ways to choose from. (4) As `smd` in all else: no disk, nodes, running jobs, utilities, jobs without
    servers or workers.

    *Properties.* Deterministic. `bound` holds for all plans that leave running jobs as they are; it takes each kind of
    nodes for one large node. O(jobs · pairs · resources²) a step of the solver, some thirty steps.

    *Fails when* jobs come one by one: then there is little to choose from, and the first ones take what they can use.
    """

    gap_limit: float = 0.01

    def __post_init__(self) -> None:
        check_not_negative(_NAME, "gap_limit", self.gap_limit)

    def allocate(self, snapshot: Snapshot) -> Plan:
        """Start waiting jobs."""
        check_libraries(_NAME, "numpy", "scipy")
        from punctual.policies._smd_exact_round import decide

        return decide(snapshot, gap_limit=self.gap_limit)

    def choose(
        self, kind: Literal["sync", "async"], theta: Sequence[Sequence[float]], *,
        per_worker: Sequence[Sequence[float]], per_server: Sequence[Sequence[float]],
        limits: Sequence[Sequence[float]], utilities: Sequence[Callable[[float], float]], capacity: Sequence[float],
    ) -> tuple[list[tuple[int, int]], float, float]:  # fmt: skip
        """The same decision without a cluster: workers and servers of each job (zeros: none), total utility, its bound.

        Parameters
        ----------
        kind, theta, per_worker, per_server, limits
            Of each job, see `punctual.optim.sum_of_ratios.PairProblem`: any number of resources.
        utilities
            Of each job, what a completion time is worth.
        capacity
            Of each resource.
        """
        check_libraries(_NAME, "numpy", "scipy")
        from punctual.optim.sum_of_ratios import PairProblem
        from punctual.policies._menu import choose

        given = zip(theta, per_worker, per_server, limits, strict=True)
        problems = [PairProblem.of(kind, *one) for one in given]
        return choose(problems, utilities, capacity, gap_limit=self.gap_limit)
