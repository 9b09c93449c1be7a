"""What each fitted model finds when the truth has its form, with few points, and with several kinds of device."""

import random
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.estimators.speed._base import Point, with_seen
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.estimators.speed.amdahl import Amdahl
from punctual.papers.optimus.parameter_server import ParameterServer
from punctual.testing.model_kit import measurements, spec_of

Speed = Callable[[Shape], float]


def seen(speed: Speed, *shapes: Shape) -> tuple[SeenRate, ...]:
    return tuple(SeenRate(shape=shape, rate_sps=speed(shape), over_s=60.0) for shape in shapes)


def workers(w: int, n: int = 1, device: str = "") -> Shape:
    return Shape(n_workers=w, n_nodes=n, device=device)


def servers(w: int, p: int) -> Shape:
    return Shape(n_workers=w, n_servers=p)


def on_nodes(shape: Shape) -> float:
    return 1 / (0.02 + 0.9 / shape.n_workers + 0.05 * (shape.n_workers > 1) + 0.1 * (shape.n_nodes > 1))


def synchronous(shape: Shape) -> float:
    w, p = shape.n_workers, shape.n_servers
    return 1 / (2.0 / w + 0.1 + 0.2 * w / p + 0.01 * w + 0.02 * p)


def asynchronous(shape: Shape) -> float:
    w, p = shape.n_workers, shape.n_servers
    return w / (1.0 + 0.3 * w / p + 0.05 * w + 0.02 * p)


def test_all_reduce_tells_nodes_apart() -> None:
    model = AllReduce()
    shapes = [workers(1), workers(2), workers(4), workers(8), workers(8, 2), workers(16, 2), workers(2, 2)]
    state = model.init(spec_of(*seen(on_nodes, *shapes)))
    for shape in (workers(6), workers(4, 2), workers(12, 2)):
        assert model.rate_sps(state, shape) == pytest.approx(on_nodes(shape), rel=0.1)
    assert model.rate_sps(state, workers(4)) > model.rate_sps(state, workers(4, 2))


def test_one_point_predicts_between_perfect_scaling_and_none() -> None:
    for model in (AllReduce(), Amdahl()):
        state = model.update(model.init(spec_of()), SeenRate(shape=workers(2), rate_sps=1.0))
        for n in (4, 8, 16):
            rate, std = model.rate_sps(state, workers(n)), model.std_sps(state, workers(n))
            assert 1.0 < rate < n / 2
            assert rate - 1.5 * std < 1.0, "no scaling at all is not excluded"


def test_one_point_of_a_parameter_server_job_lets_it_grow() -> None:
    model = ParameterServer()
    state = model.update(model.init(spec_of()), SeenRate(shape=servers(1, 1), rate_sps=1.0))
    assert model.rate_sps(state, servers(2, 2)) > 1.1


@pytest.mark.parametrize(("is_synchronous", "speed"), [(True, synchronous), (False, asynchronous)])
def test_parameter_server_finds_its_own_form(is_synchronous: bool, speed: Speed) -> None:
    model = ParameterServer(synchronous=is_synchronous)
    shapes = [servers(w, p) for w, p in ((1, 1), (2, 1), (4, 2), (8, 2), (8, 8), (1, 6), (12, 4), (3, 9))]
    state = model.init(spec_of(*seen(speed, *shapes)))
    for shape in (servers(6, 3), servers(10, 5), servers(2, 4)):
        assert model.rate_sps(state, shape) == pytest.approx(speed(shape), rel=0.05)


@given(
    st.lists(measurements(), max_size=6), st.booleans(), st.sampled_from(["", "V100", "K80+V100"]),
    st.lists(st.integers(1, 64), min_size=1, max_size=4), st.lists(st.integers(1, 64), min_size=1, max_size=4),
)  # fmt: skip
def test_many_answers_at_once_are_those_given_one_by_one(
    profile: list[SeenRate], is_synchronous: bool, device: str, n_workers: list[int], n_servers: list[int]
) -> None:
    model = ParameterServer(synchronous=is_synchronous)
    curve = RateCurve(model, model.init(spec_of(*profile)))
    singly = [[curve.rate_sps(Shape(n_workers=w, n_servers=p, device=device)) for p in n_servers] for w in n_workers]
    together = curve.served_sps(n_workers, n_servers, device)
    assert together is not None
    for found, expected in zip(together, singly, strict=True):
        assert list(found) == pytest.approx(expected, rel=1e-9)


