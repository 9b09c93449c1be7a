"""Displays of a run: a live view on a terminal, plain lines elsewhere, JSON lines for machines."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from punctual.cli._streams import LastingOutput, write_error, write_record
from punctual.cli._words import against_deadline, clock, holding, span, steps, visible
from punctual.core.commands import RejectJob, StopJob, WarnUser
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobStarted,
    Message,
    ProgressReported,
    SteeringResumed,
)
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.reason import NOTICES
from punctual.core.resources import total
from punctual.core.status import OVER, JobStatus
from punctual.daemon.follower import JobFollower
from punctual.daemon.status_reader import measured, standing
from punctual.executors.local.output import write_through
from punctual.history.user_requests import user_request
from punctual.request.deadlines import Now

if TYPE_CHECKING:
    from rich.console import RenderableType


class ShownJob:
    """A job with the queries of displays."""

    def __init__(self, host: JobFollower, job: JobId) -> None:
        self._host = host
        self.id = job

    def status(self) -> JobStatus:
        """Return its status; raises `InvalidSpec` until the host has processed its submission."""
        return self._host.status(self.id)

    def is_known(self) -> bool:
        """Whether the host has processed its submission."""
        return self._host.knows(self.id)

    def clocks(self) -> Now:
        """Present instant on the clock of messages and on the wall clock."""
        return self._host.clocks()

    def standing(self) -> dict[str, Any]:
        """Return how it stands, with its host's knowledge of promises, nodes and waits."""
        status, told = self.status(), self._host.standing_of(self.id)
        is_promised = told.get("promised_until_wall") is not None
        own = standing(status, self.clocks(), most_cores=told.get("host_cores"), is_promised=is_promised)
        return {**own, **told} if own["state"] == told.get("state") == "queued" else {**told, **own}

    def subscribe(self, tell: Callable[[Message], None]) -> None:
        """Call `tell` with each message about it, once `status` reflects the message."""

        def listen(message: Message) -> None:
            if self.is_known():
                tell(message)

        self._host.listen(listen, self.id)

    def facts(self) -> dict[str, Any]:
        """Return facts that do not change while it runs."""
        return {"controller": self.status().spec.controller, "actuator": self._host.run_folder.facts().get("actuator")}

    def steered_by(self) -> str:
        """Describe its controller and actuator in words."""
        facts = self.facts()
        return f"controller {facts['controller']}, actuator {facts['actuator']}"


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


class JsonLines:
    """Writes an object for each message a machine may follow; `elapsed_s` counts from the start of the command."""

    def __init__(self, job: ShownJob) -> None:
        self._job = job
        self._progress_at = float("-inf")
        self._verb = "started"
        #: Declaration of the job before the next message.
        self._spec: JobSpec | None = None

    def tell(self, message: Message) -> None:
        status = self._job.status()
        told = {"elapsed_s": message.at - status.submitted_at, "job": status.spec.id}
        # Readings come up to ten times a second; a machine that follows needs fewer.
        match message:
            case SteeringResumed():
                self._verb = "resumed"  # the answer to being launched again has all that there is to tell
            case JobStarted():
                fields = {"deadline_s": status.spec.deadline_s, "grant_cores": status.held.cores}
                write_record(self._verb, {**told, **self._job.facts(), **fields})
            case ProgressReported(at=at) if at - self._progress_at >= 0.5 or message.landed:
                self._progress_at = at
                write_record("progress", {**told, **measured(status)})
            case GrantApplied(granted=granted):
                why = {"reason": status.reason.text, "code": status.reason.code} if status.reason else {}
                held = {"grant_cores": total(granted.values()).cores, "n_workers": status.n_workers or None}
                write_record("grant", {**told, **held, **why})
            case WarnUser(reason=reason):
                fields_of_reason = {"code": reason.code, "text": reason.text, "facts": dict(reason.facts)}
                write_record("notice" if reason.code in NOTICES else "warning", {**told, **fields_of_reason})
            case _ if (request := user_request(message, self._spec)) is not None and not status.ended:
                write_record(request.kind, {**told, **request.facts, "text": request.text})
        self._spec = status.spec


