"""A policy's answer to a snapshot."""

from dataclasses import dataclass, field
from typing import Literal

from punctual.core.fast_init import fast_init
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.reason import Reason

#: *optimal*: proven; *feasible*: valid, perhaps not best; *partial*: stopped at a limit, valid; *infeasible*: nothing
#: valid was found and `grants` is to be ignored.
PlanStatus = Literal["optimal", "feasible", "partial", "infeasible"]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A proposed allocation; the kernel checks it before anything happens.

    Attributes
    ----------
    revision
        Revision of its snapshot.
    grants
        Job -> node -> amount.
    keeps_others
        A job of the snapshot that is missing in `grants` keeps what the last plan gave it; otherwise it gets nothing.
        Saying only what changes keeps a decision as small as the change, however many jobs there are.
    reasons
        Reason for each job's amount.
    declines
        Jobs that wait and are turned away for good, with the reason: a deadline that cannot be promised, say.
    warnings
        Warnings for the users of jobs: that a deadline cannot be promised, say. Each is given as often as a plan
        says it.
    promises
        Promised deadline of each job with a promise, on the scheduler's clock. None: the policy promises
        nothing and takes nothing back, so what was promised before still holds.
    bound
        No plan has a better objective than this (None: the policy proves nothing).
    objective
        Value of this plan in the unit of `bound`.
    ask_again_at
        Another plan is asked for at this instant even if nothing has changed until then: for plans that reach over
        time. None: only when something changes. Where such plans change nothing, later ones come less often
        (`punctual.core.planning`).
    carry
        Handed back in the next snapshot. Made of numbers, text, booleans, None, lists and dictionaries with text as
        keys, because the journal has to give it back as it was.
    machines
        Pool -> number of its machines to have; one that is not named keeps its number. Machines are released once no job
        holds anything on them.
    """

    revision: int
    grants: dict[JobId, Allocation]
    reasons: dict[JobId, Reason] = field(default_factory=dict)
    declines: dict[JobId, Reason] = field(default_factory=dict)
    warnings: dict[JobId, Reason] = field(default_factory=dict)
    promises: dict[JobId, float] | None = None
    status: PlanStatus = "feasible"
    bound: float | None = None
    objective: float | None = None
    carry: object = None
    keeps_others: bool = False
    ask_again_at: float | None = None
    machines: dict[str, int] = field(default_factory=dict)
