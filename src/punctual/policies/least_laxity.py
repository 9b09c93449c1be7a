"""The job that can wait least is served first."""

from dataclasses import dataclass
from math import inf

from punctual.core.cluster import Snapshot
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.policies._base import PolicyBase
from punctual.policies._hardware import end_at
from punctual.policies._jobs import Size
from punctual.policies._rigid import Order, serve


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLaxity(PolicyBase):
    """Runs the jobs with the least time to spare before their deadlines, and pauses others for them (LLF).

    Use it where jobs with equal deadlines differ much in length and remaining times are known: it starts the long ones
    in time, which `earliest-deadline` does not. It pauses more often.

    Parameters
    ----------
    size
        The allowed count that a job gets.
    margin_s
        A job is paused only for one with so many seconds less to spare, at least. Without a margin two jobs of equal
        laxity would take turns at every round.

    Raises
    ------
    InvalidSpec
        `size` is neither ``"largest"`` nor ``"smallest"``, or `margin_s` is below zero.

    Notes
    -----
    *Formula.* Laxity of a job: deadline − now − remaining time, at its size if it waits, with what it holds if it
    runs. It stays while a job runs as expected and falls by a second a second while it waits. Waiting jobs are taken in
    ascending laxity. One that fits is started; for one that does not, running jobs that may be paused and have more
    than `margin_s` more are paused, those with most first, if they are enough.

    *Source.* [mok1983].

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(waiting log waiting + nodes·(started + 1)), and O(running log running) more in a
    round in which a job may be paused.

    *Fails when* the load exceeds the capacity: like `earliest-deadline` it serves jobs that are lost before others that
    could be saved.
    """

    size: Size = "largest"
    margin_s: float = 60.0

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)

        def laxity_s(view: JobView, end_at: float) -> float:
            return inf if view.deadline_at is None or end_at == inf else view.deadline_at - end_at

        order = Order(
            waiting=lambda view, request: laxity_s(view, request.remaining_s),
            running=lambda view: laxity_s(view, end_at(view, snapshot.at, builder.hardware)),
            shift=-snapshot.at,
        )
        return serve(builder, order, size=self.size, margin=self.margin_s)
