"""Gradients of a step, summed over parts, virtual ranks and workers, and a few numbers that travel with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from punctual.elastic_training.group import WorkerGroup
from punctual.elastic_training.virtual_ranks import TreeNode, TreeSum, cut, roots_of

#: Their sums are read as numbers, so whatever type the gradients have, these have enough digits.
_NOTES_TYPE = torch.float32


def clear(params: Sequence[nn.Parameter]) -> None:
    for param in params:
        param.grad = None


class Reduction:
    """Sums each parameter's `grad` over the parts of a step. The base class serves a single worker, whose sums are the step's."""

    def __init__(self, params: Sequence[nn.Parameter]) -> None:
        self._params = params
        self._begin()

    def _begin(self) -> None:
        """Begin a step."""
        self._loss = 0.0

    def end_rank(self, virtual_rank: int, loss: float) -> None:
        """Note that the gradients of a virtual rank are complete, its weighted loss included."""
        self._loss += loss

    def finish(self, notes: Sequence[float], share_frac: float) -> list[float]:
        """Leave the sum over all workers in `grad`; return the sums of `notes`, and of the losses as the last.

        `share_frac`: this worker's share of the step's samples, 0..1.

        Raises `GroupFault`: a worker is gone; the gradients are of no use.
        """
        loss = self._loss
        self._begin()
        return [*notes, loss]

    def forget(self) -> None:
        """Give up the present step."""
        self._begin()
        clear(self._params)

    def close(self) -> None:
        """Release connections."""


class _Flat:
    """Parameters of one type side by side in flat memory, each in the order that its own memory has.

    A gradient lies in memory as its parameter does. It must still after a sum: a norm, say, is added up in that order.
    """

    def __init__(self, params: Sequence[nn.Parameter], numbers: Sequence[int]) -> None:
        self.numbers = tuple(numbers)
        self.sizes = [params[i].numel() for i in numbers]
        self.layouts = [(params[i].shape, torch.empty_like(params[i], device="meta").stride()) for i in numbers]
        self.length = sum(self.sizes)
        first = params[numbers[0]]
        self.dtype, self.device = first.dtype, first.device

    def empty(self, n_more: int = 0) -> Tensor:
        return torch.empty(self.length + n_more, dtype=self.dtype, device=self.device)

    def packed(self, grads: Sequence[Tensor], n_parts: int) -> Tensor:
        """Return these parameters' gradients in one flat tensor, padded with zeros to a multiple of `n_parts`."""
        flat = self.empty(-self.length % n_parts)
        flat[self.length :] = 0
        torch._foreach_copy_(self.views(flat), [grads[i] for i in self.numbers])
        return flat

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return views of the parameters' places in `flat`, in their shapes."""
        parts = flat[: self.length].split(self.sizes)
        return [part.as_strided(*layout) for part, layout in zip(parts, self.layouts, strict=True)]


def _by_type(params: Sequence[nn.Parameter]) -> list[list[int]]:
    """Return the numbers of the parameters of each type."""
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for i, param in enumerate(params):
        kinds.setdefault((param.dtype, param.device), []).append(i)
    return list(kinds.values())


class FlatSum(Reduction):
    """Sums in the fastest order: all gradients of one type at once.

    The last sum also counts, for each parameter, the workers that had a gradient for it: a parameter for which nobody
    had one keeps none, and the optimiser leaves it alone as it would in one process.

    `buffers`: buffers of the generation before, to be used again; filled if empty.
    """

    def __init__(self, params: Sequence[nn.Parameter], group: WorkerGroup, n_notes: int, buffers: list[Tensor]) -> None:
        self._group = group
        flats = [_Flat(params, numbers) for numbers in _by_type(params)]
        self._n_notes = n_notes + 1
        self._buffers = buffers
        if not buffers:
            buffers += self._new_buffers(flats, self._n_notes + len(params))
        self._notes = buffers[-1][-(self._n_notes + len(params)) :]
        #: Place of each parameter's gradient in the buffers.
        self._views: list[Tensor] = [torch.empty(0)] * len(params)
        for flat, buffer in zip(flats, buffers, strict=False):
            for i, view in zip(flat.numbers, flat.views(buffer), strict=True):
                self._views[i] = view
        super().__init__(params)

    def _new_buffers(self, flats: Sequence[_Flat], n_notes: int) -> list[Tensor]:
        """Make a buffer for each type; notes are in the last one if it is of their type, else in one of their own."""
        *others, last = flats
        if (last.dtype, last.device) == (_NOTES_TYPE, self._group.device):
            return [*(flat.empty() for flat in others), last.empty(n_notes)]
        notes = torch.empty(n_notes, dtype=_NOTES_TYPE, device=self._group.device)
        return [*(flat.empty() for flat in flats), notes]

    def finish(self, notes: Sequence[float], share_frac: float) -> list[float]:
        for param, view in zip(self._params, self._views, strict=True):
            if param.grad is None:
                view.zero_()
            else:
                view.copy_(param.grad)
        had = [float(param.grad is not None) for param in self._params]
        self._notes.copy_(torch.tensor([*notes, self._loss, *had]))
        for buffer in self._buffers:
            self._group.add_up(buffer)
        sums = self._notes.tolist()
        for param, view, n_had in zip(self._params, self._views, sums[self._n_notes :], strict=True):
            param.grad = view if n_had else None
        self._begin()
        return sums[: self._n_notes]


