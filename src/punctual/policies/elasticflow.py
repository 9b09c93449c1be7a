"""Deadlines are promised at submission and kept with the fewest devices; what is spare goes where it costs least."""

from dataclasses import dataclass
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.policies._base import PolicyBase
from punctual.policies._deadline_shares import planned

#: Who gets what is spare.
SpareTo = Literal["saving", "costly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticflow(PolicyBase):
    """Promises deadlines: each job gets the fewest devices that meet its own, and one that none can meet is declined.

    Use it where a deadline is a promise and an early "no" is better than a late result. Under overload it declines much:
    it promises to whoever comes first, not to those of whom most can be on time.

    Parameters
    ----------
    admission
        Whether jobs are declined. Otherwise all run, and one that cannot be on time gets all it can have.
    spare_to
        ``"saving"``: what is spare goes where it saves most device time later, as the paper says; ``"costly"``: where it
        saves least, as the published programme sorts.
    slot_s
        A job that needs more devices within this time gets them at once if they are spare.
    margin_s
        Deadlines are planned for that much earlier: what is planned to end at the deadline ends a rounding error later.

    Raises
    ------
    InvalidSpec
        `spare_to` is neither of the two, or a time is negative or not finite.

    Notes
    -----
    *Formula.* Jobs with deadlines, in the order of these, each get the minimum satisfactory share q of what the ones
    before it leave: the least count with Σ_t τ_t r(q ∧ F_t) ≥ W over the spans t up to the deadline, with τ_t their
    length, F_t the devices left, r the rate and W the work. From the last instant on from which q is enough the job
    holds q, before that the next smaller count. A new job is declined if it, or with it another one, would be late.
    Where these shares would make a job late that was promised its deadline, those of the last plan are kept.
    What is spare now goes first to those who hold nothing, then, one count c to the next larger c₊ at a time, to
    the job with the greatest marginal return ((r(c₊) − r(c))·q/r(q) − (c₊ − c)) / (c₊ − c): device time that it saves
    later less that which it takes now, for each device.

    *Source.* [elasticflow2023], and its published programme where the two differ.

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(jobs² · counts) for a plan, and as much for each new job. With speeds as declared and
    changes that cost nothing every promise is kept.

    *Fails when* speeds are uncertain (nothing is kept in reserve), when changes of size are dear, or under overload.
    """

    admission: bool = True
    spare_to: SpareTo = "saving"
    slot_s: float = 60.0
    margin_s: float = 1.0

    def __post_init__(self) -> None:
        self._check_choice("spare_to", "saving", "costly")
        self._check_not_negative("slot_s", "s")
        self._check_not_negative("margin_s", "s")

    def allocate(self, snapshot: Snapshot) -> Plan:
        return planned(
            self._builder(snapshot), admission=self.admission, spare_to=self.spare_to, slot_s=self.slot_s,
            margin_s=self.margin_s,
        )  # fmt: skip
