"""decor-pi against the published law [decor2025], typed again in plain form and evaluated on drawn trajectories."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.control import Reading
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.papers.decor_nn.decor_pi import DecorPi, DecorPiState

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


class _Cores:
    """The published equations for CPUs, line by line; from the second tick on those of the revision for several jobs."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most
        self.c_i_old, self.u, self.c, self.c_p = most, most, most, 0.0

    def tick(self, t: float, y: float, d: float) -> float:
        k, t_s, t_i, y_spike = 50, 1, 12, 0.99
        sp = t / d
        if sp >= 1:
            self.u = self.most if y < y_spike else self.u
        else:
            self.c_p = k * (sp - y)
            c_i = self.c_i_old + self.c_p * t_s / t_i
            self.c = min(max(self.least, self.c_p + c_i), self.most)
            self.c_i_old = self.c - self.c_p
            self.u = min(max(self.least, round(self.c * 20) / 20), self.most)
        return self.u

    def scaled(self, factor: float) -> None:
        """All demands together do not fit: the job gets this share of its own."""
        self.c_i_old = self.c * factor - self.c_p


class _Devices:
    """The published equations for GPUs, line by line."""

    def __init__(self, most: int) -> None:
        self.most, self.u, self.c_i_old = most, most, (float(most), float(most))

    def tick(self, t: float, y: float, d: float, held: int) -> int:
        k, t_s, t_i, y_spike = 50, 5, 12, 0.995
        sp = t / d
        if sp >= 1:
            self.u = self.most if y < y_spike else self.u
        else:
            c_p = k * (sp - y)
            before = self.c_i_old[1] if held == self.u else self.c_i_old[0]
            c = min(max(1, c_p + before + c_p * t_s / t_i), self.most)
            self.c_i_old = (before, c - c_p)
            self.u = round(c)
        return self.u


#: Time passed since the last tick and progress made since then, as shares of what a job that is on its line would have.
_TICKS = st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 3.0)), min_size=1, max_size=30)


