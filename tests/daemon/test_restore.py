"""A host that was killed, or is stopped, or that the machine's restart has ended: another process goes on with its jobs."""

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.forked_python import ForkedPython
from tests.waiting import PATIENCE_S, wait_until

from punctual import __version__
from punctual.api.standing import job_standing
from punctual.core.codec import encode
from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeNoticed,
    PauseRequested,
    PlanProposed,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.ids import JobId
from punctual.core.lifecycle import N_ENDED_REMEMBERED
from punctual.daemon import host as host_module
from punctual.daemon.adoption import _claim
from punctual.daemon.capacity import capacity_here
from punctual.daemon.control_client import standings, stop
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_executor import HERE
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import RunFolder, create_run, new_job, run_named
from punctual.daemon.runs import find_job, jobs_of, messages_of, open_jobs
from punctual.daemon.sweeping import sweep
from punctual.executors.local.process_tree import state_of
from punctual.journal import file as journal_file
from punctual.journal.boot import ClockRecord, suspended_s
from punctual.journal.errors import JournalBusy, JournalUnusable
from punctual.journal.sqlite import SqliteJournal
from punctual.request.submission import submitted

pytestmark = pytest.mark.usefixtures("no_successors")

A, B = JobId("a"), JobId("b")

#: A host with two jobs, of which the second waits for the whole machine. It makes a snapshot every five messages.
HOST = """
import pathlib, sys
from functools import partial
from tests.daemon.live_jobs import PACED, submission
from punctual.daemon import host as composed
from punctual.daemon.capacity import capacity_here
from punctual.daemon.opening import new_host
from punctual.journal.maintenance import JournalMaintenance, UpkeepLimits
composed.JournalMaintenance = partial(JournalMaintenance, limits=UpkeepLimits(snapshot_messages=5, snapshot_s=0.0))
go, marker = map(pathlib.Path, sys.argv[1:])
with new_host("host", PACED) as host:
    host.submit(submission("a", awaited=go))
    host.submit(submission("b", floor_cores=capacity_here().cores, secret=str(marker)))
    host.run(host.all_ended)
"""

#: The same without snapshots.
HOST_WITHOUT_SNAPSHOTS = HOST.replace("composed.JournalMaintenance = ", "_ = ")

#: The same as the first; the first job has a deadline.
HOST_WITH_DEADLINE = HOST.replace('"a", awaited=go', '"a", awaited=go, deadline_s=600.0')

#: The same as the first; a failed process of the first job is started again.
HOST_THAT_RETRIES = HOST.replace('"a", awaited=go', '"a", awaited=go, n_retries=3')

#: The same as the first; it begins to write into its journal once it is told to, and does not end that.
HOST_THAT_WRITES_FOR_LONG = HOST.replace(
    "    host.run(host.all_ended)\n",
    """    host.run(lambda: go.with_name("write").exists())
    with host._journal.writing():
        go.with_name("writing").touch()
        __import__("time").sleep(600)
""",
)

#: A host with two jobs that run, one that is to run after the first, and a policy that its user has changed.
HOST_WITH_CHANGED_POLICY = """
import pathlib, sys
from dataclasses import replace
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from punctual.daemon.opening import new_host
go = pathlib.Path(sys.argv[1])
with new_host("host", PACED) as host:
    first, last = submission("a", awaited=go), submission("b")
    host.submit_all([first, replace(last, spec=replace(last.spec, after=("a",)))])
    host.run(lambda: pid_of_waiting(go) > 0)
    host.change_policy("fifo", {"size": "smallest"}, by="anna")
    host.run(lambda: host.policy == "fifo")
    host.submit(submission("c", awaited=go.with_name("other")))
    host.run(host.all_ended)
"""

