"""The conformance kit of controllers: subclass it, construct your controller in `make`, and inherit the tests."""

from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from math import inf, isfinite, isnan
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from punctual.core.cluster import Node
from punctual.core.control import Demand, PhaseProgress, Reading
from punctual.core.events import JobFinished, Message, ProgressReported, SpecChanged
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.protocols import Controller
from punctual.core.resources import TOLERANCE, Resources
from punctual.sim.job import SimJob
from punctual.sim.plants.closed_loop import DemandPolicy
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import AllReduceTruth, CoresTruth
from punctual.testing.readings import job_specs, reading_sequences

# As many examples as the profile says. One test is run by many subclasses, which Hypothesis would take for a mistake.
_GENERATED = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])

_SPEC = JobSpec(id=JobId("example"), ceiling=Resources(cores=1.0), floor=Resources(cores=0.02), deadline_s=60.0)

_HALFWAY = Reading(
    elapsed_s=30.0,
    deadline_s=60.0,
    granted=Resources(cores=0.5),
    granted_core_s=17.0,
    used_core_s=16.5,
    in_flight_core_s=0.005,
    unit_at_s=29.99,
    steps_done=500,
    steps_total=1000.0,
    ceiling=Resources(cores=1.0),
    phases=(
        PhaseProgress(name="evaluate", units_planned=32, units_done=16, units_measured=18, core_s=1.3, wall_s=2.5),
    ),
)

#: Takes 35 s on its core, so that a minute asks for a little more than half of it.
_BENIGN = SimJob(0.0, replace(_SPEC, startup_s=3.0, work_steps=2000.0), CoresTruth(step_core_s=0.016), 2000.0)
#: Takes 75 s with one worker and 25 s with all four, so that a minute asks for between one and two.
_BENIGN_WORKERS = SimJob(
    0.0,
    replace(
        _SPEC, worker=Resources(cores=1.0), counts=(1, 2, 3, 4), floor=Resources(cores=1.0), ceiling=Resources(cores=4.0),
        startup_s=3.0, resize_cost_s=0.3, work_steps=600.0,
    ),
    AllReduceTruth(step_s=0.12, communication_frac=0.04),
    600.0,
)  # fmt: skip


