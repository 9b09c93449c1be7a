"""Executor of this machine: runs jobs as processes and holds each to its grant."""

import logging
import time
from collections.abc import Callable

from punctual.core.answers import not_started, unknown_job
from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, ProgressReported
from punctual.core.failures import cause_of, is_foreseen, start_short_of
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.protocols import Sink
from punctual.core.resources import Resources
from punctual.executors.job_facts import JobFacts
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.job_run import JobRun
from punctual.executors.local.launch import JobProcess
from punctual.executors.local.progress import ProgressSample
from punctual.executors.local.supervisor_client import AdoptableJob

_LOG = logging.getLogger(__name__)

#: Ended jobs whose facts are remembered, at most.
_N_ENDED_MAX = 100


class LocalExecutor:
    """Performs commands on processes of this machine.

    What fails while a job is started, changed or ended, of whatever kind, is answered as the failure of that command or job.
    """

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self.chosen = context.chosen
        self._runs: dict[JobId, JobRun] = {}
        self._adopted: dict[JobId, JobRun] = {}

    def perform(self, command: JobCommand, sink: Sink) -> None:
        """Perform the command and answer through `sink`, from this thread or another; never blocks."""
        if isinstance(command, LaunchJob):
            self._launch(command, sink)
        else:
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
        known = ProgressSample() if latest is None else ProgressSample.of(latest)
        process = JobProcess.adopted(self._context, launch, kept, known)
        run = JobRun(self._context, launch, sink, process)
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
        if (run := self._runs.get(job)) is not None:
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

    def facts(self, job: JobId) -> JobFacts:
        """Return the facts about a job that only its process, page or end tells; none of one that never launched."""
        run = self._runs.get(job)
        return JobFacts() if run is None else run.facts()

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
        try:
            self._begin(command, sink)
        except InvalidSpec as error:  # it has no program, or an expression that cannot be used
            sink(JobFailed(at=time.monotonic(), job=command.job, cause=str(error)))
        except Exception as error:  # noqa: BLE001 -- no room for the page, no thread can be had, or whatever else
            if not is_foreseen(error):
                _LOG.warning("job '%s' could not be started", command.job, exc_info=error)
            sink(not_started(command, cause_of(error), start_short_of(error)))

    def _begin(self, command: LaunchJob, sink: Sink) -> None:
        """Start a process for the job; raises if that is impossible."""
        process = JobProcess.made(self._context, command)
        ended = [job for job, run in self._runs.items() if run.ended]
        for job in ended[:-_N_ENDED_MAX]:
            del self._runs[job]
        run = self._runs[command.job] = JobRun(self._context, command, sink, process)
        try:
            run.start()
        except BaseException:
            del self._runs[command.job]
            process.clear_away()
            raise
