"""The live view: a small panel under the job's own output."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from punctual.cli._words import against_deadline, clock, cores, early_or_late, short, steps, visible
from punctual.core.status import JobStatus
from punctual.request.deadlines import Now

#: More than this costs CPU time that the job should have.
REFRESHES_PER_S = 2
#: Smallest uncertainty shown of a forecast, in seconds: its data are this old when they are read.
_SURE_S = 0.1
#: Width from which the table of several jobs has wide gaps.
_WIDE = 90
#: Characters of a name that are always shown.
_NAME_LEAST = 12
#: Columns of the table, and what they hold as a rule, in characters: columns that move from second to second are hard to read.
_NUMBERS = {"done": len("100%"), "grant": len("10.00"), "left": len("59m59s")}


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


def panel(status: JobStatus, now: Now, title: str, line: str = "") -> Panel:
    """Draw the view of a job at `now`.

    Parameters
    ----------
    title
        Job, controller and actuator.
    line
        The line that the job is writing and has not ended yet: a progress bar of its own, for instance.
    """
    rows = Table.grid(padding=(0, 2), expand=True)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(ratio=1)
    rows.add_row("progress", Bar(status.done_frac or 0.0, status.line_frac(now.at)))
    for name, text in view_rows(status, now):
        rows.add_row(name, text)
    for warning in status.warnings.values():
        rows.add_row(Text("warning", style="bold red"), _text(warning, "red"))
    if line:
        rows.add_row("output", Text.from_ansi(line, no_wrap=True, overflow="ellipsis"))
    return Panel(rows, title=_text(title), title_align="left", border_style="dim")


def table(jobs: Sequence[JobStatus], now: Now, width: int) -> Table:
    """Draw the view of several jobs at `now`: a line for each, as wide as the terminal.

    Parameters
    ----------
    width
        Width of the terminal, in characters; if it is narrow, names are cut in the middle.
    """
    lines = Table(box=None, padding=(0, 2 if width >= _WIDE else 1, 0, 0), expand=True, header_style="dim")
    n_characters = max(_NAME_LEAST, width // 4)
    lines.add_column("job", no_wrap=True, width=min(n_characters, max(len(status.id) for status in jobs)))
    lines.add_column("", no_wrap=True, ratio=1)
    for title, n_least in _NUMBERS.items():
        lines.add_column(title, no_wrap=True, justify="right", min_width=n_least)
    lines.add_column("forecast", no_wrap=True, min_width=len("landed 1m09s early"))
    for status in jobs:
        left_s = None if status.deadline_at is None or status.ended else status.deadline_at - now.at
        lines.add_row(
            Text(_cut(visible(status.id), n_characters)),
            Bar(status.done_frac or 0.0, None if status.ended else status.line_frac(now.at)),
            "-" if status.done_frac is None else f"{status.done_frac:.0%}",
            _held(status),
            "-" if left_s is None else ("-" if left_s < 0 else "") + short(abs(left_s)),
            verdict(status),
        )
    return lines


def _text(words: str, style: str = "") -> Text:
    """Make text of words that others may have written."""
    return Text(visible(words), style=style)


def _cut(name: str, n_characters: int) -> str:
    """Cut `name` to at most so many characters; names often differ in their ends alone."""
    if len(name) <= n_characters:
        return name
    n_last = (n_characters - 1) // 2
    return f"{name[: n_characters - 1 - n_last]}…{name[-n_last:]}"


def _held(status: JobStatus) -> str:
    """Format cores, or workers of a job that has them."""
    if not status.held:
        return "-"
    if not status.n_workers:
        return f"{status.held.cores:.2f}"
    return f"{status.n_workers} worker{'s' * (status.n_workers != 1)}"


def verdict(status: JobStatus) -> Text:
    """Describe the landing, expected or done, against the deadline; or the job's state."""
    if status.state == "failed":
        return Text("failed", style="red")
    if status.state in ("stopping", "stopped", "turned away"):
        return Text(status.state, style="yellow" if status.ended else "")
    deadline_at, forecast = status.deadline_at, status.forecast
    if status.landed_at is not None:
        deviation_s = None if deadline_at is None else status.landed_at - deadline_at
        return Text(
            "landed" if deviation_s is None else f"landed {early_or_late(deviation_s)}", style=_style(deviation_s)
        )
    if forecast is None or status.spec.deadline_s is None:
        return Text(status.state, style="dim")
    deviation_s = forecast.finish_s - status.spec.deadline_s
    return Text(early_or_late(deviation_s), style="" if forecast.feasible else "red")


def _style(deviation_s: float | None) -> str:
    return "red" if deviation_s is not None and deviation_s > 0 else "green"


def view_rows(status: JobStatus, now: Now) -> list[tuple[str, Text]]:
    """Return rows of labels and texts that describe the job at `now`."""
    return [
        ("", _text(_progress(status, now))),
        ("deadline", Text(_deadline(status, now))),
        ("forecast", _forecast(status, now)),
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
    said = f"in {short(left_s)}" if left_s > 0 else f"{short(-left_s)} ago"
    return f"{clock(now.wall_of(status.deadline_at))}, {said}"


def _forecast(status: JobStatus, now: Now) -> Text:
    forecast = status.forecast
    if status.landed:
        return Text("landed: results are saved")
    if forecast is None:
        return Text("not known yet", style="dim")
    said = f"{clock(now.wall_of(status.submitted_at + forecast.finish_s))} ± {short(max(2 * forecast.std_s, _SURE_S))}"
    if status.spec.deadline_s is not None:
        said += f", {against_deadline(forecast.finish_s - status.spec.deadline_s)}"
    return Text(said, style="" if forecast.feasible else "red")


def _grant(status: JobStatus) -> str:
    ceiling = status.spec.ceiling.cores
    used = f"{status.used_core_s:.1f} core-seconds used"
    workers = f"{status.n_workers} workers, " if status.n_workers else ""
    return f"{workers}{status.held.cores:.2f} of {cores(ceiling)}, using {status.usage_cores:.2f}; {used}"


class View:
    """Panel on a terminal, redrawn twice a second; the job's output scrolls above it.

    Parameters
    ----------
    draw
        Returns the text to show of an incomplete last line of the job; None: nothing yet.
    """

    def __init__(self, draw: Callable[[str], RenderableType | None], console: Console) -> None:
        self._draw_line = draw
        self._line = ""
        # Output comes in pieces that may end inside a character.
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._console = console
        self._live = Live(
            get_renderable=self._draw, console=console, refresh_per_second=REFRESHES_PER_S, transient=True,
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
