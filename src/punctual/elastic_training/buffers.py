"""Buffers that training changes, such as BatchNorm's averages: each virtual rank begins with the step's values."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from punctual.elastic_training.group import WorkerGroup
from punctual.elastic_training.reduction import total_over_workers
from punctual.elastic_training.virtual_ranks import TreeSum


class MovingBuffers:
    """Buffers of a model through the virtual ranks of a step.

    Floating-point buffers are averaged over the virtual ranks, each with the weight of its samples; others, such as
    counters, advance once a step.

    `names`: buffers that move; None: any may, and `moved` tells which did.
    """

    def __init__(self, model: nn.Module, n_virtual_ranks: int, names: Sequence[str] | None) -> None:
        named = dict(model.named_buffers())
        self._names = list(named if names is None else names)
        self._buffers = [named[name] for name in self._names]
        self._n_virtual_ranks = n_virtual_ranks
        self._start: list[Tensor] = []
        self._begin_sum()

    def moved(self) -> list[str]:
        """Return the buffers that have changed since the step began."""
        watched = zip(self._names, self._buffers, self._start, strict=True)
        return [name for name, buffer, start in watched if not torch.equal(buffer, start)]

    def begin_step(self) -> None:
        self._start = [buffer.clone() for buffer in self._buffers]
        self._begin_sum()

    def _begin_sum(self) -> None:
        self._tree: TreeSum[Tensor] = TreeSum(self._n_virtual_ranks, Tensor.add_)

    @torch.no_grad()
    def begin_rank(self) -> None:
        """Reset the buffers to the step's start."""
        for buffer, start in zip(self._buffers, self._start, strict=True):
            buffer.copy_(start)

    def end_rank(self, virtual_rank: int, weight: float) -> None:
        """Add a virtual rank's buffers with its weight, 0 if it has no samples."""
        floating = [buffer.detach().reshape(-1).double() * weight for buffer in self._floating()]
        if floating:
            self._tree.put_leaf(virtual_rank, torch.cat(floating))

    def _floating(self) -> list[Tensor]:
        return [buffer for buffer in self._buffers if buffer.is_floating_point()]

    @torch.no_grad()
    def end_step(self, group: WorkerGroup) -> None:
        """Average the buffers over all virtual ranks."""
        floating = self._floating()
        if not floating:
            return
        total = total_over_workers(group, self._tree, self._n_virtual_ranks)
        for buffer, mean in zip(floating, total.split([buffer.numel() for buffer in floating]), strict=True):
            buffer.copy_(mean.view_as(buffer))

    @torch.no_grad()
    def end_step_alone(self, share_frac: float) -> None:
        """Average the buffers over this worker's virtual ranks, which have that share of the step's samples."""
        n_end = 0
        mean = sum((root.total for root in self._tree.roots), torch.zeros(())) / max(share_frac, 1e-12)
        for buffer in self._floating() if share_frac else ():
            n_start, n_end = n_end, n_end + buffer.numel()
            buffer.copy_(mean[n_start:n_end].view_as(buffer))

    def restore(self) -> None:
        """Restore the buffers from before a step that is given up."""
        self.begin_rank()
