"""Who is let in where jobs run whole, one after the other in the order of their deadlines."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.story import Reason
from punctual.optim.timeline import Levels, Timeline
from punctual.policies._jobs import Size, span_text
from punctual.policies._plan_builder import PlanBuilder

#: A finish this much behind the deadline is rounding: of instants, which are large numbers.
_ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """A job with a deadline: how many devices it takes of which kind of nodes, for how long."""

    view: JobView
    kind: str
    levels: Levels
    work: float
    until_s: float


class Admission:
    """Which of the jobs that wait are let in: those that have been, and of the others those by whom nobody is late.

    A job without a deadline, or of which size or speed is not known, is let in and not counted with.
    """

    def __init__(self, builder: PlanBuilder, size: Size) -> None:
        self._builder, self._size = builder, size
        carry = builder.snapshot.carry
        carried = carry.get("admitted") if isinstance(carry, dict) else None
        self._admitted = set(carried) if isinstance(carried, list) else set()
        self._declines: dict[JobId, Reason] = {}
        new = [view for view in builder.snapshot.waiting if self._is_new(view)]
        if new:
            self._judge(new)
        known = {view.spec.id for view in builder.snapshot.waiting if view.started_at is None}
        self._remembered = sorted(known - self._declines.keys())

    def snapshot(self) -> Snapshot:
        """The picture without the jobs that are declined."""
        picture = self._builder.snapshot
        return replace(picture, waiting=tuple(one for one in picture.waiting if one.spec.id not in self._declines))

    def stamped(self, plan: Plan) -> Plan:
        """`plan` with the jobs that are declined, and with what to remember."""
        carry = plan.carry if isinstance(plan.carry, dict) else {}
        return replace(plan, declines=self._declines, carry={**carry, "admitted": self._remembered})

    def _is_new(self, view: JobView) -> bool:
        return view.status == "queued" and view.started_at is None and view.spec.id not in self._admitted

    def _judge(self, new: Iterable[JobView]) -> None:
        known = (
            *self._builder.snapshot.holding,
            *(one for one in self._builder.snapshot.waiting if not self._is_new(one)),
        )
        claims = [claim for view in known if (claim := self._claim(view)) is not None]
        late = self._late(claims)
        for view in new:
            claim = self._claim(view)
            if claim is None:
                continue
            late_then = self._late([*claims, claim])
            if late_then <= late:
                claims, late = [*claims, claim], late_then
            else:
                self._declines[view.spec.id] = _refusal(claim, late_then - late)

    def _claim(self, view: JobView) -> _Claim | None:
        builder, request = self._builder, self._builder.hardware.request(view, self._size)
        if view.deadline_at is None or request is None or view.status == "stopping":
            return None
        held = builder.held(view)
        kinds = [builder.hardware.kind_of[node] for node in held if node in builder.hardware.kind_of]
        kind = next(iter(kinds or builder.kinds_for(view, request.amount)), None)
        if kind is None:
            return None
        rate_sps = builder.hardware.speed(view).rate_sps(request.n, request.amount.cores, kind)
        steps = view.remaining_steps(builder.snapshot.at)
        if rate_sps <= 0 or not steps:
            return None
        amount = float(request.amount.gpus or request.amount.cores)
        levels = Levels(np.array([0.0, amount]), np.array([0.0, rate_sps]))
        return _Claim(view, kind, levels, steps, view.deadline_at - builder.snapshot.at)

    def _late(self, claims: Iterable[_Claim]) -> set[JobId]:
        """Who is late if each job in the order of deadlines runs as soon as its devices are free."""
        timelines: dict[tuple[str, bool], Timeline] = {}
        late = set()
        for claim in sorted(claims, key=lambda one: (one.until_s, one.view.submitted_at, one.view.spec.id)):
            pool = claim.kind, bool(claim.view.spec.ceiling.gpus)
            timeline = timelines.get(pool) or Timeline.of(self._n_devices(*pool))
            share = timeline.soonest(claim.levels, claim.work)
            if share.end_s > claim.until_s + _ROUNDING_S:
                late.add(claim.view.spec.id)
            timelines[pool] = timeline.take(share) if share.end_s < inf else timeline
        return late

    def _n_devices(self, kind: str, has_gpus: bool) -> float:
        hardware = self._builder.hardware
        rooms = [hardware.capacity[node] for node in hardware.kinds[kind]]
        return float(sum(room.gpus if has_gpus else room.cores for room in rooms))


def _refusal(claim: _Claim, late: set[JobId]) -> Reason:
    own = claim.view.spec.id
    who = "it" if own in late else f"'{min(late)}'"
    facts = {"until_s": claim.until_s, "alone_s": claim.work / float(claim.levels.rates[1]), "n_late": float(len(late))}
    return Reason(
        "no-room", f"declined: {who} would be late; its deadline is in {span_text(max(0.0, claim.until_s))}", facts
    )
