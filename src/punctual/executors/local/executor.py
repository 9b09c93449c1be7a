"""Executor of this machine: runs jobs as processes and holds each to its grant."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from punctual.channel import DeviceUse, WorkerStatus, process_number
from punctual.core.answers import unknown_job
from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import ProgressReported
from punctual.core.failures import cause_of, is_foreseen, short_of
from punctual.core.ids import JobId, NodeId
from punctual.core.job import STOP_GRACE_S, Allocation
from punctual.core.program import Program
from punctual.core.protocols import Sink
from punctual.core.resources import NOTHING, Resources
from punctual.executors.local.actuator import Actuator, Choice, choose
from punctual.executors.local.cgroup_files import CgroupFiles, file_name
from punctual.executors.local.cgroup_v1 import CgroupV1
from punctual.executors.local.cgroup_v2 import CgroupV2, UserScope
from punctual.executors.local.context import ExecutorContext, Poller, raise_files_limit
from punctual.executors.local.devices import DevicePool, visible_devices
from punctual.executors.local.freezer import Freezer, SignalFreezer
from punctual.executors.local.job_events import JobEvents
from punctual.executors.local.job_run import JobRun
from punctual.executors.local.launch import JobProcess
from punctual.executors.local.memory import JobMemory, memory_of
from punctual.executors.local.output import StartFacts
from punctual.executors.local.process_tree import TreeUsage
from punctual.executors.local.progress import ProgressSample
from punctual.executors.local.supervisor_client import AdoptableJob

_LOG = logging.getLogger(__name__)

#: Ended jobs whose faults are remembered, at most.
_N_ENDED_MAX = 100


class PacingOnly:
    """Needs no rights; the job itself keeps to its grant."""

    name = "pacing"
    can_cap = limits_memory = False
    supervisor_prefix = ()

    def check(self) -> None:
        """Accept every machine: pacing is usable everywhere."""

    def open(self, job: JobId, supervisor_pid: int) -> "PacingOnlyGroup":
        return PacingOnlyGroup(supervisor_pid)

    def find(self, files: CgroupFiles, supervisor_pid: int) -> "PacingOnlyGroup":
        return PacingOnlyGroup(supervisor_pid)


class PacingOnlyGroup:
    """The processes below the supervisor; see `punctual.executors.local.actuator.JobGroup`."""

    def __init__(self, supervisor_pid: int) -> None:
        self._cores = float(os.cpu_count() or 1)
        self._usage = TreeUsage(supervisor_pid)
        self.freezer: Freezer = SignalFreezer(self._usage.processes)
        self.memory: JobMemory = memory_of(None, supervisor_pid)
        self.files = self.memory.files

    def grant(self, cores: float) -> float:
        self._cores = min(cores, float(os.cpu_count() or 1))
        return self._cores

    def granted_cores(self) -> float:
        return self._cores

    def used_core_s(self) -> float:
        return self._usage.used_core_s()

    def final_core_s(self, usage: str, core_s: float) -> float:
        return max(core_s, self._usage.used_core_s())

    def processes(self) -> list[int]:
        return self._usage.processes()


def actuators() -> list[Actuator]:
    """Return all actuators, best first."""
    found: list[Actuator] = [*CgroupV2.found()]
    return [*found, UserScope.found(), CgroupV1.found(), PacingOnly()]


def in_force(name: str) -> Choice:
    """Return the actuator of that name for jobs that were started with it: the first usable one, if any."""
    candidates = actuators()
    try:
        actuator = choose(name, candidates).actuator
    except InvalidSpec:  # the jobs that run have their groups already
        actuator = next(one for one in candidates if one.name == name)
    return Choice(actuator, "the job was started with it.")


class LocalExecutor:
    """Performs commands on processes of this machine. A context manager: leaving it ends the jobs that still run.

    What fails while a job is started, changed or ended, of whatever kind, is answered as the failure of that command or job.

    The limit of open files of this process becomes its hard one: each job takes some. Jobs get the limit of before.

    * `node`: this machine's name in grants.
    * `runtime_dir`: folder for what exists only while a job runs; made if it is missing.
    * `actuator`: ``auto``, ``cgroup-v2``, ``cgroup-v1`` or ``pacing``; or a `Choice`, one that is chosen already.
    * `stop_grace_s`: seconds that a job which can make a checkpoint gets for it when it is stopped.
    * `on_kept`: called with the process id of a job's supervisor, which outlives this process, before the job starts.
    * `lease_s`: a job is taken for unsteered after so many seconds without `renew`. None: it needs no renewal.
    * `fence_s`: a job is ended after so many seconds without `renew`. None: it is not.
    * `end_file_of`: returns the file in which a job's supervisor records the job's end. None: none.
    * `log_of`: the file for what a job writes, see `punctual.executors.local.job_log`. None: one in `runtime_dir`.
    * `start_facts_of`: returns the facts with which a job's process starts; the default hands on this process's variables.
      None: they are not there any more, and the job cannot be started.
    * `devices`: ids of the GPUs for jobs; None: all that this process may use.
    * `input_of`: returns the descriptor of a job's standard input, which is closed here; None: the job has none.
    * `may_steer`: whether the jobs are still this process's; for any thread. A process that was stopped asks before it
      acts on a job; if another process has them, nothing is done to them here and nothing answered any more.

    Raises `InvalidSpec`: the actuator is unknown, or cannot be used here; or `/proc` has other numbers for processes
    than they have here.
    """

    def __init__(
        self,
        *,
        node: NodeId,
        runtime_dir: Path,
        actuator: str | Choice = "auto",
        stop_grace_s: float = STOP_GRACE_S,
        on_kept: Callable[[JobId, int], None] = lambda *_: None,
        lease_s: float | None = None,
        fence_s: float | None = None,
        end_file_of: Callable[[JobId], Path | None] = lambda _: None,
        log_of: Callable[[JobId], Path] | None = None,
        start_facts_of: Callable[[JobId], StartFacts | None] = lambda _: StartFacts(environment=os.environ),
        input_of: Callable[[JobId], int | None] = lambda _: None,
        may_steer: Callable[[], bool] = lambda: True,
        devices: Sequence[str] | None = None,
    ) -> None:
        _check_process_numbers()
        if isinstance(actuator, str):
            actuator = choose(actuator, actuators())
        self.chosen = actuator
        runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._context = ExecutorContext(
            node=node,
            actuator=self.chosen.actuator,
            runtime_dir=runtime_dir,
            stop_grace_s=stop_grace_s,
            poller=Poller(),
            files_limit=raise_files_limit(),
            devices=DevicePool(visible_devices() if devices is None else devices),
            on_kept=on_kept,
            lease_s=lease_s,
            fence_s=fence_s,
            end_file_of=end_file_of,
            log_of=log_of or (lambda job: runtime_dir / f"{file_name(job)}.log"),
            start_facts_of=start_facts_of,
            input_of=input_of,
            may_steer=may_steer,
        )
        self._runs: dict[JobId, JobRun] = {}
        self._adopted: dict[JobId, JobRun] = {}

    def perform(self, command: JobCommand, sink: Sink) -> None:
        """Perform the command and answer through `sink`, from this thread or another; never blocks."""
        match command:
            case LaunchJob():
                self._launch(command, sink)
            case ResizeJob() | StopJob():
                self._change(command, sink)

    def take_over(
        self, kept: AdoptableJob, launch: LaunchJob, latest: ProgressReported | None, sink: Sink
    ) -> Allocation:
        """Prepare to continue a job that another process has launched; return what it holds now.

        Nothing is answered; `launch` said again will be. The job is as it was until `follow`, and if this fails.

        `latest`: its last progress report; None: there is none.

        * Raises `OSError`, `PageError`: its page or its control groups cannot be used.
        * Raises `InvalidSpec`: the launch does not say what the job runs.
        """
        if launch.program is None:
            raise InvalidSpec("a job must have a program", "none", f"job '{launch.job}'", "Submit it again.")
        known = ProgressSample() if latest is None else _sample_of(latest)
        process = JobProcess.adopted(self._context, launch.program, launch, kept, known)
        run = JobRun(self._context, launch.program, launch, sink, process)
        run.adopt()
        self._adopted[launch.job] = run
        return {self._context.node: run.held} if run.held else {}

    def follow(self) -> None:
        """Follow the jobs that were taken over."""
        for job, run in self._adopted.items():
            run.start()
            self._runs[job] = run
        self._adopted.clear()

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        """Report the job's progress and usage."""
        run = self._runs.get(job)
        if run is not None:
            run.observe(at, sink)

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = lambda _: False) -> None:
        """Renew the lease with the supervisors of all jobs.

        `is_paused_by_user`: whether a paused job is to stay so even when no process steers it.
        """
        for job, run in list(self._runs.items()):
            if not run.ended:
                with run.excused("renewed"):
                    run.renew(stays_paused=is_paused_by_user(job))

    @property
    def actuator(self) -> str:
        """Name of the actuator in use."""
        return self.chosen.actuator.name

    @property
    def actuator_reason(self) -> str:
        """Reason for the choice of the actuator, in a sentence."""
        return self.chosen.reason

    def held(self) -> dict[JobId, Resources]:
        """Return the resources of each open job; empty ones for a job that is paused or about to start."""
        return {job: run.held for job, run in list(self._runs.items()) if not run.ended}

    def worker_status(self, job: JobId) -> WorkerStatus | None:
        """Workers of the job as last counted by its agent, and the costs of their changes; None: it has none."""
        run = self._runs.get(job)
        return None if run is None else run.worker_status

    def device_use(self, job: JobId) -> DeviceUse | None:
        """Device that the job computes on, as last reported by its process; None: it reports none."""
        run = self._runs.get(job)
        return None if run is None else run.device_use

    def group(self, job: JobId) -> tuple[int, bytes] | None:
        """Port and key with which processes of the job on other nodes reach it; None: it has none."""
        run = self._runs.get(job)
        return None if run is None else run.group

    def faults(self, job: JobId) -> list[InvalidSpec]:
        """Faults of a job that ended with success: work that it declared and did not do. Empty if it never launched."""
        run = self._runs.get(job)
        return run.faults() if run is not None else []

    def release(self) -> None:
        """Leave running jobs to the next owner; no further events are sent."""
        for run in list(self._runs.values()):
            with run.excused("released"):
                run.release()

    def close(self) -> None:
        """End the jobs that still run; returns when none of their processes is left."""
        running = [run for run in self._runs.values() if not run.ended]
        for run in running:
            with run.excused("ended"):
                run.terminate()
        for run in running:
            with run.excused("ended"):
                run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _change(self, command: ResizeJob | StopJob, sink: Sink) -> None:
        run = self._runs.get(command.job)
        if run is None or self._has_ended_before(run, command.at):
            sink(unknown_job(command))
        elif isinstance(command, ResizeJob):
            run.resize(command, sink)
        else:
            run.stop(command)

    def _has_ended_before(self, run: JobRun, at: float) -> bool:
        """Whether the job's end was reported after the command was made; that end is then the answer."""
        return run.ended and at > run.told_end_at

    def _launch(self, command: LaunchJob, sink: Sink) -> None:
        run = self._runs.get(command.job)
        if run is not None and not self._has_ended_before(run, command.at):
            run.relaunch(command.request, sink)
            return
        events = JobEvents(command.job, self._context.node)
        if command.program is None:
            sink(events.failed("the executor was given no program for it"))
            return
        try:
            self._begin(command, command.program, sink)
        except InvalidSpec as error:  # an expression that cannot be used
            sink(events.failed(str(error)))
        except Exception as error:  # noqa: BLE001 -- no room for the page, no thread can be had, or whatever else
            if not is_foreseen(error):
                _LOG.warning("job '%s' could not be started", command.job, exc_info=error)
            sink(events.not_applied(command.request, NOTHING, cause_of(error), short_of(error)))

    def _begin(self, command: LaunchJob, program: Program, sink: Sink) -> None:
        """Start a process for the job; raises if that is impossible."""
        process = JobProcess.made(self._context, program, command)
        self._forget_oldest()
        run = self._runs[command.job] = JobRun(self._context, program, command, sink, process)
        try:
            run.start()
        except BaseException:
            del self._runs[command.job]
            process.clear_away()
            raise

    def _forget_oldest(self) -> None:
        """Forget all ended jobs but the last."""
        ended = [job for job, run in self._runs.items() if run.ended]
        for job in ended[:-_N_ENDED_MAX]:
            del self._runs[job]


def _check_process_numbers() -> None:
    """Raise `InvalidSpec` if `/proc` describes another process under a process number."""
    seen = f"process {process_number()}" if os.path.lexists("/proc/self") else "nothing"
    if seen != f"process {os.getpid()}":
        raise InvalidSpec(
            "`/proc` must show the processes of the PID namespace",
            f"{seen} there for process {os.getpid()}",
            "this machine",
            "Mount it in the namespace (`unshare --pid --fork --mount-proc`).",
        )


def _sample_of(report: ProgressReported) -> ProgressSample:
    return ProgressSample(
        steps_done=report.steps_done,
        steps_total=report.steps_total,
        unit_at=report.unit_at,
        in_flight_core_s=report.in_flight_core_s,
        landed=report.landed,
        is_read=report.is_read,
    )
