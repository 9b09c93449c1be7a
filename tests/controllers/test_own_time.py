"""Jobs whose speed cores do not set: forecast and steered in their own time."""

from dataclasses import dataclass, field

import pytest

from punctual.controllers.remaining_cost import RemainingCost
from punctual.core.control import Demand, PacingLine, Reading
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources


@dataclass
class Waiting:
    """A training whose step computes for `core_s` on one core, then waits for `wait_s`; it keeps to its line.

    Attributes
    ----------
    device_s
        What its device does in a step, within the wait; 0: it waits for something else.
    most_cores
        What it is granted at most, because others hold the rest.
    """

    core_s: float = 0.005
    wait_s: float = 0.095
    device_s: float = 0.0
    n_steps: int = 600
    deadline_s: float = 90.0
    most_cores: float = 2.0
    gpus: float = 0.0
    line: PacingLine | None = None
    cores: float = 0.0
    now_s: float = 0.0
    unit_at_s: float = 0.0
    granted_core_s: float = 0.0
    busy_s: float = 0.0
    n_done: int = 0
    demands: list[tuple[Reading, Demand]] = field(default_factory=list)

    def run(self) -> float:
        """Be steered to the end; the instant at which the last step was done."""
        ceiling = Resources(cores=2.0, gpus=self.gpus)
        spec = JobSpec(id=JobId("job"), ceiling=ceiling, deadline_s=self.deadline_s)
        controller = RemainingCost()
        state = controller.init(spec)
        self.cores = min(2.0, self.most_cores)
        while self.n_done < self.n_steps:
            reading = self._reading(ceiling)
            demand, state = controller.step(spec, state, reading)
            self.demands.append((reading, demand))
            self.cores, self.line = min(demand.resources.cores, self.most_cores), demand.pacing
            self._work_for(demand.next_tick_s)
        return self.unit_at_s

    def _work_for(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.n_done < self.n_steps and self.now_s < until_s:
            takes_s = self.core_s / min(self.cores, 1.0) + self.wait_s
            done_s, line = self.now_s + takes_s, self.line
            self.busy_s += takes_s
            self.n_done += 1
            may_s = 0.0 if line is None else line.end_s - (line.end_work - self.n_done) * line.s_per_step
            self._advance(max(done_s, may_s))
            self.unit_at_s = self.now_s

    def _advance(self, to_s: float) -> None:
        self.granted_core_s += self.cores * (to_s - self.now_s)
        self.now_s = to_s

    def _reading(self, ceiling: Resources) -> Reading:
        used_core_s = self.n_done * self.core_s
        return Reading(
            elapsed_s=self.now_s,
            deadline_s=self.deadline_s,
            granted=Resources(cores=self.cores, gpus=self.gpus),
            granted_core_s=self.granted_core_s,
            used_core_s=used_core_s,
            in_flight_core_s=0.0,
            unit_at_s=self.unit_at_s,
            steps_done=self.n_done,
            steps_total=self.n_steps,
            ceiling=ceiling,
            can_pace=True,
            busy_s=self.busy_s,
            device_s=self.n_done * self.device_s,
            active_s=used_core_s,
        )

    def from_s(self, seconds: float) -> list[tuple[Reading, Demand]]:
        """What was demanded from that instant on."""
        return [(reading, demand) for reading, demand in self.demands if reading.elapsed_s >= seconds]


@pytest.mark.parametrize("most_cores", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("device_s", [0.0, 0.09])
def test_a_job_that_waits_lands_on_its_deadline_with_few_cores(most_cores: float, device_s: float) -> None:
    job = Waiting(most_cores=most_cores, device_s=device_s)
    assert job.deadline_s - 0.1 <= job.run() <= job.deadline_s
    assert all(demand.resources.cores < 0.5 for _, demand in job.from_s(5.0)[:-20])


@pytest.mark.parametrize("most_cores", [0.3, 2.0])
@pytest.mark.parametrize("device_s", [0.0, 0.09])
def test_a_deadline_that_waiting_makes_impossible_is_known_within_seconds(most_cores: float, device_s: float) -> None:
    job = Waiting(deadline_s=30.0, most_cores=most_cores, device_s=device_s)
    landed_s = job.run()
    assert landed_s > 60.0
    for reading, demand in job.from_s(6.0):
        assert demand.forecast is not None
        assert not demand.forecast.feasible
        assert demand.forecast.finish_s == pytest.approx(landed_s, rel=0.05)
        assert demand.resources.cores <= 1.0, reading


def test_no_deadline_can_be_promised_to_it_on_cores() -> None:
    job = Waiting(deadline_s=200.0, n_steps=1000)
    job.run()
    works = [demand.work for _, demand in job.demands if demand.work is not None]
    assert works
    assert not any(work.is_steady for work in works)


def test_a_part_of_a_device_is_what_the_forecast_counts_with() -> None:
    whole, half = Waiting(deadline_s=30.0, device_s=0.09), Waiting(deadline_s=30.0, device_s=0.09, gpus=0.5)
    for job in (whole, half):
        job.run()
    forecasts = [job.from_s(5.0)[0][1].forecast for job in (whole, half)]
    finishes_s = [forecast.finish_s for forecast in forecasts if forecast is not None]
    assert finishes_s[1] == pytest.approx(600 * 0.18, rel=0.05)
    assert finishes_s[0] == pytest.approx(600 * 0.1, rel=0.05)


def test_a_job_that_computes_is_steered_by_cores() -> None:
    job = Waiting(core_s=0.1, wait_s=0.0)
    assert job.deadline_s - 0.5 <= job.run() <= job.deadline_s
    tracked = [demand for _, demand in job.from_s(3.0) if demand.reason.code == "track"]
    assert tracked
    assert all(demand.work is not None and demand.work.is_steady for demand in tracked)


def test_the_forecast_knows_the_floor() -> None:
    spec = JobSpec(id=JobId("job"), ceiling=Resources(cores=2.0), floor=Resources(cores=0.5), deadline_s=100.0)
    controller = RemainingCost()
    state, forecasts = controller.init(spec), []
    for i in range(40):  # 0.1 core-seconds a step on 0.5 cores, 100 steps: done after 20 s
        reading = Reading(
            elapsed_s=0.5 * i, deadline_s=100.0, granted=Resources(cores=0.5), granted_core_s=0.25 * i,
            used_core_s=0.25 * i, in_flight_core_s=0.0, unit_at_s=0.5 * i, steps_done=2.5 * i, steps_total=100.0,
            ceiling=Resources(cores=2.0), can_pace=True,
        )  # fmt: skip
        demand, state = controller.step(spec, state, reading)
        forecasts.append(demand)
    assert forecasts[-1].reason.code == "floor"
    assert forecasts[-1].forecast is not None
    assert forecasts[-1].forecast.finish_s == pytest.approx(20.0, rel=0.03)


def test_two_reports_of_one_instant_show_no_rate() -> None:
    """A clock may stand still, or be set back, between two reports."""
    spec = JobSpec(id=JobId("job"), ceiling=Resources(cores=2.0), deadline_s=100.0)
    controller = RemainingCost()
    state = controller.init(spec)
    for i, at_s in enumerate([5.0, 5.0, 4.0]):
        reading = Reading(
            elapsed_s=at_s, deadline_s=100.0, granted=Resources(cores=1.0), granted_core_s=5.0, used_core_s=1.0 + i,
            in_flight_core_s=0.0, unit_at_s=at_s, steps_done=10.0 + i, steps_total=100.0, ceiling=Resources(cores=2.0),
            can_pace=True, busy_s=1.0 + i,
        )  # fmt: skip
        demand, state = controller.step(spec, state, reading)
        assert demand.resources.fits_in(spec.ceiling)
