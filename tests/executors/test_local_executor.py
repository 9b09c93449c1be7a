"""Jobs as real processes, from launch to end."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.executors.conftest import JOB, NODE, SPIN, WHY, Stage, groups_of, is_alive, quotas_of, until
from tests.forked_python import ForkedPython
from tests.small_disk import fill, mounted
from tests.waiting import PATIENCE_S

from punctual.channel import PAGE_BYTES, SharedBlock
from punctual.core.commands import ResizeJob, StopJob
from punctual.core.control import PacingLine
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    PhaseReported,
    ProgressReported,
)
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources
from punctual.executors.local import executor, job_run, launch
from punctual.executors.local.actuator import JobGroup
from punctual.executors.local.job_files import read_end
from punctual.executors.local.job_run import JobRun
from punctual.executors.local.launch import MEMORY_NAME, JobProcess, new_page, page_path
from punctual.executors.local.supervisor_client import SupervisorLink
from punctual.progress_text.reader import ProgressReader

TRAIN = (
    SPIN
    + """
import punctual
for batch in punctual.track(range({n_steps}), epochs=1):
    spin({step_s})
"""
)
SLEEP = "import time; time.sleep(60)"
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"


def trains(n_steps: int = 20, step_s: float = 0.002) -> str:
    return TRAIN.format(n_steps=n_steps, step_s=step_s)


def test_a_job_that_trains_lands_and_finishes(stage: Stage) -> None:
    began = stage.run(trains())
    assert (began.request, began.can_pace, began.can_cap) == (1, True, False)
    ended = stage.ended()
    assert isinstance(ended, JobFinished)
    last = stage.events[-2]
    assert last.steps_done == last.steps_total == 20
    assert last.landed
    assert last.used_core_s >= 0.04
    assert ended.landed_at == last.unit_at < ended.at
    assert not stage.executor.facts(JOB).faults


def test_usage_is_reported_before_there_is_progress(stage: Stage) -> None:
    before = time.monotonic()
    began = stage.run(SPIN + "spin(60)")
    first = stage.look_until(lambda report: report.used_core_s > 0.1)
    assert (first.steps_done, first.steps_total, first.landed) == (0, None, False)
    assert before <= first.unit_at <= began.at


def test_the_unit_in_flight_is_credited(stage: Stage) -> None:
    stage.run(trains(1, 60))
    seen = stage.look_until(lambda report: report.in_flight_core_s > 0.3)
    assert (seen.steps_done, seen.steps_total) == (0, 1)
    assert seen.in_flight_core_s <= seen.used_core_s


@pytest.fixture
def unshare() -> list[str]:
    """A command that runs a program in a PID namespace of its own."""
    command = ["unshare", "--pid", "--fork", "--kill-child"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no PID namespace can be made here: {error}")
    return command


def test_the_unit_in_flight_is_that_of_a_process_which_has_another_number_for_itself(
    stage: Stage, unshare: list[str]
) -> None:
    """Its own number is that of some other process here, as 1, which has used far more or less."""
    stage.run("", argv=(*unshare, sys.executable, "-c", trains(1, 60)))
    seen = stage.look_until(lambda report: report.in_flight_core_s > 0.3)
    assert seen.in_flight_core_s <= seen.used_core_s


def test_a_job_that_cannot_reach_its_page_is_steered_by_what_it_prints(stage: Stage, unshare: list[str]) -> None:
    code = "import time\nprint('step 2/9', flush=True)\nprint('step 3/9', flush=True)\ntime.sleep(60)"
    argv = (*unshare, "--mount-proc", sys.executable, "-c", code)
    stage.run("", argv=argv, progress_pattern="auto")
    stage.look_until(lambda report: (report.steps_done, report.steps_total) == (3, 9))


def test_no_job_is_run_where_proc_has_other_numbers(unshare: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from punctual.executors.local.context import ExecutorContext\n"
        "ExecutorContext(node='here', runtime_dir=Path(sys.argv[1]), log_of=Path)"
    )
    done = subprocess.run([*unshare, sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert "`/proc` must show the processes of the PID namespace" in done.stderr


def test_no_job_is_run_where_there_is_no_proc(tmp_path: Path) -> None:
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    try:
        subprocess.run([*hidden, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    environment = {**os.environ, "PUNCTUAL_HOME": str(tmp_path)}
    words = [*hidden, sys.executable, "-m", "punctual", "up", "--actuator", "pacing"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "`/proc` must show the processes of the PID namespace" in done.stderr
    assert "Traceback" not in done.stderr


def test_phases_are_reported_when_they_change(stage: Stage) -> None:
    stage.run(
        "import punctual, time\n"
        "for batch in punctual.track(range(2), epochs=1, phases=['evaluate']):\n"
        "    pass\n"
        "with punctual.phase('evaluate'): time.sleep(60)\n"
    )
    stage.look_until(lambda report: report.steps_done == 2)
    seen = len([event for event in stage.events if isinstance(event, PhaseReported)])
    stage.look()
    phases = [event.phases for event in stage.events if isinstance(event, PhaseReported)]
    assert len(phases) == seen
    (evaluate,) = phases[-1]
    assert (evaluate.name, evaluate.units_planned, evaluate.units_done) == ("evaluate", 1, 0)


def test_launch_said_again_is_answered_and_changes_nothing(stage: Stage) -> None:
    stage.run(SLEEP)
    pid, supervisors = stage.pid(), dict(stage.supervisors)
    stage.launch()
    assert stage.wait(JobStarted).request == 2
    assert (stage.pid(), stage.supervisors) == (pid, supervisors)


def test_a_job_is_launched_again_after_its_end(stage: Stage) -> None:
    stage.run("exit(3)")
    assert isinstance(stage.ended(), JobFailed)
    stage.launch()
    assert stage.wait(JobStarted).request == 2
    assert isinstance(stage.ended(), JobFailed)


def test_late_commands_are_dropped(stage: Stage) -> None:
    stage.run(SLEEP)
    assert stage.resized(0.5) == 0.5
    stage.resize(0.7, request=1)
    stage.resize(0.6)
    late = [event for event in stage.events if isinstance(event, GrantApplied) and event.request == 1]
    assert stage.wait(GrantApplied).granted[NODE].cores == 0.6
    assert not late


def test_commands_about_unknown_jobs(stage: Stage) -> None:
    stage.prepare(SLEEP)
    stage.resize(0.5)
    assert stage.wait(JobFailed).retryable
    stage.executor.perform(StopJob(at=0.0, job=JobId("other"), cause="x", is_due=True), stage.sink)
    until(lambda: len(stage.events), lambda n: n == 2)
    failed = stage.events[-1]
    assert failed == JobFailed(at=0.0, job=JobId("other"), cause="x", is_stopped=True, is_due=True)
    stage.executor.observe(JOB, 0.0, stage.sink)
    assert len(stage.events) == 2
    assert not stage.executor.facts(JOB).faults


def test_commands_made_when_the_end_of_the_job_was_on_its_way_start_and_answer_nothing(stage: Stage) -> None:
    stage.prepare("pass")
    early = stage.launch_command(Resources(1.0), JobSpec(id=JOB, ceiling=Resources(1.0)))
    stage.launch()
    stage.ended()
    until(lambda: stage.executor._runs[JOB].told_end_at, lambda at: at > 0)
    n_events = len(stage.events)
    resize = ResizeJob(at=early.at, job=JOB, request=2, grant={NODE: Resources(0.5)}, reason=WHY)
    for command in (early, resize, StopJob(at=early.at, job=JOB, cause="x")):
        stage.executor.perform(command, stage.sink)
    assert len(stage.events) == n_events
    stage.launch()
    assert isinstance(stage.ended(), JobFinished)


def test_a_job_that_failed_is_started_anew(stage: Stage, tmp_path: Path) -> None:
    """With a page of its own, when nothing is left of the attempt before."""
    code = (
        "import os; from pathlib import Path\n"
        "pages = Path('pages').read_text().split() if os.path.exists('pages') else []\n"
        "Path('pages').write_text(' '.join([*pages, os.environ['PUNCTUAL_PAGE']]))\n"
        "exit(1 if not pages else os.path.exists(pages[0]))\n"
    )
    stage.run(code, cwd=str(tmp_path))
    assert stage.wait(JobFailed).retryable
    stage.launch()
    assert isinstance(stage.ended(), JobFinished)
    first, second = (tmp_path / "pages").read_text().split()
    assert first != second


def test_only_the_last_jobs_that_ended_are_remembered(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_N_ENDED_MAX", 1)
    stage.prepare("pass")
    specs = [JobSpec(id=JobId(name), ceiling=Resources(1.0)) for name in ("first", "second", "third")]
    early = [stage.launch_command(Resources(1.0), spec) for spec in specs]
    for spec in specs:
        stage.executor.perform(stage.launch_command(Resources(1.0), spec), stage.sink)
        stage.ended()
    stage.executor.perform(early[1], stage.sink)  # made before its end, which is the answer
    stage.executor.perform(early[0], stage.sink)
    assert stage.ended().job == "first"


def test_a_job_without_a_program_fails(stage: Stage) -> None:
    stage.prepare(SLEEP)
    stage.program = None
    stage.launch()
    assert stage.wait(JobFailed).cause


@pytest.mark.parametrize(
    ("code", "exit_code", "cause", "retryable"),
    [
        ("exit(3)", 3, "exit code 3", True),
        ("import os; os.kill(os.getpid(), 9)", 137, "SIGKILL", True),
        ("exit(2)", 2, "exit code 2", False),
        ("exit(126)", 126, "exit code 126", False),
        ("exit(127)", 127, "exit code 127", False),
    ],
)
def test_a_job_that_fails(stage: Stage, code: str, exit_code: int, cause: str, retryable: bool) -> None:
    stage.run(code)
    ended = stage.wait(JobFailed)
    assert ended.exit_code == exit_code
    assert cause in ended.cause
    assert ended.retryable == retryable
    assert not stage.executor.facts(JOB).faults


def test_a_program_that_cannot_be_run(stage: Stage) -> None:
    stage.prepare("", argv=("no-such-program",))
    stage.launch()
    ended = stage.wait(JobFailed)
    assert (ended.exit_code, ended.retryable) == (127, False)
    assert "'no-such-program'" in ended.cause


def test_nobody_can_make_a_page_shorter_which_would_end_all_who_have_it() -> None:
    page, fd, _ = new_page()
    path = page_path(os.getpid(), fd)
    training = SharedBlock.open(str(path))
    for n_bytes in (0, 100, 1 << 20):
        with pytest.raises(PermissionError):
            os.truncate(path, n_bytes)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"more", PAGE_BYTES)
    training.publish_progress(3, 1, 0, -1)
    assert page.progress().n_steps == 3


def test_a_page_is_in_no_folder_and_goes_with_who_holds_it() -> None:
    page, fd, _ = new_page()
    assert str(page_path(os.getpid(), fd).readlink()) == f"/memfd:{MEMORY_NAME} (deleted)"
    del page
    assert not page_path(os.getpid(), fd).exists()


def test_a_job_that_makes_its_page_shorter_goes_on_and_is_still_read(stage: Stage) -> None:
    cut = "import os\ntry: os.truncate(os.environ['PUNCTUAL_PAGE'], 10)\nexcept PermissionError: pass\nelse: sys.exit(9)\n"
    stage.run(SPIN + cut + trains())
    assert isinstance(stage.ended(), JobFinished)
    assert stage.events[-2].steps_done == 20


def test_a_group_that_cannot_be_made(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.prepare(SLEEP)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/some/group")

    monkeypatch.setattr(stage.executor.chosen.actuator, "open", refuse)
    stage.launch()
    failed = stage.wait(GrantFailed)
    assert (failed.request, failed.granted) == (1, {})
    assert "/some/group" in failed.cause


# Pacing.


def test_pacing_orders_reach_the_job(stage: Stage) -> None:
    began = stage.run(trains(10_000, 0.0005))
    seen = stage.look_until(lambda report: report.steps_done > 0)
    end_s = time.monotonic() - began.at + 1000
    stage.resized(1.0, PacingLine(end_s=end_s, end_work=seen.steps_done + 10, s_per_step=100.0))
    before = stage.look().steps_done
    time.sleep(0.5)
    # At a step in a hundred seconds it is ahead of the line by now: it ends the step that was under way, and stands still.
    stood = stage.look().steps_done
    assert stood <= before + 1
    stage.resized(1.0)
    assert stage.look_until(lambda report: report.steps_done > stood + 10).steps_done > stood


def test_costs_of_phases_are_handed_on_in_the_order_of_the_page(stage: Stage) -> None:
    stage.run(
        "import punctual, time\n"
        "for batch in punctual.track(range(2), epochs=1, phases=['evaluate', 'checkpoint']): pass\n"
        "time.sleep(60)\n"
    )
    stage.look_until(lambda report: report.steps_done == 2)
    line = PacingLine(end_s=1.0, end_work=5.0, s_per_step=0.1, phase_cost_steps={"checkpoint": 3.0, "evaluate": 2.0})
    stage.resized(1.0, line)
    page = stage.page()
    directives = page.directives()
    assert directives.pacing
    assert directives.phase_cost_steps[:2] == (2.0, 3.0)
    assert page.heartbeat_ns() > 0
    page.close()


# Stopping.


SAVES = SPIN + (
    "import punctual\n"
    "@punctual.on_stop\n"
    "def save(): open('saved', 'w').close()\n"
    "for batch in punctual.track(range(10_000), epochs=1): spin(0.002)\n"
)


def test_a_job_that_can_save_is_asked_to(stage: Stage, tmp_path: Path) -> None:
    stage.run(SAVES, cwd=str(tmp_path), stop_grace_s=PATIENCE_S)
    stage.look_until(lambda report: report.steps_done > 0)
    stage.stop("the user wanted it")
    stage.stop("again")
    ended = stage.wait(JobFailed)
    assert (ended.cause, ended.retryable) == ("the user wanted it", False)
    assert (tmp_path / "saved").exists()


def test_a_job_that_cannot_save_gets_sigterm(stage: Stage) -> None:
    stage.run(trains(10_000))
    stage.look_until(lambda report: report.steps_done > 0)
    stage.stop()
    assert stage.wait(JobFailed).exit_code == 128 + signal.SIGTERM


def test_a_job_that_takes_too_long_to_save_gets_sigterm(stage: Stage) -> None:
    stage.run(SAVES.replace("open('saved', 'w').close()", "time.sleep(60)"), stop_grace_s=0.3)
    stage.look_until(lambda report: report.steps_done > 0)
    stage.stop()
    assert stage.wait(JobFailed).exit_code == 128 + signal.SIGTERM


def test_a_job_stopped_when_it_was_about_to_start(stage: Stage) -> None:
    stage.prepare(SLEEP)
    stage.launch()
    stage.stop()
    assert stage.wait(JobFailed).cause == "the user"


def test_a_job_stopped_before_its_supervisor_deals_with_signals(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, stopped, deal = threading.Event(), threading.Event(), SupervisorLink._signal
    monkeypatch.setattr(SupervisorLink, "_signal", lambda link, number: deal(link, number) if link.pid else None)

    def read(link: SupervisorLink, original: Callable[[SupervisorLink], object] = SupervisorLink.read) -> object:
        reading.set()
        assert stopped.wait(PATIENCE_S)
        return original(link)

    monkeypatch.setattr(SupervisorLink, "read", read)
    stage.prepare(SLEEP)
    stage.launch()
    assert reading.wait(PATIENCE_S)
    stage.stop()
    stopped.set()
    assert stage.wait(JobFailed).cause == "the user"
    assert not any(isinstance(event, JobStarted) for event in stage.events)


@pytest.mark.parametrize("n_answers", [0, 1])
def test_a_job_that_another_host_takes_over_while_it_is_started_is_left_to_that(
    stage: Stage, tmp_path: Path, n_answers: int
) -> None:
    answers, recorded = iter([True] * n_answers), list[int]()
    stage.prepare(
        f"open({str(tmp_path / 'ran')!r}, 'w')",
        may_steer=lambda: next(answers, False),
        on_kept=lambda _job, supervisor: recorded.append(supervisor),
    )
    stage.launch()
    until(lambda: JOB not in stage.executor.held())
    assert not (tmp_path / "ran").exists()
    assert (stage.events, recorded) == ([], []), "and the record of the other host stays"


def test_a_job_stopped_as_it_ends_with_success_was_stopped(stage: Stage, tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, lambda *_: exit(0)); open('up', 'w'); time.sleep(60)"
    stage.run(code, cwd=str(tmp_path), stop_grace_s=PATIENCE_S)
    until((tmp_path / "up").exists)
    stage.stop()
    assert stage.wait(JobFailed).exit_code == 0


def test_closing_ends_the_job(stage: Stage) -> None:
    stage.run(SLEEP)
    pid = stage.pid()
    stage.close()
    assert not is_alive(pid)
    assert isinstance(stage.events[-1], JobFailed)


# Output.


def test_output_is_kept_whole(stage: Stage) -> None:
    stage.run("import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)")
    stage.ended()
    assert stage.log.read_bytes() == b"out\nerr\n"


def test_a_full_disk_does_not_end_a_job_that_writes(stage: Stage, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        stage.log = disk / "output.log"
        code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
        stage.run(code + "print('x' * 1_000_000, flush=True)", cwd=str(tmp_path))
        until(lambda: stage.log.exists() and stage.log.read_text() == "first\n")
        fill(disk)
        (tmp_path / "go").touch()
        assert isinstance(stage.ended(), JobFinished)


def test_a_limit_of_the_job_s_file_size_does_not_concern_its_log(stage: Stage) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    stage.run(limit + "print('x' * 100_000, flush=True)")
    assert isinstance(stage.ended(), JobFinished)
    assert stage.log.stat().st_size == 100_001


def test_a_job_that_opens_its_output_again_loses_nothing(stage: Stage) -> None:
    stage.run("print('first', flush=True)\nwith open('/dev/stdout', 'w') as again: again.write('second\\n')")
    assert isinstance(stage.ended(), JobFinished)
    assert stage.log.read_text() == "first\nsecond\n"


def test_a_failing_reader_does_not_stop_the_job(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(ProgressReader, "feed", fail)
    stage.run("print('x' * 1_000_000)")
    assert isinstance(stage.ended(), JobFinished)
    assert "could not be passed on" in caplog.text


def test_a_landing_is_not_reported_without_what_the_job_used(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that takes a job over may find its landing, and nothing any more that tells of its CPU time."""
    code = (
        "import os, time, punctual\nfor _ in punctual.track(range(3), total_steps=3): pass\n"
        "while not os.path.exists('go'): time.sleep(0.01)"
    )
    stage.run(code, cwd=str(tmp_path))
    assert stage.look_until(lambda report: report.landed).used_core_s > 0.0
    with monkeypatch.context() as patched:
        patched.setattr(JobProcess, "read_usage", lambda _: 0.0)
        assert stage.reported() is None
    (tmp_path / "go").touch()
    stage.wait(JobFinished)


