"""Training with parameter servers, in the two forms of Optimus."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Any, ClassVar

import numpy as np

from punctual.core.speed import Shape
from punctual.estimators.speed._base import Point
from punctual.estimators.speed._fitted import FittedModel, FittedState, ModelTerms, known_kinds
from punctual.estimators.speed._regression import Array, Place, Prior

#: Prior size of each term where it is largest among the points, over the time of a step there: compute, what stays the
#: same, what the link between workers and servers takes, and overheads that grow with workers and with servers.
_COMPUTE_SIZE = 2.0
_OTHER_SIZES_SYNCHRONOUS = (1.0, 0.5, 0.2, 0.2)
_OTHER_SIZES_ASYNCHRONOUS = (0.5, 0.2, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer(FittedModel):
    """Speed of a job whose workers push gradients to servers and pull parameters from them.

    Use it for the parameter-server architecture. A shape without servers is taken to have one beside each worker.

    Formula, properties and differences: `docs/explanation/models/parameter-server.md`.

    Parameters
    ----------
    synchronous
        Whether all workers wait for each other at every step.
    noise_frac, smooth_frac, own_frac, memory_s
        See `FittedModel`.
    """

    synchronous: bool = True
    registered_name: ClassVar[str] = "parameter-server"

    own_frac: float = 0.05

    def served_sps(self, state: FittedState, n_workers: Sequence[int], n_servers: Sequence[int], device: str) -> Array:
        """`rate_sps` with each of these numbers of workers (rows) and of servers, shape (n_workers, n_servers)."""
        w, p = np.array(n_workers, dtype=np.float64)[:, None], np.array(n_servers, dtype=np.float64)
        rates = [self._served_on(state, w, p, kind) for kind in known_kinds(state, device)]
        return np.min(rates, axis=0) if rates else np.zeros((len(n_workers), len(n_servers)))

    def terms(self, basis: ModelTerms, shape: Shape) -> list[float]:
        """Return the formula's terms; the first, computation, for each kind of device."""
        return self._terms(basis, float(shape.n_workers), float(_n_servers(shape)), shape.device)

    def _terms(self, basis: ModelTerms, w: Any, p: Any, device: str) -> list[Any]:
        """The terms of one shape, or of many: the numbers may be arrays."""
        compute = [1 / w if kind == device else 0.0 for kind in basis.kinds]
        return [*compute, 1.0, w / p, w, p] if self.synchronous else [*compute, 1 / p, 1.0, p / w]

    def _served_on(self, state: FittedState, w: Array, p: Array, kind: str) -> Array:
        if state.fit is None:
            return np.zeros((len(w), len(p)))
        points = [
            (*at, weight)
            for (device, at), weight in zip(state.fit.places, state.fit.misfit_weights, strict=True)
            if device == kind
        ]
        doublings_w, doublings_p, weights = np.array(points).reshape(-1, 3).T
        across, along = np.log2(w) - doublings_w, np.log2(p)[:, None] - doublings_p
        # The nearness of two shapes is a product, because the squares of their distances add up.
        smooth = (weights * np.exp(-0.5 * across**2)) @ np.exp(-0.5 * along**2).T
        own = (weights * (across == 0)) @ (along == 0).T
        return state.fit.rates_sps(
            self._terms(state.basis, w, p, kind), self.smooth_frac**2 * smooth + self.own_frac**2 * own
        )

    def prior(self, basis: ModelTerms, points: tuple[Point, ...]) -> Prior:
        """Any term may be most of a step, but compute is the first to be believed."""
        shares = np.array([self.terms(basis, point.shape) for point in points]) * np.array(
            [[point.rate_sps] for point in points]
        )
        others = _OTHER_SIZES_SYNCHRONOUS if self.synchronous else _OTHER_SIZES_ASYNCHRONOUS
        sizes = np.array([_COMPUTE_SIZE] * len(basis.kinds) + list(others))
        return Prior(scale=sizes / shares.max(axis=0), least=np.zeros(len(sizes)))

    def place(self, shape: Shape) -> Place:
        """Shapes are near if their numbers of workers and of servers are."""
        return shape.device, (log2(shape.n_workers), log2(_n_servers(shape)))


def _n_servers(shape: Shape) -> int:
    return shape.n_servers if shape.n_servers > 0 else shape.n_workers
