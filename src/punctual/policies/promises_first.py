"""Promised deadlines first; what is left goes where a device-second is worth most."""

from dataclasses import dataclass
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.plan import Plan
from punctual.policies._base import check_choice, check_not_negative
from punctual.policies._extra import check_numpy

#: What becomes of a job whose deadline cannot be promised: it runs as well as it can, or is turned away; or no
#: deadlines are promised at all.
Admission = Literal["best-effort", "decline", "none"]

#: Promises take no more of the devices than this, unless all that is done is what was promised.
_PROMISED_FRAC = 0.2

#: When the plan of the promises has work done, as far as there is a choice.
Work = Literal["late", "early"]

_NAME = "promises-first"
_AMOUNTS = {
    "volume_power": "", "urgency": "", "urgency_power": "", "caution": "standard deviations", "lasting_s": "s",
    "steadiness": "", "welcome": "", "patience_s": "s", "prior_s": "s",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisesFirst:
    """Promises every deadline that can be kept beside those already promised, and shares the rest by worth.

    Use it where jobs can be resized and paused, with deadlines or without: it is meant to be good at completion times,
    queueing and deadlines at once. A job with a promise holds at each moment at least what a plan until its deadline
    says; everything else is one knapsack, solved with a proven bound. Jobs that have waited too long get a promise too.
    A part of the devices is never promised: otherwise, where more is asked for than there is, the first large jobs would
    shut out all small ones that come later.

    Parameters
    ----------
    admission
        What becomes of a job whose deadline cannot be promised; ``"none"``: nothing is promised.
    work
        Whether promised work is put off as long as its devices allow, which leaves them to other jobs now; or done
        early, which makes room for later promises: better where far more is asked for than there is.
    volume_power
        How much more a step of a short job is worth: worth falls with this power of the device-seconds left.
    urgency, urgency_power
        How much more jobs are worth that need most of the time to a deadline that is not promised, and by which power
        of the device-seconds left that falls.
    promised_frac
        Share of the devices that promises may take. None: 0.2; or all, if jobs without a promise are turned away.
    caution
        Standard deviations of the speed that a promise leaves aside.
    lasting_s
        For so long an allocation is taken to last when the cost of a change is weighed against its gain.
    steadiness
        Share by which what a job has is worth more to it than what it could have.
    welcome
        How much of the price of its smallest number of workers a job is given that never ran; from 1 on, new jobs start
        at once as long as anything can be taken from somebody.
    patience_s
        A job may hold nothing for this time and ten times as long as it would run; then it is promised an end of its
        waiting, before others are promised anything. 0: no such promises.
    prior_s
        Device-seconds expected of a job that does not say how long it is, at first.

    Raises
    ------
    InvalidSpec
        `admission` is not known or a number is below zero; the extra `sim` is not installed.

    Notes
    -----
    *Symbols.* r_j(q) rate of job j with q devices, b_j = max_q r_j(q)/q, R_j steps left, v_j = R_j/b_j, w_j weight.

    *Formula.* Worth of a step u_j = (w_j/b_j) (v_j/1 h)^−`volume_power` (1 + `urgency` t_j² (v_j/1 h)^−`urgency_power`),
    t_j the share of the time to the deadline that the job needs at its fastest, 0 if it is promised or hopeless. The
    knapsack maximises Σ u_j r_j(q_j), less what changes lose, over the numbers that keep all promises.

    *Source.* The idea of a guaranteed share is that of [elasticflow2023], the bound that of [sinha1979]; objective and
    the plan over spans are ours.

    *Properties.* Deterministic. Bound and objective are in the plan. O(n m) for the knapsack with n jobs of m numbers,
    O(promised · spans · m) for the promises, O(changes · nodes) for the places.

    *Fails when* nothing is known of speeds and nobody reports: promises are then worth what the declarations are.
    """

    admission: Admission = "best-effort"
    work: Work = "late"
    volume_power: float = 0.2
    urgency: float = 8.0
    urgency_power: float = 0.5
    promised_frac: float | None = None
    caution: float = 1.0
    lasting_s: float = 600.0
    steadiness: float = 0.02
    welcome: float = 1.0
    patience_s: float = 14_400.0
    prior_s: float = 600.0

    def __post_init__(self) -> None:
        check_choice(_NAME, "admission", self.admission, ("best-effort", "decline", "none"))
        check_choice(_NAME, "work", self.work, ("late", "early"))
        if self.promised_frac is not None and not 0 <= self.promised_frac <= 1:
            raise InvalidSpec(
                "`promised_frac` must be from 0 to 1", repr(self.promised_frac), f"the policy '{_NAME}'",
                "Give a share of the devices, as 0.4.",
            )  # fmt: skip
        for name, unit in _AMOUNTS.items():
            check_not_negative(_NAME, name, getattr(self, name), unit)

    @property
    def offered_frac(self) -> float:
        """Share of the devices that promises may take."""
        if self.promised_frac is not None:
            return self.promised_frac
        return 1.0 if self.admission == "decline" else _PROMISED_FRAC

    def allocate(self, snapshot: Snapshot) -> Plan:
        check_numpy(_NAME)
        from punctual.policies._round import Round

        return Round(snapshot, self).plan()
