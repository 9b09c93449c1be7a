"""What a job is told that waits for room."""

from dataclasses import replace

from tests.core.desk import HERE, A, B, Desk, cores, none, only

from punctual.core.commands import Command, LaunchJob, WarnUser
from punctual.core.events import GrantFailed, JobFailed, JobFinished, JobStarted, JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import StatusBoard

GIB = 1 << 30
C = JobId("c")


def machine(n_at_once: int) -> Desk:
    desk = Desk()
    desk.tell(replace(desk.joined, capacity=Resources(2.0, memory_bytes=16 * GIB), jobs_at_once=n_at_once))
    return desk


def submit(desk: Desk, id: JobId, asked_gib: int = 0, *, expected_gib: int = 0) -> None:
    spec = JobSpec(id=id, ceiling=Resources(2.0), controller="scripted", expected_memory_bytes=expected_gib * GIB)
    desk.tell(JobSubmitted(at=0.0, spec=spec.with_memory(asked_gib * GIB)))


def told(commands: list[Command]) -> str:
    return only(commands, WarnUser).reason.text


def test_that_no_more_jobs_may_run_at_once_is_told_once() -> None:
    desk = machine(1)
    submit(desk, A)
    submit(desk, B)
    assert none(desk.plan({A: cores(0.5)}), WarnUser), "that plan was requested before it came"
    commands = desk.plan({A: cores(0.5)})
    assert (only(commands, WarnUser).job, only(commands, WarnUser).reason.code) == (B, "waits")
    assert told(commands) == "it waits until a job ends: 1 job runs, and no more do at once (`--jobs-at-once`)"
    assert none(desk.plan({A: cores(0.5)}), WarnUser)


def test_that_memory_is_not_free_is_told_with_how_much_it_needs() -> None:
    desk = machine(8)
    submit(desk, A, 12)
    submit(desk, B, 6)
    submit(desk, C, expected_gib=5)
    desk.plan({A: {HERE: Resources(0.5, memory_bytes=12 * GIB)}})
    commands = desk.plan({A: {HERE: Resources(0.5, memory_bytes=12 * GIB)}})
    texts = {command.job: command.reason.text for command in commands if isinstance(command, WarnUser)}
    assert texts == {
        B: "it waits for memory: of the 6 GiB that it asked for, 4 GiB are free",
        C: "it waits for memory: of the 5 GiB that are set aside for it (say what it needs: `--memory`), 4 GiB are free",
    }


def test_a_job_that_waits_for_nothing_of_that_kind_is_told_nothing() -> None:
    desk = machine(2)
    submit(desk, A)
    submit(desk, B)
    assert none(desk.plan({A: cores(0.5)}) + desk.plan({A: cores(0.5)}), WarnUser)
    simulated = Desk()
    simulated.submit(A)
    simulated.submit(B)
    assert none(simulated.plan({A: cores(0.5)}) + simulated.plan({A: cores(0.5)}), WarnUser)


def test_a_job_that_waits_again_is_told_again() -> None:
    desk = machine(1)
    submit(desk, A)
    submit(desk, B)
    launch = only(desk.plan({A: cores(0.5)}), LaunchJob)
    desk.started(launch)
    ended = desk.tell(JobFinished(at=1.0, job=A, landed_at=1.0))
    desk.started(only(ended + desk.plan({B: cores(0.5)}, at=1.0), LaunchJob), at=1.0)
    submit(desk, C)
    desk.tell(JobFailed(at=2.0, job=B, cause="a signal", retryable=True))
    desk.plan({}, at=2.0)  # it was requested before C was there
    commands = desk.plan({C: cores(0.5)}, at=2.0)
    assert [command.job for command in commands if isinstance(command, WarnUser)] == [B]


def test_the_board_has_it_as_the_reason_until_the_job_starts() -> None:
    board = StatusBoard()
    for message in (
        machine(1).joined,
        JobSubmitted(at=0.0, spec=JobSpec(id=A, ceiling=Resources(2.0))),
        WarnUser(at=0.0, job=A, reason=Reason("waits", "it waits")),
    ):
        board.fold(message)
    assert str(board.job(A).reason) == "it waits"
    assert not board.job(A).warnings


def test_a_job_that_waits_for_something_else_than_before_is_told_so() -> None:
    desk = machine(1)
    submit(desk, A, 12)
    submit(desk, B, 6)
    held = {A: {HERE: Resources(0.5, memory_bytes=12 * GIB)}}
    desk.plan(held)
    assert "until a job ends" in told(desk.plan(held))
    desk.tell(replace(desk.joined, at=1.0, capacity=Resources(2.0, memory_bytes=16 * GIB), jobs_at_once=8))
    assert "it waits for memory" in told(desk.plan(held, at=1.0))
    assert none(desk.plan(held, at=2.0), WarnUser)


def test_a_job_whose_process_is_gone_has_no_reason_of_that_process_on_the_board() -> None:
    board = StatusBoard()
    reason = Reason("tracks", "0.80 cores bring the job to its deadline")
    launch = LaunchJob(
        at=0.0, job=A, request=1, spec=JobSpec(id=A, ceiling=Resources(2.0)), grant=cores(0.8), reason=reason
    )
    for message in (
        machine(1).joined,
        JobSubmitted(at=0.0, spec=launch.spec),
        launch,
        JobStarted(at=0.0, job=A, request=1, granted=cores(0.8)),
    ):
        board.fold(message)
    assert board.job(A).reason == reason
    board.fold(JobFailed(at=1.0, job=A, cause="a signal", retryable=True))
    assert board.job(A).reason is None
    board.fold(replace(launch, at=2.0, request=2))
    board.fold(GrantFailed(at=2.0, job=A, request=2, granted={}, cause="no room", short_of="memory"))
    assert (board.job(A).state, board.job(A).reason) == ("queued", None)
