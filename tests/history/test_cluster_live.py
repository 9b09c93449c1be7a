"""The same record of a live run: heard as it happens, read from its journal, and against what others say of it."""

import pytest
from tests.history.scene import record_of
from tests.memory_journal import MemoryJournal
from tests.plants.dry_run import DryRun

from punctual import registry
from punctual.core.events import JobFinished, JobSubmitted, Message, NodeJoined, SpecChanged
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.daemon.engine import Engine
from punctual.daemon.planner import InlinePlanner
from punctual.history.cluster import ClusterHistory
from punctual.history.run import summarize
from punctual.policies.proportional import Proportional
from punctual.sim.fake_clock import FakeClock

JOBS = ("a", "b", "c")


def spec(job: str, deadline_s: float) -> JobSpec:
    return JobSpec(
        id=JobId(job), ceiling=Resources(1.0), floor=Resources(0.05), work_steps=600, deadline_s=deadline_s,
    )  # fmt: skip


def play() -> tuple[ClusterHistory, list[Message], Scheduler]:
    """Three jobs on two cores, one deadline moved: the record that listened, the journal and the scheduler."""
    scheduler = Scheduler({"remaining-cost": registry.load("controllers", "remaining-cost")()}, strict=True)
    clock, journal, record = FakeClock(1000.0), MemoryJournal(), ClusterHistory(details=True)
    planner = InlinePlanner(Proportional())
    engine = Engine(
        scheduler, DryRun(steps_per_core_s=30.0), planner, journal=journal, time=clock, listeners=[record.add]
    )
    engine.post(NodeJoined(at=1000.0, node=NodeId("n"), capacity=Resources(2.0)))
    for job in JOBS:
        engine.post(JobSubmitted(at=1000.0, spec=spec(job, 60.0)))
    engine.run(lambda: clock.now() >= 1020.0)
    engine.post(SpecChanged(at=clock.now(), spec=spec("a", 45.0)))
    engine.run(lambda: all(job.ended_at is not None for job in record.jobs()))
    return record, [message for _, message in journal.read_from(1)], scheduler


def test_a_record_that_listened_equals_one_of_the_journal() -> None:
    record, journal, _ = play()
    again = record_of(journal, details=True)
    assert any(isinstance(message, JobFinished) for message in journal)
    assert again.jobs() == record.jobs()
    assert again.summary() == record.summary()
    assert again.course() == record.course()
    assert again.segments() == record.segments()


def test_it_says_what_the_summary_of_each_run_says() -> None:
    record, journal, _ = play()
    for job in record.jobs():
        run = summarize(journal, job.id)
        assert (job.started_at, job.landed_at, job.ended_at) == (run.started_at, run.landed_at, run.ended_at)
        assert (job.deadline_s, job.on_time, job.status) == (run.deadline_s, run.on_time, run.status)
        assert (job.steps_done, job.steps_total) == (run.steps_done, run.steps_total)
        assert job.core_s >= run.granted_core_s  # that one counts until landing
        assert job.n_resizes >= run.n_resizes > 0


def test_it_counts_the_core_seconds_that_the_scheduler_counts() -> None:
    record, _, scheduler = play()
    for job in record.jobs():
        assert job.core_s == pytest.approx(scheduler.job(job.id).granted_core_s)


def test_the_whole_run() -> None:
    summary = play()[0].summary()
    assert (summary.n_finished, summary.n_deadlines_met, summary.n_unfinished) == (3, 3, 0)
    assert summary.granted_core_frac is not None
    assert 0.5 < summary.granted_core_frac <= 1.0
    assert summary.granted_device_frac is None  # no devices there
    assert summary.n_rounds > 0
    assert summary.decision_max_s == 0.0  # planned in the loop's own thread: no time passes on its clock
