"""Base of the fitted models: a state of points and their fit, and a performance model's methods on it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, dist, exp, inf, isfinite
from typing import ClassVar

from punctual.core.errors import check_above_zero
from punctual.core.job import JobSpec
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed._base import Point, possible, usable, with_seen
from punctual.estimators.speed._regression import Place, Prior, Regression, fit

#: Most shapes of a fit, which takes time cubic in them: more than a job is seen in while its speed stays the same.
N_POINTS_MAX = 64
#: Relative error of the speed on a kind of device on which the job never ran.
UNSEEN_FRAC = 0.3


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """The terms of a job's step: its kinds of device, and whether it is made of workers."""

    kinds: tuple[str, ...] = ()
    by_workers: bool = False


@dataclass(frozen=True, slots=True)
class FittedState:
    """A fitted model's state of a job. The fit follows from the points, so equality ignores it.

    `fit` None: there are no points, or they admit no fit.
    """

    basis: ModelTerms
    points: tuple[Point, ...] = ()
    fit: Regression | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel(ABC):
    """A model of the parts of a step's time, with coefficients fitted to measurements.

    Parameters
    ----------
    noise_frac
        Standard deviation of one report of a rate, relative.
    smooth_frac, own_frac
        Relative misfit of the terms to speeds: a part that neighbouring shapes share, and each shape's part by
        itself. Measured shapes are corrected by it.
    memory_s
        Seconds for which a measurement counts against a later one of the same shape.
    """

    registered_name: ClassVar[str]

    noise_frac: float = 0.03
    smooth_frac: float = 0.1
    own_frac: float = 0.06
    memory_s: float = 3600.0

    def __post_init__(self) -> None:
        check_above_zero(
            self.registered_name,
            noise_frac=self.noise_frac,
            smooth_frac=self.smooth_frac,
            own_frac=self.own_frac,
            memory_s=self.memory_s,
        )

    @abstractmethod
    def terms(self, basis: ModelTerms, shape: Shape) -> list[float]:
        """Return the factors of the coefficients, each above zero for some shape."""

    @abstractmethod
    def prior(self, basis: ModelTerms, points: tuple[Point, ...]) -> Prior:
        """Return the prior of the coefficients, in the scale of the points."""

    @abstractmethod
    def place(self, shape: Shape) -> Place:
        """Return a shape's place among others: its kind of device, and coordinates in doublings."""

    def distance(self, coordinates: Sequence[float], others: Sequence[float]) -> float:
        """Return the distance of two shapes on the same kind of device, in doublings; 0 for the same shape."""
        return dist(coordinates, others)

    def misfit(self, place: Place, other: Place) -> float:
        """Return the relative covariance of the unexplained parts of two shapes.

        One part is alike in shapes near each other, one part is of each shape's own; shapes on different kinds of
        device have nothing in common.
        """
        if place[0] != other[0]:
            return 0.0
        distance = self.distance(place[1], other[1])
        own = self.own_frac**2 if distance == 0 else 0.0
        return own + self.smooth_frac**2 * exp(-0.5 * distance**2)

    def init(self, spec: JobSpec) -> FittedState:
        """The fit of the job's profile: of a large one, of shapes taken evenly from its whole length."""
        every = ceil(len({seen.shape for seen in spec.profile}) / N_POINTS_MAX) or 1
        shapes = set(list(dict.fromkeys(seen.shape for seen in spec.profile))[::every])
        chosen = [seen for seen in spec.profile if seen.shape in shapes]
        return self._with(FittedState(ModelTerms(by_workers=spec.worker is not None)), chosen)

    def update(self, state: FittedState, seen: SeenRate) -> FittedState:
        """Fit again with one more measurement; a declaration without a kind counts for the first kind that is seen."""
        declared: list[SeenRate] = []
        if seen.shape.device and usable(seen) and state.basis.kinds == ("",):
            shapes = {point.shape: replace(point.shape, device=seen.shape.device) for point in state.points}
            declared = [
                SeenRate(shape=shapes[point.shape], rate_sps=point.rate_sps, over_s=point.over_s)
                for point in state.points
                if shapes[point.shape] != seen.shape
            ]
        return self._with(state, (*declared, seen))

    def rate_sps(self, state: FittedState, shape: Shape) -> float:
        """Return the expected steps per second, on the slowest of several kinds of device; 0 before any measurement.

        A kind on which the job was never seen is taken to be as slow as the slowest on which it was.
        """
        return min((self._rate_sps(state, on_kind) for on_kind in _known(state, shape)), default=0.0)

    def std_sps(self, state: FittedState, shape: Shape) -> float:
        """Standard deviation of `rate_sps`: of the coefficients, of the misfit, widened if the points fit badly.

        Never more than the rate itself, since no rate is negative, and at least `UNSEEN_FRAC` of it on a kind of device that
        was never seen; infinite where nothing is known.
        """
        known = [(self._rate_sps(state, on_kind), on_kind) for on_kind in _known(state, shape)]
        if state.fit is None or not known:
            return inf
        rate, slowest = min(known, key=lambda pair: pair[0])
        if rate <= 0:
            return inf
        least = UNSEEN_FRAC if _is_guess(state, shape.device) else 0.0
        share = state.fit.std_frac(self.terms(state.basis, slowest), self.place(slowest), self.misfit)
        return rate * min(1.0, max(share, least)) if isfinite(share) else inf

    def _with(self, state: FittedState, seen: Iterable[SeenRate]) -> FittedState:
        """The state after some more measurements."""
        points = with_seen(state.points, seen, memory_s=self.memory_s, n_points_max=N_POINTS_MAX)
        if points == state.points:
            return state
        basis = replace(state.basis, kinds=tuple(sorted({point.shape.device for point in points})))
        terms = [self.terms(basis, point.shape) for point in points]
        places = [self.place(point.shape) for point in points]
        fitted = fit(terms, places, points, self.prior(basis, points), self.misfit, noise_frac=self.noise_frac)
        return FittedState(basis, points, fitted)

    def _rate_sps(self, state: FittedState, shape: Shape) -> float:
        if state.fit is None:
            return 0.0
        time_s = state.fit.time_s(self.terms(state.basis, shape), self.place(shape), self.misfit)
        return 1.0 / time_s if isfinite(time_s) and time_s > 0 else 0.0


def _known(state: FittedState, shape: Shape) -> list[Shape]:
    """Return `shape` on each kind of device that informs about it; empty if it is impossible or unknown."""
    if not possible(shape):
        return []
    kinds = known_kinds(state, shape.device)
    return [shape] if kinds == [shape.device] else [replace(shape, device=kind) for kind in kinds]


def known_kinds(state: FittedState, device: str) -> list[str]:
    """Return the kinds that inform about `device`: those it consists of.

    For an unseen kind, measurements or declarations without a kind count; failing these, all kinds that were seen.
    """
    if state.fit is None:
        return []
    seen = state.basis.kinds
    if device in seen:
        return [device]
    known = [[kind] if kind in seen else [""] if "" in seen else list(seen) for kind in device.split("+")]
    return sorted({kind for kinds in known for kind in kinds})


def _is_guess(state: FittedState, device: str) -> bool:
    """Whether no measurement holds for all of `device`."""
    seen = state.basis.kinds
    return "" not in seen and device not in seen and not set(device.split("+")) <= set(seen)
