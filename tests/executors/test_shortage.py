"""What this process or its user has too little of: threads, processes, descriptors, memory."""

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.executors.conftest import JOB, SPIN, Stage
from tests.executors.test_pause import WORKER, launch, paused, resize

from punctual.core.events import GrantApplied, GrantFailed, JobFinished, JobStarted
from punctual.core.resources import Resources
from punctual.executors.local import context, supervisor, supervisor_client
from punctual.executors.local.launch import JobProcess

SLEEP = "import time; time.sleep(600)"


def no_thread() -> Exception:
    return RuntimeError("can't start new thread")


def no_process() -> Exception:
    return BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def no_descriptor() -> Exception:
    return OSError(errno.EMFILE, "Too many open files")


def n_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def fails(error: Callable[[], Exception], n_times: int = 1, name: str = "") -> Callable[..., object]:
    """Raises `error` so many times, for a thread whose name begins with `name`, before it does what it should."""
    n_left, start = [n_times], threading.Thread.start

    def call(thread: threading.Thread) -> None:
        if n_left[0] and thread.name.startswith(name):
            n_left[0] -= 1
            raise error()
        start(thread)

    return call


@pytest.mark.parametrize(
    ("error", "short_of"),
    [
        (no_thread, "a process"),
        (no_process, "a process"),
        (no_descriptor, "a descriptor"),
        (lambda: OSError(errno.ENFILE, "Too many open files in system"), "a descriptor"),
        (lambda: OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (MemoryError, "memory"),
        (lambda: OSError(errno.ENOSPC, "No space left on device"), "room on the disk"),
        (lambda: OSError(errno.EACCES, "Permission denied"), ""),
        (lambda: RuntimeError("something else"), ""),
    ],
)
def test_what_a_start_was_short_of_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], short_of: str
) -> None:
    def refuse(_: JobProcess, __: object) -> None:
        raise error()

    with monkeypatch.context() as patch:
        patch.setattr(JobProcess, "_start_supervisor", refuse)
        stage.prepare("pass")
        stage.launch()
        failed = stage.wait(GrantFailed)
    assert (failed.short_of, failed.granted) == (short_of, {})
    stage.launch()
    assert isinstance(stage.ended(), JobFinished)


@pytest.mark.parametrize("name", ["punctual-job", "punctual-output"])
def test_a_job_for_which_no_thread_can_be_had_waits_and_leaves_nothing_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stage.prepare("pass")
    n_before = n_files()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails(no_thread, name=name))
        stage.launch()
        assert stage.wait(GrantFailed).short_of == "a process"
    assert n_files() == n_before
    stage.launch()
    assert isinstance(stage.ended(), JobFinished)


def test_a_job_that_has_made_room_and_for_which_no_thread_can_be_had_is_started_again_later(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(stage, tmp_path)
    paused(stage)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails(no_thread, name="punctual-job"))
        resize(stage, 2)
        failed = stage.wait(GrantFailed)
    assert (failed.granted, failed.short_of) == ({}, "a process")
    resize(stage, 2)
    assert sum(stage.wait(GrantApplied).granted.values(), start=Resources()) == WORKER * 2


def test_a_change_for_which_no_thread_can_be_had_is_answered(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.run(SLEEP)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails(no_thread, name="punctual-poller"))
        stage.resize(0.0)
        assert stage.wait(GrantFailed).short_of == "a process"
    stage.resize(0.0)
    assert stage.wait(GrantApplied).granted == {}
    assert stage.resized(0.5) == 0.5


@pytest.mark.parametrize("call", ["os.fork", "os.pipe"])
def test_a_supervisor_that_can_have_no_process_for_the_job_or_no_descriptor_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    short = {"os.fork": errno.EAGAIN, "os.pipe": errno.EMFILE}[call]
    program = tmp_path / "keeper.py"
    program.write_text(
        f"import os, runpy, sys\ndef refuse(): raise OSError({short}, os.strerror({short}))\n"
        f"{call} = refuse\nsys.argv[0] = {supervisor.__file__!r}\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(supervisor_client, "_PYTHON", (sys.executable, "-I", "-S", str(program)))
        stage.prepare("pass")
        stage.launch()
        failed = stage.wait(GrantFailed)
    assert failed.short_of == {"os.fork": "a process", "os.pipe": "a descriptor"}[call]
    stage.launch()
    assert isinstance(stage.ended(), JobFinished)


def test_jobs_that_have_ended_keep_no_descriptor(stage: Stage) -> None:
    stage.prepare("import punctual\nfor _ in punctual.track(range(2), total_steps=2): pass")
    n_before = n_files()
    for _ in range(3):
        stage.launch()
        assert isinstance(stage.ended(), JobFinished)
    assert n_files() == n_before
    assert not stage.executor.facts(JOB).faults


def test_a_job_that_runs_takes_five_descriptors(stage: Stage) -> None:
    stage.prepare(SPIN + "import time; time.sleep(600)")
    n_before = n_files()
    stage.launch()
    stage.wait(JobStarted)
    stage.stop()
    assert n_files() - n_before <= 5


def test_jobs_get_the_limit_of_open_files_that_this_process_was_started_with(stage: Stage, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = tmp_path / "told"
    stage.run(f"import resource\nopen({str(told)!r}, 'w').write(str(resource.getrlimit(resource.RLIMIT_NOFILE)))")
    assert isinstance(stage.ended(), JobFinished)
    assert told.read_text() == str(context.raise_files_limit())
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    assert soft <= hard


def test_a_job_runs_where_its_host_has_more_files_open_than_select_can_look_at(stage: Stage, tmp_path: Path) -> None:
    stage.prepare(
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done', flush=True)",
        cwd=str(tmp_path),
    )  # fmt: skip
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1_300:
        pytest.skip("this process may not have so many files open")
    with ExitStack() as opened:
        for _ in range(1_100):
            opened.enter_context(open(os.devnull))  # noqa: PTH123 -- a descriptor is what is wanted
        stage.launch()
        stage.wait(JobStarted)
        assert stage.resized(0.5) == 0.5
        (tmp_path / "go").touch()
        assert isinstance(stage.ended(), JobFinished)


#: A host whose process may open 80 files, with more jobs than these are enough for; prints how it went. None ends before
#: one had to wait and the file of the argument is there.
NARROW = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 80))
import sys, time
from dataclasses import replace
from tests.daemon.live_jobs import PACED
from punctual.core.commands import WarnUser
from punctual.daemon.capacity import capacity_here
from punctual.daemon.opening import new_host
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of
warned = {}
with new_host("host", replace(PACED, jobs_at_once=48)) as host:
    host.subscribe(lambda message: warned.setdefault(message.reason.code, str(message.reason)) if isinstance(message, WarnUser) else 0)
    for i in range(48):
        program = ["sh", "-c", f"while [ ! -e {sys.argv[1]} ]; do sleep 0.2; done"]
        options = JobOptions(program=program, name=f"job-{i}", cores=f"0.01..{capacity_here().cores}")
        host.submit(submission_of(options, time.monotonic(), capacity_here()))
    host.run(lambda: "waits-for-room" in warned)
    open(sys.argv[1], "w").close()
    host.run(host.all_ended)
    print({status.state for status in host.jobs()}, warned["waits-for-room"])
"""


def test_jobs_wait_for_descriptors_and_none_of_them_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-c", NARROW, str(tmp_path / "go")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout.startswith("{'finished'} it waits for a descriptor: "), done.stdout + done.stderr
    assert "of 80 open files are in use" in done.stdout
