"""proportional-integral: the placed poles, the start, the gains and the anti-windup."""

from math import exp

import pytest

from punctual.core.control import Demand, PhaseProgress, Reading
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.papers.decor_nn.proportional_integral import ProportionalIntegral, ProportionalIntegralState

_CEILING = Resources(cores=4.0)
_SPEC = JobSpec(id=JobId("job"), ceiling=_CEILING, floor=Resources(cores=0.02), deadline_s=100.0, margin_frac=0.0)


class _IdealPlant:
    """Progress is the integral of the cores; a grant holds from one tick to the next."""

    def __init__(self, controller: ProportionalIntegral, core_s_per_step: float = 0.02, n_steps: float = 5000) -> None:
        self.controller = controller
        self.core_s_per_step = core_s_per_step
        self.n_steps = n_steps
        self.phases: tuple[PhaseProgress, ...] = ()
        self.at_s, self.steps, self.cores = 0.0, 1.0, 4.0
        self.deadline_s = 100.0
        self.state: ProportionalIntegralState = controller.init(_SPEC)

    def tick(self, *, delivered_frac: float = 1.0, granted_max: float = 4.0) -> Demand:
        """Read, demand, and run one period with what is granted and delivered of it."""
        demand, self.state = self.controller.step(_SPEC, self.state, self.reading())
        self.cores = min(demand.resources.cores, granted_max)
        self.steps += self.cores * delivered_frac * demand.next_tick_s / self.core_s_per_step
        self.at_s += demand.next_tick_s
        return demand

    def reading(self) -> Reading:
        return Reading(
            elapsed_s=self.at_s,
            deadline_s=self.deadline_s,
            granted=Resources(cores=self.cores),
            granted_core_s=0.0,
            used_core_s=self.steps * self.core_s_per_step + sum(phase.core_s for phase in self.phases),
            in_flight_core_s=0.0,
            unit_at_s=self.at_s,
            steps_done=self.steps,
            steps_total=self.n_steps,
            ceiling=_CEILING,
            phases=self.phases,
        )

    def until_closed(self) -> Demand:
        """Tick until the loop is closed; the first demand made with it."""
        while (demand := self.tick()).reason.code in ("start-up", "measuring"):
            pass
        return demand


@pytest.mark.parametrize(("core_s_per_step", "n_steps"), [(0.02, 5000), (2.0, 50), (1e-4, 1e6)])
@pytest.mark.parametrize("time_constant_s", [1.5, 3.0])
def test_error_decays_with_the_placed_double_pole(
    core_s_per_step: float, n_steps: float, time_constant_s: float
) -> None:
    """After a disturbance (q - z)^2 e = 0 holds exactly, whatever the size of the job."""
    controller = ProportionalIntegral(time_constant_s=time_constant_s, deadband_frac=0.0)
    plant = _IdealPlant(controller, core_s_per_step, n_steps)
    plant.until_closed()
    for _ in range(5):
        plant.tick()
    plant.tick(delivered_frac=0.7)
    errors = [plant.tick().reason.facts["error_steps"] for _ in range(40)]
    z = exp(-0.5 / time_constant_s)
    scale = max(map(abs, errors))
    assert scale > 0.01 / core_s_per_step
    for e0, e1, e2 in zip(errors, errors[1:], errors[2:], strict=False):
        assert e2 == pytest.approx(2 * z * e1 - z**2 * e0, abs=1e-6 * scale)
    assert abs(errors[-1]) < 0.01 * scale


def test_starts_on_the_line_with_the_cores_it_needs() -> None:
    plant = _IdealPlant(ProportionalIntegral())
    demand = plant.until_closed()
    left_s, left_core_s = 100 - plant.at_s + 0.5, 100 - (plant.steps - 1) * 0.02 + demand.resources.cores * 0.5
    assert demand.reason.facts["error_steps"] == 0
    assert demand.resources.cores == pytest.approx(left_core_s / left_s, rel=1e-3)


def test_follows_a_moved_deadline_from_where_it_is() -> None:
    plant = _IdealPlant(ProportionalIntegral())
    plant.until_closed()
    plant.deadline_s = 50.0
    demand = plant.tick()
    assert demand.reason.facts["error_steps"] == 0
    assert demand.resources.cores == pytest.approx((100 - 4 * 1.5) / (50 - 1.5), rel=0.05)


def test_gains_follow_the_cost_of_a_step() -> None:
    controller = ProportionalIntegral()
    (proportional, integral), (proportional_2, integral_2) = controller.gains(0.01), controller.gains(0.02)
    z = exp(-0.5 / 3.0)
    assert proportional == pytest.approx(2 * (1 - z) / (100 * 0.5))
    assert integral == pytest.approx((1 - z) ** 2 / (100 * 0.25))
    assert (proportional_2, integral_2) == pytest.approx((2 * proportional, 2 * integral))


def test_learns_a_change_of_the_cost() -> None:
    plant = _IdealPlant(ProportionalIntegral())
    plant.until_closed()
    plant.steps, plant.core_s_per_step = plant.steps / 2, plant.core_s_per_step * 2  # keeps the CPU used continuous
    plant.n_steps /= 2
    for _ in range(120):
        demand = plant.tick()
    assert demand.reason.facts["core_s_per_step"] == pytest.approx(0.04, rel=0.1)


def test_does_not_wind_up_while_less_is_granted() -> None:
    plant = _IdealPlant(ProportionalIntegral())
    before = plant.until_closed().reason.facts["integral_cores"]
    clipped = [plant.tick(granted_max=0.5) for _ in range(40)]
    assert clipped[-1].resources.cores > 0.5
    assert clipped[-1].reason.facts["integral_cores"] == pytest.approx(before, rel=0.05)


def test_small_changes_are_not_demanded() -> None:
    plant = _IdealPlant(ProportionalIntegral(deadband_frac=0.01))
    first = plant.until_closed().resources.cores
    plant.tick(delivered_frac=0.995)
    assert plant.tick().resources.cores == first
    plant.tick(delivered_frac=0.8)
    assert plant.tick().resources.cores > 1.01 * first


def test_leaves_room_for_the_phases_to_come() -> None:
    plant = _IdealPlant(ProportionalIntegral())
    plant.phases = (PhaseProgress(name="evaluate", units_planned=100, units_done=0, units_measured=2, core_s=0.6),)
    with_phases = plant.until_closed().resources.cores
    without = _IdealPlant(ProportionalIntegral()).until_closed().resources.cores
    assert with_phases == pytest.approx(without * (100 + 30) / 100, rel=0.02)


def test_spreads_the_last_phases_over_the_time_left() -> None:
    plant = _IdealPlant(ProportionalIntegral())
    plant.until_closed()
    plant.steps, plant.at_s = plant.n_steps, 90.0
    plant.phases = (PhaseProgress(name="evaluate", units_planned=20, units_done=10, units_measured=12, core_s=6.0),)
    assert plant.tick().resources.cores == pytest.approx(10 * 0.5 / 10)


def test_rejects_parameters_out_of_range() -> None:
    with pytest.raises(InvalidSpec, match="period_s / time_constant_s"):
        ProportionalIntegral(period_s=3.0)
    with pytest.raises(InvalidSpec, match=r"`margin_frac` must be from 0 to below 1: got -0\.1"):
        ProportionalIntegral(margin_frac=-0.1)
