"""Parts into which a step is cut, whatever the number of workers: virtual ranks, assigned to the workers."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from punctual.channel import WORKERS_VARIABLE
from punctual.tracking.complaint import invalid, whole

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RankNumber:
    """Number of virtual ranks of a training.

    * `n`: number for a training that begins.
    * `n_least`: a training resumed from a checkpoint keeps its number if that is at least `n_least`; None: never.
    """

    n: int
    n_least: int | None = None

    @classmethod
    def chosen(cls, n: int | None, *, is_deterministic: bool) -> "RankNumber":
        """Choose the script's number, or else one that suffices for the most workers that the environment allows.

        Separate virtual ranks cost as much as smaller batches: a deterministic training has no more of them than that.

        Raises `ValueError`: `n` is not a number from 1 on, or less than the most workers.
        """
        text = os.environ.get(WORKERS_VARIABLE, "")
        n_workers_max = int(text) if text.isdecimal() else 0
        if n is not None:
            if whole(n, "virtual_ranks", "`context.elastic`", least=1) < n_workers_max:
                raise invalid(
                    "`virtual_ranks` must be at least the most workers that there may be",
                    f"{n}",
                    f"a training of up to {n_workers_max} workers",
                    "Give context.elastic more of them, or the job fewer workers.",
                )
            return cls(n)
        if is_deterministic and n_workers_max:
            return cls(n_workers_max, n_workers_max)
        # Default number. Each of two, three or four workers then has about as much to do as the others.
        return cls(max(8, n_workers_max), n_workers_max)

    def after(self, n_before: int) -> int:
        """Number for a training that began with `n_before` and is resumed."""
        return self.n if self.n_least is None or n_before < self.n_least else n_before


def cut(n_items: int, n_parts: int) -> list[range]:
    """Cut `n_items` into `n_parts` contiguous ranges whose lengths differ by one at most, the longer ones first."""
    length, n_longer = divmod(n_items, n_parts)
    ends = [length * (i + 1) + min(i + 1, n_longer) for i in range(n_parts)]
    return [range(end - length - (i < n_longer), end) for i, end in enumerate(ends)]


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples of one virtual rank that go through the model together.

    * `i_piece`: number of the piece in its virtual rank: 0 unless a rank is larger than a micro-batch.
    * `places`: the samples' places in the step's global batch.
    """

    virtual_rank: int
    i_piece: int
    places: range


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces of one or several virtual ranks that go through the model at once.

    * `weight`: part of the step's global batch, 0..1; 0: samples of others, so that an idle worker does what all do.
    * `ends_rank`: whether the last piece is the last of its virtual rank.
    * `is_last`: whether the part is the last of the worker's share.
    """

    pieces: tuple[Piece, ...]
    weight: float
    ends_rank: bool = True
    is_last: bool = False

    @property
    def n_samples(self) -> int:
        return sum(len(piece.places) for piece in self.pieces)


def places_of(n_samples: int, global_batch_size: int, n_virtual_ranks: int) -> list[range]:
    """Return each virtual rank's places in a step's global batch.

    The last step of an epoch may have fewer samples. They go to fewer virtual ranks, of about the usual size and never
    larger: statistics over a batch of one sample would be none.
    """
    n_used = min(n_virtual_ranks, -(-n_samples // (global_batch_size // n_virtual_ranks)))
    return [*cut(n_samples, n_used), *[range(n_samples, n_samples)] * (n_virtual_ranks - n_used)]


def share(
    places: Sequence[range], virtual_ranks: range, *, is_fused: bool, n_samples_max: int | None = None
) -> list[Part]:
    """Return a worker's share of a step, part by part.

    * `places`: places of each virtual rank in the step's global batch.
    * `virtual_ranks`: virtual ranks of the worker.
    * `is_fused`: whether several virtual ranks may go through the model together.
    * `n_samples_max`: samples that go through the model at once, at most; a larger virtual rank is cut. None: no limit.
    """
    n_samples = places[-1].stop
    pieces = [piece for i in virtual_ranks for piece in _pieces(i, places[i], n_samples_max)]
    if not pieces:
        return [Part((_pieces(0, places[0], n_samples_max)[0],), weight=0.0, is_last=True)]
    groups = _fused(pieces, n_samples_max) if is_fused else [(piece,) for piece in pieces]
    return [
        Part(
            group,
            weight=sum(len(piece.places) for piece in group) / n_samples,
            ends_rank=group[-1].places.stop == places[group[-1].virtual_rank].stop,
            is_last=i == len(groups) - 1,
        )
        for i, group in enumerate(groups)
    ]


def _pieces(virtual_rank: int, places: range, n_samples_max: int | None) -> list[Piece]:
    if not places:
        return []
    n_pieces = -(-len(places) // (n_samples_max or len(places)))
    cuts = cut(len(places), n_pieces)
    return [Piece(virtual_rank, i, places[part.start : part.stop]) for i, part in enumerate(cuts)]


def _fused(pieces: Sequence[Piece], n_samples_max: int | None) -> list[tuple[Piece, ...]]:
    """Join neighbouring pieces, as many as fit."""
    groups: list[tuple[Piece, ...]] = []
    n_samples = 0
    for piece in pieces:
        n_samples += len(piece.places)
        if not groups or (n_samples_max and n_samples > n_samples_max):
            groups.append((piece,))
            n_samples = len(piece.places)
        else:
            groups[-1] = (*groups[-1], piece)
    return groups


@dataclass(frozen=True, slots=True)
class TreeNode(Generic[T]):
    """Sum over an aligned subtree: leaves `index << level` to ``(index + 1) << level``."""

    level: int
    index: int
    total: T


class TreeSum(Generic[T]):
    """Sum in an order that depends on the number of leaves only.

    The leaves of a fixed binary tree are put in from left to right, by one or by several workers; whoever has both
    halves of a subtree adds them up. What is left at the end are the roots of the largest subtrees in the range put
    in, and they can be put into another sum in their turn.

    * `n_leaves`: leaves of the whole tree.
    * `add`: the sum of a left and a right part; it may change the left one.
    """

    def __init__(self, n_leaves: int, add: Callable[[T, T], T]) -> None:
        self._n_leaves = n_leaves
        self._add = add
        self.roots: list[TreeNode[T]] = []

    def put_leaf(self, i_leaf: int, value: T) -> None:
        self.put(TreeNode(0, i_leaf, value))

    def put(self, node: TreeNode[T]) -> None:
        """Add the root of a subtree, the next to the right of the earlier ones."""
        while node.level < self._depth:
            if node.index % 2 and self.roots and self._is_left_of(node):
                left = self.roots.pop()
                node = TreeNode(node.level + 1, node.index // 2, self._add(left.total, node.total))
            elif node.index % 2 == 0 and (node.index + 1) << node.level >= self._n_leaves:
                node = TreeNode(node.level + 1, node.index // 2, node.total)  # there is nothing on its right
            else:
                break
        self.roots.append(node)

    @property
    def total(self) -> T:
        """The sum, once all leaves are in."""
        (root,) = self.roots
        return root.total

    @property
    def _depth(self) -> int:
        return (self._n_leaves - 1).bit_length()

    def _is_left_of(self, node: TreeNode[T]) -> bool:
        return (self.roots[-1].level, self.roots[-1].index) == (node.level, node.index - 1)


def roots_of(leaves: range, n_leaves: int) -> list[tuple[int, int]]:
    """Return level and index of the roots that a worker with these leaves has in the end."""
    tree: TreeSum[None] = TreeSum(n_leaves, lambda _left, _right: None)
    for i in leaves:
        tree.put_leaf(i, None)
    return [(root.level, root.index) for root in tree.roots]
