"""Plain lines with times, for logs and pipes."""

from collections.abc import Callable

from punctual.cli._picture import Picture
from punctual.cli._words import against_deadline, clock, holding, short, steps
from punctual.core.commands import StopJob, WarnUser
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobStarted,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.protocols import Message
from punctual.runtime.when import Now

#: A line about the grant is written when it has changed by this share, and not within this time of the last one.
GRANT_CHANGE_FRAC = 0.1
GRANT_QUIET_S = 3.0


class Lines:
    """Writes a line for what a person would want in a log.

    Parameters
    ----------
    how
        Says how the job is steered; asked at its start.
    write
        Gets each line, without its end.
    grants
        Whether changes of the grant are told.
    quiet
        Tell warnings only.
    """

    def __init__(
        self,
        picture: Picture,
        how: Callable[[], str],
        write: Callable[[str], None],
        *,
        grants: bool = True,
        quiet: bool = False,
    ) -> None:
        self._picture = picture
        self._how = how
        self._write = write
        self._grants = grants
        self._quiet = quiet
        self._told_cores = 0.0
        self._told_at = 0.0
        self._told_landed = False
        self._resumed = False

    def tell(self, message: Message) -> None:
        """Write the line for `message`, if it is worth one; the picture has it already."""
        line = self._line(message)
        if line and (not self._quiet or isinstance(message, WarnUser)):
            self._write(f"{clock(Now.read().wall_of(message.at))} punctual: {line}")

    def _line(self, message: Message) -> str:
        match message:
            case SteeringResumed():
                self._resumed = True
                return self._begun("took over")
            case JobStarted() if not self._resumed:
                return self._begun("started")
            case SpecChanged():
                return self._deadline("the deadline is now")
            case WarnUser(reason=reason):
                return reason.text if reason.code == "feasible" else f"WARNING: {reason.text}"
            # Once the job has landed its process may be gone before the last command reaches it.
            case GrantFailed(cause=cause) if not self._picture.landed:
                return f"WARNING: the grant could not be changed: {cause}"
            case StopJob(cause=cause):
                return f"stopping the job: {cause}"
            case GrantApplied(at=at) if self._grants:
                return self._granted(at)
            case ProgressReported(landed=True):
                return self._landed()
        return ""

    def _begun(self, verb: str) -> str:
        self._told_cores = self._picture.granted_cores
        return f"{verb} job {self._picture.spec.id}, {self._how()}; {self._deadline('deadline')}"

    def _deadline(self, prefix: str) -> str:
        at, seconds = self._picture.deadline_at, self._picture.spec.deadline_s
        if at is None or seconds is None:
            return "no deadline: the job runs at its ceiling"
        return f"{prefix} {clock(Now.read().wall_of(at))}, {short(seconds)} after the start"

    def _granted(self, at: float) -> str:
        granted = self._picture.granted_cores
        small = abs(granted - self._told_cores) <= GRANT_CHANGE_FRAC * self._told_cores
        if small or at - self._told_at < GRANT_QUIET_S:
            return ""
        self._told_cores, self._told_at = granted, at
        reason = self._picture.reason.text if self._picture.reason else ""
        picture = self._picture
        count = steps(picture.steps_done, picture.steps_total, picture.steps_expected)
        done = f"{count}, " if picture.steps_done else ""
        return f"{done}grant {holding(granted, self._picture.n_workers)}: {reason}"

    def _landed(self) -> str:
        if self._told_landed:
            return ""
        self._told_landed = True
        picture = self._picture
        if picture.deadline_at is None or picture.unit_at is None:
            return "landed"
        return f"landed {against_deadline(picture.unit_at - picture.deadline_at)}"
