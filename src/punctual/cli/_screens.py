"""Displays of a run: a live view on a terminal, plain lines elsewhere, JSON lines for machines."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from punctual.cli._lines import Lines
from punctual.cli._shown_job import ShownJob
from punctual.cli._streams import LastingOutput, write_error, write_out
from punctual.cli._words import visible
from punctual.core.commands import WarnUser
from punctual.core.events import GrantApplied, JobStarted, ProgressReported, SteeringResumed
from punctual.core.job import JobSpec
from punctual.core.protocols import Message
from punctual.core.recent_messages import NOTICES
from punctual.core.resources import total
from punctual.daemon.status_reader import measured
from punctual.executors.local.output import write_through
from punctual.history.user_requests import user_request
from punctual.request.json_text import json_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def write_record(kind: str, fields: Mapping[str, Any]) -> None:
    """Write one object; `type` comes first, so that lines can be told apart at a glance."""
    write_out(json_text({"type": kind, **fields}) + "\n")


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

    on_output: Callable[[bytes], None] | None

    def open(self, *jobs: ShownJob) -> None:
        """Begin to show `jobs`; without any, go on after `close`."""
        ...

    def close(self) -> None:
        """Stop showing the jobs, and restore the terminal."""
        ...

    def say(self, line: str, *, always: bool = False) -> None:
        """Show people a message that is not about the job itself; `always`: also with `--json` or `--quiet`."""
        ...

    def conclude(self, lines: Sequence[str], report: dict[str, Any], *, bad: bool) -> None:
        """Show the closing report, for people or for machines; `bad`: even with `--quiet`."""
        ...


def screen_for(*, as_json: bool, quiet: bool) -> Screen:
    """Return the display that suits the user's options and standard output."""
    if as_json:
        return JsonScreen()
    if sys.stdout.isatty() and not quiet:
        return LiveScreen()
    return PlainScreen(quiet=quiet)


class PlainScreen:
    """Plain lines on standard error; the job keeps standard output and standard error as they are."""

    on_output: Callable[[bytes], None] | None = None

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


class JsonScreen:
    """JSON objects on standard output; the job's output goes to standard error."""

    def __init__(self) -> None:
        self.on_output: Callable[[bytes], None] | None = partial(write_through, 2)

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


class LiveScreen:
    """A panel under the job's output, or a table of several jobs; it shows the grant, without lines about changes."""

    def __init__(self) -> None:
        from rich.console import Console

        from punctual.cli._view import View

        self._console = Console(file=cast(TextIO, LastingOutput()))
        self._jobs: tuple[ShownJob, ...] = ()
        self._view = View(self._draw, self._console)
        self.on_output: Callable[[bytes], None] | None = self._view.write

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

        known = [(job, status) for job in self._jobs if (status := job.known_status()) is not None]
        if not known:
            return None
        if len(self._jobs) > 1:
            now = known[0][0].clocks().wall
            return Group(*Lanes([job.standing() for job, _ in known], now, self._console.width).lines())
        ((job, status),) = known
        title = f"{job.id} · {' · '.join(map(str, job.facts().values()))}"
        return panel(status, job.clocks(), title, line, job.standing())
