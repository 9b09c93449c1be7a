"""Dropout whose masks belong to the virtual ranks, even if several go through the model together."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from punctual.elastic_training.random_state import mixed
from punctual.elastic_training.virtual_ranks import Piece

_dropout = functional.dropout
_attention = functional.scaled_dot_product_attention

#: A seed is drawn from this many numbers.
SEED_MAX = 2**62


class RankDropout:
    """Replaces torch's dropout while a part goes through the model.

    Each call draws one number from the default generator, which is seeded alike for all virtual ranks of a step, and
    makes each virtual rank's mask from that number and the rank. So a mask does not depend on which ranks are
    together; and a forward pass that is done again for a checkpoint of activations gets the masks it had.
    """

    def __init__(self) -> None:
        self.n_draws = 0
        self._pieces: Sequence[Piece] = ()
        self._n_samples = 0
        self._generator = torch.Generator()

    def begin_part(self, pieces: Sequence[Piece], n_samples: int) -> None:
        """Begin a part with these pieces; no pieces: leave dropout alone."""
        self._pieces, self._n_samples = pieces, n_samples

    def install(self) -> None:
        """Replace torch's dropout in this process."""
        functional.dropout = self._dropout
        functional.scaled_dot_product_attention = self._attention

    def uninstall(self) -> None:
        """Restore torch's own dropout."""
        functional.dropout = _dropout
        functional.scaled_dot_product_attention = _attention

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or not 0 < p < 1 or not self._can_tell(input):
            return _dropout(input, p, training, inplace)
        mask = self._mask(input, p)
        return input.mul_(mask) if inplace else input * mask

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
        named = {**dict(zip(("attn_mask", "dropout_p", "is_causal"), args, strict=False)), **options}
        p = named.get("dropout_p", 0.0)
        if not 0 < p < 1 or not self._can_tell(query) or query.shape[:-2] != key.shape[:-2]:
            return _attention(query, key, value, *args, **options)
        named.pop("dropout_p")
        return self._attend(query, key, value, p, **named)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, p: float,
        attn_mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None, **_: Any,
    ) -> Tensor:  # fmt: skip
        """Compute attention by its definition, as torch itself does with dropout, but with our mask."""
        scores = query * (scale or 1 / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=scores.dtype).masked_fill_(~attn_mask, -math.inf)
        if attn_mask is not None:
            scores = scores + attn_mask
        weights = scores.softmax(-1)
        return weights * self._mask(weights, p) @ value

    def _can_tell(self, tensor: Tensor) -> bool:
        """Whether the first dimension is the samples, or divides evenly among them; not in what is being compiled."""
        if torch.compiler.is_compiling() or not self._pieces or isinstance(tensor, nn.Parameter):
            return False
        return tensor.dim() > 0 and len(tensor) > 0 and len(tensor) % self._n_samples == 0

    def _mask(self, like: Tensor, p: float) -> Tensor:
        """Return a mask of factors: 0 with probability `p`, else 1 / (1 - p)."""
        seed = int(torch.randint(SEED_MAX, ()))
        self.n_draws += 1
        if self._generator.device != like.device:
            self._generator = torch.Generator(like.device)
        mask = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        n_rows_each = len(like) // self._n_samples
        first = 0
        for piece in self._pieces:
            n_rows = len(piece.places) * n_rows_each
            self._generator.manual_seed(mixed(seed, piece.virtual_rank, piece.i_piece))
            draw(mask[first : first + n_rows], 1 - p, self._generator)
            first += n_rows
        return mask.div_(1 - p)


def draw(mask: Tensor, p: float, generator: torch.Generator) -> None:
    """Fill `mask`, which is contiguous, with ones with probability `p`, else zeros.

    On a CPU torch draws number by number; here each draw of 64 bits makes two, which takes a third of the time.
    """
    if mask.device.type != "cpu":
        mask.bernoulli_(p, generator=generator)
        return
    bits = torch.empty((mask.numel() + 1) // 2, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    below = min(round(p * 2**32) - 2**31, 2**31 - 1)
    torch.lt(bits.view(torch.int32)[: mask.numel()].view(mask.shape), below, out=mask)
