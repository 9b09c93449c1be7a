"""The conformance kit of performance models: subclass it, construct your model in `make`, and inherit the tests."""

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, is_dataclass
from math import inf, isfinite, isnan, nan
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.protocols import PerfModel
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape

# As many examples as the profile says. One test is run by many subclasses, which Hypothesis would take for a mistake.
_GENERATED = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])

_COUNTS = (1, 2, 4, 8)
_RATES = st.one_of(
    st.sampled_from([nan, inf, -inf, -1.0, 0.0, 1e-300, 1e300]), st.floats(1e-6, 1e6), st.floats(0.5, 2.0)
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Shapes that allocations can have, and some that none has."""
    return Shape(
        n_workers=draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8, 64, 10_000])),
        cores=draw(st.sampled_from([0.0, 0.05, 0.5, 1.0, 4.0, 1000.0])),
        n_nodes=draw(st.sampled_from([1, 1, 2, 8])),
        device=draw(st.sampled_from(["", "V100", "K80", "K80+V100"])),
        n_servers=draw(st.sampled_from([0, 0, 1, 4])),
    )


@st.composite
def measurements(draw: st.DrawFn) -> SeenRate:
    """Measurements, the impossible ones included: a job's report may say anything."""
    over_s = draw(st.sampled_from([1.0, 60.0, 1e6, 0.0, -1.0, nan, inf]))
    return SeenRate(shape=draw(shapes()), rate_sps=draw(_RATES), over_s=over_s)


class ModelConformance:
    """Tests of every performance model. A subclass overrides `make`.

    Attributes
    ----------
    extrapolates
        Whether the model predicts, with a finite uncertainty, numbers of workers beyond those seen.

    Examples
    --------
    >>> class TestMine(ModelConformance):
    ...     def make(self):
    ...         return Mine()
    """

    extrapolates = True

    def make(self) -> PerfModel[Any]:
        """A model with its default parameters."""
        raise NotImplementedError

    def test_is_a_frozen_dataclass(self) -> None:
        model: Any = self.make()
        assert is_dataclass(type(model))
        assert self.make() == model
        with pytest.raises(FrozenInstanceError):
            setattr(model, fields(model)[0].name, None)

    @_GENERATED
    @given(st.lists(measurements(), max_size=8), shapes())
    def test_answers_are_sound_whatever_was_seen(self, seen: list[SeenRate], asked: Shape) -> None:
        model = self.make()
        state = model.init(spec_of())
        for one in seen:
            state = model.update(state, one)
            check_answer(model, state, one.shape)
        check_answer(model, state, asked)

    @_GENERATED
    @given(st.lists(measurements(), max_size=8), shapes())
    def test_any_profile_can_be_read(self, seen: list[SeenRate], asked: Shape) -> None:
        model = self.make()
        check_answer(model, model.init(spec_of(*seen)), asked)

    @_GENERATED
    @given(st.lists(measurements(), max_size=6))
    def test_same_inputs_give_same_outputs_and_stay_unchanged(self, seen: list[SeenRate]) -> None:
        model = self.make()
        state = model.init(spec_of())
        for one in seen:
            before, asked = deepcopy(state), Shape(n_workers=3, cores=3.0)
            rate_sps = model.rate_sps(state, asked)
            after = model.update(state, one)
            assert state == before
            assert model.rate_sps(state, asked) == rate_sps
            assert self.make().update(before, one) == after
            state = after

    def test_knows_nothing_before_the_first_measurement(self) -> None:
        model = self.make()
        state = model.init(spec_of())
        assert model.rate_sps(state, Shape()) == 0
        assert model.std_sps(state, Shape()) == inf

    def test_says_what_it_was_told(self) -> None:
        model = self.make()
        state = model.init(spec_of())
        for _ in range(30):
            state = model.update(state, seen_rate(4, 3.0))
        assert model.rate_sps(state, _shape(4)) == pytest.approx(3.0, rel=0.02)
        assert model.std_sps(state, _shape(4)) < 0.3 * 3.0

    def test_reads_the_profile_like_reports(self) -> None:
        model = self.make()
        seen = [seen_rate(n, _saturating(n)) for n in _COUNTS]
        state = model.init(spec_of())
        for one in seen:
            state = model.update(state, one)
        profiled = model.init(spec_of(*seen))
        for n in range(1, 9):
            assert model.rate_sps(profiled, _shape(n)) == pytest.approx(model.rate_sps(state, _shape(n)), rel=0.1)

    def test_finds_a_plain_law_between_the_points(self) -> None:
        model = self.make()
        state = model.init(spec_of(*(seen_rate(n, _saturating(n)) for n in _COUNTS)))
        for n in range(1, 9):
            assert model.rate_sps(state, _shape(n)) == pytest.approx(_saturating(n), rel=0.15)

    def test_is_less_sure_beyond_the_points(self) -> None:
        model = self.make()
        state = model.init(spec_of(*(seen_rate(n, _saturating(n)) for n in _COUNTS)))
        inside, outside = (model.std_sps(state, _shape(n)) / model.rate_sps(state, _shape(n)) for n in (4, 32))
        assert outside > inside
        assert isfinite(outside) == self.extrapolates

    def test_corrects_a_profile_that_was_wrong(self) -> None:
        model = self.make()
        state = model.init(spec_of(*(seen_rate(n, _saturating(n)) for n in _COUNTS)))
        for n in _COUNTS * 20:
            state = model.update(state, seen_rate(n, 0.7 * _saturating(n)))
        assert model.rate_sps(state, _shape(4)) == pytest.approx(0.7 * _saturating(4), rel=0.15)

    def test_a_kind_of_device_that_was_never_seen_is_not_relied_upon(self) -> None:
        model = self.make()
        seen = SeenRate(shape=Shape(n_workers=2, device="V100"), rate_sps=3.0)
        state = model.update(model.init(spec_of()), seen)
        assert model.rate_sps(state, Shape(n_workers=2, device="V100")) > 0
        unseen = Shape(n_workers=2, device="K80")
        assert model.std_sps(state, unseen) >= 0.25 * model.rate_sps(state, unseen)

    def test_state_survives_a_journey_to_another_process(self) -> None:
        model = self.make()
        state = model.init(spec_of(*(seen_rate(n, _saturating(n)) for n in _COUNTS)))
        again = pickle.loads(pickle.dumps(state))  # noqa: S301 - our own bytes
        assert again == state
        assert model.rate_sps(again, _shape(3)) == model.rate_sps(state, _shape(3))


def spec_of(*profile: SeenRate) -> JobSpec:
    """A job of up to 64 workers with `profile`."""
    return JobSpec(id=JobId("example"), ceiling=Resources(64.0), worker=Resources(1.0), profile=profile)


def seen_rate(n_workers: int, rate_sps: float) -> SeenRate:
    """A measurement over a minute."""
    return SeenRate(shape=_shape(n_workers), rate_sps=rate_sps, over_s=60.0)


def check_answer(model: PerfModel[Any], state: Any, shape: Shape) -> None:
    """Assert what must hold for every answer of every model."""
    rate_sps, std_sps = model.rate_sps(state, shape), model.std_sps(state, shape)
    assert isfinite(rate_sps)
    assert rate_sps >= 0
    assert not isnan(std_sps)
    assert std_sps >= 0
    assert rate_sps > 0 or std_sps == inf


def _shape(n_workers: int) -> Shape:
    return Shape(n_workers=n_workers, cores=float(n_workers))


def _saturating(n_workers: int) -> float:
    """Return the steps per second of a job of which a tenth is serial."""
    return 1 / (0.1 + 0.9 / n_workers)
