"""Loss curves as inverse powers of a line (Optimus fits the first power), with an interval that covers other curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import NormalDist, median

import numpy as np
from numpy.typing import NDArray

from punctual.core.errors import InvalidSpec
from punctual.core.loss import LossGoal, SeenLoss, StepsLeft

Array = NDArray[np.float64]

_N_POINTS_LEAST = 4
#: Shares of the least loss seen that are considered as the loss in the limit.
_LIMIT_SHARES = (*(i / 20 for i in range(20)), 0.98)
#: Standard normal quantiles that stand for the curves of one limit.
_QUANTILES = np.array([NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9)])


@dataclass(frozen=True, slots=True)
class InversePowerState:
    """Losses so far, in order of steps; long histories are thinned by averaging pairs."""

    points: tuple[SeenLoss, ...] = ()


@dataclass(frozen=True, slots=True)
class _Curve:
    """A curve ``(slope k + offset)^-exponent + limit``, in shares of the largest loss, and its fit."""

    exponent: float
    slope: float
    offset: float
    limit: float
    covariance: Array
    residuals: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class InversePower:
    """Steps left until the loss reaches a goal, or hardly falls.

    Use it for jobs that declare a goal instead of a number of steps. The interval matters as much as the estimate: far
    from the goal it is wide, and a policy that plans with its upper end is late less often.

    Parameters
    ----------
    n_neighbours
        A loss below all of the next so many, or above all of the last so many, is replaced by its neighbours' mean.
    widen
        Exponent of the widening: if the job has done a share s of the steps until the goal, both ends of the interval
        are moved to at least a factor ``s^widen`` from the estimate.
    exponents
        Exponents that are considered; ``(1.0,)`` is the source's curve.
    n_points_max
        Number of points above which neighbours are averaged.

    Notes
    -----
    *Formula.* ``loss(k) = (b0 k + b1)^-a + b2``, all zero or above, of losses divided by the largest.

    *Source.* [optimus2018], with a = 1.

    *Differs.* (1) a and b2 are no single values: each pair on a grid counts by how well its curve fits. (2) Residuals that
    resemble their predecessors count as fewer. (3) The interval, and its widening for other curves than this.

    *Properties.* Deterministic; a query is one small linear fit for each of 84 pairs, some milliseconds.

    *Fails when* the loss falls in stages, as after a change of the learning rate.
    """

    n_neighbours: int = 3
    widen: float = 0.35
    exponents: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    n_points_max: int = 400

    def __post_init__(self) -> None:
        if self.n_neighbours < 1 or self.widen < 0 or self.n_points_max < 2 * _N_POINTS_LEAST:
            raise InvalidSpec(
                "`n_neighbours` must be at least 1, `widen` not negative, `n_points_max` at least 8",
                f"{self.n_neighbours}, {self.widen}, {self.n_points_max}", "inverse-power",
                "Leave out what you have no reason to set.",
            )  # fmt: skip
        if not self.exponents or not all(isfinite(one) and one > 0 for one in self.exponents):
            raise InvalidSpec(
                "`exponents` must be finite and above zero", str(self.exponents), "inverse-power", "Give one or more.",
            )  # fmt: skip

    def init(self) -> InversePowerState:
        """Return the state without losses."""
        return InversePowerState()

    def update(self, state: InversePowerState, seen: SeenLoss) -> InversePowerState:
        """Add one loss. An invalid number is left out; an earlier step replaces all from there on."""
        if not (isfinite(seen.loss) and isfinite(seen.steps) and seen.steps >= 0):
            return state
        points = (*(point for point in state.points if point.steps < seen.steps), seen)
        return InversePowerState(_thinned(points) if len(points) > self.n_points_max else points)

    def steps_left(self, state: InversePowerState, goal: LossGoal) -> StepsLeft:
        """Steps from the last loss seen until `goal`."""
        if len(state.points) < _N_POINTS_LEAST:
            return StepsLeft(inf, 0.0, inf, "too-few-points")
        largest = max(point.loss for point in state.points)
        # One low batch is no arrival.
        if goal.target is not None and median(point.loss for point in state.points[-3:]) <= goal.target:
            return StepsLeft(0.0, 0.0, 0.0, "ok")
        if min(point.loss for point in state.points) <= 0:
            return StepsLeft(inf, 0.0, inf, "failed")
        steps = np.array([point.steps for point in state.points])
        losses = without_outliers([point.loss / largest for point in state.points], self.n_neighbours)
        with np.errstate(all="ignore"):
            curves = [
                _fitted(steps, losses, exponent, share * min(losses))
                for exponent in self.exponents
                for share in _LIMIT_SHARES
            ]
            return self._estimate([curve for curve in curves if curve is not None], steps, goal, largest)

    def _estimate(self, curves: list[_Curve], steps: Array, goal: LossGoal, largest: float) -> StepsLeft:
        if not curves:
            return StepsLeft(inf, 0.0, inf, "failed")
        weights, spread = _weighed(curves)
        draws = [_ends(curve, spread, goal, largest) for curve in curves]
        ends = np.nan_to_num(np.concatenate(draws), nan=inf, posinf=inf)
        least, expected, most = _quantiles(ends, np.repeat(weights / len(_QUANTILES), len(_QUANTILES)))
        now = float(steps[-1])
        if not isfinite(expected):
            return StepsLeft(inf, max(0.0, least - now) if isfinite(least) else inf, inf, "never")
        # The family of curves is a guess: the farther it is carried, the less the fit's own interval says.
        factor = max(1.0, expected / max(now, 1.0)) ** self.widen
        return StepsLeft(
            expected=max(0.0, expected - now),
            least=max(0.0, min(least, expected / factor) - now),
            most=max(0.0, max(most, expected * factor) - now),
            status="ok",
        )


def without_outliers(losses: Sequence[float], n_neighbours: int) -> list[float]:
    """`losses`, each that is below all of the next few or above all of the last few replaced by its neighbours' mean."""
    cleaned = list(losses)
    for i in range(1, len(cleaned) - 1):
        least = min(losses[i + 1 : i + 1 + n_neighbours])
        most = max(cleaned[max(0, i - n_neighbours) : i])
        if not least <= cleaned[i] <= most:
            cleaned[i] = 0.5 * (cleaned[i - 1] + losses[i + 1])
    return cleaned


