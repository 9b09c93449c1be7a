"""Plain lines with times, for logs and pipes."""

from collections.abc import Callable

from punctual.cli._shown_job import ShownJob
from punctual.cli._words import against_deadline, clock, holding, span, steps
from punctual.core.commands import RejectJob, StopJob, WarnUser
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobStarted,
    ProgressReported,
    SteeringResumed,
)
from punctual.core.job import JobSpec
from punctual.core.protocols import Message
from punctual.core.recent_messages import NOTICES
from punctual.core.status import OVER
from punctual.history.user_requests import user_request


class Lines:
    """Writes a line for each message that a person would want in a log.

    * `write`: called with each line, without its end.
    * `grants`: whether changes of the grant are told.
    * `quiet`: tell warnings only.
    * `named`: each line begins with the job's name, after the time, and how the job ended is told as well: else the
      report at the end follows at once.
    """

    def __init__(
        self,
        job: ShownJob,
        write: Callable[[str], None],
        *,
        grants: bool = True,
        quiet: bool = False,
        named: bool = False,
    ) -> None:
        self._job = job
        self._write = write
        self._grants = grants
        self._quiet = quiet
        self._named = named
        self._told_cores = 0.0
        self._told_at = 0.0
        self._told_landed = False
        self._resumed = False
        #: Declaration of the job before the next message.
        self._spec: JobSpec | None = None

    def tell(self, message: Message) -> None:
        """Write the line for `message`, if it is worth one; the status reflects the message already."""
        line = self._line(message) or (self._failed(message) if self._named else "")
        is_warning = isinstance(message, WarnUser) and message.reason.code not in NOTICES
        if line and (not self._quiet or is_warning):
            self._tell(message.at, line)
        self._spec = self._job.status().spec

    def _tell(self, at: float, line: str) -> None:
        self._write(f"{clock(self._job.clocks().wall_of(at))} {self._job.id if self._named else 'punctual'}: {line}")

    def _line(self, message: Message) -> str:
        match message:
            case SteeringResumed():
                self._resumed = True
                return self._begun("took over")
            case JobStarted() if not self._resumed:
                return self._begun("started")
            case WarnUser(reason=reason):
                return reason.text if reason.code in {*OVER, "waits", *NOTICES} else f"WARNING: {reason.text}"
            case GrantFailed(cause=cause):
                return f"WARNING: the grant could not be changed: {cause}"
            case StopJob(cause=cause, restarts=restarts):
                return f"ending the job, to start it again: {cause}" if restarts else f"stopping the job: {cause}"
            case GrantApplied(at=at) if self._grants:
                return self._granted(at)
            case ProgressReported(landed=True):
                return self._landed()
        return self._asked(message)

    def _asked(self, message: Message) -> str:
        """Describe a user's request; a stop is reported when the job stops."""
        request = user_request(message, self._spec)
        if request is None or request.kind == "stop" or self._job.status().ended:
            return ""
        return self._deadline("the deadline is now") if request.kind == "deadline" else request.text

    def _failed(self, message: Message) -> str:
        status = self._job.status()
        if isinstance(message, RejectJob | JobFailed) and status.ended:
            return f"{status.state}: {status.cause}"
        return ""

    def _begun(self, verb: str) -> str:
        status = self._job.status()
        self._told_cores = status.held.cores
        return f"{verb} job {status.id}, {self._job.steered_by()}; {self._deadline('deadline')}"

    def _deadline(self, prefix: str) -> str:
        status = self._job.status()
        at, seconds = status.deadline_at, status.spec.deadline_s
        if at is None or seconds is None:
            return "no deadline: the job runs at its ceiling"
        return f"{prefix} {clock(self._job.clocks().wall_of(at))}, {span(seconds)} after the start"

    def _granted(self, at: float) -> str:
        status = self._job.status()
        granted = status.held.cores
        # A line about the grant is written when it has changed by a tenth, and not within 3 s of the last one.
        small = abs(granted - self._told_cores) <= 0.1 * self._told_cores
        if small or at - self._told_at < 3.0:
            return ""
        self._told_cores, self._told_at = granted, at
        reason = status.reason.text if status.reason else ""
        count = steps(status.steps_done, status.steps_total, status.steps_expected)
        done = f"{count}, " if status.steps_done else ""
        return f"{done}grant {holding(granted, status.n_workers)}: {reason}"

    def _landed(self) -> str:
        if self._told_landed:
            return ""
        self._told_landed = True
        status = self._job.status()
        if status.deadline_at is None or status.unit_at is None:
            return "landed"
        return f"landed {against_deadline(status.unit_at - status.deadline_at)}"
