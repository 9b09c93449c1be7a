"""Workers and servers of each job by itself, then which jobs to admit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.plan import Plan
from punctual.policies._base import check_choice, check_not_negative
from punctual.policies._extra import check_libraries

#: How a job gets its numbers: the published way, exactly, or as many servers as workers.
Pairing = Literal["rounded", "exact", "equal"]
Admission = Literal["frieze-clarke", "exact"]

_NAME = "smd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Smd:
    """Gives each waiting job the numbers of workers and servers that are best for it alone, then admits the most useful.

    The scheduler of [smd2021] as published. Use `smd-exact` instead, which solves the same problem better; this one is
    for comparison. Jobs that run keep what they have, and each is charged for its limit, its ceiling, whether it uses
    that or not.

    Parameters
    ----------
    pairing
        *rounded*: the published way; *exact*: the fastest pair; *equal*: as many servers as workers, the baseline ESW.
    epsilon
        Ratio of neighbours on the grid of the published way, less 1.
    scale
        What its point is multiplied by before rounding.
    n_tries
        Most roundings.
    admission
        *frieze-clarke*: the published way; *exact*: branch and bound.
    subset_size
        Most jobs that are fixed together in the published way.

    Raises
    ------
    InvalidSpec
        A parameter is outside of its range; or, when it decides, NumPy or SciPy is missing.

    Notes
    -----
    *Symbols.* Job i, w workers and p servers, O and G what one of each takes, v its limit, C the capacity, f steps per
    second, E steps left, μ utility of the completion time, x ∈ {0, 1} admission.

    *Formula.* (w_i, p_i) = argmax f_i(p, w) with O_i w + G_i p ≤ v_i; then maximise Σ μ_i(E_i / f_i) x_i with
    Σ v_i x_i ≤ C.

    *Source.* [smd2021]; [frieze1984] for the admission.

    *Differs.* (1) Coefficients of f are fitted to what the job's performance model says. (2) A job without servers gets
    its fastest number of workers. (3) No fourth resource (disk). (4) Jobs are put on nodes; where a pair does not fit, a
    smaller one is taken. (5) Decided at every change; running jobs are charged as well. (6) Without a declared utility
    one falls around the deadline; without a deadline it is the speed. A job that is late is worth a little. (7) Subsets
    are fixed while 100 jobs wait at most. (8) Of several kinds of devices the job's fastest is taken. (9) Jobs without
    workers get their demand.

    *Properties.* Deterministic for the snapshot's seed. Proves nothing.

    *Fails when* limits are wide: what is charged and not used helps nobody, half of the nodes in the source's own
    experiments. Nothing is resized, so jobs that came early keep what they got.
    """

    pairing: Pairing = "rounded"
    epsilon: float = 0.05
    scale: float = 1.0
    n_tries: int = 100
    admission: Admission = "frieze-clarke"
    subset_size: int = 1

    def __post_init__(self) -> None:
        check_choice(_NAME, "pairing", self.pairing, ("rounded", "exact", "equal"))
        check_choice(_NAME, "admission", self.admission, ("frieze-clarke", "exact"))
        check_not_negative(_NAME, "subset_size", self.subset_size, "jobs")
        for name in ("epsilon", "scale", "n_tries"):
            if not getattr(self, name) > 0:
                raise InvalidSpec(
                    f"`{name}` must be above zero", f"{getattr(self, name)}", f"policy '{_NAME}'",
                    "Leave it out for the default.",
                )  # fmt: skip

    def allocate(self, snapshot: Snapshot) -> Plan:
        """Admit waiting jobs."""
        check_libraries(_NAME, "numpy", "scipy")
        from punctual.policies._smd_round import decide

        return decide(snapshot, self)

    def pair(
        self, kind: Literal["sync", "async"], theta: Sequence[float], *, per_worker: Sequence[float],
        per_server: Sequence[float], limits: Sequence[float], seed: int = 0,
    ) -> tuple[int, int, float]:  # fmt: skip
        """Workers, servers and time of one job by itself; zeros and infinite if its limit has no room for one of each.

        Parameters
        ----------
        kind, theta, per_worker, per_server, limits
            See `punctual.optim.sum_of_ratios.PairProblem`: any number of resources.
        seed
            Of the rounding.
        """
        check_libraries(_NAME, "numpy", "scipy")
        from punctual.optim.sum_of_ratios import PairProblem
        from punctual.policies._smd_round import choose_pair

        choice = choose_pair(self, PairProblem.of(kind, theta, per_worker, per_server, limits), seed)
        return choice.workers, choice.servers, choice.value

    def admit(
        self, profits: Sequence[float], costs: Sequence[Sequence[float]], capacities: Sequence[float]
    ) -> list[bool]:
        """Which jobs are admitted, given what each is worth and charged for of each resource."""
        check_libraries(_NAME, "numpy", "scipy")
        from punctual.policies._smd_round import admit

        return [bool(yes) for yes in admit(self, profits, costs, capacities)]
