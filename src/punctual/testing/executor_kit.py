"""The conformance kit of executors: subclass it, build your executor and its clock, and inherit the tests."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import pytest

from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.protocols import Executor
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total

E = TypeVar("E", bound=Event)

#: Fate of a job of the kit: it trains for as long as a test takes; it does `N_STEPS` steps and ends with
#: success; it ends in a way that may not happen again.
Fate = Literal["trains", "ends", "fails"]

JOB = JobId("job")
N_STEPS = 20
_N_STEPS_LONG = 10_000_000
_WHY = Reason("test", "the kit wants it")


class ExecutorStage:
    """An executor, its time, and its answers. A subclass provides what its kind of executor needs.

    Parameters
    ----------
    node
        One that has 1.0 cores for jobs.
    """

    #: Number of waits for one answer before a test fails.
    n_waits_max = 10_000

    def __init__(self, executor: Executor, node: NodeId) -> None:
        self.executor = executor
        self.node = node
        self.events: list[Event] = []
        self._n_taken = 0
        self._n_requests = 0

    # For subclasses.

    def now(self) -> float:
        """The present, seconds."""
        raise NotImplementedError

    def wait_a_little(self) -> None:
        """Let some time pass, in which jobs train and answers come."""
        raise NotImplementedError

    def program(self, fate: Fate) -> Program | None:
        """Return a job's program; None if the executor needs none."""
        return None

    def submitted(self, spec: JobSpec, fate: Fate) -> None:
        """A job is about to be launched for the first time."""

    def close(self) -> None:
        """End what still runs."""

    # For tests.

    def perform(self, command: JobCommand) -> None:
        self.executor.perform(command, self.events.append)

    def launch_command(self, fate: Fate = "trains", cores: float = 0.5, request: int | None = None) -> LaunchJob:
        at = self.now()
        return LaunchJob(
            at=at,
            job=JOB,
            request=self._next(request),
            spec=spec_of(fate),
            grant={self.node: Resources(cores)},
            reason=_WHY,
            program=self.program(fate),
            submitted_at=at,
        )

    def launch(self, fate: Fate = "trains", cores: float = 0.5) -> JobStarted:
        """Launch a job that was never launched before."""
        self.submitted(spec_of(fate), fate)
        self.perform(self.launch_command(fate, cores))
        return self.wait_for(JobStarted)

    def resize(self, cores: float, request: int | None = None, job: JobId = JOB) -> None:
        """Request another grant; 0 pauses the job."""
        grant = {self.node: Resources(cores)} if cores else {}
        self.perform(ResizeJob(at=self.now(), job=job, request=self._next(request), grant=grant, reason=_WHY))

    def resized(self, cores: float, request: int | None = None) -> float:
        """Cores that the job holds after a resize."""
        self.resize(cores, request)
        return cores_of(self.wait_for(GrantApplied))

    def stop(self, job: JobId = JOB) -> None:
        self.perform(StopJob(at=self.now(), job=job, cause="enough", is_due=True))

    def look(self) -> ProgressReported | None:
        """Return the job's present report, or None."""
        n_before = len(self.events)
        self.executor.observe(JOB, self.now(), self.events.append)
        seen = [event for event in self.events[n_before:] if isinstance(event, ProgressReported)]
        return seen[-1] if seen else None

    def steps_done(self) -> float:
        """Steps of a job that has been started."""
        seen = self.look()
        assert seen is not None
        return seen.steps_done

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until `holds`."""
        for _ in range(self.n_waits_max):
            if holds():
                return
            self.wait_a_little()
        raise AssertionError(f"it did not come to that; the last events are {self.events[-5:]}")

    def wait_for(self, kind: type[E]) -> E:
        """Return the next event of a kind; skip others before it."""
        taken: list[E] = []

        def has_come() -> bool:
            while self._n_taken < len(self.events) and not taken:
                event = self.events[self._n_taken]
                self._n_taken += 1
                if isinstance(event, kind):
                    taken.append(event)
            return bool(taken)

        self.wait_until(has_come)
        return taken[0]

    def wait_for_end(self, kind: type[E]) -> E:
        """Wait for an event that may come only while the job is observed, and return it."""
        self.wait_until(lambda: self.look() is None or any(isinstance(event, kind) for event in self.events))
        return self.wait_for(kind)

    def all_of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def _next(self, request: int | None) -> int:
        self._n_requests = self._n_requests + 1 if request is None else request
        return self._n_requests


def spec_of(fate: Fate) -> JobSpec:
    """Return the declaration of the kit's job."""
    return JobSpec(
        id=JOB,
        ceiling=Resources(1.0),
        floor=Resources(0.05),
        work_steps=N_STEPS if fate == "ends" else _N_STEPS_LONG,
        preemptible=True,
        controller=None,
    )


def cores_of(event: JobStarted | GrantApplied | GrantFailed) -> float:
    """Cores that the job holds, as `event` says."""
    return total(event.granted.values()).cores