#: Plays a training of 20 steps with a worker, which trains to step 10 and then waits until it is asked to make room.
LEAVING = """
import os, pathlib, sys, time
from punctual.channel import EXIT_PREEMPTED, BLOCK_VARIABLE, Declaration, SharedBlock, ProgramState, WorkerStatus
page, checkpoint = SharedBlock.open(os.environ[BLOCK_VARIABLE]), pathlib.Path(sys.argv[1])
n_done = int(checkpoint.read_text()) if checkpoint.exists() else 0
page.declare(Declaration(os.getpid(), 20, n_done, ProgramState.TRAINING, can_stop=True))
page.publish_workers(WorkerStatus(os.getpid()))
for n_steps in range(n_done + 1, n_done + 11):
    page.publish_progress(n_steps, time.monotonic_ns(), 0, -1)
while n_steps == 10:
    target = page.worker_target()
    page.publish_workers(WorkerStatus(os.getpid(), target.request, target.n_workers))
    if page.directives().leave:
        checkpoint.write_text(str(n_steps))
        os._exit(EXIT_PREEMPTED)
    time.sleep(0.01)
page.declare(Declaration(os.getpid(), 20, n_done, ProgramState.LANDED, can_stop=True))
"""

#: A host with a job of workers that makes room for another one, whose deadline comes first and which waits.
HOST_WITH_PAUSED_JOB = """
import os, pathlib, sys, time
from tests.daemon.live_jobs import submission
from tests.daemon.test_restore import A, B, LEAVING
from punctual.daemon.capacity import capacity_here
from punctual.daemon.host_options import HostOptions
from punctual.daemon.opening import new_host
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of
from punctual.executors.local import job_run
job_run.should_exit_instead_of_freeze = lambda held: True  # as that of a job with GPUs does, which this machine may not have
go, checkpoint = map(pathlib.Path, sys.argv[1:])
whole_machine = capacity_here()
options = JobOptions(
    program=[sys.executable, "-c", LEAVING, str(checkpoint)], name="a", workers="1", deadline="36000s"
)
leaving = submission_of(options, time.monotonic(), whole_machine)
options = HostOptions(actuator="pacing", policy="earliest-deadline")
with new_host("host", options) as host:
    host.submit(leaving)
    host.run(lambda: any(status.steps_done == 10 for status in host.jobs()))
    host.submit(submission("b", awaited=go, floor_cores=whole_machine.cores, deadline_s=3600.0))
    host.run(host.all_ended)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ForkedPython[bytes]]]:
    """Starts a host whose first job does all its steps but two and waits."""
    started: list[ForkedPython[bytes]] = []

    def start_host(program: str = HOST) -> ForkedPython[bytes]:
        started.append(
            ForkedPython[bytes]([sys.executable, "-c", program, str(tmp_path / "go"), str(tmp_path / "marker")])
        )
        wait_until(lambda: pid_of_waiting(tmp_path / "go"))
        wait_until(lambda: run_named("host").open_jobs(), lambda jobs: len(jobs) == 2)
        return started[-1]

    yield start_host
    (tmp_path / "go").touch()
    for process in started:
        process.kill()
        process.wait()
    wait_until(lambda: run_named("host").supervised_jobs() == [])


def killed(process: ForkedPython[bytes]) -> RunFolder:
    process.kill()
    process.wait()
    return run_named("host")


def forget_start_of_a(run: RunFolder) -> None:
    """Have the journal be as if its host had been killed before it knew that the first job has started."""
    with closing(sqlite3.connect(run.journal)) as connection:
        started = "SELECT sequence FROM message WHERE kind = 'JobStarted' AND subject = 'a'"
        connection.execute(f"DELETE FROM message WHERE sequence >= ({started})")
        connection.commit()


def steering(run: RunFolder) -> dict[str, str]:
    return {job.title: job.steering for job in jobs_of(run)}


def test_jobs_that_run_are_steered_again_and_those_that_wait_are_not_forgotten(
    start: Callable[[], ForkedPython[bytes]], tmp_path: Path
) -> None:
    run = killed(start())
    assert steering(run) == {"a": "unsteered", "b": "interrupted"}
    with SqliteJournal(run.journal, read_only=True) as journal:
        assert journal.latest_snapshot() is not None
    pid = wait_until(lambda: pid_of_waiting(tmp_path / "go"))
    with resumed_host(run) as host:
        (tmp_path / "go").touch()
        host.run(host.all_ended)
        assert {status.id: status.state for status in host.jobs()} == {"a": "finished", "b": "finished"}
    assert pid_of_waiting(tmp_path / "go") == pid  # it was not started again
    assert f"{tmp_path / 'marker'}\n" in run.log(B).read_text()
    assert run.jobs() == {"a": "finished", "b": "finished"}
    (resumed,) = [message for message in messages_of(run) if isinstance(message, SteeringResumed)]
    assert list(resumed.granted) == ["a"]


def test_a_job_whose_start_was_not_written_down_and_that_is_paused_is_told_so_and_goes_on_once_it_is_resumed(
    start: Callable[..., ForkedPython[bytes]], tmp_path: Path
) -> None:
    """The disk was full when it came: the host failed before it could write that the job had started."""
    run = killed(start(HOST_WITHOUT_SNAPSHOTS))
    forget_start_of_a(run)
    with SqliteJournal(run.journal) as journal:
        asked = [message for _, message in journal.read_from(1) if isinstance(message, LaunchJob)]
        assert [command.job for command in asked] == ["a"]
        journal.append([PauseRequested(at=asked[0].at, job=A, cause="test")])
    with resumed_host(run) as host:
        host.run(lambda: host.status(A).display_state == "paused" and not host.status(A).granted)
        (standing,) = (job_standing(host, status, host.clocks()) for status in host.jobs() if status.id == A)
        assert standing.state == "paused"
        host.resume(A)
        (tmp_path / "go").touch()
        host.run(host.all_ended)
        assert host.status(A).started_at is not None
    assert run.jobs() == {"a": "finished", "b": "finished"}


def test_what_has_started_and_ended_before_the_first_was_known_is_not_started_again(
    start: Callable[..., ForkedPython[bytes]], tmp_path: Path
) -> None:
    """Its launch is asked for again when it has not been answered for long, and its last report comes before its end."""
    run = killed(start(HOST_WITHOUT_SNAPSHOTS))
    forget_start_of_a(run)
    with closing(sqlite3.connect(run.journal)) as connection:  # a minute ago
        connection.execute("UPDATE message SET body = json_set(body, '$.at', json_extract(body, '$.at') - 60)")
        connection.commit()
    (tmp_path / "go").touch()
    wait_until(lambda: steering(run), lambda said: said == {"a": "ended", "b": "interrupted"})
    with resumed_host(run) as host:
        host.run(host.all_ended)
    assert [message.job for message in messages_of(run) if isinstance(message, JobStarted)] == ["b"]
    assert [message.job for message in messages_of(run) if isinstance(message, JobFinished)] == ["a", "b"]


def test_what_ended_while_nobody_steered_it_is_not_started_again(
    start: Callable[[], ForkedPython[bytes]], tmp_path: Path
) -> None:
    run = killed(start())
    (tmp_path / "go").touch()
    wait_until(lambda: steering(run), lambda said: said == {"a": "ended", "b": "interrupted"})
    with resumed_host(run) as host:
        host.run(host.all_ended)
    assert run.jobs() == {"a": "finished", "b": "finished"}
    starts = [message.job for message in messages_of(run) if isinstance(message, JobStarted)]
    assert starts == ["a", "b"]


def test_jobs_that_nobody_steers_can_be_ended(start: Callable[[], ForkedPython[bytes]]) -> None:
    run = killed(start())
    assert [job["state"] for job in standings(run)] == ["unsteered", "interrupted"]
    assert "without a checkpoint" in stop(find_job("a", open_jobs()))
    assert "not be resumed" in stop(find_job("b", open_jobs()))
    wait_until(lambda: steering(run), lambda said: said == {"a": "ended", "b": "ended"})
    sweep()
    assert run.jobs() == {"a": "stopped", "b": "stopped"}
    with pytest.raises(InvalidSpec, match="has ended"), resumed_host(run):
        pass


def test_the_jobs_of_a_host_that_is_stopped_are_told_as_such_and_can_be_taken_from_it(
    start: Callable[[], ForkedPython[bytes]], tmp_path: Path
) -> None:
    process = start()
    run = run_named("host")
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    assert [job["state"] for job in standings(run)] == ["silent", "silent"]
    with pytest.raises(InvalidSpec, match=str(process.pid)), resumed_host(run):
        pass
    with resumed_host(run, take=True) as host:
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(PATIENCE_S) != 0  # it finds that the journal is another's, and leaves
        (tmp_path / "go").touch()
        host.run(host.all_ended)
    assert run.jobs() == {"a": "finished", "b": "finished"}


def test_a_suspension_of_the_machine_between_two_hosts_is_made_up_for_once(
    start: Callable[..., ForkedPython[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = killed(start(HOST_WITH_DEADLINE))
    before_s = suspended_s()
    monkeypatch.setattr(host_module, "suspended_s", lambda: before_s + 120.0)
    with resumed_host(run) as host:
        host.run(lambda: host.status(A).spec.deadline_s == pytest.approx(480.0, abs=1.0))
        host.hand_over()
    with resumed_host(run) as host:
        (tmp_path / "go").touch()
        host.run(host.all_ended)
    assert [message.spec.id for message in messages_of(run) if isinstance(message, SpecChanged)] == [A]


def test_a_job_that_was_ended_while_its_host_was_stopped_is_not_started_again_when_that_goes_on(
    start: Callable[..., ForkedPython[bytes]],
) -> None:
    process = start(HOST_THAT_RETRIES)
    run = run_named("host")
    os.kill(process.pid, signal.SIGSTOP)
    try:
        assert "without a checkpoint" in stop(find_job("a", open_jobs()))
        wait_until(run.end_file(A).exists)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    wait_until(run.open_jobs, lambda jobs: A not in jobs)
    assert run.jobs()[A] == "stopped"
    assert [message.job for message in messages_of(run) if isinstance(message, JobStarted)].count(A) == 1
    assert process.wait(PATIENCE_S) == 0


def test_a_host_that_was_stopped_while_it_wrote_the_journal_is_replaced_too(
    start: Callable[..., ForkedPython[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It holds a lock as long as it is stopped, so that nobody else could write."""
    process = start(HOST_THAT_WRITES_FOR_LONG)
    run = run_named("host")
    (tmp_path / "write").touch()
    wait_until((tmp_path / "writing").exists)
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(journal_file, "_BUSY_S", 0.1)
    with pytest.raises(JournalBusy), resumed_host(run):
        pass
    with resumed_host(run, take=True) as host:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        (tmp_path / "go").touch()
        host.run(host.all_ended)
    assert run.jobs() == {"a": "finished", "b": "finished"}


