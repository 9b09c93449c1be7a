"""The formulas of overlapping against an event-by-event simulation of the same pipeline."""

from typing import Any

import pytest
from _layered_model import Layered
from _layered_pipeline import Layers, priority_s, sequential_s, wait_free_s
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.core.protocols import PerfModel
from punctual.core.speed import SeenRate, Shape
from punctual.testing.model_kit import ModelConformance, spec_of

_SECONDS = st.integers(0, 12)


class TestLayered(ModelConformance):
    """It is a performance model like ours."""

    def make(self) -> PerfModel[Any]:
        return Layered()


@st.composite
def layer_times(draw: st.DrawFn) -> Layers:
    """Whole seconds, so that a simulation in whole seconds is exact."""
    n_layers = draw(st.integers(1, 6))
    times = st.lists(_SECONDS.map(float), min_size=n_layers, max_size=n_layers).map(tuple)
    return Layers(draw(times), draw(times), draw(times))


def pass_forward(forward_s: tuple[float, ...], arrived: list[float]) -> float:
    now = 0.0
    for seconds, arrival in zip(forward_s, arrived, strict=True):
        now = max(now, arrival) + seconds
    return now


def ready_at(layers: Layers) -> list[float]:
    return [sum(layers.backward_s[i:]) for i in range(len(layers.backward_s))]


def first_come(jobs: list[tuple[float, float]]) -> list[float]:
    """One link, jobs (ready, seconds) in the order given: when each has passed."""
    free, ended = 0.0, []
    for ready, seconds in jobs:
        free = max(free, ready) + seconds
        ended.append(free)
    return ended


def simulated_wait_free(layers: Layers) -> float:
    order = range(len(layers.forward_s) - 1, -1, -1)
    ready = ready_at(layers)
    pushed = first_come([(ready[i], layers.transfer_s[i]) for i in order])
    pulled = first_come([(at, layers.transfer_s[i]) for at, i in zip(pushed, order, strict=True)])
    # The published recursion begins the forward pass when the first layer has come, which comes last.
    return pass_forward(layers.forward_s, pulled[::-1])


def simulated_priority(layers: Layers, slice_s: float) -> float:
    """Second by second: the link takes a second of the lowest layer that is ready and has some left."""
    ready, left = ready_at(layers), list(layers.transfer_s)
    pushed = [at if seconds == 0 else 0.0 for at, seconds in zip(ready, left, strict=True)]
    now = 0.0
    while any(left):
        layer = next((i for i, at in enumerate(ready) if at <= now and left[i] > 0), None)
        now += 1
        if layer is not None:
            left[layer] -= 1
            pushed[layer] = now
    return pass_forward(layers.forward_s, [at + slice_s for at in pushed])


@settings(deadline=None)
@given(layer_times())
def test_wait_free_is_what_a_simulation_finds(layers: Layers) -> None:
    assert wait_free_s(layers) == simulated_wait_free(layers)


@settings(deadline=None)
@given(layer_times(), st.sampled_from([0.0, 1.0, 2.5]))
def test_priority_is_what_a_simulation_finds(layers: Layers, slice_s: float) -> None:
    transferring = Layers(layers.forward_s, layers.backward_s, tuple(one + 1 for one in layers.transfer_s))
    assert priority_s(transferring, slice_s) == simulated_priority(transferring, slice_s)


@given(layer_times())
def test_overlap_is_never_slower_and_never_faster_than_its_parts(layers: Layers) -> None:
    computing_s = sum(layers.forward_s) + sum(layers.backward_s)
    assert computing_s <= priority_s(layers) <= wait_free_s(layers) <= sequential_s(layers)


def test_the_published_recursion_by_hand() -> None:
    layers = Layers((1.0, 1.0), (2.0, 3.0), (4.0, 5.0))
    # Layer 2 is ready at 3, pushed until 8, pulled until 13; layer 1 ready at 5, pushed until 12, pulled until 17.
    assert wait_free_s(layers) == 19
    assert sequential_s(layers) == 5 + 18 + 2


def test_lemma_two_while_the_link_is_busy_throughout() -> None:
    forward, backward, transfer = (1.0, 2.0, 1.0), (1.0, 1.0, 1.0), (4.0, 5.0, 6.0)
    first_s = sum(backward) + transfer[0] + 0.5
    arrived = [first_s + sum(transfer[1 : j + 1]) - sum(backward[:j]) for j in range(3)]
    assert priority_s(Layers(forward, backward, transfer), 0.5) == pass_forward(forward, arrived)


# With eight equal layers, at least the first one's push and pull are exposed; under priority they go side by side.
@pytest.mark.parametrize(
    ("schedule", "least", "most"), [("sequential", 1, 1), ("wait-free", 1 / 8, 1), ("priority", 1 / 16, 1)]
)
def test_exposure_lies_between_hidden_and_sequential(schedule: str, least: float, most: float) -> None:
    model = Layered(schedule=schedule)  # type: ignore[arg-type]
    for n_workers in (1, 4, 16):
        assert least - 1e-9 <= model.exposed_frac(Shape(n_workers=n_workers, n_servers=2)) <= most + 1e-9


def test_known_times_give_a_speed_before_any_measurement() -> None:
    model = Layered(forward_s=(1.0,), backward_s=(2.0,), transfer_s=(0.5,), schedule="sequential", times_known=True)
    state = model.init(spec_of())
    assert model.rate_sps(state, Shape(n_workers=1, n_servers=1)) == pytest.approx(1 / 4, rel=0.2)
    assert model.std_sps(state, Shape()) < model.rate_sps(state, Shape())


def test_learns_how_much_slower_the_link_is_than_declared() -> None:
    declared = Layered()
    state = declared.init(spec_of())
    shapes = [Shape(n_workers=w, n_servers=p) for w in (1, 2, 4, 8) for p in (1, 2, 4)]
    for shape in shapes[:8]:
        state = declared.update(state, SeenRate(shape=shape, rate_sps=3 / declared.step_s(shape, log_ratio=1.1)))
    for shape in shapes[8:]:
        truth_sps = 3 / declared.step_s(shape, log_ratio=1.1)
        assert declared.rate_sps(state, shape) == pytest.approx(truth_sps, rel=0.05)


@pytest.mark.parametrize("fields", [{"forward_s": (1.0,)}, {"worker_s": -1.0}, {"ratio_std": 0.0}])
def test_times_that_make_no_network_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec):
        Layered(**fields)  # type: ignore[arg-type]
