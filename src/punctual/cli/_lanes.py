"""Lanes: each job's time from its submission to its landing, on one axis for all, as the page's timeline has them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from math import ceil, inf, isfinite
from typing import Any, cast

from rich.text import Text

from punctual.cli._words import visible
from punctual.core.units import DAY_S, HOUR_S, MINUTE_S
from punctual.core.verdict import JobKind
from punctual.history.judge import OVER, attention, figures

#: A job as `punctual.daemon.status_reader.standing` encodes it.
Row = Mapping[str, Any]

#: Mark of each kind, its style, and its name in the legend; kinds differ without colours too.
_MARKS: Mapping[JobKind, tuple[str, str, str]] = {
    "late": ("✖", "bold red", "late"),
    "risk": ("▲", "yellow", "at risk"),
    "good": ("●", "green", "on track"),
    "measuring": ("◌", "cyan", "measuring"),
    "free": ("○", "cyan", "no deadline"),
    "waiting": ("…", "dim", "waiting"),
    "paused": ("‖", "dim", "paused"),
    "met": ("✔", "green", "met"),
    "missed": ("✘", "red", "missed"),
    "done": ("✓", "dim", "done"),
    "failed": ("!", "red", "failed"),
    "stopped": ("■", "dim", "stopped"),
}
#: A job of which only the state is known: its daemon does not answer.
_UNKNOWN = ("·", "dim", "not known")

#: What lanes are made of: time of waiting, time from now to the landing and from the start to now, the forecast's interval,
#: the expected start of a job that waits, the deadline, the same beyond the end of the axis, and now.
_WAIT, _LEFT, _GONE, _BAND, _START, _FLAG, _BEYOND, _NOW = "·─━▒├⚑▸│"

#: Times behind this, in seconds of the wall clock, are beyond the calendar.
_LAST_S = 2.5e11
#: Spans of a clock that people count in, in seconds.
_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(n * MINUTE_S for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR_S for n in (1, 2, 3, 6, 12)),
    *(n * DAY_S for n in (1, 2, 7, 14, 28, 91, 365)),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """Times from one to another, in seconds of the wall clock, with a label at each `step_s`."""

    from_s: float
    to_s: float
    step_s: float


class Lanes:
    """Draws jobs at one moment.

    * `rows`: the jobs; of those without a `kind`, whose daemon does not answer, the state is shown alone.
    * `width`: width of the terminal, in characters.
    """

    def __init__(self, rows: Sequence[Row], now: datetime, width: int) -> None:
        self._now, self._width = now, width
        self.rows = sorted(rows, key=_by_attention)
        self._is_wide = width >= 64  # else a lane stands under its job's name
        self._n_name = max([len(str(row["job"])) for row in rows], default=0)
        self._n_name = min(self._n_name, 24, max(12, int(0.22 * width)))
        self._n_phrase = min(44, int(0.36 * width)) if self._is_wide else 0
        n_beside = 2 + self._n_name + 1 + 1 + self._n_phrase if self._is_wide else 2
        self._n_lane = max(8, width - n_beside)
        self._axis = _axis_of(
            self.rows, now.timestamp(), max(2, self._n_lane // 10)
        )  # so many characters a label takes

    def figures(self) -> list[Text]:
        """Return the figures of all jobs, today's ended ones among them: how many stand how, and who holds the cores."""
        today = self._now.date()
        kinds = [
            row["kind"]
            for row in self.rows
            if "kind" in row and (not _is_over(row) or _day(_at(row, _end_s(row))) == today)
        ]
        parts = [
            Text(f"{_MARKS[kind][0]} {text}", "dim" if text.startswith("0 ") else _MARKS[kind][1])
            for kind, text in figures(kinds)
        ]
        return _filled([*parts, *map(Text, self._cores())], self._width, "   ")

    def lines(self) -> list[Text]:
        """Return the axis and each job's lane."""
        if not self.rows:
            return []
        return [self._head(), *(line for row in self.rows for line in self._job(row))]

    @property
    def n_lines_each(self) -> int:
        """Number of lines of one job."""
        return 1 if self._is_wide else 2

    def legend(self) -> list[Text]:
        """Return the meaning of the marks that are shown."""
        marks = dict.fromkeys(_mark_of(row) for row in self.rows)
        named = [Text(f"{mark} {name}", style) for mark, style, name in marks]
        of_lanes = [
            f"{_GONE} so far",
            f"{_LEFT} until it lands",
            f"{_BAND} lands within",
            f"{_FLAG} deadline",
            f"{_START} starts",
        ]
        return _filled([*named, *(Text(text, "dim") for text in of_lanes)], self._width, "  ") if self.rows else []

    def _cores(self) -> list[str]:
        hosts = {row["host"]: float(row["host_cores"]) for row in self.rows if "host" in row}
        holds = [(float(row["grant_cores"]), row.get("promised_until_wall")) for row in self.rows if "host" in row]
        if not hosts:
            return []
        promised = sum(cores for cores, until in holds if until is not None)
        named = f", {promised:.2g} promised" if promised else ""
        return [f"{sum(cores for cores, _ in holds):.2g} of {sum(hosts.values()):g} cores held{named}"]

    def _head(self) -> Text:
        """Return the axis: labels at round times, and *now*."""
        cells, axis = [" "] * self._n_lane, self._axis
        i_now = self._cell(self._now.timestamp())

        def write(i: int, label: str) -> None:
            begin = min(max(0, i - len(label) // 2), self._n_lane - len(label))
            if begin >= 0 and all(cell == " " for cell in cells[max(0, begin - 1) : begin + len(label) + 1]):
                cells[begin : begin + len(label)] = label

        write(i_now, "now")
        form = "%d %b" if axis.step_s >= DAY_S else "%H:%M" if axis.step_s >= MINUTE_S else "%H:%M:%S"
        at = axis.from_s + axis.step_s
        while at < axis.to_s and at < _LAST_S:
            write(self._cell(at), datetime.fromtimestamp(at).strftime(form))  # noqa: DTZ006 -- for the reader's clock
            at += axis.step_s
        return Text(" " * (2 + (self._n_name + 1 if self._is_wide else 0)) + "".join(cells).rstrip(), "dim")

    def _job(self, row: Row) -> list[Text]:
        mark, style, _ = _mark_of(row)
        begin = Text(f"{mark} ", style)
        name, phrase = visible(str(row["job"])), visible(str(row["phrase"] if "kind" in row else row["state"]))
        if self._is_wide:
            line = begin + Text(f"{_cut(name, self._n_name):<{self._n_name}} ") + self._lane(row)
            return [line + Text(" " + _cut_end(phrase, self._n_phrase), style if style != "dim" else "")]
        n_name = max(8, self._width - 3 - len(phrase))
        first = begin + Text(_cut(name, n_name) + " ")
        return [first + Text(_cut_end(phrase, self._width - len(first)), style), Text("  ") + self._lane(row)]

    def _lane(self, row: Row) -> Text:
        cells = [(" ", "")] * self._n_lane
        if "kind" in row:
            self._draw(row, cells)
        i_now, deadline = self._cell(self._now.timestamp()), _at(row, row.get("deadline_s"))
        if i_now < self._n_lane and cells[i_now][0] in (" ", _LEFT, _WAIT):
            cells[i_now] = (_NOW, "dim")
        i = -1 if deadline is None else self._cell(deadline)
        if i >= 0:
            cells[min(i, self._n_lane - 1)] = (_FLAG if i < self._n_lane else _BEYOND, "bold")
        return Text.assemble(*cells)

    def _draw(self, row: Row, cells: list[tuple[str, str]]) -> None:
        """Draw the time for which the job waits, its bar, which is solid up to now, and where it lands."""

        def fill(from_s: float | None, to_s: float | None, sign: str, style: str) -> None:
            if from_s is not None and to_s is not None:
                for i in range(max(0, self._cell(from_s)), min(self._n_lane, self._cell(to_s) + 1)):
                    cells[i] = (sign, style)

        style, submitted, started = _mark_of(row)[1], _at(row, 0.0), _at(row, row.get("started_s"))
        starts, lands = _at(row, row.get("starts_s")), _at(row, row.get("lands_s"))
        if _is_over(row):
            begin = started or submitted
            fill(begin, _at(row, _end_s(row)), _GONE, style)
            return
        fill(submitted, started or starts or inf, _WAIT, "dim")
        fill(starts, starts, _START, style)
        fill(started, self._now.timestamp(), _GONE, style)
        fill(self._now.timestamp(), lands, _LEFT, "dim")
        fill(_at(row, row.get("lands_low_s")), _at(row, row.get("lands_high_s")), _BAND, style)

    def _cell(self, at_s: float) -> int:
        """Index of the cell of a time, not far beyond the ends."""
        axis = self._axis
        frac = (at_s - axis.from_s) / (axis.to_s - axis.from_s)
        return int(min(2.0, max(-1.0, frac)) * self._n_lane)


def marked(row: Row) -> Text:
    """Return the job's headline with its mark, in its style."""
    return Text(f"{_mark_of(row)[0]} {visible(str(row['headline']))}", _mark_of(row)[1])


def fold_ended(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Return the rows without the ended jobs, if there are more than a few beside open ones; and how many those are."""
    n_ended = sum(_is_over(row) for row in rows)
    if n_ended <= 3 or n_ended == len(rows):
        return list(rows), 0
    return [row for row in rows if not _is_over(row)], n_ended


def _axis_of(rows: Iterable[Row], now_s: float, n_spans: int) -> Axis:
    """Return what the lanes show of time: the same for some while, so that most of them stay as they are."""
    jobs = [row for row in rows if "kind" in row]
    shown = [row for row in jobs if not _is_over(row)] or jobs
    ends = (max(_at(row, row.get("deadline_s")) or 0.0, _at(row, row.get("lands_s")) or 0.0) - now_s for row in shown)
    ahead = sorted(end for end in ends if 0 < end < _LAST_S)
    begins = [begin for row in shown if (begin := _at(row, row.get("started_s")) or _at(row, 0.0)) is not None]
    past = now_s - min([now_s - 10.0, *begins])
    # One that is due far later than the others does not press them together.
    future = min(ahead[-1], 3 * ahead[len(ahead) // 2]) if ahead else past / 8
    before = min(past, future) if ahead else past
    step_s = next((step for step in _STEPS_S if step * n_spans >= before + future), 0.0)
    step_s = step_s or ceil((before + future) / n_spans / _STEPS_S[-1]) * _STEPS_S[-1]
    return Axis(_round_down(now_s - before, step_s), _round_down(now_s + 1.05 * future, step_s) + step_s, step_s)


def _round_down(at_s: float, step_s: float) -> float:
    """Return the last round time that is not after this one, by the reader's clock."""
    offset = datetime.fromtimestamp(min(at_s, _LAST_S)).astimezone().utcoffset()
    offset_s = 0.0 if offset is None else offset.total_seconds()
    return (at_s + offset_s) // step_s * step_s - offset_s


def _mark_of(row: Row) -> tuple[str, str, str]:
    return _MARKS[cast(JobKind, row["kind"])] if "kind" in row else _UNKNOWN


def _is_over(row: Row) -> bool:
    return row.get("kind") in OVER


def _end_s(row: Row) -> float:
    """Seconds from a job's submission to its end, as far as it was written down."""
    ends = (row.get("landed_s"), row.get("elapsed_s"))
    return next((float(end) for end in ends if end is not None), 0.0)


def _day(at_s: float | None) -> date | None:
    return None if at_s is None or at_s > _LAST_S else datetime.fromtimestamp(at_s).astimezone().date()


def _at(row: Row, seconds: float | None) -> float | None:
    """Return the time so long after the job's submission, in seconds of the wall clock; None: not known."""
    begun = row.get("submitted_wall")
    if seconds is None or begun is None or not isfinite(seconds):
        return None
    return datetime.fromisoformat(begun).timestamp() + seconds


def _by_attention(row: Row) -> tuple[float, ...]:
    if "kind" not in row:
        return (-1.0,)
    if _is_over(row):
        ended = _at(row, _end_s(row)) or 0.0
        return (attention(row["kind"]), -ended)
    deadline, submitted = _at(row, row.get("deadline_s")), _at(row, 0.0)
    starts = _at(row, row.get("starts_s"))
    may_be_on_time = deadline is None or starts is None or starts < deadline
    return (attention(row["kind"]), may_be_on_time, inf if deadline is None else deadline, submitted or 0.0)


def _cut(name: str, n_characters: int) -> str:
    """Cut a name in its middle: names often differ in their ends alone."""
    if len(name) <= n_characters:
        return name
    n_last = (n_characters - 1) // 2
    return f"{name[: n_characters - 1 - n_last]}…{name[len(name) - n_last :]}"


def _cut_end(text: str, n_characters: int) -> str:
    return text if len(text) <= n_characters else f"{text[: max(0, n_characters - 1)].rstrip()}…"


def _filled(parts: Sequence[Text], width: int, gap: str) -> list[Text]:
    """Put texts beside one another, as many on a line as fit."""
    lines: list[Text] = []
    for part in parts:
        if lines and len(lines[-1]) + len(gap) + len(part) <= width:
            lines[-1] = lines[-1] + Text(gap) + part
        else:
            lines.append(part)
    return lines
