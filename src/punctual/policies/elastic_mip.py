"""One programme chooses the numbers of workers of all jobs at once."""

from dataclasses import dataclass
from math import isnan
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.plan import Plan
from punctual.policies._base import check_choice, check_not_negative
from punctual.policies._extra import check_numpy

#: What is maximised: the share of each job's work, or the work itself in devices at their best.
Objective = Literal["fraction", "throughput"]
#: What is handed out: devices, or nodes as a whole.
Unit = Literal["devices", "nodes"]

_NAME = "elastic-mip"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticMip:
    """Chooses how many workers each job gets so that all together get done as much as possible, with a proven bound.

    The allocator of [hu2021], solved as a knapsack. Use it for elastic jobs of known length and speed where short ones
    are to end soon. It pauses no job and does not look at deadlines; under overload long jobs wait long.

    Parameters
    ----------
    objective
        *fraction*: the share of what is left of each job; *throughput*: device-seconds of work, counted as if every
        device were used as well as the job can use one.
    unit
        *devices*, or *nodes*: a job then has its nodes to itself.
    interval_s
        Time for which a decision is taken; while there is too little for all, the next one follows after it at the
        latest.
    waiting_s
        Waiting so long doubles a job's weight, twice as long triples it; infinite: waiting changes nothing.
    n_up_max, n_down_max
        How many of its allowed numbers a running job may go up or down in one decision; None: any.
    gap_limit
        Share of the objective by which a decision may fall short of the best one.

    Raises
    ------
    InvalidSpec
        A parameter is outside of its range; or, when it decides, NumPy is missing.

    Notes
    -----
    *Symbols.* Job j, remaining_j its steps left, rate_j(n) its steps per second with n workers, n_j what it has, N_j
    its allowed numbers, Δ `interval_s`, C the capacity, c(n) what n workers take of it.

    *Formula.* E_j(n) = remaining_j / rate_j(n) + (resize cost if n ≠ n_j); for a job that waits, its start-up instead.
    Maximise Σ_j ω_j v_j(n) with Σ_j c(n) ≤ C over n ∈ N_j, and n = 0 for jobs that hold nothing; v_j(0) = 0 and
    v_j(n) = min(1, Δ / E_j(n)) or, for *throughput*, min(rate_j(n) (Δ − resize cost), remaining_j) / (Δ b_j) with
    b_j = max_n rate_j(n) / c(n). ω_j = weight · (1 + time waited / `waiting_s`), for a running job its weight.

    *Source.* [hu2021]: the programme, its time to the end, weights for waiting, no job below its least.

    *Differs.* (1) A multiple-choice knapsack solver takes the place of a general one; what it proves is the plan's
    bound. (2) Decided at every change of the jobs or nodes, and after Δ. (3) The source hands out nodes; devices are the
    default here. (4) A start costs the start-up. (5) The objective *throughput*. (6) A job of unknown length counts as
    having to run as long again as it has, at least an hour; unknown speed counts as proportional to the workers.
    (7) With several kinds of devices, running jobs stay on theirs, and the bound is that of a relaxation.
    (8) Jobs without workers get their demand, or what one node has of it, in order of submission, before the others.
    (9) *fraction*: what ends within Δ is worth up to 1 % more the sooner it does, v_j(n) + 0.01 max(0, 1 − E_j(n) / Δ);
    otherwise short jobs would have the fewest workers beside idle ones.

    *Properties.* Deterministic. The bound holds for any placement: it takes each kind of devices for one large node. A
    job of which the number of workers stays keeps its nodes. O(jobs · counts) a round of the solver, a few rounds.

    *Fails when* lengths are unknown or far off: what matters is the share of what is left. Long jobs wait for short ones.
    *throughput* knows no urgency: everybody gets the number with which a device is used best.
    """

    objective: Objective = "fraction"
    unit: Unit = "devices"
    interval_s: float = 300.0
    waiting_s: float = 3600.0
    n_up_max: int | None = None
    n_down_max: int | None = None
    gap_limit: float = 1e-4

    def __post_init__(self) -> None:
        check_choice(_NAME, "objective", self.objective, ("fraction", "throughput"))
        check_choice(_NAME, "unit", self.unit, ("devices", "nodes"))
        check_not_negative(_NAME, "interval_s", self.interval_s, "s")
        check_not_negative(_NAME, "gap_limit", self.gap_limit)
        self._check_positive("interval_s", self.interval_s, "s")
        self._check_positive("waiting_s", self.waiting_s, "s")
        self._check_positive("n_up_max", self.n_up_max)
        self._check_positive("n_down_max", self.n_down_max)

    def allocate(self, snapshot: Snapshot) -> Plan:
        check_numpy(_NAME)
        from punctual.policies._elastic_round import Round

        return Round(snapshot, self).plan()

    def _check_positive(self, parameter: str, value: float | None, unit: str = "") -> None:
        if value is not None and (isnan(value) or value <= 0):
            raise InvalidSpec(
                f"`{parameter}` must be above zero", f"{value} {unit}".strip(), f"policy '{_NAME}'",
                "Give a positive number, or leave it out.",
            )  # fmt: skip
