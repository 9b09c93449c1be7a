"""The job that is done soonest comes first."""

from dataclasses import dataclass

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.policies._base import PolicyBase
from punctual.policies._hardware import end_at
from punctual.policies._jobs import Size
from punctual.policies._rigid import Order, serve


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestRemaining(PolicyBase):
    """Runs the jobs with the least remaining time, and pauses longer ones for them (SRTF).

    Use it for short mean completion times when remaining times are known fairly well and jobs may be paused. It does
    not look at deadlines, and a long job waits as long as shorter ones keep coming.

    Parameters
    ----------
    size
        The allowed count that a job gets.
    margin_s
        A job is paused only for one that is done so many seconds earlier, at least.

    Raises
    ------
    InvalidSpec
        `size` is neither ``"largest"`` nor ``"smallest"``, or `margin_s` is below zero.

    Notes
    -----
    *Formula.* Rank of a job: now + remaining steps / rate, at its size if it waits, with what it holds if it runs; an
    instant, because that of a running job then stays the same. Waiting jobs are taken in ascending rank. One that fits is started. For one that does not, running jobs that may be paused
    and rank more than `margin_s` behind it are paused, the last first, until it fits; if all of them are not enough,
    none is paused and the job waits. Paused jobs are waiting jobs of the same plan.

    *Source.* [schrage1968] for one server, where it minimises the number of jobs in the system at every instant.

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(waiting log waiting + nodes·(started + 1)), and O(running log running) more in a
    round in which a job may be paused.

    *Fails when* remaining times are badly wrong: a job that is thought to be short holds its place until it ends.
    """

    size: Size = "largest"
    margin_s: float = 0.0

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        order = Order(
            waiting=lambda _, request: request.remaining_s,
            running=lambda view: end_at(view, snapshot.at, builder.hardware),
            shift=snapshot.at,
        )
        return serve(builder, order, size=self.size, margin=self.margin_s)
