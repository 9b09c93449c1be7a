"""Admission of jobs of one size that run in the order of their deadlines."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.units import span
from punctual.policies._jobs import ROUNDING_S, Size
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._reservations import ReservationLedger, ReservationRequest
from punctual.solvers.timeline import Levels, Share, Timeline


class Admission:
    """Declines new jobs that would be late, or would make another job late.

    A job without a deadline, or of unknown size or speed, is always admitted and takes nothing from the timeline. What
    was admitted before stays admitted.
    """

    def __init__(self, builder: PlanBuilder, size: Size) -> None:
        self._builder, self._size = builder, size
        self._admitted = set(builder.last_carry.get("admitted", ()))
        self._declines: dict[JobId, Reason] = {}
        new = [view for view in builder.snapshot.waiting if self._is_new(view)]
        if new:
            self._judge(new)
        known = {view.spec.id for view in builder.snapshot.waiting if view.started_at is None}
        self._remembered = sorted(known - self._declines.keys())

    def snapshot(self) -> Snapshot:
        """The snapshot without the declined jobs."""
        picture = self._builder.snapshot
        return replace(picture, waiting=tuple(view for view in picture.waiting if view.spec.id not in self._declines))

    def stamped(self, plan: Plan) -> Plan:
        """`plan` with the declined jobs, and with the admitted ones in its carry."""
        carry = plan.carry if isinstance(plan.carry, dict) else {}
        return replace(plan, declines=self._declines, carry={**carry, "admitted": self._remembered})

    def _is_new(self, view: JobView) -> bool:
        return view.status == "queued" and view.started_at is None and view.spec.id not in self._admitted

    def _judge(self, new: Iterable[JobView]) -> None:
        snapshot, kinds = self._builder.snapshot, self._builder.hardware.total_of
        amounts = {
            (kind, has): room.gpus if has else room.cores for kind, room in kinds.items() for has in (True, False)
        }
        ledgers = {
            pool: ReservationLedger[ReservationRequest](Timeline.of(amount), ROUNDING_S)
            for pool, amount in amounts.items()
        }
        known = (*snapshot.holding, *(view for view in snapshot.waiting if not self._is_new(view)))
        requests = [request for view in known if (request := self._request(view)) is not None]
        for request in sorted(requests, key=lambda request: request.rank):
            ledgers[request.pool].reserve(request, _soonest)
        for view in new:
            request = self._request(view)
            if request is None:
                continue
            before = ledgers[request.pool]
            after = before.plus(request, _soonest)
            if after.late <= before.late:
                ledgers[request.pool] = after
            else:
                self._declines[view.spec.id] = _refusal(request, after.late - before.late)

    def _request(self, view: JobView) -> ReservationRequest | None:
        """Return the job's request for devices of one kind of nodes; None if the job gets no reservation."""
        builder, wanted = self._builder, self._builder.hardware.requests[self._size](view)
        if view.deadline_at is None or wanted is None or view.status == "stopping":
            return None
        held, at = builder.held(view), builder.snapshot.at
        kinds = [builder.hardware.kind_of[node] for node in held if node in builder.hardware.kind_of]
        kind = next(iter(kinds or builder.kinds_for(view, wanted.amount)), None)
        if kind is None:
            return None
        rate_sps = builder.hardware.speed(view).rate_sps(wanted.n, wanted.amount.cores, kind)
        steps = view.remaining_steps(at)
        if rate_sps <= 0 or not steps:
            return None
        levels = Levels.of([float(wanted.amount.gpus or wanted.amount.cores or 1.0)], [rate_sps])
        return ReservationRequest(
            id=view.spec.id,
            submitted_at=view.submitted_at,
            pool=(kind, bool(view.spec.ceiling.gpus)),
            levels=levels,
            work=steps,
            until_s=view.deadline_at - at,
        )


def _soonest(timeline: Timeline, request: ReservationRequest) -> tuple[Timeline, Share]:
    """Reserve devices as soon as they are free; nothing for a job that never fits."""
    share = timeline.soonest(request.levels, request.work)
    return timeline, share if share.end_s < inf else Share(share.starts_s[:1], np.zeros(1), inf)


def _refusal(request: ReservationRequest, late: set[JobId]) -> Reason:
    who = "it" if request.id in late else f"'{min(late)}'"
    alone_s = request.work / float(request.levels.rates[1])
    facts = {"until_s": request.until_s, "alone_s": alone_s, "n_late": float(len(late))}
    text = f"declined: {who} would be late; its deadline is in {span(max(0.0, request.until_s))}"
    return Reason("no-room", text, facts)
