"""Synchronous data-parallel training: compute, and an all-reduce inside a node and across nodes."""

from dataclasses import dataclass
from math import log2
from statistics import median
from typing import ClassVar

import numpy as np

from punctual.core.speed import Shape
from punctual.estimators.speed._base import Point
from punctual.estimators.speed._fitted import FittedModel, ModelTerms
from punctual.estimators.speed._regression import Place, Prior

#: Prior size of the terms of a kind of device: work that is divided (over the least worker-seconds a step seen), work
#: that is not (over the median time of a step).
_COMPUTE_SCALES = (1.5, 0.5)
#: Prior sizes of the communication terms, over the median time of a step.
_COMMUNICATION_SCALES = (0.3, 0.5, 0.3, 0.05, 0.03, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(FittedModel):
    """Speed of a job whose workers compute side by side and then exchange gradients with each other.

    Use it for data-parallel training without parameter servers, whether the global batch or the batch of a worker
    stays the same when the number of workers changes. Do not use it where the job's CPU cores decide, as they are not
    looked at.

    Parameters
    ----------
    noise_frac, smooth_frac, own_frac, memory_s
        See `FittedModel`.

    Notes
    -----
    *Formula.* With w workers on n nodes, m = w/n, seconds a step
    ``a_k/w + b_k + c1 [w>1] + c2 [n>1] + c3 [n=1] (m-1)/m + c4 (m-1) + c5 (n-1) + c6 log2 w``, every coefficient
    zero or above, a and b of each kind k of device; several kinds: the slowest. Times a smooth factor near 1.

    *Prior.* Half-normal sizes in units of what was measured: the divided work about the least w·t, the undivided half
    of the median t, the rest less, so that one point predicts mostly perfect scaling with a standard deviation that
    reaches none at all.

    *Source.* Terms as in [pollux2021], made linear; the smooth factor is a Gaussian process on the misfit.

    *Differs.* (1) No exponent of overlap: on measured tables it did not lower the error. (2) Contention inside a node
    and latency by tree and ring are terms of their own.

    *Properties.* Deterministic; an update costs one least-squares problem of ``6 + 2 n_kinds`` unknowns.

    *Fails when* the speed is not monotone in nodes (two nodes slower than three), or when the placement inside the
    nodes is uneven: a shape does not say how uneven.
    """

    registered_name: ClassVar[str] = "all-reduce"

    def terms(self, basis: ModelTerms, shape: Shape) -> list[float]:
        """The formula's terms: divided and undivided work of each kind of device, then the communication."""
        w, n = float(shape.n_workers), float(min(shape.n_nodes, shape.n_workers))
        m = w / n
        compute = [part for kind in basis.kinds for part in ((1 / w, 1.0) if kind == shape.device else (0.0, 0.0))]
        return [*compute, float(w > 1), float(n > 1), (m - 1) / m if n == 1 else 0.0, m - 1, n - 1, log2(w)]

    def prior(self, basis: ModelTerms, points: tuple[Point, ...]) -> Prior:
        """Sizes of the coefficients, from the times that were seen."""
        scale, least = [], []
        for kind in basis.kinds:
            here = [point for point in points if point.shape.device == kind]
            worker_s = min(point.shape.n_workers / point.rate_sps for point in here)
            scale += [_COMPUTE_SCALES[0] * worker_s, _COMPUTE_SCALES[1] * median(1 / point.rate_sps for point in here)]
            # Least share of a step that each of the two kinds of compute is believed to take.
            least += [0.1 * worker_s, 0.1 * min(1 / point.rate_sps for point in here)]
        step_s = median(1 / point.rate_sps for point in points)
        return Prior(
            scale=np.array([*scale, *(size * step_s for size in _COMMUNICATION_SCALES)]),
            least=np.array([*least, *(0.0 for _ in _COMMUNICATION_SCALES)]),
        )

    def place(self, shape: Shape) -> Place:
        """Shapes are near if their numbers of workers and of nodes are."""
        return shape.device, (log2(shape.n_workers), log2(shape.n_nodes))
