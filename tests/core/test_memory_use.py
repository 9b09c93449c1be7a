"""What the kernel knows of the memory that jobs hold, and how policies see it."""

from dataclasses import replace

import pytest
from tests.core.desk import HERE, A, B, Desk, cores, only

from punctual.core.commands import Command, LaunchJob, RequestPlan, ResizeJob
from punctual.core.events import GrantApplied, JobFailed, JobFinished, JobSubmitted, PauseRequested, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.resources import Resources

GIB = 1 << 30


class Machine(Desk):
    """A node of two cores and 16 GiB, on which four jobs may run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.tell(replace(self.joined, capacity=Resources(2.0, memory_bytes=16 * GIB), jobs_at_once=4))

    def start(self, id: JobId, *, asked_gib: int = 0, expected_gib: int = 0) -> None:
        spec = JobSpec(
            id=id,
            ceiling=Resources(2.0),
            controller="scripted",
            preemptible=True,
            expected_memory_bytes=expected_gib * GIB,
        )
        self.tell(JobSubmitted(at=0.0, spec=spec.with_memory(asked_gib * GIB)))
        grant: Allocation = {HERE: Resources(0.5, memory_bytes=asked_gib * GIB)}
        self.started(only(self.plan({**self.granted(), id: grant}), LaunchJob))

    def report(self, id: JobId, memory_gib: float, *, at: float = 1.0, steps: float = 1.0) -> list[Command]:
        self.tick(id, at=at)
        report = ProgressReported(
            at=at,
            job=id,
            steps_done=steps,
            steps_total=100,
            unit_at=at,
            used_core_s=at,
            memory_bytes=int(memory_gib * GIB),
        )
        return self.tell(report)

    def free_gib(self) -> float:
        return self.scheduler.snapshot(100.0).free[HERE].memory_bytes / GIB

    def view(self, id: JobId) -> JobView:
        return next(job for job in self.scheduler.snapshot(100.0).jobs if job.id == id)

    def pause(self, id: JobId) -> None:
        command = only(self.plan({job: held for job, held in self.granted().items() if job != id}), ResizeJob)
        self.tell(GrantApplied(at=2.0, job=id, request=command.request, granted={}))


def test_a_job_that_has_not_asked_counts_with_an_equal_part_until_it_has_run_for_a_minute() -> None:
    desk = Machine()
    desk.start(A)
    assert desk.free_gib() == 12.0
    desk.report(A, 1.5)
    assert desk.free_gib() == 12.0, "it may still grow"
    commands = desk.report(A, 1.0, at=61.0)
    assert desk.free_gib() == 14.5, "the most that it has held"
    assert [command for command in commands if isinstance(command, RequestPlan)], "others may start in it"
    desk.report(A, 5.0, at=62.0)
    assert desk.free_gib() == 11.0


def test_what_is_expected_of_a_job_goes_before() -> None:
    desk = Machine()
    desk.start(A, expected_gib=6)
    assert desk.free_gib() == 10.0
    assert desk.view(A).expected_memory_bytes == 6 * GIB


def test_what_a_job_asked_for_is_planned_and_more_counts_if_it_holds_more() -> None:
    desk = Machine()
    desk.start(A, asked_gib=4)
    assert desk.free_gib() == 12.0
    desk.report(A, 3.0)
    assert (desk.free_gib(), desk.view(A).expected_memory_bytes) == (12.0, 0)
    desk.report(A, 7.0, at=2.0)
    assert desk.free_gib() == 9.0


@pytest.mark.parametrize(("asked_gib", "kept_gib"), [(0, 3.0), (2, 3.0), (5, 5.0)])
def test_a_paused_job_keeps_what_it_holds_and_what_it_asked_for(asked_gib: int, kept_gib: float) -> None:
    desk = Machine()
    desk.start(A, asked_gib=asked_gib)
    desk.report(A, 3.0)
    desk.pause(A)
    assert desk.free_gib() == 16.0 - kept_gib
    assert desk.view(A).resident == {HERE: int(kept_gib * GIB)}
    desk.report(A, 0.0, at=3.0)
    assert desk.free_gib() == 16.0, "its process has ended to make room"


def test_so_does_one_that_its_user_has_paused_although_policies_do_not_see_it() -> None:
    desk = Machine()
    desk.start(A)
    desk.report(A, 3.0)
    command = only(desk.tell(PauseRequested(at=1.5, job=A)), ResizeJob)
    desk.tell(GrantApplied(at=2.0, job=A, request=command.request, granted={}))
    assert not desk.scheduler.snapshot(2.0).jobs
    assert desk.free_gib() == 13.0


def test_of_a_job_that_is_started_again_what_it_held_before_is_expected() -> None:
    desk = Machine()
    desk.start(A)
    desk.report(A, 6.0)
    desk.tell(JobFailed(at=2.0, job=A, cause="a signal", retryable=True))
    assert desk.view(A).expected_memory_bytes == 6 * GIB
    assert desk.free_gib() == 10.0, "it is to have its place again"


def test_an_end_frees_the_memory() -> None:
    desk = Machine()
    desk.start(A)
    desk.start(B)
    desk.report(A, 5.0)
    assert desk.free_gib() == 7.0
    desk.tell(JobFinished(at=2.0, job=A, landed_at=2.0))
    assert desk.free_gib() == 12.0


def test_all_that_is_known_of_memory_is_in_what_is_dumped() -> None:
    desk, again = Machine(), Machine()
    desk.start(A)
    desk.report(A, 5.0)
    again.scheduler.load(desk.scheduler.dump())
    assert again.free_gib() == desk.free_gib() == 11.0
    assert again.view(A) == desk.view(A)


def test_where_any_number_of_jobs_may_run_nothing_but_what_is_asked_counts() -> None:
    """As in a simulation, where no job holds anything."""
    desk = Desk()
    desk.tell(replace(desk.joined, capacity=Resources(2.0, memory_bytes=16 * GIB)))
    desk.submit(A)
    desk.started(only(desk.plan({A: cores(0.5)}), LaunchJob))
    snapshot = desk.scheduler.snapshot(1.0)
    assert snapshot.free[HERE].memory_bytes == 16 * GIB
    assert not snapshot.holding[0].resident
