"""Jobs that are not as fast at their end as at their beginning."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.sim.pieces import Fifo, Restless, Scripted, nodes, of, on, play, sim_job

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished, ProgressReported
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.speed_laws import Constant, MeasuredTruth

#: A step a second, two, and a half.
PHASES = ((0.0, Constant(1.0)), (40.0, Constant(2.0)), (80.0, Constant(0.5)))
#: 40 s, 20 s and 40 s.
WHOLE_S = 100.0


def phased(**declared: object) -> SimJob:
    return replace(sim_job("a", steps=100.0, **declared), phases=PHASES)  # type: ignore[arg-type]


def finished_at(job: SimJob, policy: object, physics: Physics | None = None) -> float:
    (end,) = of(play([job], nodes(), policy, physics=physics or Physics()), JobFinished)
    return float(end.at)


def test_each_phase_takes_its_time() -> None:
    assert finished_at(phased(), Fifo()) == WHOLE_S
    assert finished_at(phased(startup_s=7.0), Fifo()) == 7.0 + WHOLE_S


def test_the_speed_at_any_step() -> None:
    job = phased()
    found = [job.speed_at(steps) for steps in (0.0, 39.9, 40.0, 99.0)]
    assert [(truth.rate, until) for truth, until in found if isinstance(truth, Constant)] == [
        (1.0, 40.0), (1.0, 40.0), (2.0, 80.0), (0.5, 100.0),
    ]  # fmt: skip
    assert sim_job("b", steps=100.0).speed_at(50.0) == (Constant(1.0), 100.0)


def test_a_phase_has_its_speed_on_any_number_of_devices() -> None:
    tables = (MeasuredTruth({(1, 1): 1.0, (2, 1): 1.0}), MeasuredTruth({(1, 1): 1.0, (2, 1): 4.0}))
    job = replace(sim_job("a", counts=(1, 2), steps=100.0), phases=((0.0, tables[0]), (50.0, tables[1])))
    # From 70 s on two devices: 30 steps are left.
    policy = Scripted((0.0, {"a": on(1)}), (70.0, {"a": on(2)}))
    other = sim_job("other", 70.0, steps=1.0)
    ends = {end.job: end.at for end in of(play([job, other], nodes(), policy), JobFinished)}
    assert ends["a"] == pytest.approx(70.0 + 30.0 / 4.0)


def test_a_pause_and_a_change_at_the_very_end_of_a_phase_lose_nothing() -> None:
    job = phased(counts=(1, 2))
    policy = Scripted((0.0, {"a": on(1)}), (40.0, {"a": on(2)}))
    journal = play([job, sim_job("other", 40.0, steps=1.0)], nodes(), policy)
    assert [end.at for end in of(journal, JobFinished, job="a")] == [WHOLE_S]


def test_reports_follow_the_phases() -> None:
    journal = play([phased()], nodes(), Fifo(), physics=Physics(report_s=30.0))
    done = {report.at: report.steps_done for report in of(journal, ProgressReported)}
    assert done == {30.0: 30.0, 60.0: 80.0, 90.0: 95.0, 100.0: 100.0}


def test_a_job_that_falls_back_to_a_checkpoint_does_its_phase_again() -> None:
    physics = Physics(failures_per_device_h=40.0, checkpoint_s=15.0)
    journal = play([replace(phased(), work_steps=100.0)], nodes(), Fifo(), physics=physics, seed=3)
    assert of(journal, JobFailed)
    (end,) = of(journal, JobFinished)
    assert end.at > WHOLE_S
    reports = of(journal, ProgressReported)
    for one, other in pairwise(reports):
        assert other.steps_done - one.steps_done <= 2.0 * (other.at - one.at) + 1e-9


def test_in_a_restless_world_every_phase_is_done() -> None:
    jobs = [replace(phased(), spec=replace(phased().spec, id=f"job-{i}"), submitted_at=7.0 * i) for i in range(8)]  # type: ignore[arg-type]
    journal = play(jobs, nodes(2, 2), Restless(), seed=5)
    assert len(of(journal, JobFinished)) == 8
    for end in of(journal, JobFinished):
        assert end.at >= jobs[int(end.job.split("-")[1])].submitted_at + WHOLE_S - 1e-6


@pytest.mark.parametrize("begins", [(1.0,), (0.0, 50.0, 50.0), (0.0, 100.0), (0.0, 60.0, 20.0)])
def test_phases_are_checked(begins: tuple[float, ...]) -> None:
    with pytest.raises(InvalidSpec, match="phases"):
        replace(sim_job("a", steps=100.0), phases=tuple((begin, Constant(1.0)) for begin in begins))