def test_a_job_that_ended_is_not_run_again_where_its_end_was_not_written_down_and_many_have_ended_since() -> None:
    """The disk was full, say; a board remembers the last thousand ends."""
    run = create_run("host", {"options": {"actuator": PACED.actuator, "policy": PACED.policy}})
    job, other = submission("a"), submission("b")
    spec, program = job.spec, job.program
    others = [replace(other.spec, id=JobId(f"b-{i}")) for i in range(N_ENDED_REMEMBERED)]
    with SqliteJournal(run.journal) as journal:
        journal.append([
            JobSubmitted(at=0.0, spec=spec, program=program),
            JobFinished(at=0.0, job=A, landed_at=0.0),
            *(JobSubmitted(at=0.0, spec=each, program=other.program) for each in others),
            *(JobFailed(at=0.0, job=each.id, cause="stopped", exit_code=1) for each in others),
        ])  # fmt: skip
    run.record_submitted([new_job(A, encode(submitted(job)), job.inherited)])
    with pytest.raises(InvalidSpec, match="has ended"), resumed_host(run):
        pass
    assert run.jobs() == {"a": "finished"}
    assert run.submission(A) is None


def test_after_a_restart_of_the_machine_a_job_goes_on_in_the_time_of_its_journal() -> None:
    """The journal was begun 1,000 seconds after the start of a machine that has been started again since."""
    begun_wall = time.time() - 60.0
    before = ClockRecord(boot_id="before", wall_offset_s=begun_wall - 1000.0)
    run = create_run("host", {"options": {"actuator": PACED.actuator, "policy": PACED.policy}})
    given = submission("a", secret="kept", deadline_s=3600.0)
    with SqliteJournal(run.journal, now=before) as journal:
        journal.append([
            NodeJoined(at=1000.0, node=HERE, capacity=capacity_here()),
            JobSubmitted(at=1000.0, spec=given.spec, program=given.program),
        ])  # fmt: skip
    run.record_submitted([new_job(A, encode(submitted(given)), given.inherited)])
    run.remove_live_places()
    assert steering(run) == {"a": "interrupted"}
    with resumed_host(run) as host:
        deadline_at = host.status(A).deadline_at or 0.0
        assert deadline_at == pytest.approx(1000.0 + 3600.0)
        assert host.clocks().wall_of(deadline_at).timestamp() == pytest.approx(begun_wall + 3600.0, abs=30.0)
        host.run(host.all_ended)
    assert run.log(A).read_text() == "kept\n"
    instants = [message.at for message in messages_of(run)]
    assert min(instants) == 1000.0
    assert instants[2] >= 1060.0 - 30.0
    (end,) = [message for message in messages_of(run) if isinstance(message, JobFinished)]
    assert 1000.0 < end.landed_at <= end.at < 1000.0 + PATIENCE_S


