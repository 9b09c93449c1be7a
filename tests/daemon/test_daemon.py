"""The daemon of a machine: who starts it, when it ends, who replaces it, and what its jobs inherit of their commands."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.forked_python import ForkedPython
from tests.waiting import wait_until

from punctual.core.codec import encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted, SteeringResumed
from punctual.core.ids import JobId
from punctual.core.status import StatusBoard
from punctual.daemon import joining, paths
from punctual.daemon.capacity import capacity_here
from punctual.daemon.control_client import stop
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.follower import JobFollower
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import Joining, start_daemon
from punctual.daemon.run_folder import SERVICE, RunFolder, create_run, new_job
from punctual.daemon.runs import find_job, known_jobs, live_folders, messages_of, open_jobs
from punctual.daemon.sharing import daemon_run, host_lock
from punctual.executors.local.cgroup_files import FOLDER, hierarchy
from punctual.executors.local.devices import visible_devices
from punctual.executors.local.output import ProcessSettings, ignore_output
from punctual.journal.sqlite import SqliteJournal
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of, submitted

A = JobId("a")
SHARED = replace(PACED, shared=True)

#: A command that submits a job, which waits for a file, and follows it to its end.
FOLLOWS = """
import pathlib, sys
from tests.daemon.test_daemon import SHARED, follow
from tests.daemon.live_jobs import submission
name, awaited = sys.argv[1:]
print(follow(submission(name, awaited=pathlib.Path(awaited))), flush=True)
"""
#: The same, with a lower patience for a daemon that does not answer.
FOLLOWS_IMPATIENTLY = f"import punctual.daemon.follower as f; f.SILENT_S = 1.0\n{FOLLOWS}"


@pytest.fixture(autouse=True)
def no_daemon_is_left() -> Iterator[None]:
    yield
    for job in open_jobs():  # a failed test has left it
        with suppress(InvalidSpec):
            stop(job)
    wait_until(lambda: not [run for run in live_folders() if run.is_live()])


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A file for which jobs wait."""
    return tmp_path / "go"


@pytest.fixture
def command() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start a command, which is killed if the test does not wait for its end."""
    with ExitStack() as ending:

        def start(text: str, *arguments: object) -> "subprocess.Popen[str]":
            words = [sys.executable, "-c", text, *map(str, arguments)]
            process: subprocess.Popen[str] = ForkedPython(words, text=True, stdout=subprocess.PIPE)
            ending.enter_context(process)
            ending.callback(process.kill)
            return process

        yield start


def follow(*given: Submission, options: HostOptions = SHARED) -> list[str]:
    """Submit jobs and follow them; return their last states."""
    with JobFollower(ignore_output) as follower:
        follower.submit(given, options)
        follower.run()
        return [follower.status(job).state for job in follower.job_ids]


def present() -> RunFolder:
    """The run of the daemon, once there is one."""
    run = wait_until(daemon_run)
    assert run is not None
    return run


def pid_of(run: RunFolder) -> int:
    """The run's daemon; waits for one where the last has left and the next has not yet come."""
    return wait_until(run.daemon_pid) or 0


