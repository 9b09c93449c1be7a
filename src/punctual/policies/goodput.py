"""Everybody is as much faster than with a fair share as can be, and the slowest count most."""

from dataclasses import dataclass

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.plan import Plan
from punctual.policies._base import check_not_negative
from punctual.policies._extra import check_numpy

_NAME = "goodput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Makes the power mean of all jobs' speed-ups over a fair share as large as possible, with a proven bound.

    The objective of [pollux2021], solved as a knapsack. Use it for jobs of which the length is not known and the speed
    is: nobody falls far behind a fair share, and devices go where they speed up most. For jobs whose batch grows with
    their devices the speed is the goodput. It looks neither at deadlines nor at what is left of a job.

    Parameters
    ----------
    power
        p of the mean, from -10 to 1 and not 0: the lower, the more the slowest job counts.
    idle_speedup
        A job that holds nothing counts as if it had this speed-up.
    interval_s
        While a job could be faster the next decision follows after it at the latest: penalties fade as jobs grow older.
    gap_limit
        Share of the sum of terms by which a decision may fall short of the best one.

    Raises
    ------
    InvalidSpec
        A parameter is outside of its range; or, when it decides, NumPy is missing.

    Notes
    -----
    *Symbols.* Job j of J, w_j its weight, rate_j(n) its steps per second with n workers, f_j those with a fair share,
    the largest allowed number up to ⌈C / (J c_j)⌉ of the C devices, c_j for a worker; T_j its age, R_j how often it was
    changed, δ_j what a change costs; ε `idle_speedup`.

    *Formula.* s_j(n) = rate_j(n) / f_j, for another number than it has times (T_j − R_j δ_j) / (T_j + δ_j), not below 0.
    Maximise (Σ_j w_j (s_j(n) + ε)^p / Σ_j w_j)^(1/p) over the allowed numbers, 0 included, that the devices suffice for.
    For each p that is the largest Σ_j w_j (s_j(n) + ε)^p / p, one term for each job: a multiple-choice knapsack.

    *Source.* [pollux2021]: speed-ups over a fair share, their power mean, the factor for a restart, p = -1.

    *Differs.* (1) A knapsack solver takes the place of a genetic algorithm; what it proves is the plan's bound. (2) The
    speed-up is that on as few nodes as a number fits on; nodes are found afterwards, and jobs on several of them may share
    one. (3) The rate is what the job's model says, no matter how many workers it has had before. (4) Decided at every
    change of the jobs or nodes, and after `interval_s`; the source decides once a minute. (5) A job that holds nothing
    counts as δ_j older in its factor, since a new one would otherwise be worth nothing. (6) Jobs have weights. (7) δ_j is
    each job's own. (8) ε is that of the source on its cluster, in units of a fair share. (9) Of several kinds of devices
    f_j is the mean over all of them; the bound is then that of a relaxation. (10) Of unknown speed counts as proportional
    to the workers. (11) Jobs without workers get their demand, or what one node has of it, before the others. (12) Jobs
    that may not be paused keep at least their least, and their kind of devices.

    *Properties.* Deterministic. The bound holds for any placement, as it takes each kind of devices for one large node.
    A job of which the number stays keeps its nodes. O(jobs · counts) a round of the solver, a few rounds.

    *Fails when* there are more jobs than devices: all speed-ups are then those of the least, and who comes late waits,
    however short. Long and short jobs are the same to it.
    """

    power: float = -1.0
    idle_speedup: float = 0.004
    interval_s: float = 300.0
    gap_limit: float = 1e-4

    def __post_init__(self) -> None:
        if not -10 <= self.power <= 1 or self.power == 0:
            raise InvalidSpec(
                "`power` must be from -10 to 1 and not 0", str(self.power), f"policy '{_NAME}'",
                "Give -1 as published, less to be fairer, more for more speed in all.",
            )  # fmt: skip
        check_not_negative(_NAME, "idle_speedup", self.idle_speedup)
        check_not_negative(_NAME, "interval_s", self.interval_s, "s")
        check_not_negative(_NAME, "gap_limit", self.gap_limit)
        for parameter, unit in (("idle_speedup", ""), ("interval_s", " s")):
            if not getattr(self, parameter):
                raise InvalidSpec(
                    f"`{parameter}` must be above zero", f"0{unit}", f"policy '{_NAME}'", "Give a positive number."
                )

    def allocate(self, snapshot: Snapshot) -> Plan:
        check_numpy(_NAME)
        from punctual.policies._goodput_round import Round

        return Round(snapshot, self).plan()