def test_a_machine_that_was_drained_is_used_again_once_it_has_been_started_again() -> None:
    booted_wall = time.time() - time.monotonic()
    before = ClockRecord(
        boot_id="before", wall_offset_s=booted_wall - 4600.0
    )  # it was drained an hour before its start
    run = create_run("host", {"options": {"actuator": PACED.actuator, "policy": PACED.policy}})
    given = submission("a")
    with SqliteJournal(run.journal, now=before) as journal:
        journal.append([
            NodeJoined(at=1000.0, node=HERE, capacity=capacity_here()),
            NodeNoticed(at=1000.0, node=HERE, ends_at=1e9),
            JobSubmitted(at=1000.0, spec=given.spec, program=given.program),
        ])  # fmt: skip
    run.record_submitted([new_job(A, encode(submitted(given)), given.inherited)])
    run.remove_live_places()
    with resumed_host(run) as host:
        host.run_for(PATIENCE_S, host.all_ended)
        assert host.status(A).state == "finished"
        assert [node.ends_at for node in host.nodes()] == [None]


def test_a_paused_job_whose_host_and_supervisor_were_killed_is_ended_and_started_again(
    start: Callable[[], ForkedPython[bytes]], tmp_path: Path
) -> None:
    process = start()
    pid = wait_until(lambda: pid_of_waiting(tmp_path / "go"))
    os.kill(pid, signal.SIGSTOP)
    run = killed(process)
    os.kill(run.supervisor_pid(A) or 0, signal.SIGKILL)
    with resumed_host(run) as host:
        assert wait_until(lambda: not Path(f"/proc/{pid}").exists())
        (tmp_path / "go").touch()
        host.run(host.all_ended)
        assert {status.id: status.state for status in host.jobs()} == {"a": "finished", "b": "finished"}