def parent_of(pid: int) -> int:
    """The process that has started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only its parent has not noticed its end yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ended_pid() -> int:
    """The id of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def kill_with_watcher(pid: int) -> None:
    """Kill a daemon, and first the process that would start it again."""
    os.kill(parent_of(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def hang_until_replaced(run: RunFolder, pid: int) -> None:
    """Stop a daemon as if it hung, until another one has its place."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: run.daemon_pid() not in (None, pid))
    finally:
        os.kill(pid, signal.SIGCONT)


# Beginning and end.


def test_a_command_starts_a_daemon_of_its_own_session_which_ends_with_its_last_job(go: Path) -> None:
    joining = Joining(SHARED, settings=ProcessSettings())
    run, (named,) = joining.submit([submission("a", awaited=go)])
    assert joining.started is not None
    assert joining.started.run == run.name
    pid = pid_of(run)
    watcher = parent_of(pid)
    assert os.getsid(pid) == pid
    assert os.getsid(watcher) == watcher
    assert named.spec.id == A
    go.touch()
    wait_until(lambda: has_ended(pid) and has_ended(watcher))
    assert run.jobs() == {A: "finished"}
    assert not run.runtime_dir.exists()


def test_a_daemon_that_ends_removes_groups_of_one_before_it(go: Path) -> None:
    joining = Joining(SHARED, settings=ProcessSettings())
    run, _ = joining.submit([submission("a", awaited=go)])
    pid = pid_of(run)
    trees = [tree for controller in ("cpu", "cpuacct", "memory", "") if (tree := hierarchy(controller))]
    left = [tree.mount / FOLDER / f"{ended_pid()}-b-left" for tree in trees]
    for folder in left:
        with suppress(OSError):  # groups cannot be made here
            folder.mkdir(parents=True, exist_ok=True)
    go.touch()
    wait_until(lambda: has_ended(pid))
    assert not [folder for folder in left if folder.exists()]


def test_commands_that_find_no_daemon_at_the_same_time_start_one(
    go: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    commands = [command(FOLLOWS, name, go) for name in "abcd"]
    wait_until(lambda: daemon_run() is not None and sorted(present().jobs()) == ["a", "b", "c", "d"])
    assert len([run for run in live_folders() if run.is_live()]) == 1
    go.touch()
    assert [process.communicate()[0].strip() for process in commands] == ["['finished']"] * 4


#: A command that submits a job and ends.
SUBMITS = """
import pathlib, sys
from tests.daemon.test_daemon import SHARED, Joining, ProcessSettings
from tests.daemon.live_jobs import submission
Joining(SHARED, settings=ProcessSettings()).submit([submission("a", awaited=pathlib.Path(sys.argv[1]))])
"""


def test_the_caller_of_a_command_sees_the_ends_of_its_pipes_although_the_daemon_goes_on(go: Path) -> None:
    other, other_end = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", SUBMITS, str(go)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            pass_fds=[other_end], check=False,
        )  # fmt: skip
    finally:
        os.close(other_end)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with os.fdopen(other, "rb") as pipe:
        assert pipe.read() == b""
    wait_until(lambda: pid_of_waiting(go))
    assert present().open_jobs() == [A]
    go.touch()


def test_a_daemon_that_no_job_comes_to_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.daemon.daemon._FIRST_JOB_S_MAX", 0.1)
    with Daemon(DaemonRequest(options=SHARED)) as daemon:
        daemon.begin()
        daemon.run()
        assert daemon.has_ended
    assert live_folders() == []


def test_a_daemon_does_not_end_while_a_command_has_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be about to submit a job."""
    monkeypatch.setattr("punctual.daemon.daemon._FIRST_JOB_S_MAX", 0.0)
    with Daemon(DaemonRequest(options=SHARED)) as daemon:
        daemon.begin()
        n_looks, locked = [0], ExitStack()
        locked.enter_context(host_lock(0.0))

        def looked() -> bool:
            n_looks[0] += 1
            if n_looks[0] == 3:
                assert not daemon.has_ended
                locked.close()
            return True

        monkeypatch.setattr(daemon.host, "all_ended", looked)
        daemon.run()
        assert n_looks[0] > 3
        assert daemon.has_ended


def test_a_daemon_that_stays_goes_on_after_its_last_job_until_it_is_asked_to_leave() -> None:
    with Daemon(DaemonRequest(options=SHARED, stays=True)) as daemon:
        daemon.begin()
        host = daemon.host
        host.submit(submission("a"))
        host.run(host.all_ended)
        host.subscribe(lambda message: daemon.leave() if host.knows(JobId("b")) else None)
        host.submit(submission("b", n_steps=100000))
        daemon.run()
        assert not daemon.has_ended
        assert host.run_folder.has_service()
    run = host.run_folder
    assert run.open_jobs() == ["b"]
    with Daemon(DaemonRequest(options=SHARED)) as daemon:
        daemon.begin()
        assert daemon.taken_over == ("b",)
        daemon.host.stop(JobId("b"), "the test is done")
        daemon.run()
    assert run.jobs() == {"a": "finished", "b": "stopped"}


def test_one_service_at_a_time_stays() -> None:
    with Daemon(DaemonRequest(options=SHARED, stays=True)) as first:
        first.begin()
        with pytest.raises(InvalidSpec, match="one service at a time"):
            Daemon(DaemonRequest(options=SHARED, stays=True)).begin()
        with Daemon(DaemonRequest(options=SHARED)) as third:
            third.begin()
            assert third.other == first.host.run_folder


# A start that fails.


def test_a_daemon_that_refuses_says_why() -> None:
    with pytest.raises(InvalidSpec, match="elsewhere") as refused:
        Joining(replace(SHARED, policy="elsewhere"), settings=ProcessSettings()).submit([submission("a")])
    assert refused.value.remedy
    assert live_folders() == []


def test_a_daemon_is_told_of_another_one_that_cannot_be_found_because_its_files_were_removed(go: Path) -> None:
    run, _ = Joining(SHARED, settings=ProcessSettings()).submit([submission("a", awaited=go)])
    pid, _ = pid_of(run), wait_until(lambda: pid_of_waiting(go))
    with pytest.raises(InvalidSpec, match=f"process {pid}"), _moved(run.runtime_dir):
        start_daemon(DaemonRequest(run=run.name))
    go.touch()
    wait_until(lambda: has_ended(pid))
    assert run.jobs() == {A: "finished"}


@contextmanager
def _moved(folder: Path) -> Iterator[None]:
    moved = folder.rename(folder.with_name(".moved"))
    try:
        yield
    finally:
        moved.rename(folder)


def test_a_daemon_that_ends_at_once_is_told_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaemonRequest, "command", lambda _: ["sh", "-c", "echo no library; exit 3"])
    paths.log_file().parent.mkdir(parents=True, exist_ok=True)
    paths.log_file().write_text("what an earlier one has said\n")
    with pytest.raises(InvalidSpec, match="status 3, and said:\nno library") as failed:
        start_daemon(DaemonRequest())
    assert "earlier one" not in str(failed.value)
    assert str(paths.log_file()) in failed.value.remedy


def test_a_daemon_that_is_killed_while_it_begins_is_started_again(monkeypatch: pytest.MonkeyPatch, go: Path) -> None:
    daemon = DaemonRequest.command

    def killed_at_first(request: DaemonRequest) -> list[str]:
        if go.exists():
            return daemon(request)
        go.touch()
        return ["sh", "-c", "kill -KILL $$"]

    monkeypatch.setattr(DaemonRequest, "command", killed_at_first)
    run, _ = Joining(SHARED, settings=ProcessSettings()).submit([submission("a")])
    wait_until(lambda: not run.is_live())
    assert run.jobs() == {A: "finished"}


def test_a_daemon_that_is_killed_each_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaemonRequest, "command", lambda _: ["sh", "-c", "kill -KILL $$"])
    with pytest.raises(InvalidSpec, match="status -9"):
        start_daemon(DaemonRequest())


