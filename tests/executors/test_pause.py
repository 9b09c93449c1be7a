"""Jobs that are paused and resumed: frozen, or ended with a checkpoint."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.executors.conftest import JOB, NODE, SPIN, WHY, Stage, is_alive, until
from tests.forked_python import ForkedPython

from punctual.core.commands import ResizeJob
from punctual.core.control import PacingLine
from punctual.core.events import GrantApplied, GrantFailed, JobFailed, JobFinished, JobStarted
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.executors.local import freezer as freezers
from punctual.executors.local import grant as grants
from punctual.executors.local.actuator import Choice, Unusable
from punctual.executors.local.cgroup_files import hierarchy
from punctual.executors.local.cgroups import CgroupV1
from punctual.executors.local.devices import DevicePool, JobDevices
from punctual.executors.local.freezer import SignalFreezer
from punctual.executors.local.job_files import takeover_socket_of
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import cpu_clock_ns
from punctual.executors.local.supervisor_client import take_over

#: Counts in memory, and says so in a file.
COUNTS = """
import os
open("pid", "w").write(str(os.getpid()))
n = 0
while True:
    n += 1
    if n % 10_000 == 0: open("count", "w").write(str(n))
"""
#: Has a child that has a child, and so on; each burns CPU time, and the youngest is replaced all the time.
FAMILY = """
import os, time
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
for _ in range(3):
    if os.fork(): break
else:
    while True:
        if not os.fork():
            spin(0.01)
            os._exit(0)
        spin(0.001)
        os.waitpid(-1, os.WNOHANG)