class Screen(Protocol):
    """Shows jobs. `on_output`: called with the output of a single job; None: the job writes where this process does."""

    on_output: Callable[[bytes], None] | None = None

    def open(self, *jobs: ShownJob) -> None:
        """Begin to show `jobs`; without any, go on after `close`."""

    def close(self) -> None:
        """Stop showing the jobs, and restore the terminal."""

    def say(self, line: str, *, always: bool = False) -> None:
        """Show people a message that is not about the job itself; `always`: also with `--json` or `--quiet`."""

    def conclude(self, lines: Sequence[str], report: dict[str, Any], *, bad: bool) -> None:
        """Show the closing report, for people or for machines; `bad`: even with `--quiet`."""


def screen_for(*, as_json: bool, quiet: bool) -> Screen:
    """Return the display that suits the user's options and standard output."""
    if as_json:
        return JsonScreen()
    if sys.stdout.isatty() and not quiet:
        return LiveScreen()
    return PlainScreen(quiet=quiet)


class PlainScreen(Screen):
    """Plain lines on standard error; the job keeps standard output and standard error as they are."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def open(self, *jobs: ShownJob) -> None:
        for job in jobs:
            job.subscribe(Lines(job, write_error, quiet=self._quiet, named=len(jobs) > 1).tell)

    def close(self) -> None:
        """Do nothing: no terminal was changed."""

    def say(self, line: str, *, always: bool = False) -> None:
        if always or not self._quiet:
            write_error(line)

    def conclude(self, lines: Sequence[str], report: dict[str, Any], *, bad: bool) -> None:
        if bad or not self._quiet:
            write_error(f"punctual: {lines[0]}", *lines[1:])


class JsonScreen(Screen):
    """JSON objects on standard output; the job's output goes to standard error."""

    def __init__(self) -> None:
        self.on_output = partial(write_through, 2)

    def open(self, *jobs: ShownJob) -> None:
        for job in jobs:
            job.subscribe(JsonLines(job).tell)

    def close(self) -> None:
        """Do nothing: no terminal was changed."""

    def say(self, line: str, *, always: bool = False) -> None:
        """Do nothing: machines get messages of the job alone."""
        if always:
            write_error(line)

    def conclude(self, lines: Sequence[str], report: dict[str, Any], *, bad: bool) -> None:
        write_record("report", {**report, "text": "\n".join(lines)})


class LiveScreen(Screen):
    """A panel under the job's output, or a table of several jobs; it shows the grant, without lines about changes."""

    def __init__(self) -> None:
        from rich.console import Console

        from punctual.cli._view import View

        self._console = Console(file=cast(TextIO, LastingOutput()))
        self._jobs: tuple[ShownJob, ...] = ()
        self._view = View(self._draw, self._console)
        self.on_output = self._view.write

    def open(self, *jobs: ShownJob) -> None:
        self._jobs += jobs
        for job in jobs:
            job.subscribe(Lines(job, self.say, grants=False, named=len(jobs) > 1).tell)
        self._view.start()

    def close(self) -> None:
        self._view.stop()

    def conclude(self, lines: Sequence[str], report: dict[str, Any], *, bad: bool) -> None:
        """Show the closing report; for several jobs, its first line, the sum, stands out."""
        self._print(lines[0], "bold red" if bad else "bold")
        for line in lines[1:]:
            self._print(line)

    def say(self, line: str, *, always: bool = False) -> None:
        self._print(line, "dim")

    def _print(self, line: str, style: str | None = None) -> None:
        self._console.print(visible(line), style=style, highlight=False, markup=False)

    def _draw(self, line: str) -> "RenderableType | None":
        from rich.console import Group

        from punctual.cli._lanes import Lanes
        from punctual.cli._view import panel

        known = [job for job in self._jobs if job.is_known()]
        if not known:
            return None
        if len(self._jobs) > 1:
            now = known[0].clocks().wall
            return Group(*Lanes([job.standing() for job in known], now, self._console.width).lines())
        (job,) = known
        title = f"{job.id} · {' · '.join(map(str, job.facts().values()))}"
        return panel(job.status(), job.clocks(), title, line, job.standing())