def test_a_job_that_had_made_room_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    go, checkpoint = tmp_path / "go", tmp_path / "checkpoint"
    process = ForkedPython[bytes]([sys.executable, "-c", HOST_WITH_PAUSED_JOB, str(go), str(checkpoint)])
    try:
        wait_until(lambda: pid_of_waiting(go) or process.poll() is not None)
    finally:
        run = killed(process)
    go.touch()
    assert steering(run)["a"] == "interrupted"
    with resumed_host(run) as host:
        host.run(host.all_ended)
        assert {status.id: status.state for status in host.jobs()} == {"a": "finished", "b": "finished"}
        assert host.status(A).steps_done == 20
    assert checkpoint.read_text() == "10"


def test_a_job_that_was_accepted_is_run_although_the_journal_does_not_know_it() -> None:
    run = create_run("host", {"options": {"actuator": PACED.actuator, "policy": PACED.policy}})
    with SqliteJournal(run.journal):
        pass
    given = submission("a", secret="kept")
    run.record_submitted([new_job(A, encode(submitted(given)), given.inherited)])
    (run.runtime_dir / "run.json").write_text("{}")
    with resumed_host(run) as host:
        host.run(host.all_ended)
    assert run.jobs() == {"a": "finished"}
    assert run.log(A).read_text() == "kept\n"
    assert run.submission(A) is None


