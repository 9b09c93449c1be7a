"""The learnt model of layers: exposure, and the factors that it finds."""

from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.protocols import PerfModel
from punctual.core.speed import SeenRate, Shape
from punctual.papers.smd.layered_model import Layered
from punctual.testing.model_kit import ModelConformance, spec_of


class TestLayered(ModelConformance):
    """It is a performance model like ours."""

    def make(self) -> PerfModel[Any]:
        return Layered()


# With eight equal layers, at least the first one's push and pull are exposed; under priority they go side by side.
@pytest.mark.parametrize(
    ("overlap", "least", "most"), [("sequential", 1, 1), ("wait-free", 1 / 8, 1), ("priority", 1 / 16, 1)]
)
def test_exposure_lies_between_hidden_and_sequential(overlap: str, least: float, most: float) -> None:
    model = Layered(overlap=overlap)  # type: ignore[arg-type]
    for n_workers in (1, 4, 16):
        assert least - 1e-9 <= model.exposed_frac(Shape(n_workers=n_workers, n_servers=2)) <= most + 1e-9


def test_known_times_give_a_speed_before_any_measurement() -> None:
    model = Layered(forward_s=(1.0,), backward_s=(2.0,), transfer_s=(0.5,), overlap="sequential", times_known=True)
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
