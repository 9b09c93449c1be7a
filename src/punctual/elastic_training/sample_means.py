"""Whether a loss is a mean over samples: a mean over something else differs by what is in one pass."""

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from torch import Tensor

from punctual.tracking.losses import number

#: For each term of a loss, the weight of an element in it, and that weight times the number of samples.
Weights = Sequence[Sequence[float]]


def weights(loss: Tensor, n_samples: int) -> Weights:
    """Read from the graph how a loss weights what it adds up, in a pass with so many samples."""
    terms: list[float] = []
    ways: list[tuple[Any, int, float]] = [(loss.grad_fn, 0, 1.0)]
    while ways:
        node, i_output, weight = ways.pop()
        if node is None or _n_elements(node, i_output) != 1:
            continue
        own = _own_weight(node)
        if own is not None:
            terms.append(weight * own)
        else:
            factors = _factors(node)
            ways += [(*follower, weight * factors[min(i, 1)]) for i, follower in enumerate(node.next_functions)]
    return [(weight, weight * n_samples) for weight in terms]


def are_alike(passes: Sequence[Weights]) -> bool:
    """Whether passes weight each term alike: its elements, such as those of the model, or its samples."""
    return len({len(terms) for terms in passes}) < 2 and all(
        any(max(column) - min(column) <= 1e-4 * max(map(abs, column)) for column in zip(*term, strict=True))
        for term in zip(*passes, strict=True)
    )


def _n_elements(node: Any, i_output: int = 0) -> int:
    return prod(node._input_metadata[i_output].shape)  # noqa: SLF001 -- torch has no other way to ask


def _own_weight(node: Any) -> float | None:
    """Return the weight that a node gives to each element that it adds up; None: it adds none up."""
    kind, before = node.name(), node.next_functions
    n_elements = _n_elements(*before[0]) if before and before[0][0] is not None else 1
    if hasattr(node, "_saved_reduction"):  # cross-entropy's targets may have weights, or be left out
        n_counted = getattr(node, "_saved_total_weight", n_elements)
        return 1 / (number(n_counted) or inf) if node._saved_reduction == 1 else 1.0  # noqa: SLF001
    if kind.startswith(("MeanBackward", "SumBackward")) and n_elements != 1:
        return 1 / (n_elements or inf) if kind.startswith("Mean") else 1.0
    if kind.startswith(("MulBackward", "DivBackward")):
        return None
    # What is not linear, as a root, depends on its value.
    value = getattr(node, "_saved_result", getattr(node, "_saved_self", None))
    return number(value) if isinstance(value, Tensor) and value.numel() == 1 else None


def _factors(node: Any) -> tuple[float, float]:
    """Return what a node multiplies its two arguments by."""
    kind = node.name()
    if not kind.startswith(("MulBackward", "DivBackward")):
        return 1.0, 1.0
    saved = (getattr(node, name, None) for name in ("_saved_other", "_saved_self"))
    other, first = (1.0 if value is None else number(value) for value in saved)
    return (other, first) if kind.startswith("Mul") else (1 / (other or inf), 1.0)