def test_a_supervisor_that_waits_for_the_word_of_a_stopped_host_no_longer_finds_its_socket() -> None:
    run = create_run("host", {})
    run.takeover_socket(A).touch()
    assert _claim(run, A) is None
    assert not run.takeover_socket(A).exists()


def test_a_run_without_a_journal_cannot_be_resumed() -> None:
    run = create_run("host")
    run.journal.unlink()
    (run.runtime_dir / "run.json").write_text("{}")
    with pytest.raises(InvalidSpec, match="no such file"), resumed_host(run):
        pass


def test_a_name_that_was_recorded_and_never_submitted_has_failed() -> None:
    run = create_run("host")
    given = submission("a")
    with SqliteJournal(run.journal) as journal:
        journal.append([
            NodeJoined(at=1.0, node=HERE, capacity=capacity_here()),
            JobSubmitted(at=1.0, spec=replace(given.spec, id=A), program=given.program),
        ])  # fmt: skip
    run.record_submitted([new_job(A, encode(submitted(given)), given.inherited)])
    run.record_job(B, "queued")
    (run.runtime_dir / "run.json").write_text("{}")
    with resumed_host(run) as host:
        host.run(host.all_ended)
    assert run.jobs() == {"a": "finished", "b": "failed"}


def test_a_job_of_which_what_it_needs_is_gone_is_not_started_without_it_and_says_why() -> None:
    run = create_run("host", {"options": {"actuator": PACED.actuator, "policy": PACED.policy}})
    given = submission("a", secret="kept")
    with SqliteJournal(run.journal) as journal:
        journal.append([
            NodeJoined(at=1.0, node=HERE, capacity=capacity_here()),
            JobSubmitted(at=1.0, spec=given.spec, program=given.program),
        ])  # fmt: skip
    run.record_job(A, "queued")
    (run.runtime_dir / "run.json").write_text("{}")
    with resumed_host(run) as host:
        host.run(host.all_ended)
        assert "variables is gone" in host.status(A).cause
    assert (run.jobs(), run.log(A).exists()) == ({"a": "failed"}, False)


def with_snapshot_of_other_version(run: RunFolder) -> SqliteJournal:
    """The journal of a host that was killed; its last snapshot is one that cannot be read here."""
    journal = SqliteJournal(run.journal, take=True)
    journal.save_snapshot(journal.last_sequence, b"as another version of Punctual writes them")
    return journal