def test_progress_is_read_from_the_output(stage: Stage, tmp_path: Path) -> None:
    code = SPIN + (
        "import os\nfor i in range(1, 4): spin(0.05); print(f'step {i}/3')\nwhile not os.path.exists('go'): spin(0.01)"
    )
    assert not stage.run(code, progress_pattern="auto", cwd=str(tmp_path)).can_pace
    seen = stage.look_until(lambda report: report.steps_done == 3 and report.in_flight_core_s > 0.05)
    assert seen.steps_total == 3
    assert seen.used_core_s - seen.in_flight_core_s > 0.1
    assert not seen.landed
    (tmp_path / "go").touch()
    ended = stage.wait(JobFinished)
    assert ended.landed_at >= seen.at
    assert not stage.executor.facts(JOB).faults
    assert stage.log.read_text() == "step 1/3\nstep 2/3\nstep 3/3\n"


# Faults.


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import punctual\nfor batch in punctual.track([], epochs=3): pass", "at least one step: got 0 steps"),
        ("import punctual\nfor batch in punctual.track(range(9), total_steps=5): pass", "more steps than it declared"),
        (
            "import punctual\nfor batch in punctual.track(range(3), total_steps=5): pass",
            "the 5 steps it declared: got 3",
        ),
    ],
)
def test_faults_are_found_at_the_end(stage: Stage, code: str, words: str) -> None:
    stage.run(code)
    assert isinstance(stage.ended(), JobFinished)
    (fault,) = stage.executor.facts(JOB).faults
    assert words in str(fault)
    assert "job 'job'" in str(fault)


