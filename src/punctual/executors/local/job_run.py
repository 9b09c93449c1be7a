"""One job from its launch to its end."""

import errno
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Any

from punctual.core.commands import LaunchJob, ResizeJob, StopJob
from punctual.core.control import PacingLine
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    LossReported,
    PhaseReported,
)
from punctual.core.failures import cause_of, is_foreseen, short_of, start_short_of
from punctual.core.protocols import Sink
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources
from punctual.core.units import span
from punctual.executors.job_facts import JobFacts
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.ending import end_event, found_faults, stopped
from punctual.executors.local.freezer import is_killed
from punctual.executors.local.grant import JobGrant
from punctual.executors.local.job_files import has_left
from punctual.executors.local.launch import END_S_MAX, JobProcess, gpus_of
from punctual.executors.local.limits import limits_warning
from punctual.executors.local.memory import not_limited
from punctual.executors.local.progress import ProgressSample
from punctual.executors.local.supervisor_client import SteeringLostError, SupervisorLink

_LOG = logging.getLogger(__name__)

#: Seconds between two looks for the answer to a slow command.
_POLL_INTERVAL_S = 0.02
#: Seconds between two looks whether a signal has killed a paused job.
_PAUSED_LOOK_S = 0.25
#: Warning of a job that nothing can hold to its grant.
_UNHELD = Reason(
    "not-held",
    "a program whose output is read cannot be paced and runs at full speed, and there are no quotas here (`punctual doctor` "
    "says why)",
)
#: Seconds until the end of a process is known, once its group is gone.
_END_KNOWN_S_MAX = 5.0
#: Errors of the files of a group that is gone: at their opening, or later.
_GONE = (errno.ENOENT, errno.ENODEV)


def should_exit_instead_of_freeze(held: Resources) -> bool:
    """Whether a frozen process with these resources keeps some, memory or devices, that its end would free."""
    return bool(replace(held, cores=0.0))


def _left_running(programs: Sequence[str]) -> Reason:
    """Return the news that a job has left programs running: it may be a launcher that waits for no training."""
    text = (
        f"ended with it: {', '.join(programs)}, which it had left running. A job lasts as long as the process that it was "
        "started as; run the training in the foreground, or end the script with `wait`"
    )
    return Reason("left-running", text)


