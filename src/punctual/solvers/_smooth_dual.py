"""Multipliers of a vector knapsack by Newton's method on a smoothed Lagrangian bound."""

from dataclasses import dataclass
from math import inf

import numpy as np

from punctual.solvers.solution import FloatArray

#: The temperature of the smoothing falls by this factor from stage to stage.
_COOLING = 6.0
_N_STAGES = 6
_N_STEPS_MAX = 12
_N_HALVINGS_MAX = 12
#: A step is taken if it brings this share of what the gradient promises.
_SUFFICIENT_FRAC = 1e-4
#: Added to the second derivative, in units of resource over the worth of all jobs.
_DAMPING = 1e-2
#: A stage ends when no resource is over- or underused by more than this share of its capacity.
_BALANCE_FRAC = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class _DualPoint:
    """The smoothed bound at some multipliers, and the fractional choice that belongs to it."""

    multipliers: FloatArray
    smooth: float
    weights: FloatArray

    def is_balanced(self, gradient: FloatArray) -> bool:
        """Whether no resource is overused, and none that has a price is underused."""
        wanted = np.where(self.multipliers > 0, np.abs(gradient), np.maximum(-gradient, 0.0))
        return bool((wanted <= _BALANCE_FRAC).all())


class SmoothDual:
    """Minimises the bound over multipliers that are not negative; the capacity of each resource is 1.

    Parameters
    ----------
    share
        Shape (n_jobs, n_configurations, n_resources), costs as shares of the capacity.
    value
        Shape (n_jobs, n_configurations); -inf: forbidden; every row has a finite value.

    Attributes
    ----------
    multipliers
        Shape (n_resources,), where the bound was least.
    bound
        The least bound seen.
    weights
        Shape (n_jobs, n_configurations): the fractional choice that the last stage ended with.
    """

    def __init__(self, share: FloatArray, value: FloatArray) -> None:
        self._share = share.reshape(-1, share.shape[2])
        self._value = value
        self.multipliers = np.zeros(share.shape[2])
        self.weights = np.zeros_like(value)
        self.bound = inf
        self._damping = 0.0
        self.n_rounds = 0

    def run(self) -> None:
        """Search."""
        temperature = self._temperature()
        self._damping = _DAMPING / (temperature * len(self._value))
        point = self._at(np.zeros(self._share.shape[1]), temperature)
        for i in range(_N_STAGES):
            if i:
                temperature /= _COOLING
                point = self._at(point.multipliers, temperature)
            point = self._descend(point, temperature)
        self.weights = point.weights

    def _temperature(self) -> float:
        """Return the mean spread of a job's values: at this temperature the smoothed bound is nearly quadratic."""
        least = np.where(self._value > -inf, self._value, inf).min(axis=1)
        return float((self._value.max(axis=1) - least).mean()) or 1.0

    def _descend(self, point: _DualPoint, temperature: float) -> _DualPoint:
        for _ in range(_N_STEPS_MAX):
            gradient, hessian = self._derivatives(point, temperature)
            if point.is_balanced(gradient):
                break
            further = self._line_search(point, gradient, hessian, temperature)
            if further is None:
                break
            point = further
        return point

    def _line_search(
        self, point: _DualPoint, gradient: FloatArray, hessian: FloatArray, temperature: float
    ) -> _DualPoint | None:
        """Return a sufficiently lower point on Newton's step, bent along the axes; None if none is found."""
        step = _newton_step(point.multipliers, gradient, hessian, self._damping)
        for _ in range(_N_HALVINGS_MAX):
            multipliers = np.maximum(point.multipliers + step, 0.0)
            promised = float(gradient @ (point.multipliers - multipliers))
            if promised > 0:
                further = self._at(multipliers, temperature)
                if further.smooth <= point.smooth - _SUFFICIENT_FRAC * promised:
                    return further
            step = step / 2
        return None

    def _at(self, multipliers: FloatArray, temperature: float) -> _DualPoint:
        self.n_rounds += 1
        reduced = self._value - (self._share @ multipliers).reshape(self._value.shape)
        top = reduced.max(axis=1)
        weights = np.exp((reduced - top[:, None]) / temperature)
        totals = weights.sum(axis=1)
        weights /= totals[:, None]
        exact = float(multipliers.sum() + top.sum())
        if exact < self.bound:
            self.bound, self.multipliers = exact, multipliers
        return _DualPoint(multipliers, exact + temperature * float(np.log(totals).sum()), weights)

    def _derivatives(self, point: _DualPoint, temperature: float) -> tuple[FloatArray, FloatArray]:
        """Gradient: capacity less expected usage. Second derivative: the covariance of the usage over temperature."""
        n_resources = self._share.shape[1]
        weighted = self._share * point.weights.reshape(-1, 1)
        means = weighted.reshape(*self._value.shape, n_resources).sum(axis=1)
        hessian = (weighted.T @ self._share - means.T @ means) / temperature
        return 1.0 - means.sum(axis=0), hessian


def _newton_step(multipliers: FloatArray, gradient: FloatArray, hessian: FloatArray, damping: float) -> FloatArray:
    """Newton's step for the multipliers that are not held at zero."""
    free = (multipliers > 0) | (gradient < 0)
    step = np.zeros_like(gradient)
    if not free.any():
        return step
    system = hessian[np.ix_(free, free)]
    # The system is singular without damping once all jobs have decided, or if two resources are proportional.
    ridge = damping + 1e-9 * float(np.trace(system))
    step[free] = -np.linalg.solve(system + ridge * np.eye(len(system)), gradient[free])
    return step