class ExecutorConformance:
    """Tests of every executor. A subclass overrides `make`, and `fates` if it cannot play all of them.

    Examples
    --------
    >>> class TestMine(ExecutorConformance):
    ...     def make(self):
    ...         return MyStage()
    """

    #: Fates that the executor can play.
    fates: tuple[Fate, ...] = ("trains", "ends", "fails")

    def make(self) -> ExecutorStage:
        """A stage without jobs."""
        raise NotImplementedError

    @pytest.fixture
    def stage(self) -> Iterator[ExecutorStage]:
        made = self.make()
        yield made
        made.close()

    def test_a_launch_is_answered_with_what_the_job_holds(self, stage: ExecutorStage) -> None:
        started = stage.launch(cores=0.5)
        assert (started.job, started.request) == (JOB, 1)
        assert 0.45 < cores_of(started) <= 0.5

    def test_a_launch_said_again_is_answered_and_changes_nothing(self, stage: ExecutorStage) -> None:
        stage.launch(cores=0.5)
        stage.wait_until(lambda: stage.steps_done() > 0)
        seen = stage.steps_done()
        stage.perform(stage.launch_command(cores=0.25))
        again = stage.wait_for(JobStarted)
        assert again.request == 2
        assert 0.45 < cores_of(again) <= 0.5
        assert stage.steps_done() >= seen

    def test_progress_is_reported_and_never_falls(self, stage: ExecutorStage) -> None:
        stage.launch()
        stage.wait_until(lambda: stage.steps_done() > 1)
        reports, now = stage.all_of(ProgressReported), stage.now()
        assert all(report.job == JOB and report.at <= now and report.unit_at <= now for report in reports)
        for kind in ("steps_done", "used_core_s"):
            counts = [getattr(report, kind) for report in reports]
            assert counts == sorted(counts)

    def test_a_resize_is_answered_with_what_the_job_holds(self, stage: ExecutorStage) -> None:
        stage.launch(cores=0.5)
        stage.resize(0.25)
        applied = stage.wait_for(GrantApplied)
        assert (applied.job, applied.request) == (JOB, 2)
        assert 0.2 < cores_of(applied) <= 0.25

    def test_a_late_command_changes_nothing_and_is_not_answered(self, stage: ExecutorStage) -> None:
        stage.launch()
        stage.resized(0.25, request=7)
        stage.resize(0.75, request=3)
        stage.resized(0.25, request=8)
        assert [event.request for event in stage.all_of(GrantApplied)] == [7, 8]

    def test_a_command_that_comes_twice_does_as_much_as_once(self, stage: ExecutorStage) -> None:
        stage.launch()
        first, second = stage.resized(0.25, request=5), stage.resized(0.25, request=5)
        assert first == second

    def test_an_empty_grant_pauses_the_job_and_the_next_one_resumes_it(self, stage: ExecutorStage) -> None:
        stage.launch()
        stage.wait_until(lambda: stage.steps_done() > 1)
        assert stage.resized(0.0) == 0.0
        paused = stage.steps_done()
        assert paused > 1
        for _ in range(5):
            stage.wait_a_little()
        # The step under way may have been counted just before its process stood still.
        assert stage.steps_done() <= paused + 1
        assert stage.resized(0.5) > 0.45
        stage.wait_until(lambda: stage.steps_done() > paused + 1)

    def test_a_paused_job_may_be_paused_again(self, stage: ExecutorStage) -> None:
        stage.launch()
        assert stage.resized(0.0) == stage.resized(0.0) == 0.0
        stage.resized(0.5)
        stage.wait_until(lambda: stage.steps_done() > 0)

    def test_a_stopped_job_ends_for_good(self, stage: ExecutorStage) -> None:
        stage.launch()
        stage.stop()
        failed = stage.wait_for(JobFailed)
        assert (failed.job, failed.retryable, failed.is_stopped, failed.is_due) == (JOB, False, True, True)
        assert "enough" in failed.cause
        self._is_over(stage)

    def test_a_paused_job_can_be_stopped(self, stage: ExecutorStage) -> None:
        stage.launch()
        stage.resized(0.0)
        stage.stop()
        assert not stage.wait_for(JobFailed).retryable
        self._is_over(stage)

    def test_a_job_that_has_done_its_work_finishes_once(self, stage: ExecutorStage) -> None:
        stage.launch("ends")
        finished = stage.wait_for_end(JobFinished)
        assert finished.job == JOB
        assert finished.landed_at <= finished.at
        last = stage.all_of(ProgressReported)[-1]
        assert last.steps_done == last.steps_total == N_STEPS
        self._is_over(stage)

    def test_a_launch_that_was_made_before_the_end_was_known_starts_nothing(self, stage: ExecutorStage) -> None:
        stage.launch("ends")
        early = stage.launch_command("ends")
        stage.wait_for_end(JobFinished)
        stage.perform(early)
        self._is_over(stage)
        assert len(stage.all_of(JobStarted)) == 1

    def test_a_job_that_failed_may_be_launched_again(self, stage: ExecutorStage) -> None:
        if "fails" not in self.fates:
            pytest.skip("jobs of this executor never fail")
        stage.launch("fails")
        assert stage.wait_for_end(JobFailed).retryable
        stage.wait_a_little()
        stage.perform(stage.launch_command("fails"))
        assert stage.wait_for(JobStarted).request == 2

    def test_commands_about_an_unknown_job_are_answered(self, stage: ExecutorStage) -> None:
        unknown = JobId("unknown")
        stage.resize(0.5, request=4, job=unknown)
        gone = stage.wait_for(JobFailed)
        assert (gone.job, gone.retryable) == (unknown, True)
        n_events = len(stage.events)
        stage.stop(unknown)
        stage.wait_until(lambda: len(stage.events) > n_events)
        (stopped,) = stage.events[n_events:]
        assert isinstance(stopped, JobFailed)
        assert (stopped.job, stopped.retryable, stopped.is_stopped, stopped.is_due) == (unknown, False, True, True)
        assert stage.look() is None

    def _is_over(self, stage: ExecutorStage) -> None:
        """Assert that no report about a job follows its end."""
        n_events = len(stage.events)
        for _ in range(5):
            stage.wait_a_little()
        assert stage.look() is None
        assert stage.events[n_events:] == []