@pytest.mark.parametrize("pattern", [r"step (\d+)", "auto", None])
def test_a_program_that_is_only_read_has_no_faults_and_what_is_missing_is_told(
    stage: Stage, pattern: str | None
) -> None:
    code = "print('step 2', flush=True)\nprint('step 3', flush=True)"
    stage.prepare(code, progress_pattern=pattern)
    stage.launch(work_steps=10)
    assert isinstance(stage.ended(), JobFinished)
    assert not stage.executor.facts(JOB).faults
    warned = [event.reason for event in stage.events if isinstance(event, JobWarned)][-1]
    assert warned.code == "ended-early"
    assert "counted to 3 of 10 steps" in warned.text


def test_a_launcher_that_does_not_wait_is_told_what_it_left_running(stage: Stage) -> None:
    stage.run("import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])")
    assert isinstance(stage.ended(), JobFinished)
    warned = [event.reason for event in stage.events if isinstance(event, JobWarned)]
    assert [reason.code for reason in warned if Path(sys.executable).name in reason.text] == ["left-running"]


@pytest.mark.parametrize("code", ["pass", "print('hello')"])
def test_a_program_that_says_nothing_has_no_faults(stage: Stage, code: str) -> None:
    stage.run(code)
    assert isinstance(stage.ended(), JobFinished)
    assert not stage.executor.facts(JOB).faults


