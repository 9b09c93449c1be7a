"""Means that torch's losses take over something else than samples: these differ by what is in one pass."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_cross_entropy, _nll_loss = functional.cross_entropy, functional.nll_loss
_OPTIONS = ("weight", "size_average", "ignore_index", "reduce", "reduction")


class MeanLosses:
    """Watches torch's cross-entropies for means weighted by class, and for targets that are left out.

    * `watches`: whether to look at them, which reads the targets.
    * `is_weighted`: whether there was such a mean.
    """

    def __init__(self) -> None:
        self.watches = self.is_weighted = False

    def install(self) -> None:
        """Put the watched losses in place of torch's."""
        functional.cross_entropy, functional.nll_loss = self._entropy, self._nll

    def uninstall(self) -> None:
        """Restore torch's own."""
        functional.cross_entropy, functional.nll_loss = _cross_entropy, _nll_loss

    def _entropy(self, input: Tensor, target: Tensor, *args: Any, **options: Any) -> Tensor:
        self._look(target, args, options)
        return _cross_entropy(input, target, *args, **options)

    def _nll(self, input: Tensor, target: Tensor, *args: Any, **options: Any) -> Tensor:
        self._look(target, args, options)
        return _nll_loss(input, target, *args, **options)

    def _look(self, target: Tensor, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if torch.compiler.is_compiling() or not self.watches or target.is_floating_point():
            return
        named = {**dict(zip(_OPTIONS, args, strict=False)), **options}
        if named.get("reduction", "mean") == "mean" and named.get("reduce") is not False:
            has_weights = named.get("weight") is not None
            self.is_weighted |= has_weights or bool((target == named.get("ignore_index", -100)).any())