open(f"pid-{os.getpid()}", "w").close()
spin(1000)
"""


def _choices() -> dict[str, Choice]:
    """Ways to pause, each with an actuator that has it."""
    choices = {}
    cpu, cpuacct = hierarchy("cpu"), hierarchy("cpuacct")
    for name, controller in (("v2", ""), ("v1", "freezer")):
        tree = hierarchy(controller)
        if cpu is not None and cpuacct is not None and tree is not None:
            choices[name] = Choice(CgroupV1(cpu.own, cpuacct.own, freezer=tree.own), "a test wants it")
    return choices


@pytest.fixture(
    params=["signals", pytest.param("v1", marks=pytest.mark.cgroup), pytest.param("v2", marks=pytest.mark.cgroup)]
)
def way(request: pytest.FixtureRequest) -> str | Choice:
    """An actuator, by what it pauses with."""
    if request.param == "signals":
        return "pacing"
    choice = _choices().get(request.param)
    if choice is None:
        pytest.skip("the hierarchies are not mounted")
    try:
        choice.actuator.check()
    except (Unusable, OSError) as unusable:
        pytest.skip(f"no group can be frozen here: {unusable}")
    return choice


def pause(stage: Stage) -> None:
    command = ResizeJob(at=time.monotonic(), job=JOB, request=stage.next_request(), grant={}, reason=WHY)
    stage.executor.perform(command, stage.sink)


def paused(stage: Stage) -> GrantApplied:
    pause(stage)
    return stage.wait(GrantApplied)


def count(folder: Path) -> int:
    return int((folder / "count").read_text() or 0)


def clocks(pids: list[int]) -> list[int | None]:
    return [cpu_clock_ns(pid) for pid in pids]


def test_a_paused_job_gets_no_cpu_time_and_keeps_its_memory(stage: Stage, tmp_path: Path, way: str | Choice) -> None:
    stage.run(COUNTS, actuator=way, cwd=str(tmp_path))
    until((tmp_path / "count").exists)
    pid = int((tmp_path / "pid").read_text())
    assert paused(stage).granted == {}
    before = cpu_clock_ns(pid)
    time.sleep(0.2)
    assert cpu_clock_ns(pid) == before is not None
    counted = count(tmp_path)
    assert stage.resized(1.0) == 1.0
    assert until(lambda: count(tmp_path), lambda n: n > counted) > counted


def test_no_process_of_a_job_escapes_a_pause(stage: Stage, tmp_path: Path, way: str | Choice) -> None:
    stage.run(FAMILY, actuator=way, cwd=str(tmp_path))
    pids = [int(path.name[4:]) for path in until(lambda: list(tmp_path.glob("pid-*")), lambda paths: len(paths) == 3)]
    assert paused(stage).granted == {}
    supervisor = stage.supervisors[JOB]
    family = [pid for pid in descendants(supervisor) if pid not in pids]
    before = clocks(pids + family)
    time.sleep(0.2)
    assert clocks(pids + family) == before
    assert set(descendants(supervisor)) == {*pids, *family}


def test_a_job_paused_twice_is_answered_twice_and_resumed_once(stage: Stage, tmp_path: Path, way: str | Choice) -> None:
    stage.run(COUNTS, actuator=way, cwd=str(tmp_path))
    assert paused(stage).granted == paused(stage).granted == {}
    stage.resized(1.0)
    until((tmp_path / "count").exists)


def test_a_job_killed_while_it_is_paused_reports_its_end(stage: Stage, way: str | Choice) -> None:
    stage.run("import time; time.sleep(1000)", actuator=way)
    paused(stage)
    os.kill(stage.pid(), signal.SIGKILL)
    ended = stage.wait(JobFailed)
    assert (ended.exit_code, ended.retryable) == (137, True)


SAVES = SPIN + (
    "import punctual\n"
    "@punctual.on_stop\n"
    "def save(): open('saved', 'w').close()\n"
    "for batch in punctual.track(range(1_000_000), epochs=1): spin(0.002)\n"
)


def test_a_paused_job_that_is_stopped_saves_first(stage: Stage, tmp_path: Path, way: str | Choice) -> None:
    stage.run(SAVES, actuator=way, cwd=str(tmp_path), stop_grace_s=1000.0)
    stage.look_until(lambda report: report.steps_done > 0)
    paused(stage)
    stage.stop()
    assert stage.wait(JobFailed).cause == "the user"
    assert (tmp_path / "saved").exists()


def test_closing_ends_a_paused_job(stage: Stage, way: str | Choice) -> None:
    stage.run("import time; time.sleep(1000)", actuator=way)
    paused(stage)
    pid = stage.pid()
    stage.close()
    assert not is_alive(pid)
    assert isinstance(stage.events[-1], JobFailed)


def test_a_paused_job_whose_supervisor_is_killed_ends(stage: Stage, way: str | Choice) -> None:
    stage.run("import time; time.sleep(1000)", actuator=way)
    paused(stage)
    pid = stage.pid()
    os.kill(stage.supervisors[JOB], signal.SIGKILL)
    assert "supervisor" in stage.wait(JobFailed).cause
    assert not is_alive(pid)


def test_a_job_paused_before_it_runs_is_paused_when_it_does(stage: Stage) -> None:
    stage.prepare("import time; time.sleep(1000)")
    stage.launch()
    pause(stage)
    assert stage.wait(JobStarted).request == 1
    applied = stage.wait(GrantApplied)
    assert (applied.request, applied.granted) == (2, {})


def test_a_paused_job_that_is_launched_again_says_that_it_holds_nothing(stage: Stage, way: str | Choice) -> None:
    stage.run("import time; time.sleep(1000)", actuator=way)
    paused(stage)
    stage.launch()
    assert stage.wait(JobStarted).granted == {}


def test_progress_is_reported_of_a_paused_job(stage: Stage) -> None:
    stage.run(SAVES)
    stage.look_until(lambda report: report.steps_done > 0)
    paused(stage)
    assert stage.look().steps_done == stage.look().steps_done > 0


def test_devices_stay_with_a_frozen_job_and_of_its_memory_what_it_uses(stage: Stage) -> None:
    stage.prepare("import time; held = bytearray(b'1' * 2**25); time.sleep(1000)", devices=["0"])
    amount = Resources(1.0, gpus=1, memory_bytes=2**40)
    stage.executor.perform(stage.launch_command(amount, JobSpec(id=JOB, ceiling=amount)), stage.sink)
    assert stage.wait(JobStarted).granted == {NODE: amount}
    stage.look_until(lambda report: report.memory_bytes >= 2**25)
    assert paused(stage).granted == {NODE: Resources(0.0, gpus=1)}
    assert stage.look().memory_bytes >= 2**25


CONTROLLER = """
import sys, time
from pathlib import Path
from tests.executors.conftest import Stage, until
from tests.executors.test_pause import COUNTS, paused
stage = Stage(Path(sys.argv[1]) / "runtime")
stage.run(COUNTS, actuator=sys.argv[2], cwd=sys.argv[1])
until(Path(sys.argv[1], "count").exists)
paused(stage)
stage.executor.renew(sys.argv[3:].__contains__)
Path(sys.argv[1], "paused").touch()
time.sleep(1000)
"""


@pytest.mark.parametrize("actuator", [pytest.param("quota", marks=pytest.mark.cgroup), "pacing"])
def test_a_paused_job_goes_on_when_punctual_is_killed(
    tmp_path: Path, actuator: str, request: pytest.FixtureRequest
) -> None:
    name = request.getfixturevalue("quota") if actuator == "quota" else actuator
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path), name]
    controller = ForkedPython[bytes](command, cwd=Path(__file__).parents[2])
    try:
        until((tmp_path / "paused").exists)
        pid = int((tmp_path / "pid").read_text())
        before = cpu_clock_ns(pid) or 0
    finally:
        controller.kill()
        controller.wait()
    until(lambda: (cpu_clock_ns(pid) or 0) > before)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    until(lambda: not list((tmp_path / "runtime").iterdir()))


@pytest.mark.parametrize("actuator", [pytest.param("quota", marks=pytest.mark.cgroup), "pacing"])
def test_a_job_that_its_user_has_paused_stays_so_when_punctual_is_killed(
    stage: Stage, tmp_path: Path, actuator: str, request: pytest.FixtureRequest
) -> None:
    name = request.getfixturevalue("quota") if actuator == "quota" else actuator
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path), name, JOB]
    controller = ForkedPython[bytes](command, cwd=Path(__file__).parents[2])
    try:
        until((tmp_path / "paused").exists)
        pid = int((tmp_path / "pid").read_text())
        before = cpu_clock_ns(pid)
    finally:
        controller.kill()
        controller.wait()
    kept = until(lambda: take_over(takeover_socket_of(stage.runtime_dir, JOB)))
    assert kept is not None
    kept.close()  # once more: by now its supervisor has seen that nobody steers it
    kept = until(lambda: take_over(takeover_socket_of(stage.runtime_dir, JOB)))
    assert kept is not None
    stage.prepare(COUNTS, actuator=name, cwd=str(tmp_path))
    launch = stage.launch_command(Resources(1), JobSpec(id=JOB, ceiling=Resources(2)))
    assert stage.executor.take_over(kept, launch, None, stage.sink) == {}
    stage.executor.follow()
    assert cpu_clock_ns(pid) == before
    counted = count(tmp_path)
    stage.resized(1.0)
    until(lambda: count(tmp_path) > counted)


# The order in which things happen at the end of a pause.


class Recorder:
    """A process, its group and its freezer in one, which note what is asked of them."""

    first_cores = 1.0
    workers = None

    def __init__(self, *, is_frozen: bool = True) -> None:
        self.calls: list[str] = []
        self.progress = self.group = self.freezer = self
        self.devices = JobDevices(DevicePool(()), JOB, None)
        self._is_frozen = is_frozen

    def freeze(self) -> None:
        self.calls.append("freeze")

    def thaw(self) -> None:
        self.calls.append("thaw")

    def is_frozen(self) -> bool:
        return self._is_frozen

    def grant(self, cores: float) -> float:
        self.calls.append(f"quota {cores:g}")
        return cores

    def pace(self, line: PacingLine | None) -> None:
        self.calls.append("line")

    def heartbeat(self) -> None:
        self.calls.append("heartbeat")


def grant_of(recorder: Recorder) -> grants.JobGrant:
    spec = JobSpec(id=JOB, ceiling=Resources(2.0))
    return grants.JobGrant(spec, recorder, Resources(1.0))  # type: ignore[arg-type]


def test_a_job_has_its_quota_and_its_line_before_it_goes_on() -> None:
    """Its wait for the line goes on then: with an old heartbeat it would take itself for unsteered, and not wait."""
    recorder = Recorder()
    grant = grant_of(recorder)
    assert grant.put(Resources(), None)
    assert recorder.calls == ["freeze"]
    assert grant.held == Resources()
    grant.put(Resources(0.5), PacingLine(end_s=1.0, end_work=1.0, s_per_step=1.0))
    assert recorder.calls[1:] == ["quota 0.5", "line", "heartbeat", "thaw"]


def test_a_job_that_cannot_be_paused_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(is_frozen=False)
    grant = grant_of(recorder)
    monkeypatch.setattr(grants, "_FREEZE_S_MAX", -1.0)
    assert not grant.put(Resources(), None)
    assert recorder.calls == ["freeze", "thaw"]
    assert grant.held == Resources(1.0)


def test_processes_are_stopped_until_no_new_one_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Iterator[list[int]] = iter([[1], [1, 2], [1, 2, 3], [1, 2, 3]])
    stopped: list[int] = []
    monkeypatch.setattr(freezers, "send", lambda pid, _: stopped.append(pid))
    SignalFreezer(lambda: next(looks)).freeze()
    assert stopped == [1, 2, 3]


# Making room.


WORKER = Resources(cores=0.25, memory_bytes=2**20)
SPEC = JobSpec(id=JOB, ceiling=WORKER * 4, worker=WORKER)

#: Plays an agent whose training counts steps, and goes on where the one before it has left.
LEAVES = (
    SPIN
    + """