def test_the_output_of_a_program_without_track_is_read_on_both_streams(stage: Stage) -> None:
    code = (
        "import sys, time\nfor i in range(1, 9):\n"
        "    print(f'step {i}/8 loss 0.1', file=sys.stderr, flush=True); print('a line', flush=True)\ntime.sleep(60)"
    )
    assert stage.run(code).can_pace
    seen = stage.look_until(lambda report: report.steps_done == 8)
    assert (seen.steps_total, seen.is_read) == (8, True)


def test_a_program_that_tracks_after_it_has_printed_bars_speaks_for_itself(stage: Stage) -> None:
    code = (
        "import punctual, time\nfor i in range(1, 9): print(f'step {i}/8 loss 0.1', flush=True)\ntime.sleep(0.5)\n"
        "for _ in punctual.track(range(30)): time.sleep(0.01)\ntime.sleep(60)"
    )
    stage.run(code)
    seen = stage.look_until(lambda report: report.steps_total == 30 and report.steps_done == 30)
    assert not seen.is_read


def test_a_program_must_have_a_command() -> None:
    with pytest.raises(InvalidSpec, match="the command must not be empty"):
        Program(argv=())


# Crashes.


CONTROLLER = """
import sys, time
from pathlib import Path
from tests.executors.conftest import Stage
stage = Stage(Path(sys.argv[1]) / "runtime")
stage.run(Path(sys.argv[1], "job.py").read_text(), cores=0.1, actuator=sys.argv[2], cwd=sys.argv[1])
Path(sys.argv[1], "up").touch()
time.sleep(60)
"""
JOB_CODE = SPIN + (
    "import os\n"
    "open('pid', 'w').write(str(os.getpid()))\n"
    "while not os.path.exists('go'): time.sleep(0.01)\n"
    "spin(0.2); print('x' * 1_000_000)\n"
    "open('done', 'w')\n"
)


