"""Runs jobs as processes of this machine, and holds each to its grant."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from punctual.core.commands import Command, LaunchJob, ResizeJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantFailed, JobFailed, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.protocols import Clock, Sink
from punctual.executors.local.actuator import Actuator, Choice, choose
from punctual.executors.local.cgroup_v1 import CgroupV1
from punctual.executors.local.cgroup_v2 import CgroupV2
from punctual.executors.local.job_run import JobRun, Place
from punctual.executors.local.keeper_link import Kept
from punctual.executors.local.pacing_only import PacingOnly
from punctual.executors.local.program import Program
from punctual.executors.local.progress import Latest
from punctual.executors.local.user_scope import UserScope
from punctual.wire import WorkerStatus

#: How long a job that was asked to stop may take to the end of its step, and for its checkpoint.
STOP_GRACE_S = 60.0


def actuators() -> list[Actuator]:
    """All ways to enforce a grant, best first."""
    found: list[Actuator] = [*CgroupV2.found()]
    return [*found, UserScope.found(), CgroupV1.found(), PacingOnly()]


def in_force(name: str) -> Choice:
    """The actuator of that name, for jobs that were started with it."""
    return Choice(next(one for one in actuators() if one.name == name), "the job was started with it.")


class LocalExecutor:
    """Performs commands on processes of this machine. A context manager: leaving it ends the jobs that still run.

    Parameters
    ----------
    programs
        What each job runs.
    node
        This machine's name in grants.
    runtime_dir
        Folder for what exists only while a job runs; made if it is missing.
    clock
        That of the runtime; must agree with the machine's monotonic clock, which is what jobs use for their stamps.
    actuator
        ``auto``, ``cgroup-v2``, ``cgroup-v1`` or ``pacing``; or one that is chosen already.
    stop_grace_s
        Seconds that a job which can make a checkpoint gets for it when it is stopped.
    candidates
        Actuators to choose from; None: all there are.
    on_kept
        Is told the process that keeps a job, which outlives this one, before the job is started.

    Raises
    ------
    InvalidSpec
        The actuator is unknown, or cannot be used here.
    """

    def __init__(
        self,
        programs: Mapping[JobId, Program],
        *,
        node: NodeId,
        runtime_dir: Path,
        clock: Clock,
        actuator: str | Choice = "auto",
        stop_grace_s: float = STOP_GRACE_S,
        candidates: Sequence[Actuator] | None = None,
        on_kept: Callable[[JobId, int], None] = lambda *_: None,
    ) -> None:
        self._programs = dict(programs)
        if isinstance(actuator, str):
            actuator = choose(actuator, actuators() if candidates is None else candidates)
        self._choice = actuator
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._place = Place(
            node=node, actuator=self._choice.actuator, runtime_dir=runtime_dir, clock=clock, stop_grace_s=stop_grace_s,
            on_kept=on_kept,
        )  # fmt: skip
        self._runs: dict[JobId, JobRun] = {}

    def perform(self, command: Command, sink: Sink) -> None:
        """Have the command's effect, and answer through `sink`, from this thread or another; never blocks."""
        match command:
            case LaunchJob():
                self._launch(command, sink)
            case ResizeJob(job=job) if job in self._runs:
                self._runs[job].resize(command, sink)
            case StopJob(job=job, cause=cause) if job in self._runs:
                self._runs[job].stop(cause)

    def take_over(self, kept: Kept, launch: LaunchJob, latest: ProgressReported | None, sink: Sink) -> Allocation:
        """Go on with a job that another process has launched, as if it had been this one; what it holds now.

        Nothing is answered; `launch` said again will be. The job is as it was if this fails.

        Parameters
        ----------
        latest
            What was last reported of its progress; None: nothing was.

        Raises
        ------
        OSError, PageError
            Its page or its control groups cannot be used.
        """
        known = Latest() if latest is None else _latest(latest)
        run = JobRun.taken_over(self._place, self._programs[launch.job], launch, sink, kept, known)
        self._runs[launch.job] = run
        run.start()
        return run.held

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        run = self._runs.get(job)
        if run is not None:
            run.observe(at, sink)

    def actuator_name(self, job: JobId) -> str:
        """What enforces the job's grant."""
        return self._choice.actuator.name

    def actuator_reason(self, job: JobId) -> str:
        """Why it is this one and no other, in a sentence."""
        return self._choice.reason

    def worker_status(self, job: JobId) -> WorkerStatus | None:
        """The workers of the job as its agent last counted them, and what their changes have cost; None: it has none."""
        run = self._runs.get(job)
        return None if run is None else run.worker_status

    def faults(self, job: JobId) -> list[InvalidSpec]:
        """What a job that ended with success declared and did not do; empty for a job that was never launched."""
        run = self._runs.get(job)
        return run.faults() if run is not None else []

    def close(self) -> None:
        """End what still runs; returns when nothing is left of it."""
        running = [run for run in self._runs.values() if not run.ended]
        for run in running:
            run.terminate()
        for run in running:
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self, command: LaunchJob, sink: Sink) -> None:
        run = self._runs.get(command.job)
        if run is not None and not run.ended:
            run.say_started(command.request, sink)
            return
        program, at = self._programs.get(command.job), self._place.clock.now()
        if program is None:
            sink(JobFailed(at=at, job=command.job, cause="the executor was given no program for it"))
            return
        try:
            run = JobRun.launched(self._place, program, command, sink)
        except OSError as error:  # no room for the page, say
            sink(GrantFailed(at=at, job=command.job, request=command.request, granted={}, cause=str(error)))
            return
        self._runs[command.job] = run
        run.start()


def _latest(report: ProgressReported) -> Latest:
    return Latest(
        steps_done=report.steps_done,
        steps_total=report.steps_total,
        unit_at=report.unit_at,
        in_flight_core_s=report.in_flight_core_s,
        landed=report.landed,
    )