def _thinned(points: tuple[SeenLoss, ...]) -> tuple[SeenLoss, ...]:
    """Return the averages of neighbouring pairs, and the last point, which is the present."""
    older = points[:-1]
    pairs = zip(older[::2], older[1::2], strict=False)
    return (*(SeenLoss(0.5 * (a.steps + b.steps), 0.5 * (a.loss + b.loss)) for a, b in pairs), points[-1])


def _fitted(steps: Array, losses: Sequence[float], exponent: float, limit: float) -> _Curve | None:
    """Fit a line to the losses above `limit`, to the power -1/`exponent`, weighted by errors of the losses."""
    above = np.asarray(losses) - limit
    if above.min() <= 0:
        return None
    line = above ** (-1 / exponent)
    # Error of the loss for a small error of the line.
    weight = exponent * above / line
    design = np.stack([steps, np.ones_like(steps)], axis=1) * weight[:, None]
    normal = design.T @ design
    if not np.linalg.det(normal) > 0:
        return None
    slope, offset = _non_negative(normal, design.T @ (line * weight))
    if not (isfinite(slope) and slope > 0):
        return None
    residuals = above - (slope * steps + offset) ** -exponent
    if not np.isfinite(residuals).all():
        return None
    return _Curve(exponent, slope, offset, limit, np.asarray(np.linalg.inv(normal)), np.asarray(residuals))


def _non_negative(normal: Array, right: Array) -> tuple[float, float]:
    """Slope and offset of the normal equations, neither below zero (an offset of zero has an infinite loss at 0)."""
    slope, offset = np.linalg.solve(normal, right)
    if offset < 0:
        return float(right[0] / normal[0, 0]), 1e-9
    return float(slope), float(offset)


def _weighed(curves: list[_Curve]) -> tuple[Array, float]:
    """Probability of each curve, and the variance of one independent residual."""
    squares = np.array([float(curve.residuals @ curve.residuals) for curve in curves])
    best = curves[int(np.argmin(squares))].residuals
    n_points = len(best)
    alike = float(best[1:] @ best[:-1]) / max(float(best @ best), 1e-300)
    share = (1 - min(max(alike, 0.0), 0.95)) / (1 + min(max(alike, 0.0), 0.95))
    variance = max(squares.min() / max(1, n_points - 3), 1e-12)
    # Half of what independent residuals would say: none of the curves is the true one.
    log_weights = -0.25 * share * (squares - squares.min()) / variance
    weights = np.exp(log_weights)
    return weights / weights.sum(), variance / share


def _ends(curve: _Curve, spread: float, goal: LossGoal, largest: float) -> Array:
    """Steps at which draws of the curve, its line moved by its standard error, reach the goal."""
    line, moves = _goal_line(curve, goal, largest)
    if not isfinite(line):
        return np.full(len(_QUANTILES), inf)
    end = (line - curve.offset) / curve.slope
    gradient = np.array([(moves - end) / curve.slope, -1 / curve.slope])
    std = sqrt(max(0.0, spread * float(gradient @ curve.covariance @ gradient)))
    extra_steps = (goal.n_epochs - 1) * goal.epoch_steps if goal.target is None else 0.0
    ends: Array = std * _QUANTILES + max(0.0, end) + extra_steps
    return ends


def _goal_line(curve: _Curve, goal: LossGoal, largest: float) -> tuple[float, float]:
    """Height of the line where the goal is reached, infinite if it never is, and how it moves with the slope."""
    if goal.target is not None:
        above = goal.target / largest - curve.limit
        return (above ** (-1 / curve.exponent) if above > 0 else inf), 0.0
    # The drop of an epoch is the slope in its middle: exponent * slope * line^(-exponent - 1).
    drop_per_step = (goal.drop or 0.0) / largest / goal.epoch_steps
    middle = (curve.exponent * curve.slope / drop_per_step) ** (1 / (curve.exponent + 1))
    return middle + 0.5 * curve.slope * goal.epoch_steps, middle / curve.slope / (curve.exponent + 1)


def _quantiles(values: Array, weights: Array) -> tuple[float, float, float]:
    """The 2nd, 50th and 98th percentile of weighted values."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    picked = [values[order[min(int(np.searchsorted(below, share)), len(values) - 1)]] for share in (0.02, 0.5, 0.98)]
    return float(picked[0]), float(picked[1]), float(picked[2])
