"""Build a plan change by change."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobView, awaits_promise
from punctual.core.plan import Plan, PlanStatus
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, TOLERANCE, Resources, rounded_up, total
from punctual.policies._hardware import Hardware
from punctual.policies._jobs import is_protected, least, n_workers
from punctual.solvers.placement import place


class Space:
    """Sum of the free amounts of several nodes: a quick check that a job cannot fit."""

    def __init__(self, amounts: Collection[Resources]) -> None:
        self.gpus = sum([amount.gpus for amount in amounts], TOLERANCE)
        self.cores = sum([amount.cores for amount in amounts], TOLERANCE)
        self.memory_bytes = sum([amount.memory_bytes for amount in amounts])
        self.others: dict[str, float] = {}
        for name, more in [pair for amount in amounts if amount.others for pair in amount.others]:
            self.others[name] = self.others.get(name, 0.0) + more

    def add(self, amount: "Resources | Space", n: int = 1) -> None:
        self.gpus += amount.gpus * n
        self.cores += amount.cores * n
        self.memory_bytes += amount.memory_bytes * n
        if amount.others:
            for name, more in dict(amount.others).items():
                self.others[name] = self.others.get(name, 0.0) + more * n

    def take(self, amount: Resources, n: int = 1) -> None:
        self.add(amount, -n)

    def copy(self) -> "Space":
        copied = Space.__new__(Space)
        copied.gpus, copied.cores, copied.memory_bytes = self.gpus, self.cores, self.memory_bytes
        copied.others = dict(self.others)
        return copied

    def part_of(self, amount: Resources) -> Resources:
        """Return the largest part of the amount that fits."""
        return Resources(
            max(0.0, min(amount.cores, self.cores - TOLERANCE)),
            max(0, min(amount.gpus, self.gpus - TOLERANCE)),
            max(0, min(amount.memory_bytes, self.memory_bytes)),
            {name: max(0.0, min(more, self.others.get(name, 0.0))) for name, more in amount.others},
        )

    def may_hold(self, amount: Resources, n: int = 1) -> bool:
        """False: `n` times the amount certainly do not fit."""
        return (
            amount.gpus * n <= self.gpus
            and amount.cores * n <= self.cores
            and amount.memory_bytes * n <= self.memory_bytes
            and (
                not amount.others
                or all(more * n <= rounded_up(self.others.get(name, 0.0)) for name, more in amount.others)
            )
        )


class PlanBuilder:
    """Collects changes to the last plan, and tracks the free amounts."""

    def __init__(self, snapshot: Snapshot, hardware: Hardware) -> None:
        self.snapshot = snapshot
        self.hardware = hardware
        self.status: PlanStatus = "feasible"
        self.free: Mapping[NodeId, Resources] = snapshot.free
        self._own_free: dict[NodeId, Resources] | None = None
        self.grants: dict[JobId, Allocation] = {}
        self.reasons: dict[JobId, Reason] = {}
        #: Number of jobs without workers that hold something on each node; made on first use.
        self._n_jobs: Counter[NodeId] | None = None
        self._overbooked_bytes: dict[NodeId, int] | None = None
        #: State that the policy put into its last plan; empty if it made none yet.
        self.last_carry: Mapping[str, Any] = snapshot.carry if isinstance(snapshot.carry, dict) else {}
        #: Whether the last plan of this policy was made for other nodes, or is not known.
        self.hardware_changed = self.last_carry.get("hardware") != self.hardware.checksum
        #: The same state; empty also if the hardware has changed since.
        self.carry: Mapping[str, Any] = {} if self.hardware_changed else self.last_carry

    def held(self, view: JobView) -> Allocation:
        """Return the job's allocation in this builder."""
        return self.grants.get(view.spec.id, view.planned)

    def put(self, view: JobView, allocation: Allocation, reason: Reason) -> None:
        """Replace the job's allocation by `allocation`."""
        free, held, overbooked = self._writable(), self.held(view), self._overbooked()
        for node, amount in self._taken(view, held).items():
            if node in free:
                free[node] = free[node] + _less_overbooked(overbooked, node, amount)
        for node, amount in self._taken(view, allocation).items():
            lacking_bytes = amount.memory_bytes - free[node].memory_bytes
            if lacking_bytes > 0 and self.hardware.jobs_at_once:
                overbooked[node] = overbooked.get(node, 0) + lacking_bytes
            free[node] = free[node] - amount
        if self._n_jobs is not None and view.spec.worker is None:
            self._n_jobs.update(allocation.keys())
            self._n_jobs.subtract(held.keys())
        self.grants[view.spec.id], self.reasons[view.spec.id] = allocation, reason
        if allocation == view.planned:  # taken away and given back: nothing to say
            del self.grants[view.spec.id], self.reasons[view.spec.id]

    def explain(self, view: JobView, reason: Reason) -> None:
        """Record the reason why the job keeps its allocation."""
        self.reasons[view.spec.id] = reason

    def freed(self, views: Iterable[JobView], free: Mapping[NodeId, Resources]) -> Mapping[NodeId, Resources]:
        """Return the free amounts if jobs held nothing, starting from `free`."""
        more, overbooked = dict(free), dict(self._overbooked())
        for view in views:
            keeps = self._taken(view, {})
            for node, amount in self._taken(view, self.held(view)).items():
                if node in more:  # else it was lost after the last plan was made
                    more[node] = more[node] + _less_overbooked(overbooked, node, amount - keeps.get(node, NOTHING))
        return more

    def open_to(self, view: JobView, free: Mapping[NodeId, Resources] | None = None) -> Mapping[NodeId, Resources]:
        """Return the part of `free` on nodes with a place for a job without workers, and with the memory that it should hold."""
        return {node: room for node, room in self.roomy_for(view, free).items() if self.has_place(view, node)}

    def roomy_for(self, view: JobView, free: Mapping[NodeId, Resources] | None = None) -> Mapping[NodeId, Resources]:
        """Return the same, whether or not the nodes have a place."""
        free = self.free if free is None else free
        if self.held(view) or view.spec.worker is not None or not self.hardware.jobs_at_once or _must_run(view):
            return free
        rooms = {node: room for node, room in free.items() if self._expected_bytes(view, node) <= room.memory_bytes}
        return {**rooms, **{node: self._at_home(view, node, free[node]) for node in view.resident if node in free}}

    def _at_home(self, view: JobView, node: NodeId, free: Resources) -> Resources:
        """Room for a paused job on the node where its processes are, which already hold memory there."""
        others = total(self.held(other).get(node, NOTHING) for other in self.snapshot.holding if other is not view)
        own = Resources(memory_bytes=view.resident[node])
        return (free + own).at_most(self.hardware.capacity[node] - others)

    def has_place(self, view: JobView, node: NodeId) -> bool:
        """Whether one more job may run on the node; a job that has a promise, or runs only with one, always may."""
        most, is_promised = self.hardware.jobs_at_once.get(node), view.promised_until_at is not None
        if most is None or view.spec.worker is not None or is_promised or _must_run(view):
            return True
        if awaits_promise(view.spec, view.status, view.started_at):
            return True
        if self._n_jobs is None:
            jobs = (*self.snapshot.holding, *self.snapshot.waiting)
            views = [each for each in jobs if each.spec.worker is None]
            self._n_jobs = Counter(on for each in views for on in self.held(each))
        return node in self.held(view) or self._n_jobs[node] < most

    def _expected_bytes(self, view: JobView, node: NodeId) -> int:
        """Memory that a job holds on the node, or should hold once started there, beyond its planned amount."""
        if view.spec.asked_memory_bytes or node in view.resident or node in view.planned:
            return view.resident.get(node, 0)
        usual_bytes = self.hardware.usual_memory_bytes.get(node, 0) if view.spec.worker is None else 0
        return view.expected_memory_bytes or usual_bytes

    def _taken(self, view: JobView, allocation: Allocation) -> Allocation:
        """Amounts that the job takes of each node with `allocation`, its measured or expected memory included."""
        if not self.hardware.jobs_at_once:
            return allocation
        taken = dict(allocation)
        for node in {**allocation, **view.resident}:
            amount = allocation.get(node, NOTHING)
            memory_bytes = max(amount.memory_bytes, self._expected_bytes(view, node))
            taken[node] = replace(amount, memory_bytes=memory_bytes)
        return taken

    def without(self, view: JobView) -> Mapping[NodeId, Resources]:
        """Return the free amounts if the job held nothing."""
        return self.freed([view], self.free)

    def find(
        self, view: JobView, n: int, worker: Resources, free: Mapping[NodeId, Resources] | None = None
    ) -> Allocation | None:
        """Return a place for `n` workers of the job on nodes of one kind, its own if possible; None: no room."""
        free = self.open_to(view, free)
        home = view.planned or view.granted or view.resident
        at_home = place(n, worker, {node: free[node] for node in home if node in free}) if home else None
        if at_home is not None and len(at_home) == 1:
            return at_home
        anywhere = self._place(view, n, worker, free)
        return anywhere if at_home is None or (anywhere and len(anywhere) < len(at_home)) else at_home

    def fit(self, view: JobView, free: Mapping[NodeId, Resources] | None = None) -> Allocation | None:
        """Return a place for the largest amount of the job that fits; None if not even its least does."""
        unit = view.spec.unit
        if unit is None:
            return self._fit_amount(view, self.free if free is None else free)
        for n in reversed(self.hardware.counts(view.spec)):
            placed = self.find(view, n, unit, free)
            if placed is not None:
                return placed
        return None

    def _fit_amount(self, view: JobView, free: Mapping[NodeId, Resources]) -> Allocation | None:
        """Return the part of the demand that fits on the job's node, otherwise on the one with the most cores."""
        floor, free = least(view.spec), self.open_to(view, free)
        home, slowness = view.planned or view.granted or view.resident, self.hardware.slowness
        rooms = [
            (node in home, room.cores / slowness.get(node, 1.0), node)
            for node, room in free.items()
            if floor.fits_in(room)
        ]
        if not rooms:
            return None
        wanted, best = view.demand.at_most(view.spec.ceiling).at_least(floor), max(rooms)[2]
        return {best: wanted.at_most(free[best]).at_least(floor)}

    def kinds_for(self, view: JobView, amount: Resources) -> list[str]:
        """The kinds of device on which the job can run as far as known, the fastest with `amount` first."""
        kinds = self.hardware.kinds
        if len(kinds) < 2:
            return list(kinds)
        speed, n = self.hardware.speed(view), n_workers(view.spec, {NodeId(""): amount})
        able = [kind for kind in kinds if speed.runs_on(kind)]
        return sorted(able, key=lambda kind: (-speed.rate_sps(n, amount.cores, kind), kind))

    def _place(self, view: JobView, n: int, worker: Resources, free: Mapping[NodeId, Resources]) -> Allocation | None:
        kinds = self.hardware.kinds
        if len(kinds) == 1:
            return place(n, worker, free, self.hardware.slowness)
        for kind in self.kinds_for(view, worker * n):
            on_kind = {node: free[node] for node in kinds[kind] if node in free}
            placed = place(n, worker, on_kind, self.hardware.slowness)
            if placed is not None:
                return placed
        return None

    def build(self, **carry: object) -> Plan:
        """Return the changes as a plan; `carry` comes back with the next snapshot."""
        return Plan(
            revision=self.snapshot.revision,
            grants=self.grants,
            reasons=self.reasons,
            status=self.status,
            carry={"hardware": self.hardware.checksum, **carry},
            keeps_others=True,
        )

    def recount(self, nodes: Iterable[NodeId]) -> None:
        """Compute the free amounts of nodes from their jobs' allocations; zero where these exceed the capacity."""
        free, overbooked, taken = self._writable(), self._overbooked(), self._all_taken()
        for node in nodes:
            amount = total(each.get(node, NOTHING) for each in taken)
            if self.hardware.jobs_at_once:
                overbooked[node] = max(0, amount.memory_bytes - self.hardware.capacity[node].memory_bytes)
            free[node] = self.hardware.capacity[node] - amount

    def _all_taken(self) -> list[Allocation]:
        """Return what each job takes with its allocation in this builder."""
        return [self._taken(view, self.held(view)) for view in (*self.snapshot.holding, *self.snapshot.waiting)]

    def _overbooked(self) -> dict[NodeId, int]:
        """Return the memory in bytes by which each node is overbooked: memory that becomes free there covers this first."""
        if self._overbooked_bytes is None:
            self._overbooked_bytes = {}
            may_be_overbooked = self.hardware.jobs_at_once
            full = [node for node, room in self.snapshot.free.items() if may_be_overbooked and not room.memory_bytes]
            taken = self._all_taken() if full else []
            for node in full:
                taken_bytes = sum(each.get(node, NOTHING).memory_bytes for each in taken)
                self._overbooked_bytes[node] = max(0, taken_bytes - self.hardware.capacity[node].memory_bytes)
        return self._overbooked_bytes

    def _writable(self) -> dict[NodeId, Resources]:
        if self._own_free is None:
            self.free = self._own_free = dict(self.free)
        return self._own_free


def _less_overbooked(overbooked: dict[NodeId, int], node: NodeId, amount: Resources) -> Resources:
    """Cover the overbooked memory of a node with what a job gives back; return the rest, which is free."""
    covered_bytes = min(overbooked.get(node, 0), amount.memory_bytes)
    if not covered_bytes:
        return amount
    overbooked[node] -= covered_bytes
    return replace(amount, memory_bytes=amount.memory_bytes - covered_bytes)


def _must_run(view: JobView) -> bool:
    """Whether a job runs and may not be paused: if it loses its node, it takes room on any other."""
    return bool(view.granted) and is_protected(view)
