"""Fit the time of a step as a sum of non-negative terms, with priors and a model of the misfit.

Shared by the models whose time of a step is linear in its unknowns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from punctual.estimators.speed._base import Point

Array = NDArray[np.float64]

#: Place of a shape among others: its kind of device, and coordinates in doublings, which give distances.
Place = tuple[str, tuple[float, ...]]
#: Covariance of the relative misfit in two shapes: what the terms leave unexplained, without measurement noise.
Kernel = Callable[[Place, Place], float]

#: Points that contradict each other grossly must not carry the correction out of the range of numbers.
_MISFIT_MOST = 50.0


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior of each term's coefficient, before any measurement: non-negative, of this size.

    Attributes
    ----------
    scale
        Standard deviation of each coefficient, seconds; shape (n_terms,).
    least
        Smallest value of each, seconds; shape (n_terms,).
    """

    scale: Array
    least: Array


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """A fit; its arrays are read-only. The few values that every rate needs are plain numbers.

    Attributes
    ----------
    seconds
        The coefficients, seconds; shape (n_terms,).
    covariance
        Covariance of the coefficients, seconds squared; shape (n_terms, n_terms).
    places
        Places of the measured shapes; n_points.
    precision
        Inverse of the points' covariance, misfit and noise, relative; shape (n_points, n_points).
    relative_terms
        Terms of the points over their measured times; shape (n_points, n_terms).
    misfit_weights
        `precision` times the points' logarithmic misfit; shape (n_points,).
    spread
        Factor on all variances: above one where the points lie farther from the fit than was believed.
    """

    seconds: tuple[float, ...]
    covariance: Array
    places: tuple[Place, ...]
    precision: Array
    relative_terms: Array
    misfit_weights: tuple[float, ...]
    spread: float

    def time_s(self, terms: Sequence[float], place: Place, kernel: Kernel) -> float:
        """Seconds a step in a shape at `place`: the terms, corrected by the misfit of the points near it."""
        misfit = _dot([kernel(place, other) for other in self.places], self.misfit_weights)
        time_s: float = _dot(terms, self.seconds) * exp(min(max(misfit, -_MISFIT_MOST), _MISFIT_MOST))
        return time_s

    def rates_sps(self, terms: Sequence[Any], misfit: Array) -> Array:
        """Return steps per second in many shapes; each term is an array or one number. 0 where the rate is invalid."""
        with np.errstate(all="ignore"):
            times_s = _dot(terms, self.seconds) * np.exp(np.clip(misfit, -_MISFIT_MOST, _MISFIT_MOST))
            return np.where(np.isfinite(times_s) & (times_s > 0), 1.0 / times_s, 0.0)

    def std_frac(self, terms: Sequence[float], place: Place, kernel: Kernel) -> float:
        """Standard deviation of `time_s`, relative to it."""
        nearness = np.array([kernel(place, other) for other in self.places])
        weights = self.precision @ nearness
        unexplained = kernel(place, place) - nearness @ weights
        gradient = np.asarray(terms) / np.dot(terms, self.seconds) - weights @ self.relative_terms
        variance = unexplained + gradient @ self.covariance @ gradient
        return float(np.sqrt(self.spread * max(0.0, variance)))


def fit(
    terms: Sequence[Sequence[float]], places: Sequence[Place], points: Sequence[Point], prior: Prior, kernel: Kernel, *,
    noise_frac: float, belief: float = 3.0,
) -> Regression | None:  # fmt: skip
    """Return the most probable non-negative coefficients; None if the numbers admit none.

    Parameters
    ----------
    terms, places
        Terms and place of each point; shape (n_points, n_terms), and (n_points,).
    noise_frac
        Standard deviation of one report of a rate, relative.
    belief
        Number of points as which the assumed size of misfit and noise counts.

    Notes
    -----
    With f the rates, X the terms, K the kernel, N the noise and D the prior's scale, minimises
    ``(1 - f X b)' (K + N)^-1 (1 - f X b) + |b / D|^2`` over ``b >= least``: a time's relative error is linear in the
    coefficients, so this is one non-negative least-squares problem. The covariance ignores that coefficients are
    bounded, which makes it too large rather than too small.
    """
    try:
        with np.errstate(all="ignore"):
            found = _solve(np.array(terms), tuple(places), points, prior, kernel, noise_frac, belief)
    except (np.linalg.LinAlgError, RuntimeError, ValueError):
        return None
    return found if _is_finite(found) else None


def _solve(
    terms: Array, places: tuple[Place, ...], points: Sequence[Point], prior: Prior, kernel: Kernel, noise_frac: float,
    belief: float,
) -> Regression:  # fmt: skip
    rates = np.array([point.rate_sps for point in points])
    covariance = np.array([[kernel(one, other) for other in places] for one in places])
    noise = np.diag([noise_frac**2 / point.n_seen for point in points])
    whiten = np.linalg.inv(np.linalg.cholesky(covariance + noise))
    relative_terms = terms * rates[:, None]
    system = np.vstack([whiten @ relative_terms * prior.scale, np.eye(len(prior.scale))])
    least = prior.least / prior.scale
    target = np.concatenate([whiten.sum(axis=1), np.zeros(len(prior.scale))])
    from scipy.optimize import nnls  # costs the CPU time of a whole command: checking a job must not import it

    scaled, _ = nnls(system, target - system @ least)
    seconds = (scaled + least) * prior.scale
    misfit = -np.log(relative_terms @ seconds)
    whitened = whiten @ misfit
    return Regression(
        seconds=tuple(seconds.tolist()),
        covariance=_frozen(np.linalg.inv(system.T @ system) * np.outer(prior.scale, prior.scale)),
        places=places,
        precision=_frozen(whiten.T @ whiten),
        relative_terms=_frozen(relative_terms),
        misfit_weights=tuple((whiten.T @ whitened).tolist()),
        spread=float((belief + whitened @ whitened) / (belief + len(points))),
    )


def _dot(numbers: Sequence[Any], weights: Sequence[float]) -> Any:
    return sum([number * weight for number, weight in zip(numbers, weights, strict=True)])


def _frozen(numbers: Any) -> Array:
    array: Array = np.asarray(numbers, dtype=np.float64)
    array.setflags(write=False)
    return array


def _is_finite(found: Regression) -> bool:
    arrays = (found.seconds, found.covariance, found.misfit_weights, found.precision)
    return all(bool(np.isfinite(array).all()) for array in arrays)
