"""Amdahl's law over CPU cores, fractions of one included, or over workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import ClassVar

import numpy as np

from punctual.core.speed import Shape
from punctual.estimators.speed._base import Point
from punctual.estimators.speed._fitted import FittedModel, ModelTerms
from punctual.estimators.speed._regression import Place, Prior


@dataclass(frozen=True, slots=True, kw_only=True)
class Amdahl(FittedModel):
    """Speed of a job of which one part is divided among cores or workers and the other is not.

    Use it for training on CPUs under quotas and core counts, and for workers where communication hardly costs. More
    cores never make a job slower here; where they do, take `all-reduce`.

    Parameters
    ----------
    noise_frac, smooth_frac, own_frac, memory_s
        See `FittedModel`.

    Notes
    -----
    *Symbols.* x: the cores, or the number of workers of a job made of workers.

    *Formula.* Seconds a step ``s / min(x, 1) + q_k / x``, both zero or above, q of each kind k of device. Less than
    one core slows the serial part as well. Times a smooth factor near 1.

    *Prior.* Half-normal: q as large as the least x·t seen, s half of the least t, so that one point predicts mostly
    perfect scaling.

    *Fails when* memory bandwidth or a queue in front of the accelerator is what saturates: the bend is sharper then.
    """

    registered_name: ClassVar[str] = "amdahl"

    own_frac: float = 0.04

    def terms(self, basis: ModelTerms, shape: Shape) -> list[float]:
        """The serial part, then the parallel part of each kind of device."""
        x = _amount(shape, by_workers=basis.by_workers)
        return [1 / min(x, 1.0), *(1 / x if kind == shape.device else 0.0 for kind in basis.kinds)]

    def prior(self, basis: ModelTerms, points: tuple[Point, ...]) -> Prior:
        """Sizes of both parts, from the times that were seen."""
        step_s = min(1 / point.rate_sps for point in points)
        core_s = [
            min(
                _amount(point.shape, by_workers=basis.by_workers) / point.rate_sps
                for point in points
                if point.shape.device == kind
            )
            for kind in basis.kinds
        ]
        return Prior(
            # Prior sizes of the serial and the parallel part, over the least seen of time and of core-seconds a step.
            scale=np.array([0.5 * step_s, *(1.5 * one for one in core_s)]),
            # Least share of either that the parallel part is believed to take.
            least=np.array([0.0, *(0.05 * one for one in core_s)]),
        )

    def place(self, shape: Shape) -> Place:
        """Coordinates of a shape: shapes are near if both their cores and their workers are."""
        return shape.device, (log2(_cores(shape)), log2(shape.n_workers))

    def distance(self, coordinates: Sequence[float], others: Sequence[float]) -> float:
        """Distance of two shapes: that of their cores or of their workers, whichever is larger."""
        return max(abs(own - other) for own, other in zip(coordinates, others, strict=True))


def _amount(shape: Shape, *, by_workers: bool) -> float:
    return float(shape.n_workers) if by_workers or shape.cores <= 0 else _cores(shape)


def _cores(shape: Shape) -> float:
    """Return the shape's cores, not below a tiny minimum; a shape without cores counts its workers."""
    return max(shape.cores, 1e-4) if shape.cores > 0 else float(shape.n_workers)
