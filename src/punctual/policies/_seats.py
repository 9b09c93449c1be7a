"""From numbers of workers on a kind of nodes to nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobView
from punctual.core.resources import Resources
from punctual.core.story import Reason
from punctual.optim.placement import place
from punctual.policies._base import n_workers, seniority, waits
from punctual.policies._draft import Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One job made of workers: what it has, what it is to have, and what it must have.

    `fallbacks` are smaller numbers that will do, the largest first.
    """

    view: JobView
    worker: Resources
    n_before: int
    kind_before: str
    n: int
    kind: str
    fallbacks: tuple[int, ...]
    first: bool
    reason: Reason

    @property
    def changes(self) -> bool:
        return self.n != self.n_before or (self.kind != self.kind_before and self.n > 0)


def seat(draft: Draft, moves: Iterable[Move]) -> None:
    """Find nodes for what changes; where they do not fit, for the largest number of workers that does.

    What leaves and shrinks goes first, then what is promised, then the rest, the largest first, since a large job finds
    room only while there are large gaps. A job whose number and kind stay keeps its nodes.
    """
    changes = sorted((move for move in moves if move.changes), key=_turn)
    for move in changes:
        if move.n == 0:
            draft.put(move.view, {}, move.reason)
        elif move.kind == move.kind_before and move.n < move.n_before:
            draft.put(move.view, _shrunk(draft, move), move.reason)
        else:
            _grow(draft, move)


def _turn(move: Move) -> tuple[int, bool, int, float, str]:
    stays_home = move.kind == move.kind_before
    turn = 0 if move.n == 0 else 1 if stays_home and move.n < move.n_before else 2
    return turn, not move.first, -move.n, *seniority(move.view)


def _grow(draft: Draft, move: Move) -> None:
    """Seat a job that starts, grows or changes its kind of nodes; if that is impossible it stays as it is."""
    free = draft.without(move.view)
    for n in (move.n, *move.fallbacks):
        if move.kind == move.kind_before and n <= move.n_before:
            break
        found = _find(draft, move, n, free)
        if found is not None:
            draft.put(move.view, found, move.reason)
            return
    if not move.n_before:
        draft.explain(move.view, waits(move.worker * move.n, draft.free))


def _find(draft: Draft, move: Move, n: int, free: Mapping[NodeId, Resources]) -> Allocation | None:
    """Room on the kind of nodes that was decided on, where the job is already if that takes no more nodes."""
    home = [node for node in (move.view.planned or move.view.granted) if draft.hardware.kind_of.get(node) == move.kind]
    at_home = place(n, move.worker, {node: free[node] for node in home if node in free}) if home else None
    if at_home is not None and len(at_home) == 1:
        return at_home
    nodes = draft.hardware.kinds[move.kind]
    anywhere = place(n, move.worker, free if len(draft.hardware.kinds) == 1 else {node: free[node] for node in nodes})
    return anywhere if at_home is None or (anywhere and len(anywhere) < len(at_home)) else at_home


def _shrunk(draft: Draft, move: Move) -> Allocation:
    """What is left when workers go, first from the nodes that have the fewest of them."""
    on_nodes = {node: n_workers(move.view.spec, {node: amount}) for node, amount in draft.held(move.view).items()}
    n_to_go = sum(on_nodes.values()) - move.n
    for node in sorted(on_nodes, key=lambda node: (on_nodes[node], node)):
        n_gone = min(n_to_go, on_nodes[node])
        on_nodes[node] -= n_gone
        n_to_go -= n_gone
    return {node: move.worker * n for node, n in on_nodes.items() if n}
