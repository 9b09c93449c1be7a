"""The job whose deadline comes first is served first."""

from dataclasses import dataclass

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.policies._base import PolicyBase
from punctual.policies._jobs import Size, due_at
from punctual.policies._rigid import Order, serve


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestDeadline(PolicyBase):
    """Runs the jobs with the earliest deadlines, and pauses others for them (EDF).

    Use it when there is room for all deadlines: on one machine it then meets all that can be met. Under overload it
    fails badly, because it spends the machine on jobs that are about to be late anyway.

    Parameters
    ----------
    size
        The allowed count that a job gets.
    admission
        Whether a new job is declined that would be late, or would make another one late.

    Raises
    ------
    InvalidSpec
        `size` is neither ``"largest"`` nor ``"smallest"``.

    Notes
    -----
    *Formula.* Rank of a job: its deadline as an instant, infinite without one. Waiting jobs are taken in ascending rank.
    One that fits is started; for one that does not, running jobs that may be paused and have later deadlines are paused,
    the last first, if they are enough.

    With `admission`, all jobs in this order take their devices as soon as these are free, on a timeline from now on; a new
    job is declined if it, or another one because of it, then ends behind its deadline. What it is declined by is the
    count of devices: what no node can hold in one piece is not foreseen.

    *Source.* [liu1973] for one processor, where it meets all deadlines if anything does.

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(waiting log waiting + nodes·(started + 1)), and O(running log running) more in a
    round in which a job may be paused.

    *Fails when* the load exceeds the capacity: one late job makes the next one late.
    """

    size: Size = "largest"
    admission: bool = False

    def allocate(self, snapshot: Snapshot) -> Plan:
        order = Order(waiting=lambda view, _: due_at(view), running=due_at)
        if not self.admission:
            return serve(self._builder(snapshot), order, size=self.size)
        # It imports numpy, which the rule itself does without.
        from punctual.policies._admission import Admission

        gate = Admission(self._builder(snapshot), self.size)
        return gate.stamped(serve(self._builder(gate.snapshot()), order, size=self.size))