@dataclass(slots=True)
class _Leaf:
    """Gradients and notes of one or several virtual ranks: a gradient for each parameter."""

    grads: list[Tensor]
    notes: list[float]

    def add(self, other: "_Leaf") -> "_Leaf":
        torch._foreach_add_(self.grads, other.grads)
        self.notes = [mine + theirs for mine, theirs in zip(self.notes, other.notes, strict=True)]
        return self


class TreeTotal(Reduction):
    """Sums in the order of a binary tree with the virtual ranks as leaves: the same bits for any number of workers.

    Each worker adds up what it has of the tree. Then each is sent a part of all that is left, adds up the rest of the
    tree for that part, and sends it to all.
    """

    def __init__(self, params: Sequence[nn.Parameter], group: WorkerGroup, n_notes: int, n_virtual_ranks: int) -> None:
        self._group = group
        self._n_virtual_ranks = n_virtual_ranks
        self._n_notes = n_notes + 1
        self._flats = [_Flat(params, numbers) for numbers in _by_type(params)]
        super().__init__(params)

    def _begin(self) -> None:
        self._tree: TreeSum[_Leaf] = TreeSum(self._n_virtual_ranks, _Leaf.add)

    def end_rank(self, virtual_rank: int, loss: float) -> None:
        grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in self._params]
        had = [float(param.grad is not None) for param in self._params]
        self._tree.put_leaf(virtual_rank, _Leaf(grads, [0.0] * (self._n_notes - 1) + [loss, *had]))
        clear(self._params)

    def finish(self, notes: Sequence[float], share_frac: float) -> list[float]:
        self._tree.roots[0].total.notes[: len(notes)] = notes
        total = self._tree.total if self._group.n_workers == 1 else self._over_workers()
        for param, grad, n_had in zip(self._params, total.grads, total.notes[self._n_notes :], strict=True):
            param.grad = grad if n_had else None
        self._begin()
        return total.notes[: self._n_notes]

    def _over_workers(self) -> _Leaf:
        grads = [torch.empty(0)] * len(self._params)
        for flat in self._flats:
            total = self._total(partial(self._packed, flat))
            for i, view in zip(flat.numbers, flat.views(total), strict=True):
                grads[i] = view
        notes = self._total(lambda leaf: torch.tensor(leaf.notes, dtype=torch.float64, device=self._group.device))
        return _Leaf(grads, notes.tolist())

    def _packed(self, flat: _Flat, leaf: _Leaf) -> Tensor:
        return flat.packed(leaf.grads, self._group.n_workers)

    def _total(self, flat_of: Callable[[_Leaf], Tensor]) -> Tensor:
        """Return the sum over all virtual ranks of the flat tensor that `flat_of` makes of each."""
        roots = [TreeNode(root.level, root.index, flat_of(root.total)) for root in self._tree.roots]
        return total_of(roots, self._group, self._n_virtual_ranks)


def total_over_workers(group: WorkerGroup, tree: TreeSum[Tensor], n_virtual_ranks: int) -> Tensor:
    """Return the total over all workers of a tree of equally long flat tensors."""
    return tree.total if group.n_workers == 1 else total_of(tree.roots, group, n_virtual_ranks)


def total_of(roots: Sequence[TreeNode[Tensor]], group: WorkerGroup, n_virtual_ranks: int) -> Tensor:
    """Return the total of a tree from the workers' roots: each adds up one part of it, and sends it to all."""
    n_workers, length = group.n_workers, len(roots[0].total)
    if not length:
        return roots[0].total
    rows = torch.stack([_in_rows(root.total, n_workers) for root in roots], dim=1)
    n_each = rows.shape[-1]
    places = [roots_of(leaves, n_virtual_ranks) for leaves in cut(n_virtual_ranks, n_workers)]
    received = group.together.exchange(rows, [len(theirs) * n_each for theirs in places])
    tree: TreeSum[Tensor] = TreeSum(n_virtual_ranks, Tensor.add_)
    for theirs, tensors in zip(places, received, strict=True):
        for (level, index), part in zip(theirs, tensors.split(n_each), strict=True):
            tree.put(TreeNode(level, index, part))
    return group.together.collect(tree.total).view(-1)[:length]


def _in_rows(flat: Tensor, n_rows: int) -> Tensor:
    """Return `flat` in equally long rows; zeros fill up the last."""
    n_missing = -len(flat) % n_rows
    return (nn.functional.pad(flat, (0, n_missing)) if n_missing else flat).view(n_rows, -1)
