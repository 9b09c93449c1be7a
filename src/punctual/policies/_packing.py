"""Place all jobs made of workers at once: large jobs in one piece, small ones around them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.units import counted
from punctual.policies._jobs import begins_anew, may_pause, n_workers, seniority, waits
from punctual.policies._layout import shrunk
from punctual.policies._plan_builder import PlanBuilder
from punctual.solvers.placement import place

_MAKES_WAY = Reason("makes-way", "paused for a moment: jobs change places")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One job made of workers: its present and its new number of workers.

    Attributes
    ----------
    fallbacks
        Smaller numbers that are acceptable if `n` does not fit, the largest first.
    n_least
        Least number that its promise needs; 0: its promise needs none now.
    stays
        Whether it may not be moved for the sake of others.
    reason
        Reason for its new number, or new kind of nodes.
    """

    view: JobView
    worker: Resources
    n_before: int
    kind_before: str
    n: int
    kind: str
    fallbacks: tuple[int, ...]
    n_least: int
    stays: bool
    reason: Reason

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def is_new_size(self) -> bool:
        """Whether it is to have something else than now."""
        return self.n != self.n_before or (self.kind != self.kind_before and self.n > 0)

    @property
    def leaves(self) -> bool:
        """Whether the job gives up all its present nodes."""
        return not self.n or (self.kind != self.kind_before and not self.stays)