def test_a_daemon_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, go: Path) -> None:
    waits = f"until test -e {go}; do sleep 0.1; done"
    monkeypatch.setattr(DaemonRequest, "command", lambda _: ["sh", "-c", waits])
    monkeypatch.setattr(joining, "_START_S_MAX", 0.1)
    with pytest.raises(InvalidSpec, match="no answer of process"):
        start_daemon(DaemonRequest())
    go.touch()


# A daemon that is killed, hangs, or is of another version.


@pytest.mark.usefixtures("no_successors")
def test_a_killed_daemon_is_started_again_without_any_command(
    go: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    follower = command(FOLLOWS, "a", go)
    job = wait_until(lambda: pid_of_waiting(go))
    run = present()
    first = pid_of(run)
    follower.kill()
    follower.wait()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: run.daemon_pid() not in (None, first))
    go.touch()
    wait_until(lambda: not run.is_live())
    assert run.jobs() == {A: "finished"}
    assert pid_of_waiting(go) == job
    assert any(isinstance(message, SteeringResumed) for message in messages_of(run))


def test_a_job_starts_the_next_daemon_where_no_other_process_does(go: Path) -> None:
    run, _ = Joining(SHARED, settings=ProcessSettings()).submit([submission("a", awaited=go)])
    job = wait_until(lambda: pid_of_waiting(go))
    first = pid_of(run)
    kill_with_watcher(first)
    wait_until(lambda: run.daemon_pid() not in (None, first))
    go.touch()
    wait_until(lambda: not run.is_live())
    assert run.jobs() == {A: "finished"}
    assert pid_of_waiting(go) == job


