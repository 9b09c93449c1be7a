"""The model of layers of [smd2021]: communication that hides behind computation; see layered_model.md."""

from dataclasses import dataclass, field, replace
from math import exp, inf, log, sqrt

from punctual.core.errors import check_above_zero
from punctual.core.job import JobSpec
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed._base import Point, possible, with_seen
from punctual.papers.smd.layers import LayeredServed, LayerTimes, Overlap

#: Factors on the transfers that are considered, logarithmic: from 1/32 to 32 in half doublings.
_LOG_RATIOS = tuple(0.5 * log(2) * i for i in range(-10, 11))
_N_POINTS_MAX = 48


@dataclass(frozen=True, slots=True)
class Belief:
    """Belief about one factor on the transfers, given the points.

    Attributes
    ----------
    scales
        Mean and variance of the logarithm of the factor on all times, by kind of device.
    """

    log_ratio: float
    weight: float  # Its probability.
    scales: dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LayeredState:
    """The model's state of a job. The beliefs follow from the points, so equality ignores them."""

    points: tuple[Point, ...] = ()
    beliefs: tuple[Belief, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """Speed of a job with parameter servers whose layers overlap communication with computing.

    For comparison with `parameter-server`, which needs no times of layers and is ten times cheaper, and for jobs of known
    speed.

    Formula, properties and differences: `docs/explanation/models/layered.md`.

    Parameters
    ----------
    forward_s, backward_s, transfer_s
        Seconds of each layer with one worker and one server, the first layer first; a transfer is one push or one
        pull. All times may be off by a common factor, and the transfers by another one: both are learnt. The default
        says no more than that backward takes twice as long as forward.
    overlap, slice_s, worker_s, server_s
        See `LayeredServed`.
    times_known
        Whether the times hold as they are, until a measurement corrects them; otherwise the rate is unknown until
        then.
    ratio_std, scale_std
        Standard deviation of the natural logarithm of the factor on transfers and, if `times_known`, on all times.
    misfit_frac
        Relative misfit of the formula to measured speeds.
    memory_s
        Seconds for which a measurement counts against a later one of the same shape.
    """

    forward_s: tuple[float, ...] = (1.0,) * 8
    backward_s: tuple[float, ...] = (2.0,) * 8
    transfer_s: tuple[float, ...] = (1.0,) * 8
    overlap: Overlap = "wait-free"
    slice_s: float = 0.0
    worker_s: float = 0.0
    server_s: float = 0.0
    times_known: bool = False
    ratio_std: float = 1.0
    scale_std: float = 0.3
    misfit_frac: float = 0.08
    memory_s: float = 3600.0
    law: LayeredServed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_above_zero(
            "layered", ratio_std=self.ratio_std, scale_std=self.scale_std, misfit_frac=self.misfit_frac,
            memory_s=self.memory_s,
        )  # fmt: skip
        law = LayeredServed(
            times=LayerTimes(self.forward_s, self.backward_s, self.transfer_s), overlap=self.overlap,
            slice_s=self.slice_s, worker_s=self.worker_s, server_s=self.server_s,
        )  # fmt: skip
        object.__setattr__(self, "law", law)

    def init(self, spec: JobSpec) -> LayeredState:
        """Return the state from the job's profile; without one, from the declared times if they are known."""
        points = with_seen((), spec.profile, memory_s=self.memory_s, n_points_max=_N_POINTS_MAX)
        return self._believing(points)

    def update(self, state: LayeredState, seen: SeenRate) -> LayeredState:
        """Weigh the factors again with one more measurement."""
        points = with_seen(state.points, (seen,), memory_s=self.memory_s, n_points_max=_N_POINTS_MAX)
        return state if points == state.points else self._believing(points)

    def rate_sps(self, state: LayeredState, shape: Shape) -> float:
        """Expected steps per second: over the mean logarithm of the time."""
        return _rate(self._log_time(state, shape)[0])

    def std_sps(self, state: LayeredState, shape: Shape) -> float:
        """Standard deviation of `rate_sps`: of both factors and of the misfit, never more than the rate."""
        mean, variance = self._log_time(state, shape)
        return _rate(mean) * min(1.0, sqrt(variance)) if _rate(mean) > 0 else inf

    def step_s(self, shape: Shape, *, log_ratio: float = 0.0) -> float:
        """Seconds a step with the declared times, the transfers multiplied by ``exp(log_ratio)``."""
        w, p = shape.n_workers, shape.n_servers if shape.n_servers > 0 else shape.n_workers
        return self.law.step_s(w, p, exp(log_ratio) * w / p)

    def exposed_frac(self, shape: Shape) -> float:
        """Share of the transfers' time that is not hidden behind computing: the exposure factor of communication."""
        transfers_s = 2 * sum(self.transfer_s)
        if transfers_s <= 0:
            return 0.0
        w, p = shape.n_workers, shape.n_servers if shape.n_servers > 0 else shape.n_workers
        computing_s = sum(self.forward_s + self.backward_s) / w
        extra_s = self.worker_s * w + self.server_s * p
        return (self.step_s(shape) - extra_s - computing_s) / (transfers_s * w / p)

    def _believing(self, points: tuple[Point, ...]) -> LayeredState:
        if not points and not self.times_known:
            return LayeredState()
        drafts = [self._belief(log_ratio, points) for log_ratio in _LOG_RATIOS]
        best = max(draft.weight for draft in drafts)
        raw = [exp(draft.weight - best) for draft in drafts]
        beliefs = tuple(replace(draft, weight=one / sum(raw)) for draft, one in zip(drafts, raw, strict=True))
        return LayeredState(points, beliefs)

    def _belief(self, log_ratio: float, points: tuple[Point, ...]) -> Belief:
        """The belief with the logarithm of its probability as weight."""
        weight = -0.5 * (log_ratio / self.ratio_std) ** 2
        scales = {}
        for kind in sorted({point.shape.device for point in points}):
            here = [point for point in points if point.shape.device == kind]
            logs = [-log(point.rate_sps) - log(self.step_s(point.shape, log_ratio=log_ratio)) for point in here]
            mean, variance, misfit = self._pooled(logs)
            scales[kind] = (mean, variance)
            weight -= 0.5 * misfit
        return Belief(log_ratio, weight, scales)

    def _pooled(self, logs: list[float]) -> tuple[float, float, float]:
        """Mean and variance of the scale's logarithm, and the points' squared misfit in standard deviations."""
        precision = len(logs) / self.misfit_frac**2
        prior = 1 / self.scale_std**2 if self.times_known else 0.0
        mean = sum(logs) / self.misfit_frac**2 / (precision + prior)
        squares = sum((one - mean) ** 2 for one in logs) / self.misfit_frac**2 + prior * mean**2
        return mean, 1 / (precision + prior), squares

    def _log_time(self, state: LayeredState, shape: Shape) -> tuple[float, float]:
        """Return mean and variance of the logarithm of a step's seconds, on the slowest kind of device."""
        kinds = self._kinds(state, shape)
        if not kinds or not state.beliefs or not possible(shape):
            return inf, inf
        return max(self._log_time_on(state, shape, kind) for kind in kinds)

    def _log_time_on(self, state: LayeredState, shape: Shape, kind: str) -> tuple[float, float]:
        fallback = (0.0, self.scale_std**2)
        means, variances, weights = [], [], []
        for belief in state.beliefs:
            scale, variance = belief.scales.get(kind, fallback)
            means.append(scale + log(self.step_s(shape, log_ratio=belief.log_ratio)))
            variances.append(variance)
            weights.append(belief.weight)
        mean = _dot(weights, means)
        between = _dot(weights, [(one - mean) ** 2 for one in means])
        return mean, between + _dot(weights, variances) + self.misfit_frac**2

    def _kinds(self, state: LayeredState, shape: Shape) -> list[str]:
        known = {point.shape.device for point in state.points}
        if shape.device in known or self.times_known:
            return [shape.device]
        kinds = shape.device.split("+")
        return kinds if set(kinds) <= known else []


def _rate(log_time: float) -> float:
    return exp(-log_time) if abs(log_time) < 300 else 0.0


def _dot(weights: list[float], values: list[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
