"""Buddy allocation: choose the small blocks to move so that a larger one need not be split."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from punctual.core.ids import NodeId
from punctual.core.resources import NOTHING, Resources, total

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Block(Generic[B]):
    """Something that lies whole on one node and may be moved; `id` is the caller's."""

    id: B
    node: NodeId
    amount: Resources


#: A block and the node it is to move to.
Move = tuple[Block[B], NodeId]


def moves_for(
    n_workers: int, worker: Resources, free: Mapping[NodeId, Resources], capacity: Mapping[NodeId, Resources],
    blocks: Mapping[NodeId, list[Block[B]]], held: Mapping[NodeId, Resources] | None = None,
) -> list[Move[B]] | None:  # fmt: skip
    """Moves after which `n_workers` lie on as few nodes as they would if all nodes were empty.

    Parameters
    ----------
    n_workers
        Number of workers, at least one.
    worker
        Amount of each worker.
    free, capacity
        Free amount and capacity of each node.
    blocks
        Movable blocks, by node.
    held
        Present places of the workers: they leave these after the moves, so nothing else can move there.
    """
    on_one = max((room.n_times(worker) for room in capacity.values()), default=0)
    if on_one == 0:
        return None
    yard = _NodeBlocks(dict(free), {node: list(to_move) for node, to_move in blocks.items()})
    n_whole, rest = divmod(n_workers, on_one)
    used: frozenset[NodeId] = frozenset()
    for n in [on_one] * n_whole + [rest] * bool(rest):
        node = yard.room_for(worker * n, used, held or {})
        if node is None:
            return None
        used |= {node}
    return yard.moves


class _NodeBlocks(Generic[B]):
    """Nodes and blocks while moves are found."""

    def __init__(self, free: dict[NodeId, Resources], blocks: dict[NodeId, list[Block[B]]]) -> None:
        self._free, self._blocks = free, blocks
        self.moves: list[Move[B]] = []

    def room_for(self, amount: Resources, closed: frozenset[NodeId], own: Mapping[NodeId, Resources]) -> NodeId | None:
        """Return a node with room for the amount, cleared if needed; `closed` nodes stay, `own` counts as free."""
        nodes = [node for node in self._free if node not in closed]
        rooms = {node: self._free[node] + own.get(node, NOTHING) for node in nodes}
        fits = [node for node in nodes if amount.fits_in(rooms[node])]
        if fits:
            return min(fits, key=lambda node: (rooms[node].size, node))
        chosen = [(node, to_move) for node in nodes if (to_move := self._to_clear(node, rooms[node], amount))]
        for node, to_move in sorted(chosen, key=lambda pair: (total(block.amount for block in pair[1]).size, pair[0])):
            if self._clear(node, to_move, closed | {node}):
                return node
        return None

    def _to_clear(self, node: NodeId, room: Resources, amount: Resources) -> list[Block[B]]:
        """Return the smallest blocks of the node whose move makes room for the amount; empty if none do."""
        smaller = [block for block in self._blocks.get(node, []) if block.amount.size < amount.size]
        chosen = list[Block[B]]()
        for block in sorted(smaller, key=lambda block: block.amount.size):
            room = room + block.amount
            chosen.append(block)
            if amount.fits_in(room):
                return chosen
        return []

    def _clear(self, node: NodeId, to_move: list[Block[B]], closed: frozenset[NodeId]) -> bool:
        """Move the blocks elsewhere, the largest first; False, without a move, if one does not fit."""
        before = dict(self._free), {name: list(blocks) for name, blocks in self._blocks.items()}, list(self.moves)
        for block in reversed(to_move):
            target = self.room_for(block.amount, closed, {})
            if target is None:
                self._free, self._blocks, self.moves = before
                return False
            self._move(block, target)
        return True

    def _move(self, block: Block[B], target: NodeId) -> None:
        self._blocks[block.node].remove(block)
        self._free[block.node] = self._free[block.node] + block.amount
        self._free[target] = self._free[target] - block.amount
        # It stays where it is now: moving it twice would be two restarts for one.
        self.moves.append((block, target))