import os, time
from pathlib import Path
from punctual.channel import Declaration, EXIT_PREEMPTED, BLOCK_VARIABLE, SharedBlock, ProgramState, WorkerStatus

page = SharedBlock.open(os.environ[BLOCK_VARIABLE])
n = int(Path("checkpoint").read_text()) if Path("checkpoint").exists() else 0
said = Declaration(os.getpid(), 1000, n, ProgramState.TRAINING, can_stop=True)
page.declare(said)
page.publish_workers(WorkerStatus(os.getpid()))
spin(0.05)
while True:
    n += 1
    page.publish_progress(n, time.monotonic_ns(), 0, -1)
    target = page.worker_target()
    page.publish_workers(WorkerStatus(os.getpid(), target.request, target.n_workers))
    if page.directives().leave and {leaves}:
        Path("checkpoint").write_text(str(n))
        os._exit(EXIT_PREEMPTED)
    time.sleep(0.01)
"""
)


def launch(
    stage: Stage, tmp_path: Path, leaves: str = "True", stop_grace_s: float = 1000.0, worker: Resources = WORKER
) -> None:
    stage.prepare(LEAVES.replace("{leaves}", leaves), cwd=str(tmp_path), stop_grace_s=stop_grace_s)
    spec = replace(SPEC, worker=worker, ceiling=worker * 4)
    stage.executor.perform(stage.launch_command(worker * 2, spec), stage.sink)
    stage.wait(JobStarted)
    stage.look_until(lambda report: report.steps_done > 2)


def resize(stage: Stage, n_workers: int) -> None:
    grant = {NODE: WORKER * n_workers}
    command = ResizeJob(at=time.monotonic(), job=JOB, request=stage.next_request(), grant=grant, reason=WHY)
    stage.executor.perform(command, stage.sink)


def test_a_job_of_workers_makes_room_and_goes_on_from_its_checkpoint(stage: Stage, tmp_path: Path) -> None:
    launch(stage, tmp_path)
    pid = stage.pid()
    assert paused(stage).granted == {}
    assert not is_alive(pid)
    left = stage.look()
    assert left.steps_done == int((tmp_path / "checkpoint").read_text())
    resize(stage, 3)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 3}
    again = stage.look()
    assert again.steps_done >= left.steps_done
    assert again.used_core_s >= left.used_core_s > 0
    stage.look_until(lambda report: report.steps_done > left.steps_done)
    assert stage.pid() != pid


def test_a_job_that_has_left_is_paused_again_and_stopped_without_a_process(stage: Stage, tmp_path: Path) -> None:
    launch(stage, tmp_path)
    paused(stage)
    assert paused(stage).granted == {}
    stage.executor.perform(replace(stage.launch_command(WORKER, SPEC), program=stage.program), stage.sink)
    assert stage.wait(JobStarted).granted == {}
    stage.stop()
    assert stage.wait(JobFailed).cause == "the user"


def test_a_job_that_does_not_leave_in_time_is_frozen(stage: Stage, tmp_path: Path) -> None:
    launch(stage, tmp_path, leaves="False", stop_grace_s=0.2)
    pid = stage.pid()
    assert paused(stage).granted == {}
    assert stage.look().steps_done == stage.look().steps_done
    resize(stage, 2)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 2}
    assert stage.pid() == pid


def test_a_job_of_workers_that_holds_nothing_but_cores_is_frozen(stage: Stage, tmp_path: Path) -> None:
    """Its checkpoint would free nothing else, and another start could cost more than the pause is worth."""
    worker = Resources(cores=0.25)
    launch(stage, tmp_path, worker=worker)
    pid = stage.pid()
    assert paused(stage).granted == {}
    assert stage.look().steps_done == stage.look().steps_done
    grant = {NODE: worker * 2}
    command = ResizeJob(at=time.monotonic(), job=JOB, request=stage.next_request(), grant=grant, reason=WHY)
    stage.executor.perform(command, stage.sink)
    assert stage.wait(GrantApplied).granted == grant
    assert stage.pid() == pid


def test_a_job_resumed_while_it_leaves_goes_on(stage: Stage, tmp_path: Path) -> None:
    """Whether it still leaves or not: then it is started again."""
    launch(stage, tmp_path)
    pause(stage)
    resize(stage, 2)
    applied = stage.wait(GrantApplied)
    assert (applied.request, applied.granted) == (3, {NODE: WORKER * 2})
    seen = stage.look().steps_done
    stage.look_until(lambda report: report.steps_done > seen + 2)
    assert not [event for event in stage.events if isinstance(event, JobFailed | JobFinished | GrantFailed)]


def test_a_job_that_cannot_be_started_again_stays_paused(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(stage, tmp_path)
    paused(stage)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/some/group")

    with monkeypatch.context() as broken:
        broken.setattr(stage.executor.chosen.actuator, "open", refuse)
        resize(stage, 2)
        failed = stage.wait(GrantFailed)
    assert failed.granted == {}
    resize(stage, 2)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 2}


#: Asks a training to make room, and waits to be killed; the training does once there is the file `go`.
LEAVING_CONTROLLER = """
import sys, time
from pathlib import Path
from tests.executors.conftest import Stage
from tests.executors.test_pause import launch, pause
folder = Path(sys.argv[1])
stage = Stage(folder / "runtime")
launch(stage, folder, leaves="Path('go').exists()")
pause(stage)
(folder / "asked").touch()
time.sleep(1000)
"""


def test_a_job_that_is_taken_over_while_it_leaves_goes_on(stage: Stage, tmp_path: Path) -> None:
    controller = ForkedPython[bytes](
        [sys.executable, "-c", LEAVING_CONTROLLER, str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    try:
        until((tmp_path / "asked").exists)
    finally:
        controller.kill()
        controller.wait()
    kept = until(lambda: take_over(takeover_socket_of(stage.runtime_dir, JOB)))
    assert kept is not None
    stage.prepare(LEAVES.replace("{leaves}", "False"), cwd=str(tmp_path))
    stage.executor.take_over(kept, stage.launch_command(WORKER * 2, SPEC), None, stage.sink)
    stage.executor.follow()
    (tmp_path / "go").touch()
    until((tmp_path / "checkpoint").exists)
    resize(stage, 2)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 2}
    left = int((tmp_path / "checkpoint").read_text())
    stage.look_until(lambda report: report.steps_done > left)
    assert not [event for event in stage.events if isinstance(event, JobFailed)]