def test_a_daemon_that_hangs_is_replaced_though_no_command_follows(go: Path) -> None:
    run, _ = Joining(SHARED, settings=ProcessSettings()).submit([submission("a", awaited=go)])
    job = wait_until(lambda: pid_of_waiting(go))
    first = pid_of(run)
    hang_until_replaced(run, first)
    wait_until(lambda: has_ended(first))
    go.touch()
    wait_until(lambda: not run.is_live())
    assert pid_of_waiting(go) == job


@pytest.mark.usefixtures("no_successors")
def test_a_command_starts_the_next_daemon_where_no_other_process_does(
    go: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    follower = command(FOLLOWS, "a", go)
    job = wait_until(lambda: pid_of_waiting(go))
    run = present()
    first = pid_of(run)
    kill_with_watcher(first)
    wait_until(lambda: run.daemon_pid() not in (None, first))
    go.touch()
    assert follower.communicate()[0].strip() == "['finished']"
    assert pid_of_waiting(go) == job


@pytest.mark.usefixtures("no_successors")
def test_a_daemon_that_hangs_is_replaced_by_the_command_that_follows_and_ends_once_it_goes_on(
    go: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    follower = command(FOLLOWS_IMPATIENTLY, "a", go)
    job = wait_until(lambda: pid_of_waiting(go))
    run = present()
    first = pid_of(run)
    watcher = parent_of(first)
    hang_until_replaced(run, first)
    wait_until(lambda: has_ended(first) and has_ended(watcher))
    go.touch()
    assert follower.communicate()[0].strip() == "['finished']"
    assert pid_of_waiting(go) == job


def test_the_end_of_a_command_changes_nothing_for_its_job_and_its_daemon(
    go: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    follower = command(FOLLOWS, "a", go)
    wait_until(lambda: pid_of_waiting(go))
    run = present()
    pid = pid_of(run)
    follower.kill()
    follower.wait()
    other = command(FOLLOWS, "b", go)
    wait_until(lambda: run.open_jobs() == ["a", "b"])
    assert pid_of(run) == pid
    go.touch()
    assert other.communicate()[0].strip() == "['finished']"
    wait_until(lambda: not run.is_live())
    assert run.jobs() == {"a": "finished", "b": "finished"}
    assert not any(isinstance(message, SteeringResumed) for message in messages_of(run))


def test_a_daemon_of_another_version_leaves_its_jobs_to_one_of_this(
    go: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    first = command(FOLLOWS, "a", go)
    job = wait_until(lambda: pid_of_waiting(go))
    run = present()
    pid = pid_of(run)
    run.record_facts(version="0.0.1")
    second = command(FOLLOWS, "b", go)
    wait_until(lambda: run.daemon_pid() not in (None, pid) and run.open_jobs() == ["a", "b"])
    go.touch()
    assert [process.communicate()[0].strip() for process in (first, second)] == ["['finished']"] * 2
    assert pid_of_waiting(go) == job


# The jobs that a command follows.


def test_a_command_ends_with_its_last_job_although_the_ends_of_the_first_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("punctual.daemon.status_reader.StatusBoard", partial(StatusBoard, n_ended=2))
    with JobFollower(ignore_output) as follower:
        follower.submit([submission(name) for name in "abc"], PACED)
        follower.run()
        assert [follower.status(job).state for job in follower.job_ids] == ["finished"] * 3
        assert all(follower.knows(job) and follower.has_ended(job) for job in follower.job_ids)


def accepted(job: Submission, options: HostOptions = SHARED) -> RunFolder:
    """The run of a daemon that has accepted a job, and was killed before that was in its journal or answered."""
    run = create_run("host", {"options": asdict(options), SERVICE: True})
    run.record_facts(gpus=list(visible_devices()), actuator=PACED.actuator)
    with SqliteJournal(run.journal):
        pass
    run.record_submitted([new_job(job.spec.id, encode(submitted(job)), job.inherited)])
    (run.runtime_dir / "run.json").write_text("{}")
    return run


def test_a_job_that_was_accepted_and_not_answered_is_not_refused_because_of_itself() -> None:
    given = submission("a")
    run = accepted(given)
    assert follow(given) == ["finished"]
    wait_until(lambda: run.jobs() == {"a": "finished"})
    assert [message.spec.id for message in messages_of(run) if isinstance(message, JobSubmitted)] == ["a"]


def test_a_job_that_was_accepted_is_followed_by_who_attaches_to_it() -> None:
    run = accepted(submission("a"))
    with JobFollower(ignore_output) as follower:
        follower.follow(run, A)
        assert follower.job_ids == (A,)
        follower.run()
        assert follower.status(A).state == "finished"


def test_a_command_says_once_why_no_daemon_can_go_on_with_its_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("punctual.daemon.follower._ALIKE_S", 0.0)
    run = accepted(submission("a"))
    n_starts = [0]

    def refuse(request: DaemonRequest) -> None:
        assert request.run == run.name
        n_starts[0] += 1
        if n_starts[0] > 3:
            run.record_end(A, "stopped")
            raise KeyboardInterrupt
        raise InvalidSpec("the policy must be there", "'elsewhere'", "the daemon of this machine", "Install it.")

    with JobFollower(ignore_output) as follower:
        with monkeypatch.context() as patch:
            patch.setattr("punctual.daemon.follower.start_daemon", lambda request: None)
            follower.follow(run, A)
        monkeypatch.setattr("punctual.daemon.follower.start_daemon", refuse)
        with pytest.raises(KeyboardInterrupt):
            follower.run()
    assert len([record for record in caplog.records if "'elsewhere'" in record.message]) == 1


def test_a_name_is_free_once_its_job_has_ended_although_another_job_of_its_run_has_not() -> None:
    earlier = create_run("a", {})
    earlier.record_job(JobId("b"), "queued")
    earlier.record_end(A, "finished")
    (earlier.runtime_dir / "run.json").write_text("{}")
    assert follow(submission("a"), options=PACED) == ["finished"]
    assert {(job.run.name, job.title): job.steering for job in known_jobs()} == {
        ("a", "a-1"): "ended", ("a", "b"): "interrupted", ("a-2", "a"): "ended",
    }  # fmt: skip
    earlier.record_end(JobId("b"), "stopped")


def test_the_name_of_a_job_that_has_not_ended_is_refused() -> None:
    earlier = create_run("a", {})
    earlier.record_job(A, "queued")
    (earlier.runtime_dir / "run.json").write_text("{}")
    with pytest.raises(InvalidSpec, match="which was interrupted") as refused:
        follow(submission("a"), options=PACED)
    assert "punctual attach a" in refused.value.remedy
    earlier.record_end(A, "stopped")


def begun(follower: JobFollower, go: Path) -> RunFolder:
    """Submit a job, and wait until it runs and the daemon and its watcher have been killed."""
    follower.submit([submission("a", awaited=go)], SHARED)
    wait_until(lambda: pid_of_waiting(go))
    kill_with_watcher(pid_of(follower.run_folder))
    wait_until(lambda: not follower.run_folder.is_live())
    return follower.run_folder


@pytest.mark.usefixtures("no_successors")
def test_a_stop_that_no_daemon_has_heard_is_told_to_the_next(go: Path) -> None:
    with JobFollower(ignore_output) as follower:
        run = begun(follower, go)
        follower.stop(A, "the user")
        follower.run()
        assert (follower.status(A).state, follower.status(A).cause) == ("stopped", "the user")
    wait_until(lambda: not run.is_live())


@pytest.mark.usefixtures("no_successors")
def test_a_job_is_ended_at_once_without_a_daemon_too(go: Path) -> None:
    with JobFollower(ignore_output) as follower:
        run = begun(follower, go)
        follower.kill(A)
        wait_until(lambda: run.supervisor_pid(A) is None)
        follower.run()
        assert follower.status(A).ended


# What a job inherits of its command, which is not its parent.

#: Prints what its process has inherited, and its standard input.
INHERITING = """
import json, os, resource, sys
os.umask(mask := os.umask(0))
told = {"umask": mask, "nice": os.nice(0), "core": resource.getrlimit(resource.RLIMIT_CORE), "input": sys.stdin.read()}
open(sys.argv[1], "w").write(json.dumps(told))
"""
#: The command that starts the daemon, and another one.
FIRST_COMMAND = "import os, resource; os.nice(5); resource.setrlimit(resource.RLIMIT_CORE, (100, 100))" + FOLLOWS
COMMAND = """
import os, resource, sys
from tests.daemon.test_daemon import follow, inheriting
os.umask(0o027)
os.nice(int(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_CORE, (1000, 2000))
print(follow(inheriting(sys.argv[1])))
"""
#: Whether this user may undo what a daemon has.
RAISES = """
import os, resource
os.nice(1)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.nice(-1)
resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
"""


def inheriting(path: str) -> Submission:
    options = JobOptions(program=[sys.executable, "-c", INHERITING, path], name="inheriting")
    return submission_of(options, time.monotonic(), capacity_here())


def test_a_job_inherits_of_its_command_and_not_of_the_daemon(
    go: Path, tmp_path: Path, command: Callable[..., "subprocess.Popen[str]"]
) -> None:
    may_raise = ForkedPython([sys.executable, "-c", RAISES], stderr=subprocess.DEVNULL).wait() == 0
    command(FIRST_COMMAND, "a", go)
    wait_until(lambda: pid_of_waiting(go))
    path = tmp_path / "inherited"
    nicer = 3 if may_raise else 6
    words = [sys.executable, "-c", COMMAND, str(path), str(nicer)]
    nice = os.nice(0)
    with ForkedPython(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.communicate("what its caller writes")[0].strip() == "['finished']"
    told: dict[str, Any] = json.loads(path.read_text())
    assert told == {
        "umask": 0o027,
        "nice": min(nice + nicer, 19),
        "core": [1000, 2000],
        "input": "what its caller writes",
    }
    go.touch()


def is_unread(writing: int) -> bool:
    """Whether nobody has the other end of a pipe any more."""
    try:
        os.write(writing, b".")
    except BrokenPipeError:
        return True
    return False


def test_the_input_of_a_job_that_ends_before_it_begins_is_closed(go: Path) -> None:
    Joining(SHARED, settings=ProcessSettings()).submit([submission("a", awaited=go)])
    given = submission("b")
    waiting = replace(given, spec=replace(given.spec, after=(A,)))
    reading, writing = os.pipe()
    try:
        Joining(SHARED, settings=ProcessSettings()).submit([waiting], reading)
        os.close(reading)
        assert not is_unread(writing)
        stop(find_job("b", open_jobs()))
        wait_until(lambda: is_unread(writing))
    finally:
        os.close(writing)
    go.touch()


def test_what_a_job_inherits_is_sent_to_the_daemon() -> None:
    settings = ProcessSettings.from_fields(json.loads(json.dumps(asdict(ProcessSettings.here(None)))))
    assert settings == ProcessSettings.here(None)
    assert "RLIMIT_NOFILE" in settings.limits
