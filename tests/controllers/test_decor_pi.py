"""decor-pi against the published law, evaluated independently."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.controllers.decor_pi import DecorPi
from punctual.core.control import Reading
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources

_N_STEPS = 1000


def _spec(cores: float = 4.0, margin_frac: float | None = None) -> JobSpec:
    ceiling, floor = Resources(cores=cores), Resources(cores=0.1)
    return JobSpec(id=JobId("job"), ceiling=ceiling, floor=floor, deadline_s=60.0, margin_frac=margin_frac)


def _reading(elapsed_s: float, progress: float, granted_cores: float, deadline_s: float = 60.0) -> Reading:
    return Reading(
        elapsed_s=elapsed_s,
        deadline_s=deadline_s,
        granted=Resources(cores=granted_cores),
        granted_core_s=0.0,
        used_core_s=0.0,
        in_flight_core_s=0.0,
        unit_at_s=elapsed_s,
        steps_done=progress * _N_STEPS,
        steps_total=_N_STEPS,
        ceiling=Resources(cores=1e4),
    )


class _Published:
    """The published equations, line by line."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most, self.c_i_old, self.u = least, most, most, most

    def tick(self, t: float, y: float, d: float) -> float:
        k, t_s, t_i, y_spike = 50, 1, 12, 0.99
        sp = t / d
        if sp >= 1:
            self.u = self.most if y < y_spike else self.u
        else:
            c_p = k * (sp - y)
            c_i = self.c_i_old + c_p * t_s / t_i
            c = min(max(self.least, c_p + c_i), self.most)
            self.c_i_old = c - c_p
            self.u = round(c * 20) / 20
        return self.u


_TICKS = st.lists(st.tuples(st.floats(0.0, 80.0), st.floats(0.0, 1.0), st.floats(1.0, 100.0)), min_size=1, max_size=30)


@given(_TICKS)
def test_demand_is_that_of_the_published_law(ticks: list[tuple[float, float, float]]) -> None:
    law, published = DecorPi(), _Published(least=0.1, most=4.0)
    state = law.init(_spec())
    for t, y, deadline in ticks:
        demand, state = law.step(_spec(), state, _reading(t, y, granted_cores=1.0, deadline_s=deadline))
        assert demand.resources.cores == pytest.approx(published.tick(t, y, deadline), abs=0.05 + 1e-9)
        assert state.integral_cores == pytest.approx(published.c_i_old, abs=1e-6)
        assert demand.next_tick_s == 1.0


def test_demand_is_a_multiple_of_the_rounding() -> None:
    law, published = DecorPi(), _Published(least=0.1, most=4.0)
    state = law.init(_spec())
    for i in range(1, 40):
        demand, state = law.step(_spec(), state, _reading(i, 0.02 * i, granted_cores=1.0))
        assert demand.resources.cores == pytest.approx(published.tick(i, 0.02 * i, 60.0), abs=1e-9)


def test_published_minimum_holds_when_given() -> None:
    law = DecorPi(minimum_cores=1.0)
    demand, _ = law.step(_spec(), law.init(_spec()), _reading(1.0, 0.9, granted_cores=4.0))
    assert demand.resources.cores == 1.0


def test_alpha_and_margin_bring_the_aim_forward() -> None:
    reading = _reading(30.0, 0.5, granted_cores=1.0)
    _, plain = DecorPi().step(_spec(), DecorPi().init(_spec()), reading)
    _, earlier = DecorPi(alpha=0.9).step(_spec(), DecorPi().init(_spec()), reading)
    declared = _spec(margin_frac=0.1)
    _, with_margin = DecorPi().step(declared, DecorPi().init(declared), reading)
    assert plain.proportional_cores == 0.0
    assert earlier.proportional_cores == pytest.approx(50 * (30 / 54 - 0.5))
    assert with_margin == earlier


def test_integral_can_be_recomputed_from_the_grant() -> None:
    law = DecorPi(recompute_from_grant=True)
    _, state = law.step(_spec(), law.init(_spec()), _reading(30.0, 0.49, granted_cores=4.0))
    c_p_old, c_p = state.proportional_cores, 50 * (31 / 60 - 0.5)
    demand, _ = law.step(_spec(), state, _reading(31.0, 0.5, granted_cores=1.5))
    c = (1.5 - c_p_old) + c_p / 12 + c_p
    assert c < 4
    assert demand.resources.cores == pytest.approx(round(c * 20) / 20)


def test_error_on_an_ideal_plant_obeys_the_derived_recurrence() -> None:
    """e'' - (2 - a - ab) e' + (1 - a) e = 0 with a = K T_s / W and b = T_s / T_i, away from the bounds."""
    work_core_s, deadline_s = 600.0, 60.0
    law, spec = DecorPi(rounding_cores=1e-9), _spec(cores=1e4)
    state = replace(law.init(spec), integral_cores=10.0)
    progress, errors = 0.02, []
    for i in range(20):
        demand, state = law.step(spec, state, _reading(float(i), progress, 1.0, deadline_s))
        errors.append(demand.reason.facts["error_frac"])
        progress += demand.resources.cores / work_core_s
        assert 0.1 < demand.resources.cores < 1e4
    a, b = 50 / work_core_s, 1 / 12
    for e0, e1, e2 in zip(errors, errors[1:], errors[2:], strict=False):
        assert e2 == pytest.approx((2 - a - a * b) * e1 - (1 - a) * e0, abs=1e-9)


def test_rejects_parameters_out_of_range() -> None:
    with pytest.raises(
        InvalidSpec, match="`gain_cores` must be finite and above zero: got 0 for controller 'decor-pi'"
    ):
        DecorPi(gain_cores=0)
    with pytest.raises(InvalidSpec, match="spike_frac"):
        DecorPi(spike_frac=1.0)


def test_a_job_of_workers_is_steered_by_the_published_law_for_devices() -> None:
    """u = round(c), in workers: with K = 50 and T_i = 12 s, every 5 s."""
    worker = Resources(cores=0.3)
    spec = replace(_spec(cores=2.4), worker=worker, ceiling=worker * 8, floor=worker)
    law = DecorPi()
    state, c_i = law.init(spec), 8.0
    for elapsed_s, progress in ((5.0, 0.1), (10.0, 0.2), (15.0, 0.4), (20.0, 0.42), (25.0, 0.43), (58.0, 0.96)):
        reading = replace(_reading(elapsed_s, progress, 2.4), ceiling=spec.ceiling)
        demand, state = law.step(spec, state, reading)
        c_p = 50 * (elapsed_s / 60.0 - progress)
        c = min(max(1.0, c_p + c_i + c_p * 5 / 12), 8.0)
        c_i = c - c_p
        assert demand.resources.cores == pytest.approx(0.3 * round(c))
        assert demand.next_tick_s == 5.0
