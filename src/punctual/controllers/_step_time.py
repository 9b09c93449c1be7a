"""Seconds of a step by number of workers: measurements, and predictions for numbers that were never held.

The logarithm of a step's seconds is a *level*, which drifts with the machine and is common to all numbers, and an
*offset* of each number, which stays. A scalar Kalman gain splits an unexpected part between the two: after a change
of the number the offset is the least known and takes nearly all, later the level does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf, log, log2, sqrt

from punctual.controllers._cost import ELSEWHERE_FRAC, STEP_NOISE_FRAC, SlowMean, drifted, reverting, surprise_of

#: Standard deviation of what all steps of a sample share, as a share of a step's time.
SAMPLE_NOISE_FRAC = 0.01
#: Random walk of the level per second, as a share.
DRIFT_FRAC = 0.012
#: Standard deviation of the level around its slow mean until it is known.
_FIRST_SPREAD_FRAC = 0.05
#: Error of an extrapolation for each doubling: from one number alone, from two or more, by a fitted model.
ALONE_FRAC, ALONG_FRAC, MODEL_FRAC = 0.2, 0.08, 0.04
#: Share of a step that more workers do not shorten, believed until a second number was held.
UNDIVIDED_FRAC = 0.2
#: Share of the undivided part, as two numbers of workers show it, that is assumed not to be communication among workers.
PEER_FRAC = 0.87

#: Seconds a step with so many workers, and their relative standard deviation, by a performance model; None: unknown.
Model = Callable[[int], tuple[float, float] | None]


@dataclass(frozen=True, slots=True)
class Offset:
    """Logarithm of a number's step time relative to the first number's, and its variance."""

    log_frac: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime(SlowMean):
    """Belief about step times; the slow mean is that of the level.

    Attributes
    ----------
    level, variance
        Logarithm of a step's seconds with the first number of workers, now.
    surprise
        Sign of the last innovation if it was beyond `SURPRISE_SIGMAS`, otherwise 0.
    offsets
        Offset of each number that was held.
    """

    level: float
    variance: float
    surprise: int = 0
    offsets: Mapping[int, Offset] = field(default_factory=dict)

    def now_s(self, n_workers: int) -> float:
        """Seconds a step now, with a number that was held."""
        offset = self.offsets.get(n_workers)
        return _exp(self.level + (offset.log_frac if offset else 0.0))

    def forecast(self, horizon_s: float) -> float:
        """Mean level over that time."""
        return reverting(self.level, self.mean, horizon_s)


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed with one number of workers.

    Attributes
    ----------
    step_s
        Seconds a step, expected.
    slow_step_s
        The same if the present disturbance lasts.
    std_frac
        Its relative standard deviation.
    bound_s
        No more than this, since fewer workers waste no more of their time than many do; infinite: nothing is known.
    is_seen
        Whether it was measured.
    error_frac
        Relative standard deviation of the steps' time, with the uncertainty of the slow mean.
    """

    step_s: float
    slow_step_s: float
    std_frac: float
    bound_s: float
    is_seen: bool
    error_frac: float = 0.0

    def safe_s(self, sigmas: float) -> float:
        """Seconds a step that are exceeded only by more than `sigmas` standard deviations."""
        return min(self.step_s * exp(sigmas * self.std_frac), self.bound_s)


def first(n_workers: int, sample_s: float, n_steps: float, over_s: float) -> StepTime:
    """The belief after the first sample: `sample_s` seconds a step over `n_steps` steps, `over_s` seconds."""
    level = log(sample_s)
    variance = 0.03**2 + STEP_NOISE_FRAC**2 / max(n_steps, 1.0)
    offsets = {n_workers: Offset(0.0, 0.0)}
    return StepTime(
        level=level, variance=variance, mean=level, spread=_FIRST_SPREAD_FRAC, seen_s=over_s, offsets=offsets
    )


def updated(belief: StepTime, n_workers: int, sample_s: float, n_steps: float, over_s: float, model: Model) -> StepTime:
    """Return the belief after one more sample; `model` predicts a number that is held for the first time."""
    offset = _offset(belief, n_workers, model)
    level_variance = belief.variance + DRIFT_FRAC**2 * over_s
    noise = STEP_NOISE_FRAC**2 / max(n_steps, 1.0) + SAMPLE_NOISE_FRAC**2
    innovation = log(sample_s) - belief.level - offset.log_frac
    surprise = surprise_of(innovation, level_variance + offset.variance + noise)
    changed = surprise != 0 and surprise == belief.surprise
    if changed:
        level_variance = 0.5**2
    total = level_variance + offset.variance + noise
    level = belief.level + level_variance / total * innovation
    learned = Offset(
        offset.log_frac + offset.variance / total * innovation, offset.variance * (1.0 - offset.variance / total)
    )
    return replace(
        drifted(belief, level - belief.mean, level - belief.mean, over_s),
        level=level,
        variance=level_variance * (1.0 - level_variance / total),
        surprise=0 if changed else surprise,
        offsets={**belief.offsets, n_workers: learned},
    )


