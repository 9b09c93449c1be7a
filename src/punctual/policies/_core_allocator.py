"""Jobs on shares of cores in a plan: choose their nodes, the cores that these offer, and each job's share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, TOLERANCE, Resources, same_amount, total
from punctual.core.units import span
from punctual.policies._base import with_deadlines, with_same_deadline
from punctual.policies._configurations import PARTS, Pool, parts_of
from punctual.policies._core_job_state import CoreJobState
from punctual.policies._core_promises import CorePromises, fit_beside
from punctual.policies._earliest import in_danger, waits_for_promise
from punctual.policies._jobs import (
    begins_anew,
    has_promise,
    is_steered,
    least,
    may_pause,
    n_workers,
    never_fits,
    seniority,
    starts,
)
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._promise_parameters import PromiseParameters
from punctual.policies._repair import follows_demand
from punctual.solvers.solution import Solution
from punctual.solvers.timeline import Share, Timeline

_BASE = Reason("floor", "the job is at its floor")


class CoreAllocator:
    """Chooses the present cores of jobs on shares that have a controller.

    Parameters
    ----------
    policy
        The policy's parameters.
    builder
        Builder of the plan.
    waiting
        The jobs that hold nothing, in order of submission.

    Attributes
    ----------
    warnings
        Warnings for jobs without a promise.
    declines
        Jobs that are to run only with a promise, and cannot have one.
    """

    def __init__(self, policy: PromiseParameters, builder: PlanBuilder, waiting: Sequence[JobView]) -> None:
        self._policy, self._builder, self._at = policy, builder, builder.snapshot.at
        # The state holds although the nodes may be others now, because promises hold.
        self._carry: Mapping[str, Any] = builder.last_carry.get("cores", {})
        self._carried = {
            name: with_same_deadline(self._carry.get(name, {}), builder.snapshot)
            for name in ("planned", "refused", "unplaced")
        }
        self.warnings: dict[JobId, Reason] = {}
        self.declines: dict[JobId, Reason] = {}
        self._nodes: dict[NodeId, CorePromises] = {}
        #: Whether a job waits for others to end, because no more may run at once or for want of memory.
        self._lacks_room = False
        #: Cores of each kind of node that are reserved for jobs of workers without GPUs, and held.
        self._workers_cores = self._held_by_workers()
        #: Cores that jobs made of workers wait for, by kind of node, as far as they fit.
        self._awaited_cores: dict[str, float] = {}
        members = self._members(waiting)
        if members:
            self._wait_for_workers(waiting)
        for node, on_node in members.items():
            self._share(node, on_node)
        self._unplaced = self._without_node()

    # State for the next round.

    @property
    def solution(self) -> Solution | None:
        """Return the choice of promises on all nodes together; None without a known deadline."""
        solutions = [promises.solution for promises in self._nodes.values() if promises.solution is not None]
        solutions = [solution for solution in solutions if solution.status != "infeasible"]
        if not solutions:
            return None
        value, bound = sum(solution.value for solution in solutions), sum(solution.bound for solution in solutions)
        return Solution.of(np.empty(0), value, bound)

    def promises(self) -> dict[JobId, float]:
        """Return the deadline of each promise; a promise to a waiting job that fits on no node now holds."""
        nodes = self._nodes.values()
        promised = [member.view for promises in nodes for member in (*promises.kept, *promises.pending)]
        return {view.id: view.deadline_at for view in (*promised, *self._unplaced) if view.deadline_at is not None}

    def handed_on(self) -> dict[str, object]:
        """Return the state for the next round, for the plan's carry."""
        nodes = self._nodes.values()
        jobs = {
            "planned": {member.id for each in nodes for member in each.likely},
            "refused": {id for each in nodes for id in each.refused},
            "unplaced": {view.id for view in self._unplaced},
        }
        return {name: with_deadlines(ids, self._builder.snapshot) for name, ids in jobs.items()}

    def changes_in_s(self) -> float:
        """Seconds until a job's amount changes; infinite: never."""
        return min((each.changes_in_s() for each in self._nodes.values()), default=inf)

    def growth(self) -> dict[Pool, Timeline]:
        """Return the growth over time of promised jobs' cores beyond all present shares; negative: less."""
        growth: dict[Pool, Timeline] = {}
        for node, promises in self._nodes.items():
            pool = self._builder.hardware.kind_of[node], False
            more = _growth(promises)
            growth[pool] = growth[pool].added(more) if pool in growth else more
        return growth

    def earliest_s(self, job: JobId) -> float | None:
        """Seconds until the earliest deadline that the job could be promised; None: none, or no job on shares.

        Also of one that waits for a place, which it would not if it were to run only with a promise.
        """
        for promises in self._nodes.values():
            for member in promises.members:
                if member.id == job:
                    return promises.earliest_s(member.view, member.base)
        waiting = [view for view in self._builder.snapshot.waiting if view.id == job and is_steered(view)]
        earliest = [
            self._nodes[node].earliest_s(view, least(view.spec)) for view in waiting for node in self._full(view)
        ]
        return min((earliest_s for earliest_s in earliest if earliest_s is not None), default=None)

    def _full(self, view: JobView) -> list[NodeId]:
        """Nodes that have resources for a waiting job, and no place."""
        floor, free = least(view.spec), self._builder.roomy_for(view)
        given = {node: Resources(sum(each.cores for each in on.members)) for node, on in self._nodes.items()}
        full = [node for node in given if node in free and not self._builder.has_place(view, node)]
        return [node for node in full if floor.fits_in(free[node] + given[node])]

    # Placement.

    def _members(self, waiting: Sequence[JobView]) -> dict[NodeId, list[CoreJobState]]:
        """The jobs by node, each brought down to the least that it holds in any case."""
        builder = self._builder
        running = [view for view in builder.snapshot.holding if is_steered(view) and len(builder.held(view)) == 1]
        members: dict[NodeId, list[CoreJobState]] = {}
        for view in sorted(running, key=seniority):
            ((node, held),) = builder.held(view).items()
            self._put_base(members, view, node, least(view.spec).at_most(held))
        for view in self._in_turn(waiting, has_undated=any(_undated(on_node) for on_node in members.values())):
            if is_steered(view) and not builder.held(view):
                self._place(members, view)
        return members

    def _in_turn(self, waiting: Sequence[JobView], *, has_undated: bool) -> list[JobView]:
        """Order jobs: promised ones, then earliest deadline first, then jobs without a deadline.

        If no job without a deadline runs, and there is more than one place, the first of these comes before all that are not
        promised: others that come one after the other would shut them out.
        """
        keeps_place = not has_undated and max(self._builder.hardware.jobs_at_once.values(), default=0) > 1
        undated = [view for view in waiting if keeps_place and view.deadline_at is None and is_steered(view)]
        first = undated[0] if undated else None
        return sorted(waiting, key=lambda view: (not self._is_promised(view), view is not first, self._due_at(view)))

    def _due_at(self, view: JobView) -> float:
        """Deadline, or infinity if it has passed or is not set."""
        return view.deadline_at if view.deadline_at is not None and view.deadline_at > self._at else inf

    def _is_promised(self, view: JobView) -> bool:
        return self._policy.promises and has_promise(view, self._at)

    def _without_node(self) -> list[JobView]:
        """Return promised jobs that fit on no node now, and warn their users once."""
        snapshot = self._builder.snapshot
        members = {member.id for promises in self._nodes.values() for member in promises.members}
        views = [view for view in (*snapshot.holding, *snapshot.waiting) if view.id not in members]
        unplaced = [view for view in views if self._is_promised(view) and is_steered(view)]
        for view in unplaced:
            if view.id not in self._carried["unplaced"]:
                left_s = (view.deadline_at or self._at) - self._at
                self.warnings[view.id] = in_danger(left_s, "no node has the room that it needs at least")
        return unplaced

    def _put_base(
        self, members: dict[NodeId, list[CoreJobState]], view: JobView, node: NodeId, base: Resources
    ) -> None:
        self._builder.put(view, {node: base}, _BASE)
        wanted = view.demand.at_most(view.spec.ceiling).at_least(base)
        members.setdefault(node, []).append(CoreJobState.of(view, base, wanted, self._at))

    def _place(self, members: dict[NodeId, list[CoreJobState]], view: JobView) -> None:
        """Place the job on the node with room for its least where the others' demands leave the most cores."""
        floor, free = least(view.spec), self._builder.roomy_for(view)
        home = view.planned or view.granted or view.resident
        stays = bool(view.resident) and begins_anew(view)
        roomy = [node for node, room in free.items() if floor.fits_in(room) and (node in home or not stays)]
        nodes = [node for node in roomy if self._builder.has_place(view, node)]
        if roomy and not nodes:
            nodes = self._take_place(view, {node: members.get(node, []) for node in roomy})
        self._lacks_room |= not nodes and bool(self._builder.hardware.jobs_at_once)
        wanted = {node: sum(member.more_cores for member in members.get(node, ())) for node in nodes}
        slowness = self._builder.hardware.slowness
        # Rounded, because the last digit of a sum depends on the order of its terms, which means nothing here.
        left = {node: round((free[node].cores - wanted[node]) / slowness.get(node, 1.0), 9) for node in nodes}
        ranked = sorted(nodes, key=lambda node: (node not in home, -left[node], node))
        best = next((node for node in ranked if self._leaves_promises_kept(view, node, members.get(node, ()))), None)
        if best is not None:
            self._put_base(members, view, best, floor)
        elif nodes:
            text = f"waits: with the {floor} that it needs at least, less would be left to promised jobs than they need"
            self._builder.explain(view, Reason("waits", text, {"floor_cores": floor.cores}))
        elif self._builder.hardware.amount(view) is None:
            self._builder.explain(view, never_fits(view))

    def _take_place(self, view: JobView, members: Mapping[NodeId, list[CoreJobState]]) -> list[NodeId]:
        """Pause the unpromised member that is due last, if later than the job, which can run then; return its node, or nothing."""
        due_at = self._due_at(view)
        later = [
            (self._due_at(member.view), seniority(member.view), node, member)
            for node, on_node in members.items()
            for member in on_node
            if may_pause(member.view) and not self._is_promised(member.view) and self._due_at(member.view) > due_at
            if len(on_node) == 1 or _undated(on_node) != [member]
        ]
        if not later:
            return []
        _, _, node, last = max(later, key=lambda each: each[:3])
        text = f"paused: no more jobs may run at once, and '{view.spec.id}' is due sooner"
        i = members[node].index(last)
        self._builder.put(last.view, {}, Reason("paused", text))
        del members[node][i]
        if self._leaves_promises_kept(view, node, members[node]):
            return [node]
        self._builder.put(last.view, {node: last.base}, _BASE)
        members[node].insert(i, last)
        return []

    def _leaves_promises_kept(self, view: JobView, node: NodeId, members: Sequence[CoreJobState]) -> bool:
        """Whether promises on the node stay kept beside the job's floor, if the job has no promise itself."""
        if self._is_promised(view) or waits_for_promise(view):
            return True
        floor_cores = least(view.spec).cores
        not_yet_cores = sum(member.base.cores for member in members if waits_for_promise(member.view))
        room = self._over_time(node, self._builder.free[node].cores).plus(not_yet_cores)
        if floor_cores > float(room.free.min()) + TOLERANCE:  # promised jobs of workers are to have it
            return False
        promised = [member for member in members if self._is_promised(member.view) and member.due_s < inf]
        return not promised or fit_beside(promised, room, floor_cores)

    def _wait_for_workers(self, waiting: Iterable[JobView]) -> None:
        builder, awaited = self._builder, dict[str, Resources]()
        free = {kind: total(builder.free[node] for node in on) for kind, on in builder.hardware.kinds.items()}
        for view in waiting:
            unit = view.spec.unit
            if unit is None:
                continue
            for kind in builder.kinds_for(view, unit)[:1]:
                needed = awaited.get(kind, NOTHING) + unit * view.spec.worker_counts()[0]
                if needed.fits_in(free[kind]):
                    awaited[kind] = needed
        self._awaited_cores = {kind: amount.cores for kind, amount in awaited.items()}

    def _held_by_workers(self) -> dict[str, float]:
        held_cores: dict[str, float] = {}
        for view in self._builder.snapshot.holding:
            unit, held = view.spec.unit, self._builder.held(view)
            if unit is not None and not unit.gpus and held and view.status != "stopping":
                kind = self._builder.hardware.kind_of[next(iter(held))]
                parts = parts_of(unit, self._builder.hardware.room_sizes[kind])
                held_cores[kind] = held_cores.get(kind, 0.0) + n_workers(view.spec, held) * parts / PARTS
        return held_cores

    # Shares.

    def _share(self, node: NodeId, members: Sequence[CoreJobState]) -> None:
        free = self._builder.free[node]
        kind = self._builder.hardware.kind_of[node]
        awaited_cores = min(self._awaited_cores.get(kind, 0.0), free.cores)
        self._awaited_cores[kind] = self._awaited_cores.get(kind, 0.0) - awaited_cores
        promises = CorePromises(
            members,
            self._over_time(node, free.cores),
            self._returning_cores(node),
            self._at,
            planned=self._carried["planned"],
            refused=self._carried["refused"] & {member.id for member in members},
            policy=self._policy,
        )
        promises.share(awaited_cores, hurries=self._lacks_room)
        self._nodes[node] = promises
        self.warnings |= promises.told
        self.declines |= promises.declines
        for member in promises.members:
            self._give(node, member)

    def _returning_cores(self, node: NodeId) -> float:
        """Cores held by jobs that are being stopped, until their processes have ended."""
        stopping = [view for view in self._builder.snapshot.holding if view.status == "stopping"]
        return sum(self._builder.held(view).get(node, NOTHING).cores for view in stopping)

    def _over_time(self, node: NodeId, cores: float) -> Timeline:
        """Return `cores` over time, less the growth of promised jobs of workers beyond what they hold."""
        kind = self._builder.hardware.kind_of[node]
        steps = self._carry.get("workers", {}).get(kind)
        if not steps:
            return Timeline.of(cores)
        # Two starts may be the same: instants have fewer digits behind the point than the seconds that they were made from.
        amounts = {0.0: 0.0} | {max(at - self._at, 0.0): amount for at, amount in steps}
        needed = Timeline(np.array([*amounts]), np.array([*amounts.values()]))
        share = self._builder.hardware.capacity[node].cores / max(self._builder.hardware.total_of[kind].cores, 1e-9)
        held_cores = self._workers_cores.get(kind, 0.0)
        return Timeline.of(cores).without(Timeline(needed.starts_s, np.maximum(needed.free - held_cores, 0.0) * share))

    def _give(self, node: NodeId, member: CoreJobState) -> None:
        view, room = member.view, self._builder.free[node] + member.base
        rest = member.wanted.at_most(room)
        amount = replace(rest, cores=min(member.base.cores + member.cores, view.spec.ceiling.cores)).at_most(room)
        allocation = {node: amount}
        before = view.planned.get(node) if len(view.planned) == 1 else None
        if before is not None and same_amount(amount, before) and before.at_most(room) == before:
            allocation = view.planned
        reason = _reason(member, amount, node) if view.planned else starts(view, allocation)
        self._builder.put(view, allocation, reason)


