"""The live view: a small panel under the job's own output."""

import re
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

#: Ends of lines, and movements of the cursor to lines that were drawn before.
_MOVES, _UP = re.compile(r"(\n|\r|\x1b\[\d{0,3}[AF]|\x1b\[2K)"), re.compile(r"\x1b\[(\d*)[AF]")
#: Lines that are kept in the panel at most.
_N_KEPT = 12


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

    Lines that a program may draw again, as it does with several bars, stay in the panel.

    `draw`: returns the text to show of the lines that the job has not ended yet; None: nothing yet.
    """

    def __init__(self, draw: Callable[[str], RenderableType | None], console: Console) -> None:
        self._draw_lines = draw
        #: Lines that are kept in the panel; index of that with the cursor, and whether the cursor is at its start.
        self._lines, self._i_line, self._is_at_start = [""], 0, False
        #: Number of lines by which the cursor went up: so many last lines may be drawn again.
        self._n_up = 0
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
        if text := self._text():
            self._console.print(Text.from_ansi(text))
            self._lines, self._i_line = [""], 0

    def write(self, output: bytes) -> None:
        """Show the job's output: lines that are done above the panel, others inside it."""
        for piece in filter(None, _MOVES.split(self._decoder.decode(output))):
            if piece == "\n":
                self._i_line += 1
                self._lines += [""] * (self._i_line == len(self._lines))
            elif piece == "\x1b[2K":
                self._lines[self._i_line] = ""
            elif up := _UP.fullmatch(piece):
                self._i_line -= min(int(up[1] or 1), _N_KEPT)
                self._lines[:0] = [""] * -self._i_line  # those are above the panel
                self._i_line = max(0, self._i_line)
                self._n_up = min(max(self._n_up, len(self._lines) - 1 - self._i_line), _N_KEPT)
            elif piece != "\r":
                # What is drawn at the start of a line takes its place.
                self._lines[self._i_line] = piece if self._is_at_start else self._lines[self._i_line] + piece
                self._is_at_start = False
            self._is_at_start = self._is_at_start or piece in "\r\n"
        n_done = min(len(self._lines) - 1 - self._n_up, self._i_line)
        if n_done > 0:
            self._console.print(Text.from_ansi("\n".join(self._lines[:n_done])), soft_wrap=True)
            self._lines, self._i_line = self._lines[n_done:], self._i_line - n_done

    def _text(self) -> str:
        return "\n".join(self._lines).rstrip()

    def _draw(self) -> RenderableType:
        return self._draw_lines(self._text()) or Text("")