@pytest.mark.parametrize("actuator", [pytest.param("quota", marks=pytest.mark.cgroup), "pacing"])
def test_when_punctual_is_killed_the_job_goes_on_and_is_cleared_up_after(
    tmp_path: Path, actuator: str, request: pytest.FixtureRequest
) -> None:
    if actuator == "quota":
        actuator = request.getfixturevalue("quota")
    (tmp_path / "job.py").write_text(JOB_CODE)
    controller = ForkedPython[bytes](
        [sys.executable, "-c", CONTROLLER, str(tmp_path), actuator], cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until((tmp_path / "up").exists)
        until((tmp_path / "pid").exists)
        pid = int(until((tmp_path / "pid").read_text))
        quotas = quotas_of(controller.pid)
        assert bool(quotas) == (actuator != "pacing")
    finally:
        controller.kill()
        controller.wait()
    for quota in quotas:
        until(lambda quota=quota: quota.read_text() == "-1\n")  # type: ignore[misc]
    assert is_alive(pid)
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists)
    until(lambda: not groups_of(controller.pid))
    until(lambda: not list((tmp_path / "runtime").iterdir()))


@pytest.mark.parametrize("actuator", [pytest.param("quota", marks=pytest.mark.cgroup), "pacing"])
def test_when_the_supervisor_is_killed_the_job_ends(
    stage: Stage, actuator: str, request: pytest.FixtureRequest
) -> None:
    stage.run(SLEEP, actuator=request.getfixturevalue("quota") if actuator == "quota" else actuator)
    pid = stage.pid()
    os.kill(stage.supervisors[JOB], signal.SIGKILL)
    ended = stage.wait(JobFailed)
    assert "supervisor" in ended.cause
    assert ended.retryable
    assert not is_alive(pid)