def _undated(members: Iterable[CoreJobState]) -> list[CoreJobState]:
    return [member for member in members if member.view.deadline_at is None]


def _reason(member: CoreJobState, amount: Resources, node: NodeId) -> Reason:
    """Return the reason for `amount`: less than the demand, more, or just that."""
    wanted, facts = member.wanted, {"demand_cores": member.wanted.cores, "granted_cores": amount.cores}
    facts |= {"left_core_s": member.left_core_s} if member.due_s < inf and not member.unmeasured else {}
    if amount.cores > wanted.cores + 1e-6:
        return Reason(
            "works-ahead", "the job runs ahead of its demand: it has cores now that it may not have later", facts
        )
    if wanted.fits_in(amount) or not Resources(wanted.cores - amount.cores):
        return follows_demand(wanted, amount, node)
    if member.unmeasured:  # what is planned for it rests on a guess, which is nothing to tell
        part = "what is planned for it meanwhile" if member.share is not None else "what planned jobs leave"
        return Reason("unmeasured", f"what is left of the job is not known yet: it has {part}", facts)
    if member.share is not None:
        return Reason("planned", _planned_text(member, member.share, amount.cores), facts)
    if member.due_s < inf:
        return Reason("not-promised", "its deadline is not promised: it has what promised jobs leave", facts)
    return Reason("shares", "the job shares what jobs with deadlines leave", facts)