class Packing:
    """Best fit decreasing: places all jobs made of workers, the largest first, unmovable ones before them.

    A job keeps its nodes if they are the fewest it can lie on, or if it would begin anew elsewhere. Otherwise it takes the
    node on which it displaces the fewest workers that are not placed yet; of equal ones the tightest fit. Displaced jobs are smaller and are placed
    later: counts that are powers of two fill their nodes without a gap.

    Room is taken in the order in which the plan frees it: nobody waits for a job that leaves in the same plan, and those
    that stay and grow come after those that stay and shrink. What a promise needs it gets where others are to be moved
    for it.
    """

    def __init__(self, builder: PlanBuilder, moves: Iterable[Move]) -> None:
        self._builder, self._moves = builder, list(moves)
        #: How many jobs wait for the next plan, or are paused until then, so that others can pass.
        self.n_postponed = 0
        self._free: dict[NodeId, Resources] = dict(builder.free)
        #: Workers' room on each node that is taken now by jobs that go on, and not yet reassigned.
        self._occupied: dict[NodeId, Resources] = {}
        self._slow = builder.hardware.slowness
        #: The part of that room which jobs have that are not to be moved.
        self._kept: dict[NodeId, Resources] = {}
        for move in self._moves:
            for node, amount in builder.held(move.view).items():
                for amounts in (self._free, *self._taken_by(move)):
                    amounts[node] = amounts.get(node, NOTHING) + amount

    def run(self) -> None:
        """Write the changes into the builder."""
        placed = {move.id: self._nodes_for(move) for move in sorted(self._moves, key=_turn)}
        self._order(placed)
        changed = [move for move in self._moves if placed[move.id] != self._builder.held(move.view)]
        for move in changed:  # all leave before anybody comes
            if self._builder.held(move.view):
                self._builder.put(move.view, {}, _MAKES_WAY if move.n else move.reason)
        for move in changed:
            if placed[move.id]:
                self._builder.put(move.view, placed[move.id], self._why(move, placed[move.id]))
        self._explain_waiting(placed)

    def _order(self, placed: dict[JobId, Allocation]) -> None:
        """Leave to later plans each change that could block others, in whatever order the kernel makes them.

        A job that changes its nodes holds both places until it has gone, and the kernel gives room to the first job that
        fits into it. So jobs that only come get what is left when all that also go have their room. Where jobs wait for
        each other's nodes in a circle, one of them is paused.
        """
        changes = [self._change(move, placed[move.id]) for move in self._moves]
        for needed_first in (True, False):
            self.n_postponed, ordered = 0, dict(placed)
            if self._are_ordered(changes, ordered, needed_first=needed_first):
                break
        self._keep_room(changes, ordered)
        placed.update(ordered)

    def _are_ordered(
        self, changes: "Sequence[_Relocation]", placed: dict[JobId, Allocation], *, needed_first: bool
    ) -> bool:
        """Order the changes, those that promises need now first; return whether all can be made one after the other."""
        going = sorted((change for change in changes if change.more and change.less), key=_needed_first)
        coming = [change for change in changes if change.more and not change.less]
        room = _MoveRoom(self._builder.free)
        for change in changes:
            room.give(self._builder.held(change.view))
        for change in changes:
            room.take(change.held if change.more else change.to)
        if needed_first:
            needed = [change for change in coming if change.is_needed and room.admits(change) and room.passes(change)]
            coming = [change for change in coming if change not in needed]
        circle = self._let_go(going, room, placed, may_pause_some=not needed_first)
        if circle and needed_first:
            return False
        for change in sorted((*circle, *coming), key=_needed_first):
            if not room.admits(change):
                self.n_postponed += not circle
                placed[change.id] = self._in_place(change, room.sure) if circle else change.kept
        return True

    def _change(self, move: Move, to: Allocation) -> "_Relocation":
        """Return the change from what the job really holds; a job without an answer to its launch holds its place already."""
        free, view = self._builder.free, move.view
        held = self._builder.held(view) if view.status in ("queued", "starting") else view.granted
        held = {node: amount for node, amount in held.items() if node in free}
        kept = _kept_of(move, held, to) if held or self._may_wait(view) else self._builder.held(view)
        return _Relocation(move, held, kept, to, _beyond(to, held), _beyond(held, to))

    def _keep_room(self, changes: "Sequence[_Relocation]", placed: dict[JobId, Allocation]) -> None:
        """Put no change off where the last plan gave what the job still holds to another one that is launched."""
        room = dict(self._builder.free)
        for change in changes:
            _give(room, self._builder.held(change.view))
        while True:
            taken = dict.fromkeys(room, NOTHING)
            for change in changes:
                _give(taken, placed[change.id])
            crowded = {node for node, amount in taken.items() if not amount.fits_in(room[node])}
            undone = [change for change in changes if placed[change.id] not in ({}, change.to)]
            undone = [change for change in undone if not crowded.isdisjoint(placed[change.id])]
            if not undone:
                return
            placed.update({change.id: change.to for change in undone})

    def _let_go(
        self,
        going: "Sequence[_Relocation]",
        room: "_MoveRoom",
        placed: dict[JobId, Allocation],
        *,
        may_pause_some: bool,
    ) -> "Sequence[_Relocation]":
        """Let jobs that leave nodes pass each other; those left that wait in a circle, and may not be paused."""
        while going:
            stuck = [change for change in going if not room.passes(change)]
            for change in going:
                if change not in stuck and not room.admits(change):
                    self.n_postponed += 1
                    placed[change.id] = change.kept
            if len(stuck) == len(going):
                pausable = [change for change in stuck if may_pause_some and self._may_wait(change.view)]
                if not pausable:
                    return stuck
                paused = min(pausable, key=_least_loss)
                self.n_postponed += 1
                placed[paused.id] = {}
                room.give(paused.held)
                stuck.remove(paused)
            going = stuck
        return []

    def _may_wait(self, view: JobView) -> bool:
        """Whether the job may hold nothing until the next plan: it can be paused, or the last plan gave it nothing."""
        return may_pause(view) or not self._builder.held(view)

    def _in_place(self, change: "_Relocation", free: dict[NodeId, Resources]) -> Allocation:
        """As near to what the job is to have as it comes beside what it holds: it waits for nobody."""
        move, held = change.move, change.held
        n_held = n_workers(move.view.spec, held)
        for n in (move.n, *move.fallbacks) if held and move.kind == move.kind_before else ():
            more = self._placed(move, n - n_held, free) if n > n_held else None
            if more is not None:
                _take(free, more)
                return _sum(held, more)
        return change.kept

    def _placed(
        self, move: Move, n: int, free: Mapping[NodeId, Resources], *less: Mapping[NodeId, Resources]
    ) -> Allocation | None:
        """Return a place for `n` workers on nodes of the job's new kind, in `free` without what is in `less`; None: no room."""
        rooms = {node: free[node] for node in self._builder.hardware.kinds[move.kind]}
        for taken in less:
            rooms = {node: room - taken[node] if node in taken else room for node, room in rooms.items()}
        return place(n, move.worker, rooms, self._slow)

    def _nodes_for(self, move: Move) -> Allocation:
        """Return nodes for one job; empty if none of its acceptable numbers fits."""
        held = self._builder.held(move.view)
        for taken in self._taken_by(move):
            _take(taken, held)
        allocation: Allocation = {}
        if move.n:
            placed = (self._find(move, n, held) for n in (move.n, *move.fallbacks))
            allocation = next(filter(None, placed), held if move.stays else {})
        _take(self._free, allocation)
        return allocation

    def _taken_by(self, move: Move) -> list[dict[NodeId, Resources]]:
        """Return the maps that count the job's room until it is placed."""
        if move.leaves:
            return []
        return [self._occupied, self._kept] if move.stays else [self._occupied]

    def _find(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        if held and move.kind == move.kind_before:
            at_home = self._at_home(move, n, held)
            if at_home is not None and (move.stays or len(at_home) <= self._fewest(move, n)):
                return at_home
            if begins_anew(move.view):
                return self._extended(move, n, held)
        if not move.stays:
            return self._beside(move, n)
        placed = self._placed(move, n, self._free, self._occupied)
        if n != move.n_least or (placed is not None and len(placed) <= self._fewest(move, n)):
            return placed
        displacing = self._displacing(move, n, held)
        return placed if placed and (not displacing or len(placed) <= len(displacing)) else displacing

    def _at_home(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        """Return an allocation on the job's present nodes, unchanged if its number stays; None if it does not fit."""
        if n <= move.n_before:
            kept = held if n == move.n_before else shrunk(move.view, move.worker, n, held)
            return kept if _fit(kept, self._free) else None
        free = {node: self._free[node] for node in held}
        return place(
            n,
            move.worker,
            {node: free[node] - self._occupied.get(node, NOTHING) for node in held} if move.stays else free,
        )

    def _extended(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        """Return the present allocation with more workers; a promise's least may displace others. None: no room."""
        taken = self._kept if n == move.n_least else self._occupied
        more = self._placed(move, n - move.n_before, self._free, taken, held) if n > move.n_before else None
        if more is None:
            return None
        extended, spec = _sum(held, more), move.view.spec
        amount = total(extended.values())
        return extended if amount.fits_in(spec.ceiling) and spec.parts_of(amount) else None

    def _fewest(self, move: Move, n: int) -> int:
        return self._builder.hardware.n_nodes(n, move.worker, move.kind)

    def _beside(self, move: Move, n: int) -> Allocation | None:
        """Return the allocation that disturbs the fewest others: on one node, or on the fewest; None: no room."""
        node = self._one_node(move.worker, n, self._builder.hardware.kinds[move.kind])
        if node is not None:
            return {node: move.worker * n}
        placed = self._placed(move, n, self._free, self._occupied)
        if placed is None or len(placed) > self._fewest(move, n):
            disturbing = self._placed(move, n, self._free)
            placed = disturbing if placed is None or (disturbing and len(disturbing) < len(placed)) else placed
        return placed

    def _displacing(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        """Return an allocation that displaces only movable jobs: on its own nodes, or anywhere; None: no room."""
        own = [node for node in held if node in self._builder.hardware.kinds[move.kind]]
        free = {node: self._free[node] - self._kept.get(node, NOTHING) for node in own}
        at_home = place(n, move.worker, free) if own else None
        return at_home or self._placed(move, n, self._free, self._kept)

    def _one_node(self, worker: Resources, n: int, nodes: Sequence[NodeId]) -> NodeId | None:
        best: tuple[int, bool, int, NodeId] | None = None
        for node in nodes:
            room = self._free[node].n_times(worker)
            if room >= n:
                occupied = self._occupied.get(node)
                alone = (self._free[node] - occupied).n_times(worker) if occupied else room
                key = max(0, n - alone), node in self._slow, alone, node
                best = key if best is None or key < best else best
        return None if best is None else best[3]

    def _why(self, move: Move, allocation: Allocation) -> Reason:
        n = n_workers(move.view.spec, allocation)
        if n == move.n and move.is_new_size:
            return move.reason
        facts = {"n_workers_before": float(move.n_before), "n_workers": float(n), "n_nodes": float(len(allocation))}
        if n == move.n_before:
            return Reason(
                "moves",
                f"moves to {counted(len(allocation), 'node')}: makes room, or lies closer together",
                facts,
            )
        return Reason("less-room", f"{move.n_before} -> {n} workers: the nodes have no room for {move.n}", facts)

    def _explain_waiting(self, placed: Mapping[JobId, Allocation]) -> None:
        """Say why to the first that waits and was told nothing."""
        reasons = self._builder.reasons
        for move in sorted(self._moves, key=lambda move: seniority(move.view)):
            if not placed[move.id] and not move.n_before and move.id not in reasons:
                self._builder.explain(move.view, waits(move.worker * (move.n or 1), self._builder.free))
                return


def _turn(move: Move) -> tuple[bool, bool, int, bool, float, str]:
    stays = move.stays and move.n_before > 0
    return not stays, stays and move.n > move.n_before, -move.n, move.is_new_size, *seniority(move.view)


@dataclass(frozen=True, slots=True, eq=False)
class _Relocation:
    """Change of one job from what it really holds to what it is to hold: on each node how much more and less.

    Attributes
    ----------
    kept
        What it is to hold if the change is put off: after the loss of a node what it holds may be no number of workers of it,
        or nothing, where it may not be paused.
    """

    move: Move
    held: Allocation
    kept: Allocation
    to: Allocation
    more: Allocation
    less: Allocation

    @property
    def view(self) -> JobView:
        return self.move.view

    @property
    def id(self) -> JobId:
        return self.move.id

    @property
    def is_needed(self) -> bool:
        """Whether a promise needs more now than the last plan gave."""
        return self.move.n_least > self.move.n_before


class _MoveRoom:
    """Room on the nodes while jobs change their places.

    Attributes
    ----------
    sure
        What those that come later may take without blocking those admitted before, in whatever order they come.
    """

    def __init__(self, free: Mapping[NodeId, Resources]) -> None:
        #: What is free when all that passed are gone from where they were.
        self._free = dict(free)
        self.sure = dict(free)
        #: Nodes to which jobs go that leave others: what others leave there later is not sure.
        self._awaited: set[NodeId] = set()

    def take(self, amounts: Allocation) -> None:
        for free in (self._free, self.sure):
            _take(free, amounts)

    def give(self, amounts: Allocation) -> None:
        for free in (self._free, self.sure):
            _give(free, amounts)

    def passes(self, change: _Relocation) -> bool:
        """Let the job change its nodes if what it needs more is free."""
        if not _fit(change.more, self._free):
            return False
        _take(self._free, change.more)
        _give(self._free, change.less)
        return True

    def admits(self, change: _Relocation) -> bool:
        """Let the job change its nodes in this plan if it surely blocks nobody."""
        if not _fit(change.more, self.sure):
            return False
        _take(self.sure, change.more)
        if change.less:
            self._awaited |= change.more.keys()
            _give(self.sure, {node: amount for node, amount in change.less.items() if node not in self._awaited})
        return True


def _kept_of(move: Move, held: Allocation, to: Allocation) -> Allocation:
    """Return the largest part of `held` that the job can run with; `to` if it cannot run with any."""
    n_held = n_workers(move.view.spec, held)
    n = max((n for n in move.view.spec.worker_counts() if n <= n_held), default=0)
    if not held or n == n_held:
        return held
    return shrunk(move.view, move.worker, n, held) if n else to


def _sum(amounts: Allocation, more: Allocation) -> Allocation:
    """Return both amounts together on each node."""
    return {node: amounts.get(node, NOTHING) + more.get(node, NOTHING) for node in amounts | more}


def _beyond(amounts: Allocation, other: Allocation) -> Allocation:
    """Return the amount on each node beyond that of `other`."""
    beyond = {node: amount - other.get(node, NOTHING) for node, amount in amounts.items()}
    return {node: amount for node, amount in beyond.items() if amount}


def _fit(amounts: Allocation, free: Mapping[NodeId, Resources]) -> bool:
    return all(amount.fits_in(free[node]) for node, amount in amounts.items())


def _take(free: dict[NodeId, Resources], amounts: Allocation) -> None:
    for node, amount in amounts.items():
        free[node] = free[node] - amount


def _give(free: dict[NodeId, Resources], amounts: Allocation) -> None:
    for node, amount in amounts.items():
        if node in free:
            free[node] = free[node] + amount


def _least_loss(change: _Relocation) -> tuple[object, ...]:
    """Sorts first what is paused at the least loss."""
    move = change.move
    return move.stays, move.n_least > 0, move.n_before, *seniority(move.view)


def _needed_first(change: _Relocation) -> tuple[object, ...]:
    """Sorts first what a promise needs now."""
    return not change.is_needed, not change.move.n_least, *seniority(change.view)