#: SIGTERM ends neither of its processes, and one of them is in a session of its own.
STUBBORN = (
    "import os, signal, subprocess, sys, time\nsignal.signal(15, signal.SIG_IGN)\n"
    "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
    "open('pids', 'w').write(f'{os.getpid()} {other.pid}\\n')\ntime.sleep(1000)\n"
)


@pytest.mark.parametrize("actuator", [pytest.param("quota", marks=pytest.mark.cgroup), "pacing"])
def test_when_the_supervisor_is_killed_a_job_that_ignores_sigterm_ends_with_all_its_processes(
    stage: Stage, tmp_path: Path, actuator: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.2)
    name = request.getfixturevalue("quota") if actuator == "quota" else actuator
    stage.run(STUBBORN, cores=0.5, actuator=name, cwd=str(tmp_path))
    until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().endswith("\n"))
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    os.kill(stage.supervisors[JOB], signal.SIGKILL)
    assert "supervisor" in stage.wait(JobFailed).cause
    assert not any(map(is_alive, pids))


# Quotas.


@pytest.mark.cgroup
def test_a_quota_is_set_read_back_and_changed(stage: Stage, quota: str) -> None:
    began = stage.run(SLEEP, cores=0.333333, actuator=quota)
    assert began.can_cap
    assert began.granted[NODE].cores == 6666 / 20000
    assert stage.resized(0.001) == 0.01
    assert stage.resized(0.5) == 0.5
    assert stage.resized(float(os.cpu_count() or 1)) == os.cpu_count()


