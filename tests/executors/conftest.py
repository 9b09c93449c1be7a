"""A stage for jobs that are real processes: what they report is kept, and what they leave behind is looked for."""

import os
import queue
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.waiting import PATIENCE_S
from tests.waiting import wait_until as until

from punctual.channel import BLOCK_VARIABLE, SharedBlock
from punctual.core.commands import LaunchJob, ResizeJob, StopJob
from punctual.core.control import PacingLine
from punctual.core.events import Event, GrantApplied, JobFailed, JobFinished, JobStarted, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.executors.local.actuator import Unusable, choose
from punctual.executors.local.cgroup_files import FOLDER, hierarchy
from punctual.executors.local.cgroups import CgroupV1, actuators
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.devices import DevicePool
from punctual.executors.local.executor import LocalExecutor
from punctual.executors.local.job_signals import descendants

E = TypeVar("E")

JOB = JobId("job")
NODE = NodeId("here")
WHY = Reason("test", "a test wants it")

#: Burns CPU time for that long.
SPIN = """
import sys, time
def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


#: Which of the options of `Stage.prepare` are the executor's; the others are the program's.
EXECUTOR_OPTIONS = ("actuator", "stop_grace_s", "lease_s", "end_file_of", "devices", "may_steer", "on_kept")


class Stage:
    """An executor with one job, and the events about it."""

    def __init__(self, runtime_dir: Path) -> None:
        self.runtime_dir = runtime_dir
        #: What the job writes.
        self.log = runtime_dir.with_name("output.log")
        self.events: list[Any] = []
        self._arrived: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._request = 0
        #: The supervisor of each job, once it has one.
        self.supervisors: dict[JobId, int] = {}
        self.submitted_at = time.monotonic()
        self.program: Program | None = None
        self._executor: LocalExecutor | None = None

    @property
    def executor(self) -> LocalExecutor:
        assert self._executor is not None
        return self._executor

    def prepare(self, code: str, **options: Any) -> None:
        """Make the executor for a job that runs `code`; `options` are the executor's and the program's."""
        given = {name: options.pop(name) for name in EXECUTOR_OPTIONS if name in options}
        on_kept = given.pop("on_kept", lambda *_: None)

        def kept(job: JobId, supervisor: int) -> None:
            self.supervisors[job] = supervisor
            on_kept(job, supervisor)

        self.program = Program(**{"argv": (sys.executable, "-c", code), **options})
        if "devices" in given:
            given["devices"] = DevicePool(given["devices"])
        given = {"actuator": "pacing", "stop_grace_s": 10.0, **given}
        context = ExecutorContext(
            node=NODE, runtime_dir=self.runtime_dir, log_of=lambda _: self.log, on_kept=kept, **given
        )
        self._executor = LocalExecutor(context)

    def launch_command(self, grant: Resources, spec: JobSpec) -> LaunchJob:
        """A launch of the program prepared."""
        return LaunchJob(
            at=time.monotonic(), job=spec.id, request=self.next_request(), spec=spec, grant={NODE: grant}, reason=WHY,
            program=self.program, submitted_at=self.submitted_at,
        )  # fmt: skip

    def launch(self, cores: float = 1.0, ceiling_cores: float = 2.0, work_steps: float | None = None) -> None:
        spec = JobSpec(id=JOB, ceiling=Resources(ceiling_cores), work_steps=work_steps)
        self.executor.perform(self.launch_command(Resources(cores), spec), self.sink)

    def run(self, code: str, cores: float = 1.0, **prepared: Any) -> JobStarted:
        """Start a job that runs `code`."""
        self.prepare(code, **prepared)
        self.launch(cores)
        return self.wait(JobStarted)

    def resize(self, cores: float, pacing: PacingLine | None = None, request: int | None = None) -> None:
        number = self.next_request() if request is None else request
        self.executor.perform(
            ResizeJob(
                at=time.monotonic(), job=JOB, request=number, grant={NODE: Resources(cores)}, reason=WHY, pacing=pacing
            ),
            self.sink,
        )

    def resized(self, cores: float, pacing: PacingLine | None = None) -> float:
        """Cores granted after a resize."""
        self.resize(cores, pacing)
        return self.wait(GrantApplied).granted[NODE].cores

    def stop(self, cause: str = "the user", job: JobId = JOB) -> None:
        self.executor.perform(StopJob(at=time.monotonic(), job=job, cause=cause), self.sink)

    def sink(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.put(event)

    def wait(self, kind: type[E]) -> E:
        """The next event of that kind; others that come before it are passed over."""
        while True:
            event = self._arrived.get(timeout=PATIENCE_S)
            if isinstance(event, kind):
                return event

    def ended(self) -> JobFinished | JobFailed:
        while True:
            event = self._arrived.get(timeout=PATIENCE_S)
            if isinstance(event, JobFinished | JobFailed):
                return event

    def pid(self, job: JobId = JOB) -> int:
        """The job's own process: the first that its supervisor has started."""
        return until(lambda: descendants(self.supervisors[job]))[0]

    def environment(self, job: JobId = JOB) -> dict[str, str]:
        """What the job's own process was started with."""
        return dict(
            text.split("=", 1) for text in Path(f"/proc/{self.pid(job)}/environ").read_text().split("\0") if "=" in text
        )

    def page(self, job: JobId = JOB) -> SharedBlock:
        """The job's page, as the job has it."""
        return SharedBlock.open(self.environment(job)[BLOCK_VARIABLE])

    def look(self) -> ProgressReported:
        """What is reported now; nothing is for a moment while the job is being started again."""
        seen = until(self.reported)
        assert seen is not None
        return seen

    def reported(self) -> ProgressReported | None:
        """What is reported now, if anything is."""
        self.executor.observe(JOB, time.monotonic(), self.sink)
        while not self._arrived.empty():
            event = self._arrived.get()
            if isinstance(event, ProgressReported):
                return event
        return None

    def look_until(self, holds: Callable[[ProgressReported], bool]) -> ProgressReported:
        return until(self.look, holds)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()

    def next_request(self) -> int:
        """The number of another command."""
        self._request += 1
        return self._request


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def groups_of(pid: int) -> list[Path]:
    """Control groups that were made by process `pid`."""
    controllers = ("cpu", "cpuacct", "freezer", "memory", "")
    trees = [tree.own / FOLDER for controller in controllers if (tree := hierarchy(controller))]
    return [group for tree in trees for group in tree.glob(f"{pid}-*")]


def quotas_of(pid: int) -> list[Path]:
    """The files of these groups that say what they may use."""
    return [file for group in groups_of(pid) if (file := group / "cpu.cfs_quota_us").exists()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Ends the job and demands that nothing is left of it."""
    # An earlier process of this number may have been killed, and have left something.
    before = set(groups_of(os.getpid()))
    made = Stage(tmp_path / "runtime")
    yield made
    made.close()
    assert set(groups_of(os.getpid())) <= before
    assert not made.runtime_dir.exists() or not list(made.runtime_dir.iterdir())


def memory_limiter() -> str:
    """The name of the actuator that `auto` is, if it limits memory; skips the test if it does not."""
    actuator = choose("auto", actuators()).actuator
    if not actuator.limits_memory:
        pytest.skip(f"{actuator.name} cannot limit memory here")
    return actuator.name


@pytest.fixture
def quota() -> str:
    """The name of an actuator that enforces grants on this machine."""
    try:
        CgroupV1.found().check()
    except Unusable as unusable:
        pytest.skip(f"no quota can be set here: {unusable}")
    return "cgroup-v1"