def test_a_model_that_answers_one_by_one_says_so() -> None:
    model = AllReduce()
    assert RateCurve(model, model.init(spec_of())).served_sps([1], [1], "") is None


def test_no_servers_means_one_beside_each_worker() -> None:
    model = ParameterServer()
    state = model.init(spec_of(*seen(synchronous, servers(1, 1), servers(4, 4))))
    assert model.rate_sps(state, workers(4)) == model.rate_sps(state, servers(4, 4))


def test_amdahl_over_fractions_of_a_core() -> None:
    def speed(shape: Shape) -> float:
        return 1 / (0.2 / min(shape.cores, 1.0) + 0.8 / shape.cores)

    model = Amdahl()
    fractions = [Shape(cores=cores) for cores in (0.25, 0.5, 1.0, 2.0, 8.0)]
    spec = JobSpec(id=spec_of().id, ceiling=Resources(8.0), profile=seen(speed, *fractions))
    state = model.init(spec)
    for cores in (0.1, 0.35, 0.75, 4.0):
        assert model.rate_sps(state, Shape(cores=cores)) == pytest.approx(speed(Shape(cores=cores)), rel=0.05)


def test_each_kind_of_device_has_its_own_compute_and_the_slowest_sets_the_pace() -> None:
    def speed(shape: Shape) -> float:
        return 1 / ((2.7 if shape.device == "K80" else 0.9) / shape.n_workers + 0.05 * (shape.n_workers > 1))

    model = AllReduce()
    shapes = [workers(w, device="V100") for w in (1, 2, 4, 8)] + [workers(1, device="K80"), workers(4, device="K80")]
    state = model.init(spec_of(*seen(speed, *shapes)))
    slow, fast = workers(2, device="K80"), workers(2, device="V100")
    assert model.rate_sps(state, slow) == pytest.approx(speed(slow), rel=0.1)
    assert model.rate_sps(state, fast) == pytest.approx(speed(fast), rel=0.1)
    assert model.rate_sps(state, workers(2, device="K80+V100")) == model.rate_sps(state, slow)


def test_a_kind_on_which_nothing_was_seen_is_taken_for_the_slowest_and_not_relied_upon() -> None:
    model = AllReduce()
    shapes = [workers(w, device=kind) for w in (1, 2, 4) for kind in ("K80", "V100")]
    state = model.init(
        spec_of(*seen(lambda shape: shape.n_workers * (3.0 if shape.device == "V100" else 1.0), *shapes))
    )
    slow, new = workers(2, device="K80"), workers(2, device="A100")
    assert model.rate_sps(state, new) == model.rate_sps(state, slow)
    assert model.rate_sps(state, workers(2, device="A100+V100")) == model.rate_sps(state, slow)
    assert model.std_sps(state, new) == pytest.approx(0.3 * model.rate_sps(state, new))


def test_what_is_declared_without_a_kind_holds_on_all_until_a_kind_is_seen() -> None:
    model = AllReduce()
    state = model.init(spec_of(*seen(lambda _: 2.0, workers(1))))
    assert model.rate_sps(state, workers(1, device="T4")) == model.rate_sps(state, workers(1))
    assert model.std_sps(state, workers(1, device="T4")) == model.std_sps(state, workers(1))
    state = model.update(state, SeenRate(shape=workers(1, device="T4"), rate_sps=0.5, over_s=60.0))
    assert model.rate_sps(state, workers(1, device="T4")) == pytest.approx(0.5, rel=0.1)
    assert model.rate_sps(state, workers(1, device="V100")) == pytest.approx(2.0, rel=0.1)


def test_what_is_declared_without_a_kind_is_taken_to_hold_on_the_first_kind_that_is_seen() -> None:
    model = AllReduce()
    state = model.init(spec_of(*seen(lambda _: 2.0, workers(1))))
    state = model.update(state, SeenRate(shape=workers(4, device="T4"), rate_sps=6.0, over_s=60.0))
    assert model.rate_sps(state, workers(1, device="T4")) == pytest.approx(2.0, rel=0.05)
    assert model.std_sps(state, workers(1, device="T4")) < 0.1
    assert model.rate_sps(state, workers(1, device="V100")) == pytest.approx(2.0, rel=0.1)


