"""One job from its launch to its end."""

import logging
import signal
import threading
from collections.abc import Mapping
from typing import Any

from punctual.core.commands import LaunchJob, ResizeJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed, JobFinished
from punctual.core.program import Program
from punctual.core.protocols import Sink
from punctual.core.resources import NOTHING, Resources
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.faults import found_faults
from punctual.executors.local.grant import JobGrant
from punctual.executors.local.job_events import JobEvents
from punctual.executors.local.keeper_link import SteeringLostError
from punctual.executors.local.launch import END_S_MAX, JobProcess
from punctual.wire import WorkerStatus

_LOG = logging.getLogger(__name__)

#: Between two looks for the answer to a command that takes a while.
_LOOK_S = 0.02


class JobRun:
    """A job that was launched or adopted. A thread of its own waits for its process and answers the launch.

    Whatever another thread may look at at the same time is guarded by one lock, so that nothing is reported of a job
    once its end has been.

    Parameters
    ----------
    process
        One that is to be started, or one that runs already.
    """

    def __init__(
        self, context: ExecutorContext, program: Program, launch: LaunchJob, sink: Sink, process: JobProcess
    ) -> None:
        self._context = context
        self._program = program
        self._launch = launch
        self._sink = sink
        self._events = JobEvents(launch.job, context.node, context.clock)
        self._lock = threading.RLock()
        self._request = launch.request
        self._process = process
        #: None until the process runs.
        self._grant: JobGrant | None = None
        #: The last command of those that came before the process ran.
        self._deferred: tuple[ResizeJob, Sink] | None = None
        #: Where the answer to the last command goes, as long as it is due.
        self._answer_to: Sink | None = None
        self._stop_cause: str | None = None
        self._faults: list[InvalidSpec] = []
        self.ended = False
        self._thread = threading.Thread(target=self._live, name=f"punctual-job-{launch.job}", daemon=True)

    def start(self) -> None:
        """Set out to start the process, which is answered from another thread; or follow an adopted one."""
        self._thread.start()

    def adopt(self) -> None:
        """Find what an adopted process holds; raises `OSError`. Nothing is answered, and `start` follows it."""
        self._grant = JobGrant.adopted(self._launch.spec, self._process, self._launched_with)

    @property
    def worker_status(self) -> WorkerStatus | None:
        """The job's workers; None: it is not made of them."""
        workers = self._process.workers
        return None if workers is None else workers.status

    @property
    def held(self) -> Resources:
        """What the job holds, as last read back."""
        return NOTHING if self._grant is None else self._grant.held

    # Commands.

    def relaunch(self, request: int, sink: Sink) -> None:
        """Answer a launch that was asked for again; one still under way is answered under the new number."""
        with self._lock:
            self._request = max(self._request, request)
            if self._grant is not None and not self.ended:
                sink(self._started())

    def resize(self, command: ResizeJob, sink: Sink) -> None:
        """Put another grant and pacing line in force; a process that does not run yet gets them when it does."""
        with self._lock:
            if self.ended or command.request < self._request:
                return
            if self._grant is None:
                self._deferred = (command, sink)
                return
            self._request, self._answer_to = command.request, sink
            try:
                is_settled = self._put(self._grant, command)
            except OSError as error:
                self._answer(_text_of(error))
                return
            if is_settled:
                self._answer()
            else:
                self._context.poller.watch(self._look, _LOOK_S)

    def renew(self) -> None:
        """Tell the keeper that the job is still steered."""
        if not self.ended:
            self._process.renew()

    def observe(self, at: float, sink: Sink) -> None:
        """Report progress and usage, if the job runs."""
        with self._lock:
            if self.ended or self._grant is None:
                return
            self._process.read_usage()
            self._report(at, sink)
            self._process.progress.heartbeat()

    def stop(self, cause: str) -> None:
        """Have the job end, after a checkpoint if it can make one; returns at once."""
        with self._lock:
            if self.ended or self._stop_cause is not None:
                return
            self._stop_cause = cause
            if self._grant is None or not self._process.progress.can_stop:
                self.terminate()
                return
            self._grant.lift()  # the sooner the checkpoint is written
            self._process.progress.ask_to_stop()
            self._process.progress.heartbeat()
            self._context.poller.watch(self._lose_patience, self._context.stop_grace_s)

    def terminate(self) -> None:
        """SIGTERM for the job; said again, SIGKILL."""
        with self._lock:
            self._stop_cause = self._stop_cause or "Punctual is ending"
            self._process.terminate()

    def close(self) -> None:
        """Wait for the end of a job that was told to end, and see to it."""
        self._thread.join(END_S_MAX)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    def faults(self) -> list[InvalidSpec]:
        """What the job said of its steps and did not do, once it has ended with success."""
        return self._faults

    # From its start, or from when it was adopted, to its end; in a thread of its own.

    @property
    def _launched_with(self) -> Resources:
        return self._launch.grant.get(self._context.node, NOTHING)

    def _live(self) -> None:
        if self._grant is not None:
            self._process.follow()
            self._wait_for_end()
            return
        try:
            answer = self._process.start(self._launched_with)
        except Exception as error:  # noqa: BLE001 -- whatever it is, an answer is due
            _LOG.debug("job '%s' could not be started", self._launch.job, exc_info=True)
            self._give_up(error)
            return
        if "started" in answer:
            self._begin()
            self._wait_for_end()
        else:
            self._end(answer)

    def _begin(self) -> None:
        """The process runs: answer the launch, and perform what has been asked since."""
        with self._lock:
            self._grant = JobGrant(self._launch.spec, self._process, self._launched_with)
            self._sink(self._started())
            if self._deferred is not None:
                command, sink = self._deferred
                self.resize(command, sink)

    def _wait_for_end(self) -> None:
        try:
            last = self._process.wait(self._restore_grant)
        except SteeringLostError:
            _LOG.warning("job '%s' was taken over by another process", self._launch.job)
            with self._lock:
                self.ended = True
            return
        self._end(last)

    def _restore_grant(self) -> None:
        with self._lock:
            if self._grant is not None and self._stop_cause is None:
                self._grant.restore()

    def _give_up(self, error: Exception) -> None:
        """The process never was: what stood ready for it goes, and the launch is answered."""
        with self._lock:
            self.ended = True
            self._process.clear_away()
            if self._stop_cause is not None:
                self._sink(self._events.failed(f"stopped: {self._stop_cause}"))
            else:
                self._sink(self._events.not_applied(self._request, NOTHING, str(error)))

    def _end(self, last: Mapping[str, Any] | None) -> None:
        """Report the end; `last` is the keeper's last line, None if it was killed."""
        self._process.finish(last)
        with self._lock:
            self.ended = True
            if self._grant is not None:
                self._report(self._context.clock.now(), self._sink)
            self._sink(self._end_event(last))

    def _end_event(self, last: Mapping[str, Any] | None) -> JobFinished | JobFailed:
        stopped = None if self._stop_cause is None else f"stopped: {self._stop_cause}"
        if last is None:
            return self._events.failed(stopped or "its keeper was killed, and the job with it")
        if "failed" in last:
            return self._events.failed(stopped or _not_run(self._program, last["failed"]), last["code"])
        code, ended_at = int(last["ended"]), last["at_ns"] / 1e9
        if code == 0 and (stopped is None or self._process.sample().all_steps_done):
            self._faults = self._find_faults()
            return self._events.finished(self._process.progress.landed_at() or ended_at)
        return self._events.failed(stopped or cause_of(code), code)

    def _find_faults(self) -> list[InvalidSpec]:
        sample = self._process.sample()
        return found_faults(
            self._launch.job, faults=self._process.progress.faults, reported=sample.unit_at is not None,
            steps_done=sample.steps_done, steps_total=sample.steps_total, is_read=not self._process.can_pace,
        )  # fmt: skip

    # Grants.

    def _put(self, grant: JobGrant, command: ResizeJob) -> bool:
        if self._stop_cause is not None:  # the quota was lifted so that the end comes soon
            return True
        return grant.put(command.grant.get(self._context.node, NOTHING), command.pacing)

    def _look(self) -> float | None:
        """Answer the last command if what it asked for is there; the poller's."""
        with self._lock:
            if self.ended or self._grant is None or self._answer_to is None:
                return None
            try:
                cause = self._grant.settle(is_ending=self._stop_cause is not None)
            except OSError as error:
                cause = _text_of(error)
            if cause is None:
                return _LOOK_S
            self._answer(cause)
            return None

    def _answer(self, failure: str = "") -> None:
        """Answer the last command; one that another has replaced is not answered."""
        sink, self._answer_to = self._answer_to, None
        if sink is not None:
            sink(
                self._events.not_applied(self._request, self.held, failure)
                if failure
                else self._events.applied(self._request, self.held)
            )

    def _lose_patience(self) -> None:
        """The job has had its time for a checkpoint; the poller's."""
        if not self.ended:
            self._process.terminate()

    # Reports.

    def _started(self) -> Event:
        return self._events.started(
            self._request, self.held, can_pace=self._process.can_pace, can_cap=self._context.actuator.can_cap
        )

    def _report(self, at: float, sink: Sink) -> None:
        process = self._process
        phases, losses = process.progress.new_phases(), process.progress.new_losses()
        if phases is not None:
            sink(self._events.phases(at, phases))
        if losses:
            sink(self._events.losses(at, losses))
        assert process.started_at is not None
        sink(self._events.progress(at, process.sample(), process.started_at, process.used_core_s))


def _text_of(error: OSError) -> str:
    return f"'{error.filename}': {error.strerror}"


def _not_run(program: Program, why: str) -> str:
    return (
        f"the program must be one that can be run: got {program.argv[0]!r} ({why}) for the command line. "
        "Check its name and that it may be executed."
    )


def cause_of(code: int) -> str:
    """Why a process ended whose exit code, as a shell has it, is not 0."""
    if code <= 128:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"its process ended with exit code {code}"