@pytest.mark.cgroup
def test_a_quota_is_written_only_when_it_changes(stage: Stage, quota: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.run(SLEEP, cores=0.5, actuator=quota)
    writes: list[str] = []
    original = Path.write_text

    def write(path: Path, text: str) -> int:
        writes.append(path.name)
        return original(path, text)

    monkeypatch.setattr(Path, "write_text", write)
    stage.resized(0.5)
    stage.resized(0.50000001)
    assert not writes
    stage.resized(0.6)
    assert len(writes) == len(set(writes)) == 2, "the weight and the quota, each once; the burst is left as it is"


@pytest.mark.cgroup
def test_a_quota_is_delivered_also_to_children(stage: Stage, quota: str) -> None:
    code = SPIN + (
        "import multiprocessing\n"
        "workers = [multiprocessing.get_context('fork').Process(target=spin, args=(60,)) for _ in range(2)]\n"
        "for worker in workers: worker.start()\n"
        "spin(60)\n"
    )
    stage.run(code, cores=0.4, actuator=quota)
    before = stage.look_until(lambda report: report.used_core_s > 0.2)
    began_at = before.at
    after = stage.look_until(lambda report: report.used_core_s > before.used_core_s + 0.5)
    # Without a quota three processes use more; on a busy machine they may have less than the quota.
    assert after.used_core_s - before.used_core_s < 1.6 * 0.4 * (time.monotonic() - began_at)


@pytest.mark.cgroup
def test_a_resize_that_fails_says_what_is_held(stage: Stage, quota: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.run(SLEEP, cores=0.5, actuator=quota)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "cpu.cfs_quota_us")

    monkeypatch.setattr(Path, "write_text", refuse)
    stage.resize(0.7)
    failed = stage.wait(GrantFailed)
    assert failed.granted[NODE].cores == 0.5
    assert failed.cause == "'cpu.cfs_quota_us': Permission denied"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV])