def elsewhere(belief: StepTime) -> StepTime:
    """Return the belief for an unseen kind of machine: it keeps the ratios of numbers, and little of the level."""
    return replace(belief, variance=ELSEWHERE_FRAC**2, seen_s=0.0, surprise=0)


def speeds(belief: StepTime, counts: tuple[int, ...], horizon_s: float, model: Model) -> dict[int, Speed]:
    """Return the expected speed with each number in `counts` over the next `horizon_s` seconds."""
    level, risk_frac = belief.forecast(horizon_s), sqrt(belief.risk_frac(horizon_s) ** 2 + belief.variance)
    offsets = {n: _offset(belief, n, model) for n in {*counts, *belief.offsets}}
    made = {}
    for n in counts:
        more = min((m for m in belief.offsets if m > n), default=None)
        bound_s = inf
        if more is not None and n not in belief.offsets:
            bound_s = _exp(level + offsets[more].log_frac + risk_frac) * more / n
        made[n] = Speed(
            step_s=_exp(level + offsets[n].log_frac),
            slow_step_s=_exp(max(level, belief.level) + offsets[n].log_frac),
            std_frac=sqrt(risk_frac**2 + offsets[n].variance),
            bound_s=bound_s,
            is_seen=n in belief.offsets,
            error_frac=sqrt(belief.error_frac(horizon_s) ** 2 + belief.variance + offsets[n].variance),
        )
    return made


def _offset(belief: StepTime, n: int, model: Model) -> Offset:
    """Measured, or from the nearest numbers that were."""
    if n in belief.offsets:
        return belief.offsets[n]
    nearest = sorted(belief.offsets, key=lambda m: (abs(log2(m / n)), m))[:2]
    log_frac, frac = _along(belief, n, nearest)
    modelled = _by_model(belief, n, nearest, model)
    if modelled is not None:  # two opinions, the surer of them counting for more; they rest on the same measurements
        share = frac**2 / (frac**2 + modelled[1] ** 2)
        log_frac, frac = log_frac + share * (modelled[0] - log_frac), min(frac, modelled[1])
    log_frac = _within_perfect_scaling(belief, n, log_frac)
    return Offset(log_frac, belief.offsets[nearest[0]].variance + frac**2)


def _by_model(belief: StepTime, n: int, nearest: list[int], model: Model) -> tuple[float, float] | None:
    """Return the model's time, corrected at the nearest numbers held, and its relative error."""
    mine = model(n)
    if mine is None or not 0.0 < mine[0] < inf:
        return None
    corrections = []
    for m in nearest:
        other = model(m)
        if other is not None and 0.0 < other[0] < inf:
            corrections.append((1.0 / abs(log2(m / n)), belief.offsets[m].log_frac - log(other[0])))
    if not corrections:
        return None
    weight = sum(one for one, _ in corrections)
    correction = sum(one * each for one, each in corrections) / weight
    return log(mine[0]) + correction, max(mine[1], MODEL_FRAC * abs(log2(nearest[0] / n)))


def _along(belief: StepTime, n: int, nearest: list[int]) -> tuple[float, float]:
    """Return the value and error on a curve undivided + divided / n through the nearest numbers, both parts ≥ 0."""
    one, doublings = nearest[0], abs(log2(nearest[0] / n))
    one_s = _exp(belief.offsets[one].log_frac)
    undivided_s, frac = UNDIVIDED_FRAC * one_s, ALONE_FRAC * doublings
    if len(nearest) > 1:
        other, other_s = nearest[1], _exp(belief.offsets[nearest[1]].log_frac)
        divided_s = max(0.0, (one_s - other_s) / (1.0 / one - 1.0 / other))
        undivided_s, frac = max(0.0, one_s - divided_s / one), ALONG_FRAC * doublings
        if not min(one, other) < n < max(one, other):
            undivided_s *= PEER_FRAC
    return log(undivided_s + (one_s - undivided_s) * one / n), frac


def _within_perfect_scaling(belief: StepTime, n: int, log_frac: float) -> float:
    """A step never takes fewer worker-seconds with more workers: bounded by the nearest measured on either side."""
    fewer = max((m for m in belief.offsets if m < n), default=None)
    more = min((m for m in belief.offsets if m > n), default=None)
    if fewer is not None:
        log_frac = max(log_frac, belief.offsets[fewer].log_frac + log(fewer / n))
    if more is not None:
        log_frac = min(log_frac, belief.offsets[more].log_frac + log(more / n))
    return log_frac


def _exp(power: float) -> float:
    """Return the exponential, bounded: a torn report may contain any number."""
    return exp(min(max(power, -600.0), 600.0))