def _trajectory(ticks: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Elapsed seconds of a deadline of 60 s, and progress."""
    points, t, y = [], 0.0, 0.01
    for dt, dy in ticks:
        t, y = t + 4.0 * dt, min(1.0, y + 4.0 * dy / 60.0)
        points.append((t, y))
    return points


@given(_TICKS, st.lists(st.sampled_from([1.0, 1.0, 0.8, 0.3]), min_size=30, max_size=30))
def test_demand_is_that_of_the_published_law_whatever_share_of_it_is_granted(
    ticks: list[tuple[float, float]], shares: list[float]
) -> None:
    law, published = DecorPi(), _Cores(least=1.0, most=4.0)
    state, granted = law.init(_spec()), 4.0
    for (t, y), share in zip(_trajectory(ticks), shares, strict=False):
        demand, state = law.step(_spec(), state, _reading(t, y, granted_cores=granted))
        assert demand.resources.cores == pytest.approx(published.tick(t, y, 60.0), abs=0.05 + 1e-9)
        assert state.integral_cores == pytest.approx(published.c_i_old, abs=1e-6)
        assert demand.next_tick_s == 1.0
        if t >= 60.0:
            return
        granted = share * demand.resources.cores
        published.scaled(share)


@given(_TICKS, st.lists(st.booleans(), min_size=30, max_size=30))
def test_requested_workers_are_those_of_the_published_law_also_where_requests_are_carried_out_late(
    ticks: list[tuple[float, float]], carried_out: list[bool]
) -> None:
    worker = Resources(cores=1.0)
    spec = replace(_spec(cores=8.0), worker=worker, ceiling=worker * 8, floor=worker)
    law, published, held = DecorPi(), _Devices(most=8), 8
    state = law.init(spec)
    for (t, y), done in zip(_trajectory(ticks), carried_out, strict=False):
        if t >= 60.0:
            return  # from the deadline on the published law leaves its integral as it is
        shape = Shape(n_workers=held, cores=float(held))
        reading = replace(_reading(t, y, granted_cores=float(held)), ceiling=spec.ceiling, shape=shape)
        demand, state = law.step(spec, state, reading)
        n_wanted = published.tick(t, y, 60.0, held)
        assert state.integral_cores == pytest.approx(published.c_i_old[1], abs=1e-9)
        assert demand.resources.cores == pytest.approx(n_wanted, abs=1)
        if demand.resources.cores != n_wanted:
            return  # half-way between two numbers the last bit says which
        held = published.u if done else held


def test_demand_is_a_multiple_of_the_rounding() -> None:
    law, published = DecorPi(), _Cores(least=1.0, most=4.0)
    state, granted = law.init(_spec()), 4.0
    for i in range(1, 40):
        demand, state = law.step(_spec(), state, _reading(i, 0.02 * i, granted_cores=granted))
        granted = demand.resources.cores
        assert granted == pytest.approx(published.tick(i, 0.02 * i, 60.0), abs=1e-9)


@pytest.mark.parametrize(("ceiling_cores", "least_cores"), [(4.0, 1.0), (1.0, 0.1)])
def test_the_least_demand_is_one_core_where_more_can_be_had_and_else_the_floor(
    ceiling_cores: float, least_cores: float
) -> None:
    law, spec = DecorPi(), _spec(cores=ceiling_cores)
    demand, _ = law.step(spec, law.init(spec), _reading(1.0, 0.9, granted_cores=ceiling_cores))
    assert demand.resources.cores == least_cores


def test_alpha_and_margin_bring_the_aim_forward() -> None:
    reading = _reading(30.0, 0.5, granted_cores=1.0)
    _, plain = DecorPi().step(_spec(), DecorPi().init(_spec()), reading)
    _, earlier = DecorPi(alpha=0.9).step(_spec(), DecorPi().init(_spec()), reading)
    declared = _spec(margin_frac=0.1)
    _, with_margin = DecorPi().step(declared, DecorPi().init(declared), reading)
    assert plain.proportional_cores == 0.0
    assert earlier.proportional_cores == pytest.approx(50 * (30 / 54 - 0.5))
    assert with_margin == earlier


def test_a_request_for_workers_that_has_not_been_carried_out_leaves_the_integral_of_the_tick_before() -> None:
    worker = Resources(cores=0.5)
    spec = replace(_spec(cores=4.0), worker=worker, ceiling=worker * 8, floor=worker)
    law = DecorPi()

    def tick(state: DecorPiState, t: float, y: float, held: int) -> DecorPiState:
        shape = Shape(n_workers=held, cores=0.5 * held)
        reading = replace(_reading(t, y, 0.5 * held), ceiling=spec.ceiling, shape=shape)
        return law.step(spec, state, reading)[1]

    first = tick(law.init(spec), 5.0, 0.1, 8)
    assert first.requested_cores < 4.0
    assert tick(first, 10.0, 0.2, 8).earlier_integral_cores == 4.0, "with all 8 the request waits"
    n_asked = round(first.requested_cores / 0.5)
    assert tick(first, 10.0, 0.2, n_asked).earlier_integral_cores == first.integral_cores


def test_error_on_an_ideal_plant_obeys_the_derived_recurrence() -> None:
    """e'' - (2 - a - ab) e' + (1 - a) e = 0 with a = K T_s / W and b = T_s / T_i, away from the bounds."""
    work_core_s, deadline_s = 600.0, 60.0
    law, spec = DecorPi(rounding_cores=1e-9, minimum_cores=0.1), _spec(cores=1e4)
    state = replace(law.init(spec), integral_cores=10.0)
    progress, errors = 0.02, []
    for i in range(20):
        demand, state = law.step(spec, state, _reading(float(i), progress, 1e4, deadline_s))
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
    state, c_i, held = law.init(spec), 8.0, 8
    for elapsed_s, progress in ((5.0, 0.1), (10.0, 0.2), (15.0, 0.4), (20.0, 0.42), (25.0, 0.43), (58.0, 0.96)):
        shape = Shape(n_workers=held, cores=0.3 * held)
        reading = replace(_reading(elapsed_s, progress, 0.3 * held), ceiling=spec.ceiling, shape=shape)
        demand, state = law.step(spec, state, reading)
        c_p = 50 * (elapsed_s / 60.0 - progress)
        c = min(max(1.0, c_p + c_i + c_p * 5 / 12), 8.0)
        c_i = c - c_p
        held = round(c)
        assert demand.resources.cores == pytest.approx(0.3 * held)
        assert demand.next_tick_s == 5.0
