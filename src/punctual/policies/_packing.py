"""Place all jobs made of workers at once: large jobs in one piece, small ones around them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.story import Reason
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
        #: Number of jobs that are paused for a moment, so that others can move.
        self.n_paused = 0
        self._free: dict[NodeId, Resources] = dict(builder.free)
        #: Workers' room on each node that is taken now by jobs that go on, and not yet reassigned.
        self._occupied: dict[NodeId, Resources] = {}
        self._slow = builder.hardware.slowness
        #: The part of it that jobs have which are not to be moved.
        self._kept: dict[NodeId, Resources] = {}
        for move in self._moves:
            for node, amount in builder.held(move.view).items():
                self._free[node] = self._free[node] + amount
                for taken in self._taken_by(move):
                    taken[node] = taken.get(node, NOTHING) + amount

    def run(self) -> None:
        """Write the changes into the builder."""
        placed = {move.view.spec.id: self._nodes_for(move) for move in sorted(self._moves, key=_turn)}
        self._break_circles(placed)
        changed = [move for move in self._moves if placed[move.view.spec.id] != self._builder.held(move.view)]
        for move in changed:  # all leave before anybody comes
            if self._builder.held(move.view):
                self._builder.put(move.view, {}, _MAKES_WAY if move.n else move.reason)
        for move in changed:
            allocation = placed[move.view.spec.id]
            if allocation:
                self._builder.put(move.view, allocation, self._why(move, allocation))
        self._explain_waiting(placed)

    def _break_circles(self, placed: dict[JobId, Allocation]) -> None:
        """Break circles of jobs that wait for each other's nodes by pausing one: a job that moves holds both places."""
        free = dict(self._builder.free)
        waiting = [move for move in self._moves if placed[move.view.spec.id] != self._builder.held(move.view)]
        while waiting:
            stuck = [move for move in waiting if not self._passes(move, placed[move.view.spec.id], free)]
            if len(stuck) == len(waiting):
                pausable = [
                    move for move in stuck if placed[move.view.spec.id] and may_pause(move.view) and move.n_before
                ]
                if not pausable:
                    for move in sorted(stuck, key=lambda move: (not move.n_least, *seniority(move.view))):
                        placed[move.view.spec.id] = self._in_place(move, free)
                    return
                paused = min(
                    pausable, key=lambda move: (move.stays, move.n_least > 0, move.n_before, *seniority(move.view))
                )
                placed[paused.view.spec.id] = {}
                self.n_paused += 1
            waiting = stuck

    def _in_place(self, move: Move, free: dict[NodeId, Resources]) -> Allocation:
        """Return the allocation nearest to the job's target that fits beside its present one, without waiting."""
        held = self._builder.held(move.view)
        for n in (move.n, *move.fallbacks) if held and move.kind == move.kind_before else ():
            if n <= move.n_before:
                break
            nodes = self._builder.hardware.kinds[move.kind]
            more = place(n - move.n_before, move.worker, {node: free[node] for node in nodes}, self._slow)
            if more is None:
                continue
            for node, amount in more.items():
                free[node] = free[node] - amount
            return {node: held.get(node, NOTHING) + more.get(node, NOTHING) for node in {**held, **more}}
        return held

    def _passes(self, move: Move, to: Allocation, free: dict[NodeId, Resources]) -> bool:
        """Let the job change its nodes if its additional amounts are free; return whether it did."""
        held = self._builder.held(move.view)
        if not all(amount.fits_in(free[node] + held.get(node, NOTHING)) for node, amount in to.items()):
            return False
        for node, amount in held.items():
            free[node] = free[node] + amount
        for node, amount in to.items():
            free[node] = free[node] - amount
        return True

    def _nodes_for(self, move: Move) -> Allocation:
        """Return nodes for one job; empty if none of its acceptable numbers fits."""
        held = self._builder.held(move.view)
        for taken in self._taken_by(move):
            for node, amount in held.items():
                taken[node] = taken[node] - amount
        allocation: Allocation = {}
        if move.n:
            placed = (self._find(move, n, held) for n in (move.n, *move.fallbacks))
            allocation = next(filter(None, placed), held if move.stays else {})
        for node, amount in allocation.items():
            self._free[node] = self._free[node] - amount
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
        placed = self._undisturbing(move, n)
        if n != move.n_least or (placed is not None and len(placed) <= self._fewest(move, n)):
            return placed
        displacing = self._displacing(move, n, held)
        return placed if placed and (not displacing or len(placed) <= len(displacing)) else displacing

    def _at_home(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        """Return an allocation on the job's present nodes, unchanged if its number stays; None if it does not fit."""
        if n == move.n_before:
            return held if self._has_room(held) else None
        if n < move.n_before:
            shrunken = shrunk(move.view, move.worker, n, held)
            return shrunken if self._has_room(shrunken) else None
        free = {node: self._free[node] for node in held}
        return place(
            n,
            move.worker,
            {node: free[node] - self._occupied.get(node, NOTHING) for node in held} if move.stays else free,
        )

    def _extended(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        """Return the present allocation with more workers; a promise's least may displace others. None: no room."""
        taken = self._kept if n == move.n_least else self._occupied
        nodes = self._builder.hardware.kinds[move.kind]
        free = {node: self._free[node] - taken.get(node, NOTHING) - held.get(node, NOTHING) for node in nodes}
        more = place(n - move.n_before, move.worker, free, self._slow) if n > move.n_before else None
        if more is None:
            return None
        extended = {node: held.get(node, NOTHING) + more.get(node, NOTHING) for node in {**held, **more}}
        amount, spec = total(extended.values()), move.view.spec
        return extended if amount.fits_in(spec.ceiling) and spec.parts_of(amount) else None

    def _has_room(self, allocation: Allocation) -> bool:
        return all(amount.fits_in(self._free[node]) for node, amount in allocation.items())

    def _fewest(self, move: Move, n: int) -> int:
        return self._builder.hardware.n_nodes(n, move.worker, move.kind)

    def _beside(self, move: Move, n: int) -> Allocation | None:
        """Return the allocation that disturbs the fewest others: on one node, or on the fewest; None: no room."""
        nodes = self._builder.hardware.kinds[move.kind]
        node = self._one_node(move.worker, n, nodes)
        if node is not None:
            return {node: move.worker * n}
        placed = self._undisturbing(move, n)
        if placed is None or len(placed) > self._fewest(move, n):
            disturbing = place(n, move.worker, {node: self._free[node] for node in nodes}, self._slow)
            placed = disturbing if placed is None or (disturbing and len(disturbing) < len(placed)) else placed
        return placed

    def _undisturbing(self, move: Move, n: int) -> Allocation | None:
        """Return an allocation clear of all jobs that are not placed yet; None: no room."""
        nodes = self._builder.hardware.kinds[move.kind]
        free = {node: self._free[node] - self._occupied.get(node, NOTHING) for node in nodes}
        return place(n, move.worker, free, self._slow)

    def _displacing(self, move: Move, n: int, held: Allocation) -> Allocation | None:
        """Return an allocation that displaces only movable jobs: on its own nodes, or anywhere; None: no room."""
        nodes = self._builder.hardware.kinds[move.kind]
        free = {node: self._free[node] - self._kept.get(node, NOTHING) for node in nodes}
        at_home = place(n, move.worker, {node: free[node] for node in held if node in free}) if held else None
        return at_home or place(n, move.worker, free, self._slow)

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
                f"moves to {len(allocation)} node{'s' * (len(allocation) != 1)}: makes room, or lies closer together",
                facts,
            )
        return Reason("less-room", f"{move.n_before} -> {n} workers: the nodes have no room for {move.n}", facts)

    def _explain_waiting(self, placed: Mapping[JobId, Allocation]) -> None:
        """Say why to the first that waits and was told nothing."""
        reasons = self._builder.reasons
        for move in sorted(self._moves, key=lambda move: seniority(move.view)):
            if not placed[move.view.spec.id] and not move.n_before and move.view.spec.id not in reasons:
                self._builder.explain(move.view, waits(move.worker * (move.n or 1), self._builder.free))
                return


def _turn(move: Move) -> tuple[bool, bool, int, bool, float, str]:
    stays = move.stays and move.n_before > 0
    return not stays, stays and move.n > move.n_before, -move.n, move.is_new_size, *seniority(move.view)