def test_after_an_update_a_host_goes_on_by_the_messages_of_its_journal(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with ForkedPython[bytes]([sys.executable, "-c", HOST_WITH_CHANGED_POLICY, str(go)]) as first:
        wait_until(lambda: len(run_named("host").open_jobs()) == 3 and pid_of_waiting(go.with_name("other")))
        first.kill()
    run = run_named("host")
    with with_snapshot_of_other_version(run) as journal:
        assert journal.compacted_until == 0
    pid = pid_of_waiting(go)
    with resumed_host(run) as host:
        assert (host.policy, host.policy_parameters) == ("fifo", {"size": "smallest"})
        go.touch()
        go.with_name("other").touch()
        host.run(host.all_ended)
        assert {status.state for status in host.jobs()} == {"finished"}
    assert pid_of_waiting(go) == pid  # it was not started again
    landed = [message.job for message in messages_of(run) if isinstance(message, JobFinished)]
    assert sorted(landed) == ["a", "b", "c"]


def test_where_messages_are_missing_a_host_of_another_version_is_refused_at_once_and_its_jobs_can_be_ended(
    start: Callable[[], ForkedPython[bytes]],
) -> None:
    run = killed(start())
    with with_snapshot_of_other_version(run) as journal:
        journal.thin([], 1)
    options = replace(PACED, shared=True)
    run.record_facts(options=asdict(options))
    service = Daemon(DaemonRequest(options=options, stays=True)).begin
    for begin in (resumed_host(run).__enter__, Daemon(DaemonRequest(run=run.name)).begin, service):
        with pytest.raises(JournalUnusable) as refused:
            begin()
        assert refused.value.must == "the last snapshot of the journal must be of this version of Punctual"
        assert f"Install Punctual {__version__}, " in refused.value.remedy
        assert "punctual stop JOB" in refused.value.remedy
    assert steering(run) == {"a": "unsteered", "b": "interrupted"}  # nothing has become of them
    stop(find_job("a", open_jobs()))
    stop(find_job("b", open_jobs()))
    wait_until(lambda: run.supervised_jobs() == [])
    sweep()
    assert run.jobs() == {"a": "stopped", "b": "stopped"}
    ends = [message.job for message in messages_of(run) if isinstance(message, JobFailed)]
    assert sorted(ends) == ["a", "b"]


def refused(*_: object, **__: object) -> None:
    raise InvalidSpec("the test must not go on", "one that does", "the test", "Nothing.")


@pytest.mark.parametrize(
    "place",
    ["restore.local_executor", "opening.SwitchingPlanner", "opening.ControlSocket", "opening.Host"],
)
def test_a_takeover_that_fails_leaves_the_jobs_to_the_next(
    place: str, start: Callable[[], ForkedPython[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = killed(start())
    pid = pid_of_waiting(tmp_path / "go")
    with monkeypatch.context() as failing:
        failing.setattr(f"punctual.daemon.{place}", refused)
        with pytest.raises(InvalidSpec, match="the test must not go on"), resumed_host(run):
            pass
    assert steering(run) == {"a": "unsteered", "b": "interrupted"}
    with resumed_host(run) as host:
        (tmp_path / "go").touch()
        host.run(host.all_ended)
    assert run.jobs() == {"a": "finished", "b": "finished"}
    assert pid_of_waiting(tmp_path / "go") == pid


def test_jobs_of_a_policy_that_is_not_there_are_not_touched(start: Callable[[], ForkedPython[bytes]]) -> None:
    run = killed(start())
    run.record_facts(options={**run.facts()["options"], "policy": "unheard-of"})
    record = run.record()
    with pytest.raises(InvalidSpec, match="unheard-of"), resumed_host(run):
        pass
    assert steering(run) == {"a": "unsteered", "b": "interrupted"}
    assert run.record() == record


def test_a_daemon_that_cannot_take_jobs_over_says_why(
    start: Callable[[], ForkedPython[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = killed(start())
    options = replace(PACED, shared=True)
    run.record_facts(options=asdict(options))
    monkeypatch.setattr("punctual.daemon.daemon._ALIKE_S", 0.2)
    monkeypatch.setattr("punctual.daemon.restore.local_executor", refused)
    with pytest.raises(InvalidSpec, match="the test must not go on"):
        Daemon(DaemonRequest(options=options, stays=True)).begin()
    assert steering(run)["a"] == "unsteered"


def is_of_fifo(message: Message) -> bool:
    """Whether it is a plan that carries what plans of that policy do."""
    carry = message.plan.carry if isinstance(message, PlanProposed) and message.plan is not None else None
    return isinstance(carry, dict) and "watch" in carry


def test_after_a_restart_a_job_still_waits_for_another_and_the_policy_is_the_one_that_was_chosen(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    with ForkedPython[bytes]([sys.executable, "-c", HOST_WITH_CHANGED_POLICY, str(go)]) as first:
        wait_until(lambda: len(run_named("host").open_jobs()) == 3 and pid_of_waiting(go))
        first.kill()
    messages: list[Message] = []
    with resumed_host(run_named("host")) as host:
        host.subscribe(messages.append)
        host.run(lambda: any(is_of_fifo(message) for message in messages))
        assert (host.policy, host.policy_parameters) == ("fifo", {"size": "smallest"})
        assert host.status(A).state == "running"
        assert host.status(B).state == "queued"
        go.touch()
        go.with_name("other").touch()
        host.run(host.all_ended)
        assert {status.state for status in host.jobs()} == {"finished"}
    told = messages_of(run_named("host"))
    i_end = next(i for i, message in enumerate(told) if isinstance(message, JobFinished) and message.job == A)
    i_start = [i for i, message in enumerate(told) if isinstance(message, JobStarted) and message.job == B]
    assert [i > i_end for i in i_start] == [True]
