"""What the fitted models share: a state of points and their fit, and the four functions of the protocol over it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, isfinite
from typing import Protocol

from punctual.core.job import JobSpec
from punctual.core.speed import SeenRate, Shape
from punctual.models._base import FitStatus, Point, possible, with_seen
from punctual.models._regression import Place, Prior, Regression, fit

#: More shapes than a job is seen in while its speed still is what it was; a fit takes time cubic in them.
N_POINTS_MAX = 64


@dataclass(frozen=True, slots=True)
class Basis:
    """What the terms of a job's step are over: its kinds of device, and whether it is made of workers."""

    kinds: tuple[str, ...] = ()
    by_workers: bool = False


@dataclass(frozen=True, slots=True)
class FittedState:
    """What a fitted model knows of a job. The fit follows from the points, so it does not take part in equality."""

    basis: Basis
    points: tuple[Point, ...] = ()
    status: FitStatus = "no-points"
    fit: Regression | None = field(default=None, compare=False, repr=False)


class Form(Protocol):
    """How a model says that a step's time is made up."""

    @property
    def noise_frac(self) -> float:
        """Standard deviation of one report of a rate, relative."""
        ...

    @property
    def memory_s(self) -> float:
        """For how long a measurement counts against a later one of the same shape."""
        ...

    def terms(self, basis: Basis, shape: Shape) -> list[float]:
        """What the coefficients are multiplied with, each above zero somewhere."""
        ...

    def prior(self, basis: Basis, points: tuple[Point, ...]) -> Prior:
        """What is believed of the coefficients, in the scale of the points."""
        ...

    def place(self, shape: Shape) -> Place:
        """Where a shape lies among others."""
        ...

    def misfit(self, one: Place, other: Place) -> float:
        """Covariance of what the terms leave unexplained in two shapes, relative."""
        ...


def start(form: Form, spec: JobSpec) -> FittedState:
    """The state that the job's profile gives: of a large one, shapes taken evenly from its whole length."""
    every = ceil(len({one.shape for one in spec.profile}) / N_POINTS_MAX) or 1
    shapes = set(list(dict.fromkeys(one.shape for one in spec.profile))[::every])
    seen = [one for one in spec.profile if one.shape in shapes]
    return fold(form, FittedState(Basis(by_workers=spec.worker is not None)), seen)


def fold(form: Form, state: FittedState, seen: Iterable[SeenRate]) -> FittedState:
    """The state after some more measurements."""
    points = with_seen(state.points, seen, memory_s=form.memory_s, n_points_max=N_POINTS_MAX)
    if points == state.points:
        return state
    basis = replace(state.basis, kinds=tuple(sorted({point.shape.device for point in points})))
    terms = [form.terms(basis, point.shape) for point in points]
    places = [form.place(point.shape) for point in points]
    found = fit(terms, places, points, form.prior(basis, points), form.misfit, noise_frac=form.noise_frac)
    return FittedState(basis, points, "ok" if found else "failed", found)


def rate_sps(form: Form, state: FittedState, shape: Shape) -> float:
    """Expected rate; of several kinds of device the slowest one's, because all wait for it; 0 where none is known."""
    return min((_rate_sps(form, state, one) for one in _known(state, shape)), default=0.0)


def std_sps(form: Form, state: FittedState, shape: Shape) -> float:
    """Standard deviation of the rate: never more than the rate itself, since no rate is negative; infinite if none."""
    known = [(_rate_sps(form, state, one), one) for one in _known(state, shape)]
    if state.fit is None or not known or min(known, key=lambda pair: pair[0])[0] <= 0:
        return inf
    rate, slowest = min(known, key=lambda pair: pair[0])
    share = state.fit.std_frac(form.terms(state.basis, slowest), form.place(slowest), form.misfit)
    return rate * min(1.0, share) if isfinite(share) else inf


def _rate_sps(form: Form, state: FittedState, shape: Shape) -> float:
    if state.fit is None:
        return 0.0
    time_s = state.fit.time_s(form.terms(state.basis, shape), form.place(shape), form.misfit)
    return 1.0 / time_s if isfinite(time_s) and time_s > 0 else 0.0


def _known(state: FittedState, shape: Shape) -> list[Shape]:
    """`shape` on each of its kinds of device; empty if it is impossible or a kind is not known."""
    if not possible(shape):
        return []
    kinds = known_kinds(state, shape.device)
    return [shape] if kinds == [shape.device] else [replace(shape, device=kind) for kind in kinds]


def known_kinds(state: FittedState, device: str) -> list[str]:
    """The kinds of which `device` is made up; empty if one of them is not known."""
    if state.fit is None:
        return []
    if device in state.basis.kinds:
        return [device]
    kinds = device.split("+")
    return kinds if set(kinds) <= set(state.basis.kinds) else []


def near(distance: float, *, smooth_frac: float, own_frac: float) -> float:
    """Covariance of two shapes' misfit: one part alike in shapes near each other, one part of each shape's own.

    Parameters
    ----------
    distance
        Of the shapes, in doublings; 0 for the same shape.
    """
    own = own_frac**2 if distance == 0 else 0.0
    return own + smooth_frac**2 * exp(-0.5 * distance**2)