def test_a_resize_of_a_job_whose_group_is_gone_is_answered_by_its_end(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    stage.run(WAITS, cwd=str(tmp_path))
    _lose_groups(monkeypatch, number)
    stage.resize(0.7)
    (tmp_path / "go").touch()
    assert isinstance(stage.ended(), JobFinished)
    assert not [event for event in stage.events if isinstance(event, GrantFailed)]


def test_a_resize_of_a_job_whose_group_is_gone_but_that_goes_on_has_failed(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.run(WAITS, cwd=str(tmp_path))
    _lose_groups(monkeypatch, errno.ENOENT)
    monkeypatch.setattr(job_run, "_END_KNOWN_S_MAX", 0.01)
    stage.resize(0.7)
    failed = stage.wait(GrantFailed)
    assert (failed.request, failed.cause) == (2, "'cpu.max': gone")


def _lose_groups(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let no grant find its group."""

    def refuse(*_: object) -> float:
        raise OSError(number, "gone", "cpu.max")

    monkeypatch.setattr(JobGroup, "grant", refuse)


@pytest.mark.cgroup
def test_a_stopped_job_saves_without_a_quota(stage: Stage, quota: str, tmp_path: Path) -> None:
    stage.run(SAVES.replace("open('saved', 'w')", "spin(0.5); open('saved', 'w')"), cores=0.05, actuator=quota,
              cwd=str(tmp_path), stop_grace_s=PATIENCE_S)  # fmt: skip
    stage.resized(1.0)
    stage.look_until(lambda report: report.steps_done > 0)
    stage.resized(0.05)
    stage.stop()
    (quota_file,) = quotas_of(os.getpid())
    assert quota_file.read_text() == "-1\n"
    stage.ended()
    assert (tmp_path / "saved").exists()


# The lease of who steers.


def test_a_job_whose_lease_ran_out_is_held_to_its_quota_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor takes the job for unsteered; the executor, which was only late, steers it again."""
    regained, restore = threading.Event(), JobRun._restore_grant

    def restored(run: JobRun) -> None:
        restore(run)
        regained.set()

    monkeypatch.setattr(JobRun, "_restore_grant", restored)
    stage.run(SLEEP, cores=0.5, lease_s=0.1)
    assert regained.wait(PATIENCE_S)
    assert stage.resized(0.25) == 0.25
    stage.stop()
    assert isinstance(stage.ended(), JobFailed)


def test_output_is_still_read_once_the_lease_has_run_out(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor takes the job for unsteered again and again, and closes the connection each time; nobody opens more and more."""
    code = (
        "import os, time\n"
        "for step in range(1, 11):\n"
        "    print(f'step {step}/10 loss 0.1', flush=True)\n"
        "    while not os.path.exists(f'go{step}'): time.sleep(0.01)\n"
    )
    regained: list[JobRun] = []

    def note(run: JobRun) -> None:
        regained.append(run)

    monkeypatch.setattr(JobRun, "_restore_grant", note)
    # A job that ends while its connection is made again is known by its end file alone.
    end_file = tmp_path / "end.json"
    stage.run(code, lease_s=0.1, progress_pattern="auto", cwd=str(tmp_path), end_file_of=lambda _: end_file)
    n_open = []
    for step in range(1, 11):
        stage.look_until(partial(_is_at, step))
        until(lambda: len(regained), partial(int.__lt__, len(regained)))
        n_open.append(len(list(Path("/proc/self/fd").iterdir())))
        (tmp_path / f"go{step}").touch()
    assert isinstance(stage.ended(), JobFinished)
    assert max(n_open[1:]) < n_open[0] + 5, n_open


def _is_at(step: int, report: ProgressReported) -> bool:
    return report.steps_done == step


def test_the_end_of_a_job_is_written_down(stage: Stage, tmp_path: Path) -> None:
    end_file = tmp_path / "end.json"
    stage.run("exit(3)", end_file_of=lambda _: end_file)
    stage.ended()
    last = read_end(end_file)
    assert last is not None
    assert last["ended"] == 3