class JobRun:
    """A job that was launched or adopted. A thread of its own waits for its process and answers the launch.

    Whatever another thread may look at at the same time is guarded by one lock, so that nothing is reported of a job
    once its end has been. What fails in a thread of this job or in the poller's is answered, whatever it is: no command waits
    for ever, and each job comes to an end that is told.

    `process`: process to be started, or one that runs already.
    """

    def __init__(self, context: ExecutorContext, launch: LaunchJob, sink: Sink, process: JobProcess) -> None:
        self._context = context
        self._launch = launch
        self._sink = sink
        self._lock = threading.RLock()
        self._process = process
        #: Resources and pacing line with which the process starts.
        self._amount = launch.grant.get(context.node, NOTHING)
        self._line: PacingLine | None = None
        #: Whether the job holds something on other nodes too.
        self._spans_nodes = len(launch.grant) > 1
        #: None while no process runs: before it is started, or because the job has left.
        self._grant: JobGrant | None = None
        #: Whether there is no process because the job has made room and is to be started again.
        self._has_left = False
        #: CPU time of the processes that have left, and what was last known of the job's progress.
        self._used_before_core_s = 0.0
        self._seen = ProgressSample()
        self._request = launch.request
        #: Receiver of the answer to the last command while it is due, and whether that command was a launch.
        self._answer_to: Sink | None = sink
        self._answers_launch = True
        #: The last command of those that came while a process was being started.
        self._deferred: tuple[ResizeJob, Sink] | None = None
        #: The last command for which there was no group any more, and how it failed; None: there was none.
        self._without_group: tuple[int, str] | None = None
        #: Instant by which a process that was asked to leave must have left.
        self._leave_by = inf
        self._was_asked_to_leave = False
        #: The command to end; None: there was none. Seconds after which it was ended by force; None: it was not.
        self._stop: StopJob | None = None
        self._forced_after_s: float | None = None
        self._faults: Sequence[InvalidSpec] = ()
        #: Failures that are in the log already, and warnings that were given.
        self._noted: set[str] = set()
        self.ended = False
        #: Instant at which its end was posted; earlier commands were made without knowing it. Infinite: another's job;
        #: minus infinite: not posted.
        self.told_end_at = -inf
        self._thread = self._new_thread(process)

    def start(self) -> None:
        """Begin to start the process in another thread, which answers; or follow an adopted one.

        Raises `RuntimeError` where no thread can be had.
        """
        self._thread.start()

    def adopt(self) -> None:
        """Read what an adopted process holds; raises `OSError`. Nothing is answered, and `start` follows it."""
        self._amount = replace(self._amount, gpus=gpus_of(self._launch, self._context.node))
        self._grant, self._answer_to = JobGrant.adopted(self._launch.spec, self._process, self._amount), None
        self._was_asked_to_leave = self._process.progress.is_asked_to_leave

    def facts(self) -> JobFacts:
        """Return what only this job's process, page or end tells."""
        workers, device = self._process.workers, self._process.progress.device_use()
        if workers is None:
            return JobFacts(device=device, faults=self._faults)
        group = None if self.ended else workers.group
        return JobFacts(workers=workers.status, device=device, faults=self._faults, group=group)

    @property
    def held(self) -> Resources:
        """Resources that the job holds, as last read back."""
        return NOTHING if self._grant is None else self._grant.held

    # Commands.

    def relaunch(self, request: int, sink: Sink) -> None:
        """Answer a repeated launch; one still in progress is answered under the new number."""
        with self._lock:
            if self.ended or request < self._request:
                return
            self._request, self._answer_to, self._answers_launch = request, sink, True
            if not self._is_starting:
                self._answer()

    def resize(self, command: ResizeJob, sink: Sink) -> None:
        """Enforce another grant and pacing line; a process that does not run yet gets them at its start."""
        with self._lock:
            if self.ended or command.request < self._request:
                return
            if self._is_starting:
                self._deferred = (command, sink)
                return
            self._request, self._answer_to, self._answers_launch = command.request, sink, False
            self._amount, self._line = command.grant.get(self._context.node, NOTHING), command.pacing
            self._spans_nodes = len(command.grant) > 1
            with self._answered():
                if self._grant is not None:
                    self._put(self._grant)
                elif self._amount:
                    self._restart()
                else:
                    self._answer()

    def renew(self, *, stays_paused: bool) -> None:
        """Renew the lease with the supervisor; the job stays paused at its end if a user has paused it."""
        if self.ended:
            return
        self._process.renew(stays_paused=stays_paused and self._grant is not None and self._grant.is_paused)
        if (supervisor := self._process.deaf_supervisor) and "deaf" not in self._noted:
            self._noted.add("deaf")
            text = (
                f"its supervisor, process {supervisor}, hears nothing: it was stopped or hangs, and the job stands still "
                "once it has written what its pipe can hold; have the supervisor go on (`kill -CONT`), or stop the job"
            )
            self._warn(Reason("keeper-silent", text))

    def observe(self, at: float, sink: Sink) -> None:
        """Report progress and usage, if the job has been started."""
        with self._lock:
            if self.ended or (self._grant is None and not self._has_left):
                return
            if not self._process.read_usage() and self._process.sample().landed:
                return  # its processes had ended before this host read what they used, which their supervisor tells soon
            self._report(at, sink)
            self._process.progress.heartbeat()

    def stop(self, command: StopJob) -> None:
        """Ask the job to end, after a checkpoint if it can make one; returns at once."""
        with self._lock:
            before, is_asked = self._stop, False
            if before is not None and not before.restarts:
                command = replace(command, restarts=False, moves=False)
            elif before is not None and not command.restarts:  # from now on it ends for good
                self._stop = replace(before, cause=command.cause, restarts=False, moves=False)
            if self.ended or (before is not None and (command.interrupts or not before.interrupts)):
                return
            self._stop = command
            with self.excused("asked to stop"):
                is_asked = self._ask_to_stop(interrupts=command.interrupts)
            if not is_asked:
                self.terminate(self._process.stop_grace_s)

    def _ask_to_stop(self, *, interrupts: bool) -> bool:
        """Ask the job to make a checkpoint and end, or interrupt it; False: neither is possible."""
        if self._grant is None:
            return False
        if self._process.progress.can_stop:
            self._context.poller.watch(self._lose_patience, self._process.stop_grace_s)
            self._process.progress.ask_to_stop()
            self._process.progress.heartbeat()
            self._grant.lift()  # the sooner the checkpoint is written
            return True
        if interrupts:
            self._process.end(SupervisorLink.interrupt)
        return interrupts

    def release(self) -> None:
        """Leave the job to its next owner: it continues, and no further event is sent."""
        with self._lock:
            if not self.ended:
                self.ended, self.told_end_at = True, inf
                self._process.release()

    def terminate(self, grace_s: float = 0.0) -> None:
        """End the job: SIGTERM to its own process, after `grace_s` to all, then SIGKILL; also for a hanging supervisor."""
        with self._lock:
            self._stop = self._stop or StopJob(at=time.monotonic(), job=self._launch.job, cause="Punctual is ending")
            if self._has_left and not self.ended:
                self._tell_end(stopped(self._stop))
            if not self.ended:
                with self.excused("looked at"):
                    self._context.poller.watch(self._insist, grace_s + END_S_MAX)
            self._process.end(SupervisorLink.terminate if grace_s else SupervisorLink.hurry)

    def _insist(self) -> None:
        """Kill a supervisor that hangs after its time to end the job; called by the poller."""
        if not self.ended:
            self._process.kill()

    def close(self) -> None:
        """Wait for the end of a job that was told to end; end it by force if it takes too long."""
        self._thread.join(END_S_MAX)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    # What fails.

    def note(self, doing: str, error: Exception) -> None:
        """Log a failure about the job, unless the same failure was logged before."""
        told = f"{doing}: {type(error).__name__}"
        if told not in self._noted:
            self._noted.add(told)
            _LOG.warning("job '%s' could not be %s", self._launch.job, doing, exc_info=error)

    @contextmanager
    def excused(self, doing: str) -> Iterator[None]:
        """Log exceptions of the block, and continue after it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- see above
            self.note(doing, error)

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Answer the last command with the failure if the block raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- whatever it is, an answer is due
            # If the group is gone, the end of the process is the answer.
            failure = self._request, cause_of(error)
            if not is_foreseen(error):
                self.note("commanded", error)
            if not (isinstance(error, OSError) and error.errno in _GONE):
                self._answer(failure[1], short_of(error))
            elif failure != self._without_group:
                self._without_group = failure
                self._context.poller.watch(self._miss_end, _END_KNOWN_S_MAX)

    # From its start, or from when it was adopted, to its end; in a thread of its own.

    @property
    def _is_starting(self) -> bool:
        return self._grant is None and not self._has_left

    def _new_thread(self, process: JobProcess) -> threading.Thread:
        name = f"punctual-job-{self._launch.job}"
        return threading.Thread(target=self._live, args=(process,), name=name, daemon=True)

    def _live(self, process: JobProcess) -> None:
        try:
            self._see_through(process)
        except SteeringLostError:
            self._lose()
        except Exception as error:  # noqa: BLE001 -- whatever it is, an end is due
            self.note("followed", error)
            self._abandon(process, error)

    def _see_through(self, process: JobProcess) -> None:
        """Start the process, unless it is adopted, and stay until its end is reported; raises `SteeringLostError`."""
        if self._grant is not None:
            with self.excused("read"):
                process.follow()
            with self.excused("looked at"):
                if self._grant.is_paused:
                    self._context.poller.watch(self._look, _PAUSED_LOOK_S)
        else:
            try:
                answer = process.start(self._amount, spans_nodes=self._spans_nodes)
            except SteeringLostError:
                process.clear_away()
                raise
            except Exception as error:
                if process.pid:  # it runs, and is not to be left so
                    raise
                self._give_up(error)
                return
            if "failed" in answer:
                self._end(answer)
                return
            self._begin()
        last, may_steer = process.wait(self._restore_grant), True
        with self.excused("looked up in the journal"):
            may_steer = self._context.may_steer()
        if not may_steer:  # what has ended may have been started again, in the same places
            raise SteeringLostError
        self._end(last)

    def _abandon(self, process: JobProcess, error: Exception) -> None:
        """End a process that cannot be followed, and report that the job has failed."""
        with suppress(Exception):
            process.kill()
        with suppress(Exception):
            process.finish(None)
        with self._lock:
            if not self.ended:
                cause = f"it could not be followed any more: {cause_of(error)}"
                self._tell_end(self._failed(cause) if self._stop is None else stopped(self._stop))

    def _lose(self) -> None:
        """Note that another process steers the job now."""
        with self._lock:
            if not self.ended:
                _LOG.warning("job '%s' was taken over by another process", self._launch.job)
            self.ended, self.told_end_at = True, inf
            self._context.devices.free(self._launch.job)
        self._process.leave()

    def _begin(self) -> None:
        """Report that the process runs, and perform the commands that have come since."""
        with self._lock:
            self._grant = JobGrant(self._launch.spec, self._process, self._amount)
            with self._answered():
                self._process.progress.pace(self._line)
                self._process.progress.heartbeat()
                self._answer()
            asked_bytes, group = self._launch.spec.ceiling.memory_bytes, self._process.group
            if asked_bytes and group is not None and not group.memory.can_limit:
                self._warn(Reason("memory-not-limited", not_limited(asked_bytes)))
            if limits := self._process.lower_limits():
                self._warn(limits_warning(limits))
            if self._deferred is not None:
                (command, sink), self._deferred = self._deferred, None
                self.resize(command, sink)

    def _restore_grant(self) -> None:
        with self._lock, self.excused("held to its grant again"):
            if self._grant is not None and self._stop is None and self._context.may_steer():
                self._grant.restore()

    def _give_up(self, error: Exception) -> None:
        """Clear up after a start that failed, and answer the command that asked for it."""
        if not is_foreseen(error):
            self.note("started", error)
        if not self.ended:  # else it was left to another process while it was being started
            with self.excused("cleared away"):
                self._process.clear_away()
        with self._lock:
            if self.ended:
                return
            self._context.devices.free(self._launch.job)
            if self._stop is not None:
                self._tell_end(stopped(self._stop))
            elif self._was_asked_to_leave:  # an earlier process has made room; the next command may start another
                self._has_left = True
                if self._answer_to is None:
                    self._tell_end(self._failed(f"it could not be started again: {cause_of(error)}"))
                self._answer(cause_of(error), start_short_of(error))
            else:
                self.ended = True  # and nobody is told that it is: to whatever comes next it is unknown
                self._answer(cause_of(error), start_short_of(error))

    def _end(self, last: Mapping[str, Any] | None) -> None:
        """Report the end; `last` is the supervisor's last line, None if it was killed."""
        with self.excused("cleared away"):
            self._process.finish(last)
        with self._lock:
            if self._was_asked_to_leave and self._stop is None and has_left(last):
                self._leave()
                return
            landed_at = None
            with self.excused("observed"):
                if self._grant is not None:
                    self._report(time.monotonic(), self._sink)
                self._seen, landed_at = self._process.sample(), self._process.results_at(last)
            event = end_event(self._launch.job, self._process, self._seen, landed_at, last, self._stop)
            self._tell_cut_off(last)
            if isinstance(event, JobFinished):
                progress = self._process.progress
                self._faults = (
                    found_faults(self._launch.job, progress.faults, self._seen) if progress.is_tracked else ()
                )
                if (shortfall := progress.shortfall()) is not None:
                    self._warn(shortfall, event.at)
                if left := (last or {}).get("left_running"):
                    self._warn(_left_running(left), event.at)
            self._tell_end(event)

    def _tell_cut_off(self, last: Mapping[str, Any] | None) -> None:
        """Warn that a stopped job was killed: a checkpoint that it was writing is incomplete."""
        forced_after_s = self._forced_after_s if last is None else last.get("forced_after_s", self._forced_after_s)
        if self._stop is not None and forced_after_s is not None:
            cut_off = "a checkpoint that it was making is not whole"
            text = (
                f"it was killed before its time to save was over, by a second signal or the end of its allocation: {cut_off}"
                if forced_after_s < self._process.stop_grace_s
                else f"it had not ended {span(forced_after_s)} after it was asked to, and was killed: {cut_off} "
                "(`--stop-grace` gives it more time)"
            )
            self._warn(Reason("cut-off", text))

    def _warn(self, reason: Reason, at: float | None = None) -> None:
        self._sink(JobWarned(at=time.monotonic() if at is None else at, job=self._launch.job, reason=reason))

    def _failed(self, cause: str) -> JobFailed:
        return JobFailed(at=time.monotonic(), job=self._launch.job, cause=cause, retryable=True)

    def _tell_end(self, event: JobFinished | JobFailed) -> None:
        self.ended, self._grant = True, None
        self._context.devices.free(self._launch.job)
        self._sink(event)
        self.told_end_at = time.monotonic()

    # Grants.

    def _put(self, grant: JobGrant) -> None:
        """Enforce the amount on the running process, and answer once it is in force."""
        if self._stop is not None:  # the quota was lifted so that the end comes soon
            self._answer()
            return
        if not self._amount and self._can_leave and should_exit_instead_of_freeze(grant.held):
            self._ask_to_leave(grant)
            return
        self._leave_by = inf
        is_settled = grant.put(self._amount, self._line, spans_nodes=self._spans_nodes)
        if grant.is_paused or not is_settled:
            self._context.poller.watch(self._look, _POLL_INTERVAL_S)
        if is_settled:
            self._answer()

    def _look(self) -> float | None:
        """Answer the last command if it is fulfilled, and let a paused job be killed; called by the poller."""
        with self._lock:
            if self.ended or self._grant is None:
                return None
            with self._answered():
                if self._leave_by < inf:
                    return self._look_for_leaving(self._grant)
                if self._grant.is_paused and is_killed(self._process.pid):
                    self._grant.lift()
                    return None
                cause = self._grant.settle(is_ending=self._stop is not None)
                if cause is None:
                    return _POLL_INTERVAL_S
                self._answer(cause)
            return _PAUSED_LOOK_S if self._grant.is_paused else None

    def _answer(self, failure: str = "", short_of: str = "") -> None:
        """Answer the last command, if it is still to be answered."""
        sink, self._answer_to = self._answer_to, None
        if sink is None:
            return
        at, job, request, held = time.monotonic(), self._launch.job, self._request, self.held
        granted = {self._context.node: held} if held else {}
        if failure:
            sink(GrantFailed(at=at, job=job, request=request, granted=granted, cause=failure, short_of=short_of))
        elif self._answers_launch:
            can_pace, can_cap = self._process.can_pace, self._context.chosen.actuator.can_cap
            sink(JobStarted(at=at, job=job, request=request, granted=granted, can_pace=can_pace, can_cap=can_cap))
        else:
            sink(GrantApplied(at=at, job=job, request=request, granted=granted))

    def _miss_end(self) -> None:
        """Answer with the failure of a process whose group is gone but that has not ended. Called by the poller."""
        with self._lock:
            if not self.ended and self._without_group is not None and self._without_group[0] == self._request:
                self._answer(self._without_group[1])

    def _lose_patience(self) -> None:
        """End a job whose time for a checkpoint is over; called by the poller."""
        if not self.ended:
            self._forced_after_s = self._process.stop_grace_s
            self.terminate()

    # Making room: a job of workers with a checkpoint is paused by ending its process, so that it holds nothing. One that
    # holds nothing but cores is frozen: starting it again could cost more than the pause is worth.

    @property
    def _can_leave(self) -> bool:
        """Whether the process can make a checkpoint to continue from; without workers, only its script knows."""
        workers = self._process.workers
        return workers is not None and workers.status.agent_pid != 0 and self._process.progress.can_stop

    def _ask_to_leave(self, grant: JobGrant) -> None:
        if self._leave_by == inf:
            self._was_asked_to_leave = True
            self._leave_by = time.monotonic() + self._process.stop_grace_s
            self._process.progress.ask_to_leave()
            self._process.progress.heartbeat()
            grant.lift()
        self._context.poller.watch(self._look, _POLL_INTERVAL_S)

    def _look_for_leaving(self, grant: JobGrant) -> float | None:
        """Freeze a process that does not leave in time: it keeps its memory and devices, and frees its cores."""
        if time.monotonic() < self._leave_by:
            return _POLL_INTERVAL_S
        self._leave_by = inf
        self._process.progress.pace(None)
        if grant.put(NOTHING, None):
            self._answer()
        return _POLL_INTERVAL_S

    def _leave(self) -> None:
        """Note that the process has made its checkpoint and ended."""
        with self.excused("observed"):
            self._report(time.monotonic(), self._sink)
        self._used_before_core_s += self._process.used_core_s
        self._grant, self._has_left, self._leave_by = None, True, inf
        self._context.devices.free(self._launch.job)
        with self._answered():
            if self._amount:  # it was resumed when it had begun to leave
                self._restart()
            else:
                self._answer()

    def _restart(self) -> None:
        """Start another process from the checkpoint of the one that has left; raises if that is impossible."""
        before, process = self._process, JobProcess.made(self._context, self._launch)
        thread = self._new_thread(process)
        self._process, self._has_left = process, False
        try:
            thread.start()
        except BaseException:
            self._process, self._has_left = before, True
            process.clear_away()
            raise
        self._thread = thread

    # Reports.

    def _report(self, at: float, sink: Sink) -> None:
        process, job = self._process, self._launch.job
        if (phases := process.progress.new_phases()) is not None:
            sink(PhaseReported(at=at, job=job, phases=phases))
        if losses := process.progress.new_losses():
            sink(LossReported(at=at, job=job, losses=losses))
        sample, warnings = process.sample(), list[Reason]()
        if sample.unit_at is None:  # a process that was started again has not said yet where it goes on
            sample = replace(self._seen, unreadable=sample.unreadable)
        if sample.unreadable and not self._seen.unreadable:
            warnings.append(Reason("unreadable-progress", sample.unreadable))
        warnings += process.progress.new_notices()
        can_cap = self._context.chosen.actuator.can_cap
        if not can_cap and (sample.is_read or not process.can_pace) and _UNHELD.code not in self._noted:
            self._noted.add(_UNHELD.code)
            warnings.append(_UNHELD)
        for warning in warnings:
            sink(JobWarned(at=at, job=job, reason=warning))
        self._seen = sample
        used_core_s = self._used_before_core_s + (0.0 if self._has_left else process.used_core_s)
        memory_bytes = 0 if self._has_left or process.group is None else process.group.memory.read()
        sink(sample.report(at, job, process.started_at or at, used_core_s, memory_bytes))
