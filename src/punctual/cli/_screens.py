"""The three ways a run is shown: a live view on a terminal, plain lines elsewhere, JSON lines for machines."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from punctual.cli import _json_lines
from punctual.cli._lines import Lines
from punctual.cli._shown_job import ShownJob

if TYPE_CHECKING:
    from rich.console import RenderableType


class Screen(Protocol):
    """Shows jobs.

    Attributes
    ----------
    on_output
        Gets what the job writes, if there is but one; None: the job writes where this process does.
    """

    on_output: Callable[[bytes], None] | None

    def open(self, *jobs: ShownJob) -> None:
        """Begin to show `jobs`."""
        ...

    def close(self) -> None:
        """Stop showing it; the terminal is as it was."""
        ...

    def say(self, line: str) -> None:
        """Tell people something that is not about the job itself."""
        ...

    def conclude(self, text: str, report: dict[str, Any], *, bad: bool) -> None:
        """Say what the run came to, for people or for machines; `bad`: quiet or not, it must be said."""
        ...


def screen_for(*, as_json: bool, quiet: bool) -> Screen:
    """The way that suits what the user asked for and where standard output leads."""
    if as_json:
        return JsonScreen()
    if sys.stdout.isatty() and not quiet:
        return LiveScreen()
    return PlainScreen(quiet=quiet)


class PlainScreen:
    """Lines on standard error; the job keeps standard output and standard error as they are."""

    on_output: Callable[[bytes], None] | None = None

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def open(self, *jobs: ShownJob) -> None:
        for job in jobs:
            write = _to_stderr if len(jobs) == 1 else _named(job, _to_stderr)
            job.subscribe(Lines(job.status, job.steered_by_and_why, write, quiet=self._quiet, clocks=job.clocks).tell)

    def close(self) -> None:
        """There is nothing to put back."""

    def say(self, line: str) -> None:
        if not self._quiet:
            _to_stderr(line)

    def conclude(self, text: str, report: dict[str, Any], *, bad: bool) -> None:
        if bad or not self._quiet:
            _to_stderr(f"punctual: {text}")


class JsonScreen:
    """Objects on standard output; what the job writes goes to standard error."""

    def __init__(self) -> None:
        self.on_output: Callable[[bytes], None] | None = _pass_on

    def open(self, *jobs: ShownJob) -> None:
        for job in jobs:
            job.subscribe(_json_lines.JsonLines(job.status, job.facts).tell)

    def close(self) -> None:
        """There is nothing to put back."""

    def say(self, line: str) -> None:
        """Machines are told of the job alone."""

    def conclude(self, text: str, report: dict[str, Any], *, bad: bool) -> None:
        _json_lines.write("report", {**report, "text": text})


class LiveScreen:
    """A panel under the job's output, or a table of several jobs. Changes of the grant are there and not told one by one."""

    def __init__(self) -> None:
        from rich.console import Console

        from punctual.cli._view import View

        self._console = Console()
        self._jobs: tuple[ShownJob, ...] = ()
        self._view = View(self._draw, self._console)
        self.on_output: Callable[[bytes], None] | None = self._view.write

    def open(self, *jobs: ShownJob) -> None:
        self._jobs = jobs
        for job in jobs:
            say = self.say if len(jobs) == 1 else _named(job, self.say)
            job.subscribe(Lines(job.status, job.steered_by, say, grants=False, clocks=job.clocks).tell)
        self._view.start()

    def close(self) -> None:
        self._view.stop()

    def conclude(self, text: str, report: dict[str, Any], *, bad: bool) -> None:
        self._console.print(text, style="bold red" if bad else "bold", highlight=False, markup=False)

    def say(self, line: str) -> None:
        self._console.print(line, style="dim", highlight=False, markup=False)

    def _draw(self, line: str) -> "RenderableType | None":
        from punctual.cli._view import panel, table

        known = [(job, status) for job in self._jobs if (status := job.known_status()) is not None]
        if not known:
            return None
        if len(self._jobs) > 1:
            return table([status for _, status in known], known[0][0].clocks())
        ((job, status),) = known
        title = f"{job.id} · {' · '.join(map(str, job.facts().values()))}"
        return panel(status, job.clocks(), title, line)


def _named(job: ShownJob, write: Callable[[str], None]) -> Callable[[str], None]:
    """Writes each line with the name of the job before it."""
    return lambda line: write(f"{job.id}: {line}")


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _pass_on(output: bytes) -> None:
    sys.stderr.buffer.write(output)
    sys.stderr.buffer.flush()