def test_three_noisy_points_are_usable_and_the_interval_covers() -> None:
    model, drawn = AllReduce(noise_frac=0.1), random.Random(7)
    n_covered = n_asked = 0
    for _ in range(40):
        start = model.init(spec_of())
        state = start
        for shape in (workers(1), workers(2), workers(4)):
            state = model.update(state, SeenRate(shape=shape, rate_sps=on_nodes(shape) * drawn.gauss(1, 0.1)))
        for shape in (workers(3), workers(6), workers(8)):
            error = abs(model.rate_sps(state, shape) - on_nodes(shape))
            assert error < 0.6 * on_nodes(shape)
            n_covered += error < 2 * model.std_sps(state, shape)
            n_asked += 1
    assert n_covered > 0.9 * n_asked


def test_uncertainty_falls_where_it_is_measured() -> None:
    model = AllReduce()
    state = model.init(spec_of(*seen(on_nodes, workers(1), workers(2))))
    before = model.std_sps(state, workers(8))
    after = model.update(state, SeenRate(shape=workers(8), rate_sps=on_nodes(workers(8))))
    assert model.std_sps(after, workers(8)) < 0.2 * before


def test_points_that_contradict_each_other_widen_the_interval() -> None:
    model = AllReduce()
    shapes = [workers(n) for n in (1, 2, 3, 4, 6, 8)]
    calm = model.init(spec_of(*seen(on_nodes, *shapes)))
    wild = model.init(spec_of(*seen(lambda shape: on_nodes(shape) * (3 if shape.n_workers % 4 else 1), *shapes)))
    std_frac = [model.std_sps(state, workers(5)) / model.rate_sps(state, workers(5)) for state in (calm, wild)]
    assert std_frac[1] > 2 * std_frac[0]


def test_a_speed_that_changes_is_followed() -> None:
    model = Amdahl(memory_s=600.0)
    state = model.init(spec_of(*seen(lambda _: 1.0, workers(2))))
    for _ in range(60):
        state = model.update(state, SeenRate(shape=workers(2), rate_sps=0.5, over_s=60.0))
    assert model.rate_sps(state, workers(2)) == pytest.approx(0.5, rel=0.05)


def test_useless_points_leave_the_state_as_it_was() -> None:
    model = AllReduce()
    state = model.init(spec_of(*seen(on_nodes, workers(1))))
    for rate, over_s in ((0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (inf, 1.0), (1.0, 0.0), (1.0, float("nan"))):
        assert model.update(state, SeenRate(shape=workers(2), rate_sps=rate, over_s=over_s)) is state


def test_numbers_that_admit_no_fit_tell_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("no convergence")

    monkeypatch.setattr("scipy.optimize.nnls", fail)
    model = AllReduce()
    state = model.init(spec_of(*seen(on_nodes, workers(1))))
    assert model.rate_sps(state, workers(1)) == 0
    assert model.std_sps(state, workers(1)) == inf


def test_one_point_a_shape_weighted_by_time() -> None:
    one = SeenRate(shape=workers(1), rate_sps=1.0, over_s=10.0)
    points = with_seen((), [one, replace(one, rate_sps=5.0, over_s=30.0)], memory_s=100.0, n_points_max=9)
    assert points == (Point(workers(1), 4.0, 40.0, 2),)


def test_the_oldest_shapes_are_dropped() -> None:
    many = [SeenRate(shape=workers(n), rate_sps=1.0) for n in range(1, 9)]
    points = with_seen((), [*many, many[0]], memory_s=100.0, n_points_max=3)
    assert [point.shape.n_workers for point in points] == [7, 8, 1]


@pytest.mark.parametrize("model", [AllReduce, Amdahl, ParameterServer])
def test_parameters_must_be_above_zero(model: type[AllReduce]) -> None:
    with pytest.raises(InvalidSpec, match="noise_frac"):
        model(noise_frac=0.0)