def _planned_text(member: CoreJobState, share: Share, held_cores: float) -> str:
    """Return a text on a planned job below its demand: its cores, its need, and its later cores."""
    due_s = max(member.due_s + member.slack_s, 0.0)
    mean_cores = 0.0 if not member.left_core_s else member.left_core_s / due_s if due_s > 0 else inf
    work = f"its {member.left_core_s:.3g} core-s due in {span(due_s)} need {mean_cores:.3g}"
    need = f"it holds {held_cores:.3g} cores, and {work if mean_cores else 'no core time is known to be left of it'}"
    if held_cores >= mean_cores:
        return f"{need}: others get the rest of its demand of {member.wanted.cores:.3g}"
    later = np.flatnonzero(share.amounts > held_cores - member.base.cores + 1e-3)
    if not len(later):
        return f"{need}: others are due first, and no more is planned for it"
    more_cores, start_s = member.base.cores + float(share.amounts[later[0]]), float(share.starts_s[later[0]])
    return f"{need}: others are due first; it is planned to hold {more_cores:.3g} in {span(start_s)}"


def _growth(promises: CorePromises) -> Timeline:
    """Return the growth over time of promised jobs' cores beyond all present shares; negative: less."""
    now_cores = sum(member.cores for member in promises.members)
    planned = Timeline.of(0.0)
    for share in (member.share for member in promises.members if member.share is not None):
        ends = [*share.starts_s[1:].tolist(), share.end_s]
        steps = (
            Timeline(np.array([0.0, *ends]), np.array([*share.amounts.tolist(), 0.0])) if share.end_s > 0 else planned
        )
        planned = planned.added(steps)
    # A plan beyond the room uses cores that ended jobs held in any case and no other job counts on.
    beyond = planned.without(promises.cores)
    more_cores = planned.split(beyond.starts_s).free - beyond.free - now_cores
    return Timeline(beyond.starts_s, more_cores * PARTS)
