"""Steps left until a goal: the right number on the model's own curves, an interval that covers on others too."""

import random
from collections.abc import Callable
from math import exp, inf, nan

import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.core.loss import LossGoal, SeenLoss
from punctual.core.protocols import ConvergenceModel
from punctual.estimators.convergence.inverse_power import InversePower, InversePowerState, without_outliers

Curve = Callable[[float], float]

MODEL = InversePower()


def own(k: float) -> float:
    return 1 / (0.002 * k + 0.2) + 0.4


CURVES: dict[str, Curve] = {
    "own": own,
    "exponential": lambda k: 4 * exp(-k / 800) + 0.5,
    "slow-power": lambda k: 6 * (k + 20) ** -0.4,
    "power-with-limit": lambda k: 3 * (1 + k / 100) ** -0.8 + 0.3,
}


def watched(curve: Curve, until: float, *, noise: float = 0.0, seed: int = 0, n: int = 40) -> InversePowerState:
    drawn, state = random.Random(seed), MODEL.init()
    for i in range(1, n + 1):
        steps = until * i / n
        state = MODEL.update(state, SeenLoss(steps, curve(steps) * exp(drawn.gauss(0, noise))))
    return state


def test_it_is_registered_and_keeps_the_protocol() -> None:
    model: ConvergenceModel[InversePowerState] = registry.load("convergence", "inverse-power")()
    assert model == MODEL


def test_finds_the_steps_left_on_its_own_curve() -> None:
    left = MODEL.steps_left(watched(own, 500), LossGoal(target=own(1000)))
    assert left.status == "ok"
    assert left.expected == pytest.approx(500, rel=0.1)
    assert left.least < 500 < left.most


def test_finds_when_an_epoch_hardly_lowers_the_loss() -> None:
    end = next(k for k in range(100, 20_000) if own(k - 100) - own(k) < 0.05)
    left = MODEL.steps_left(watched(own, 600), LossGoal(drop=0.05, epoch_steps=100))
    assert left.expected == pytest.approx(end - 600, rel=0.1)
    later = MODEL.steps_left(watched(own, 600), LossGoal(drop=0.05, epoch_steps=100, n_epochs=3))
    assert later.expected == pytest.approx(left.expected + 200)


@pytest.mark.parametrize("name", CURVES)
def test_the_interval_covers_on_curves_of_other_forms(name: str) -> None:
    curve, n_covered, n_asked = CURVES[name], 0, 0
    for seed in range(3):
        for noise in (0.02, 0.1):
            for end in (600, 1500):
                for share in (0.25, 0.5, 0.8):
                    state = watched(curve, share * end, noise=noise, seed=seed)
                    left = MODEL.steps_left(state, LossGoal(target=curve(end)))
                    n_covered += left.least <= (1 - share) * end <= left.most
                    n_asked += 1
    assert n_covered >= 0.8 * n_asked


def test_the_interval_narrows_as_the_goal_comes_near() -> None:
    widths = []
    for share in (0.3, 0.6, 0.9):
        left = MODEL.steps_left(watched(own, share * 1000, noise=0.01), LossGoal(target=own(1000)))
        widths.append(left.most - left.least)
    assert widths[2] < widths[1] <= widths[0]


def test_a_goal_below_the_limit_is_never_reached() -> None:
    left = MODEL.steps_left(watched(own, 20_000), LossGoal(target=0.2))
    assert (left.status, left.expected, left.most) == ("never", inf, inf)


def test_a_goal_that_is_reached_leaves_nothing() -> None:
    left = MODEL.steps_left(watched(own, 1000), LossGoal(target=own(900)))
    assert (left.expected, left.most, left.status) == (0.0, 0.0, "ok")


def test_one_low_batch_is_no_arrival() -> None:
    state = MODEL.update(watched(own, 500), SeenLoss(510, 0.01))
    assert MODEL.steps_left(state, LossGoal(target=own(2000))).expected > 0


def test_few_points_say_so() -> None:
    left = MODEL.steps_left(watched(own, 300, n=3), LossGoal(target=0.5))
    assert (left.status, left.least, left.most) == ("too-few-points", 0.0, inf)


@pytest.mark.parametrize("losses", [[1.0] * 6, [0.0] * 6, [-1.0, 2.0] * 4, [1.0, 2.0, 4.0, 8.0, 16.0], [1e300] * 5])
def test_losses_that_do_not_fall_crash_nothing(losses: list[float]) -> None:
    state = MODEL.init()
    for i, loss in enumerate(losses):
        state = MODEL.update(state, SeenLoss(float(i), loss))
    for goal in (LossGoal(target=-5.0), LossGoal(drop=1e-3, epoch_steps=10)):
        left = MODEL.steps_left(state, goal)
        assert left.least <= left.expected <= left.most or left.status == "failed"


def test_no_numbers_are_left_out_and_a_restart_forgets_what_came_after() -> None:
    state = watched(own, 100, n=10)
    for bad in (SeenLoss(200, nan), SeenLoss(nan, 1.0), SeenLoss(-1, 1.0), SeenLoss(300, inf)):
        assert MODEL.update(state, bad) is state
    again = MODEL.update(state, SeenLoss(50, 3.0))
    assert [point.steps for point in again.points] == [10, 20, 30, 40, 50]


def test_many_points_are_thinned() -> None:
    state = watched(own, 5000, n=1000)
    assert len(state.points) <= MODEL.n_points_max
    assert state.points[-1].steps == 5000
    left = MODEL.steps_left(state, LossGoal(target=own(8000)))
    assert left.expected == pytest.approx(3000, rel=0.1)


def test_outliers_take_their_neighbours_mean() -> None:
    assert without_outliers([5.0, 4.0, 9.0, 3.0, 0.1, 2.0, 1.5], 3) == [5.0, 4.0, 3.5, 3.0, 2.5, 2.0, 1.5]


@pytest.mark.parametrize("fields", [{}, {"target": 1.0, "drop": 0.1}, {"drop": 0.0}, {"drop": 0.1, "epoch_steps": 0.0}])
def test_a_goal_must_be_one(fields: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec):
        LossGoal(**fields)  # type: ignore[arg-type]


def test_parameters_are_checked() -> None:
    with pytest.raises(InvalidSpec):
        InversePower(widen=-1.0)
    with pytest.raises(InvalidSpec):
        InversePower(exponents=())
