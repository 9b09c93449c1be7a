"""The live view: a small panel under the job's own output."""

from codecs import getincrementaldecoder
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from punctual.cli._lanes import Row, marked
from punctual.cli._words import clock, cores, span, steps, visible
from punctual.core.status import JobStatus
from punctual.core.units import counted
from punctual.daemon.status_reader import standing
from punctual.request.deadlines import Now


class Bar:
    """Progress bar that fills the width, with a mark for the straight line to the deadline."""

    def __init__(self, done_frac: float, line_frac: float | None) -> None:
        self._done_frac = done_frac
        self._line_frac = line_frac

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(4, options.max_width)
        n_full = round(self._done_frac * width)
        bar = Text("━" * n_full, style="green") + Text("─" * (width - n_full), style="dim")
        if self._line_frac is not None:
            i_mark = min(width - 1, round(self._line_frac * width))
            bar = bar[:i_mark] + Text("┃", style="bold yellow") + bar[i_mark + 1 :]
        yield bar


def panel(status: JobStatus, now: Now, title: str, line: str = "", told: Row | None = None) -> Panel:
    """Draw the view of a job at `now`.

    * `title`: job, controller and actuator.
    * `line`: the line that the job is writing and has not ended yet: a progress bar of its own, for instance.
    * `told`: how the job stands; None: as `status` alone says.
    """
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(ratio=1)
    rows.add_row("", marked(standing(status, now) if told is None else told))
    rows.add_row("progress", Bar(status.done_frac or 0.0, status.line_frac(now.at)))
    for name, text in view_rows(status, now):
        rows.add_row(name, text)
    for warning in status.warnings.values():
        rows.add_row(Text("warning", style="bold red"), _text(warning, "red"))
    if line:
        rows.add_row("output", Text.from_ansi(line, no_wrap=True, overflow="ellipsis"))
    return Panel(rows, title=_text(title), title_align="left", border_style="dim")


def _text(words: str, style: str = "") -> Text:
    """Make text of words that others may have written."""
    return Text(visible(words), style=style)


def view_rows(status: JobStatus, now: Now) -> list[tuple[str, Text]]:
    """Return rows of labels and texts that describe the job at `now`."""
    return [
        ("", _text(_progress(status, now))),
        ("deadline", Text(_deadline(status, now))),
        ("grant", Text(_grant(status))),
        ("why", _text(status.reason.text if status.reason else "", "italic")),
    ]


def _progress(status: JobStatus, now: Now) -> str:
    if status.state == "stopping":
        return f"stopping ({status.cause})"
    if status.done_frac is None:
        return "no steps reported yet"
    text = f"{steps(status.steps_done, status.steps_total, status.steps_expected)}, {status.done_frac:.1%}"
    line_frac = status.line_frac(now.at)
    return text if line_frac is None else f"{text}; the line ┃ is at {line_frac:.1%}"


def _deadline(status: JobStatus, now: Now) -> str:
    if status.deadline_at is None:
        return "none: the job runs at its ceiling"
    left_s = status.deadline_at - now.at
    said = f"in {span(left_s)}" if left_s > 0 else f"{span(left_s)} ago"
    return f"{clock(now.wall_of(status.deadline_at))}, {said}"


def _grant(status: JobStatus) -> str:
    ceiling = status.spec.ceiling.cores
    used = f"{status.used_core_s:.1f} core-seconds used"
    workers = f"{counted(status.n_workers, 'worker')}, " if status.n_workers else ""
    return f"{workers}{status.held.cores:.2f} of {cores(ceiling)}, using {status.usage_cores:.2f}; {used}"


class View:
    """Panel on a terminal, redrawn twice a second; the job's output scrolls above it.

    `draw`: returns the text to show of an incomplete last line of the job; None: nothing yet.
    """

    def __init__(self, draw: Callable[[str], RenderableType | None], console: Console) -> None:
        self._draw_line = draw
        self._line = ""
        # Output comes in pieces that may end inside a character.
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._console = console
        # More than this costs CPU time that the job should have.
        self._live = Live(
            get_renderable=self._draw, console=console, refresh_per_second=2, transient=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()
        if self._line:
            self._console.print(Text.from_ansi(self._line))
            self._line = ""

    def write(self, output: bytes) -> None:
        """Show the job's output: whole lines above the panel, an incomplete line inside it."""
        *lines, rest = (self._line + self._decoder.decode(output)).replace("\r\n", "\n").split("\n")
        if lines:
            self._console.print(Text.from_ansi("\n".join(line.rpartition("\r")[2] for line in lines)), soft_wrap=True)
        self._line = rest.rstrip("\r").rpartition("\r")[2]

    def _draw(self) -> RenderableType:
        return self._draw_line(self._line) or Text("")