class ControllerConformance:
    """Tests of every controller. A subclass overrides `make`.

    Attributes
    ----------
    landing_frac
        Largest distance of the landing of a simulated job with a steady speed from its deadline, as a share of the
        deadline.
    of_workers
        Whether it is meant for jobs made of workers, and is to land one of these.

    Examples
    --------
    >>> class TestMine(ControllerConformance):
    ...     def make(self):
    ...         return Mine()
    """

    landing_frac = 0.1
    of_workers = False

    def make(self) -> Controller[Any]:
        """A controller with its default parameters."""
        raise NotImplementedError

    def test_is_a_frozen_dataclass(self) -> None:
        controller: Any = self.make()
        assert is_dataclass(type(controller))
        with pytest.raises(FrozenInstanceError):
            setattr(controller, fields(controller)[0].name, None)

    @_GENERATED
    @given(st.data())
    def test_demands_are_sound_and_follow_from_the_inputs_whatever_is_read(self, data: st.DataObject) -> None:
        spec = data.draw(job_specs())
        controller = self.make()
        state = controller.init(spec)
        assert controller.init(spec) == state
        for reading in data.draw(reading_sequences(spec)):
            before = deepcopy((state, reading))
            demand, after = controller.step(spec, state, reading)
            check_demand(spec, reading, demand)
            assert (state, reading) == before, "inputs stay unchanged"
            assert self.make().step(spec, state, reading) == (demand, after), "the same inputs give the same outputs"
            state = after

    def test_ceiling_before_the_first_step(self) -> None:
        nothing_done = replace(_HALFWAY, elapsed_s=3.0, steps_done=0, used_core_s=2.0, phases=())
        for steps_total in (None, 1000.0):
            demand = self._after(replace(nothing_done, steps_total=steps_total))
            assert demand.resources == _SPEC.ceiling

    def test_ceiling_without_declared_steps(self) -> None:
        assert self._after(replace(_HALFWAY, steps_total=None)).resources == _SPEC.ceiling

    def test_ceiling_without_deadline(self) -> None:
        assert self._after(replace(_HALFWAY, deadline_s=float("inf"))).resources == _SPEC.ceiling

    def test_ceiling_or_last_demand_once_the_deadline_has_passed(self) -> None:
        controller = self.make()
        before, state = controller.step(_SPEC, controller.init(_SPEC), _HALFWAY)
        after, _ = controller.step(_SPEC, state, replace(_HALFWAY, elapsed_s=61.0, granted_core_s=48.0))
        assert after.resources in (_SPEC.ceiling, before.resources)

    def test_sound_without_progress(self) -> None:
        stuck = [replace(_HALFWAY, elapsed_s=at_s, granted_core_s=at_s / 2) for at_s in (30.0, 31.0, 40.0, 59.0, 70.0)]
        self._after(*stuck)

    def test_sound_after_landing(self) -> None:
        done = replace(_HALFWAY, elapsed_s=59.0, steps_done=1000, used_core_s=33.0, in_flight_core_s=0.0, landed=True)
        self._after(_HALFWAY, done, replace(done, elapsed_s=61.0))

    def test_lands_near_the_deadline_of_a_steady_job(self) -> None:
        self._lands_near(60.0)

    def test_lands_near_a_deadline_that_moved(self) -> None:
        for moved_s in (48.0, 68.0):
            self._lands_near(60.0, moved_s=moved_s)

    def test_runs_at_its_ceiling_when_the_deadline_cannot_be_met(self) -> None:
        deadline_s = 15.0 if self.of_workers else 25.0
        landed_s, used_core_s = self._landed(deadline_s)
        assert landed_s > deadline_s
        assert used_core_s > 0.9 * (landed_s - _BENIGN.spec.startup_s) * self._benign().spec.ceiling.cores

    def _lands_near(self, deadline_s: float, *, moved_s: float | None = None) -> None:
        landed_s, _ = self._landed(deadline_s, moved_s=moved_s)
        assert abs(landed_s - (moved_s or deadline_s)) < self.landing_frac * (moved_s or deadline_s)

    def _benign(self) -> SimJob:
        return _BENIGN_WORKERS if self.of_workers else _BENIGN

    def _landed(self, deadline_s: float, *, moved_s: float | None = None) -> tuple[float, float]:
        """Return the landing of a simulated, steered job, and its usage; its deadline may move after 18 s."""
        job = self._benign()
        spec = replace(job.spec, deadline_s=deadline_s, controller="steers")
        moves = [] if moved_s is None else [SpecChanged(at=18.0, spec=replace(spec, deadline_s=moved_s))]
        messages: list[Message] = []
        Simulation(
            [replace(job, spec=spec)], [Node(NodeId("node"), spec.ceiling)], DemandPolicy(),
            controllers={"steers": self.make()}, listeners=[messages.append], events=moves,
        ).run()  # fmt: skip
        used_core_s = max(message.used_core_s for message in messages if isinstance(message, ProgressReported))
        return next(message.landed_at for message in messages if isinstance(message, JobFinished)), used_core_s

    def _after(self, *readings: Reading) -> Demand:
        """The demand at the last of `readings`, each demand on the way being sound."""
        controller = self.make()
        state = controller.init(_SPEC)
        for reading in readings:
            demand, state = controller.step(_SPEC, state, reading)
            check_demand(_SPEC, reading, demand)
        return demand


def check_demand(spec: JobSpec, reading: Reading, demand: Demand) -> None:
    """Assert what must hold for every demand of every controller."""
    ceiling = spec.ceiling.at_most(reading.ceiling)
    assert demand.resources.fits_in(ceiling)
    assert spec.worker is None or spec.parts_of(demand.resources), "whole workers, in a number the job can run with"
    assert demand.resources.cores >= min(spec.floor.cores, ceiling.cores) - TOLERANCE
    assert demand.resources.cores > 0 or ceiling.cores == 0  # a demand of nothing would suspend the job
    assert isfinite(demand.next_tick_s)
    assert demand.next_tick_s > 0
    assert demand.reason.code
    assert all(isfinite(fact) for fact in demand.reason.facts.values()), demand.reason.facts
    _check_pacing(reading, demand)
    _check_forecast(demand)
    _check_work(demand)


def _check_pacing(reading: Reading, demand: Demand) -> None:
    if demand.pacing is not None:
        assert reading.can_pace
        assert isfinite(demand.pacing.end_s)
        assert isfinite(demand.pacing.s_per_step)
        assert demand.pacing.s_per_step >= 0


def _check_work(demand: Demand) -> None:
    if demand.work is not None:
        work = demand.work
        assert isfinite(work.due_s)
        assert all(0 <= each < inf for each in (work.core_s, work.std_core_s, work.usable_cores, work.slack_s))


def _check_forecast(demand: Demand) -> None:
    if demand.forecast is not None:
        assert not isnan(demand.forecast.finish_s)
        assert not isnan(demand.forecast.earliest_finish_s)
        assert demand.forecast.std_s >= 0
