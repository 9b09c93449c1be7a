"""Progress of a training, read from its output: text in, belief out.

Lines become templates, numbers that grow under one template are a series (`series`), series nest in those of epochs,
and the training's is chosen by its course over time (`choice`).
"""

import re
from dataclasses import dataclass, replace
from math import inf

from punctual.core.reason import Reason
from punctual.progress_text.choice import Assessment, Doubt, Judge
from punctual.progress_text.lines import LineSplitter, TextLine
from punctual.progress_text.mentions import LineReading, read_line
from punctual.progress_text.own import AUTO, OwnPattern
from punctual.progress_text.series import Series, SeriesTable

#: Limits of a line: the beginning and the end of a longer one are read, and an open one only while it may be a bar.
_LINE_BYTES_MAX, _OPEN_MAX = 16_384, 1024
#: A line takes some 0.1 ms to read. So many are read each second, in the long run, and so many at once.
_LINES_PER_S, _N_LINES_MAX = 100.0, 2000
#: After so many changes no total is believed, so that nothing is held back on a wrong one, nor told again and again.
_N_CHANGES_MAX = 5
_QUOTE_MAX = 60
_DIGIT = re.compile(r"\d")
_AT_FULL_SPEED = "the job goes on at full speed and its deadline is not worked towards"
_RAN_AT_FULL_SPEED = "the job ran at full speed and its deadline was not worked towards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Progress of the training by its output.

    Attributes
    ----------
    steps, total
        Numbers in the unit of the output; `total` is None if it is not known.
    is_sure
        Whether to act on it.
    """

    steps: float
    total: float | None
    is_sure: bool


#: After so many lines in which nothing is counted the user is told.
_N_UNREAD_MAX = 50

#: Codes of notices: the series that is read; the total is not known; another series is read from now on.
READ, NO_TOTAL, CHANGED = "progress-read", "no-total", "progress-changed"
#: The program ended before its count did; nothing is counted.
ENDED_EARLY, NO_PROGRESS = "ended-early", "no-progress"


class ProgressReader:
    """Reader of the output of one program.

    Parameters
    ----------
    deadline_s
        Seconds that the program may take; None without a deadline.
    steps_total
        Steps that the user has declared; None if the output is to say the total.
    steps_before
        Steps that were done before this reader began.
    pattern
        The user's own expression by which progress is read; `AUTO` or None: there is none.

    Raises
    ------
    InvalidSpec
        The pattern cannot be used.
    """

    def __init__(
        self,
        *,
        deadline_s: float | None = None,
        steps_total: float | None = None,
        steps_before: float = 0.0,
        pattern: str | None = None,
    ) -> None:
        self._own = None if pattern is None or pattern == AUTO else OwnPattern.of(pattern)
        self._table = SeriesTable()
        self._judge = Judge(self._table, deadline_s, steps_total)
        self._deadline_s, self._steps_total = inf if deadline_s is None else deadline_s, steps_total
        self._splitters: dict[int, LineSplitter] = {}
        self._chosen: Assessment | None = None
        #: Steps of loops that were over before the one that is read now.
        self._earlier_steps = 0.0
        self._steps_before = steps_before
        self._n_affordable, self._fed_at = float(_N_LINES_MAX), 0.0
        self._n_unread = 0
        self._told: set[str] = set()
        self._told_total: float | None = None
        self._n_changes = 0
        self._notices: list[Reason] = []

    @property
    def belief(self) -> Belief | None:
        """Progress by now; None if nothing is counted."""
        chosen = self._chosen
        if chosen is None:
            return None
        total = None if chosen.total is None else self._total_of(chosen)
        return Belief(steps=self._earlier_steps + chosen.steps, total=total, is_sure=chosen.is_sure)

    @property
    def chosen(self) -> Assessment | None:
        """The series behind the belief; None if nothing is counted."""
        return self._chosen

    @property
    def is_counted(self) -> bool:
        """Whether something was seen to be counted, be it all of the training or not."""
        chosen = self._chosen
        return chosen is not None and (chosen.is_sure or chosen.doubt is Doubt.PART)

    def assessed(self) -> list[tuple[Series, Assessment | None]]:
        """Return all series, each with its meaning as the training's; None where it cannot be that."""
        return [(series, self._judge.assess(series)) for series in self._table]

    def new_notices(self) -> list[Reason]:
        """Return the notices since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def feed(self, output: bytes, at: float, source: int = 0) -> bool:
        """Take in a piece of output of one stream, written at an instant in seconds.

        Returns
        -------
        bool
            Whether the belief has changed.
        """
        before = self.belief
        splitter = self._splitters.get(source)
        if splitter is None:
            # A user's expression is searched in a whole line, up to this length: that takes far less.
            splitter = LineSplitter(_LINE_BYTES_MAX if self._own is None else 1 << 20)
            self._splitters[source] = splitter
        for line in splitter.feed(output, self._n_affordable_at(at) if self._own is None else None):
            if self._take(line, at) if self._own is None else self._search(self._own, line, at):
                self._choose()
            if line.is_complete:
                self._count_unread(line.text)
        return self.belief != before

    def _take(self, line: TextLine, at: float) -> bool:
        """Take in a line; return whether it counts anything."""
        text, is_complete = line
        if not (is_complete or len(text) <= _OPEN_MAX) or not _DIGIT.search(text):
            return False
        self._n_affordable -= 1 + len(text) // 4096  # settings in one line take as long as several lines
        reading = read_line(text, is_complete=is_complete)
        return self._table.take(reading, text, at) if is_complete else self._table.take_open(reading, at)

    def _search(self, own: OwnPattern, line: TextLine, at: float) -> bool:
        """Take in the counts that the user's expression finds in a line; return whether there are any."""
        # A longer line is searched when it is complete: one that grows is not to be searched again with every piece.
        is_searched = line.is_complete or len(line.text) <= 4096
        mentions = own.mentions(line) if is_searched else ()
        return bool(mentions) and self._table.take(LineReading(mentions=mentions, is_result=True), line.text, at)

    def _n_affordable_at(self, at: float) -> int:
        """Return how many lines with numbers may be read by now: of a flood not all are, but the last one is."""
        self._n_affordable = min(
            _N_LINES_MAX, max(0.0, self._n_affordable) + _LINES_PER_S * max(0.0, at - self._fed_at)
        )
        self._fed_at = at
        return max(1, int(self._n_affordable))

    def _count_unread(self, text: str) -> None:
        self._n_unread += 1
        if self._n_unread != _N_UNREAD_MAX or self._chosen is not None:
            return
        lines = f"the first {_N_UNREAD_MAX} lines"
        if self._own is not None:
            self._say(
                NO_PROGRESS,
                f"`--progress-regex` fits none of {lines}, the last of which is {text.strip()[:80]!r}: how far the job is "
                "is not known, and it goes on at full speed; "
                "try the expression on a log of the program (`punctual read FILE --progress-regex ...`)",
            )
        elif self._deadline_s < inf:
            said = f"nothing is counted in {lines} of the output, the last of which is {text.strip()[:_QUOTE_MAX]!r}"
            self._say(NO_PROGRESS, f"{said}: until something is, the job goes on at full speed")

    def _choose(self) -> None:
        before = self._chosen
        chosen = self._judge.choose(None if before is None else before.series)
        if chosen is None:
            return
        if before is not None and before.is_sure and chosen.series is not before.series:
            self._change(before, chosen)
        if self._n_changes >= _N_CHANGES_MAX and self._steps_total is None:
            chosen = replace(chosen, total=None, doubt=Doubt.CHANGES)
        self._chosen = chosen
        if self._steps_before and chosen.is_sure:
            self._go_on(chosen)
        self._tell(chosen)

    def _change(self, before: Assessment, chosen: Assessment) -> None:
        """Pass on to another series: the next loop of the training, or the right series at last."""
        is_after = before.series.last_line < chosen.series.first_line
        is_like = before.is_done or chosen.series.unit <= before.series.unit  # no epochs of what was counted before
        is_next = before.is_trained and before.series.n_grown > 0 and chosen.is_trained and is_after and is_like
        if is_next:
            is_phase = before.series.outer is not None and chosen.series.is_within(before.series.outer.series)
            ended = before.total if before.is_done and self._steps_total is None and not is_phase else None
            self._earlier_steps += before.steps if ended is None else ended
            if is_phase:  # those before are counted with the new one as well, as if they had its length
                self._earlier_steps -= chosen.steps - chosen.series.done
            text = f"another loop has begun: {_quoted(chosen.series)} is counted beside the {before.steps:.12g} steps before it"
        else:
            self._earlier_steps = 0.0
            text = (
                f"progress was read from {_quoted(before.series)}, which was not all of the training; it is read from "
                f"{_quoted(chosen.series)} now"
            )
        if before.has_total:  # otherwise nothing was planned with it
            self._tell_change(chosen, text)

    def _go_on(self, chosen: Assessment) -> None:
        """Go on from the count of an earlier reader, where the output only counts the steps since."""
        series = chosen.series
        if not series.is_nested and chosen.steps < self._steps_before and series.known_total:
            n_laps = round((self._steps_before - chosen.steps) / series.known_total)
            self._earlier_steps = float(n_laps * series.known_total)
        self._steps_before = 0.0

    def doubt(self) -> str:
        """Return why the total is not known, with a remedy; empty if it is known, or nothing is counted."""
        chosen = self._chosen
        return "" if chosen is None or chosen.has_total else _told_doubt(chosen, self._steps_total, _AT_FULL_SPEED)

    def shortfall(self) -> Reason | None:
        """Return a notice of steps missing at the end of a program that succeeded; None if none are, but unprinted ones.

        Where the number of all steps is not known, and nobody was told, it is a notice of that.
        """
        chosen = self._chosen
        if chosen is None or not self.is_counted:
            return None
        if not chosen.has_total:
            text = _told_doubt(chosen, self._steps_total, _RAN_AT_FULL_SPEED)
            is_told = NO_TOTAL in self._told or self._told_total is not None
            return None if is_told else Reason(NO_TOTAL, text)
        assert chosen.total is not None
        if chosen.total - chosen.steps <= max(chosen.series.increment, 1):
            return None
        belief = self.belief
        assert belief is not None
        text = (
            f"the output counted to {belief.steps:.12g} of {belief.total:.12g} steps and the program has ended with success: it has "
            "stopped early, or the rest was not printed"
        )
        return Reason(ENDED_EARLY, text)

    # Notices.

    def _tell(self, chosen: Assessment) -> None:
        series, doubt = chosen.series, chosen.doubt
        if chosen.has_total:
            if self._told_total is None:
                self._told_total = self._total_of(chosen)
                self._say(READ, self._in_all(chosen))
            elif abs(self._total_of(chosen) - self._told_total) > 0.05 * self._told_total:
                # A total that changes by more than a twentieth is told anew.
                self._tell_change(chosen, f"{self._in_all(chosen)}; it was read as {self._told_total:.12g} before")
            return
        # A doubt is told once a count has lasted for this share of the deadline, and was seen to grow so often: it may
        # be dispelled.
        has_lasted = series.last_at - series.first_at >= 0.05 * self._deadline_s
        is_seen = has_lasted or series.n_laps > 0 or doubt in {Doubt.EXCEEDED, Doubt.CHANGES}
        if is_seen and series.n_grown >= 3 and self.is_counted:
            self._say(NO_TOTAL, _told_doubt(chosen, self._steps_total, _AT_FULL_SPEED))

    def _tell_change(self, chosen: Assessment, text: str) -> None:
        self._told_total = self._total_of(chosen) if chosen.has_total else self._told_total
        self._n_changes += 1
        self._say(CHANGED if self._n_changes == 1 else f"{CHANGED}-{self._n_changes}", text)

    def _total_of(self, chosen: Assessment) -> float:
        return (chosen.total or 0.0) + (self._earlier_steps if self._steps_total is None else 0.0)

    def _in_all(self, chosen: Assessment) -> str:
        series = chosen.series
        n_epochs = chosen.n_epochs or 1
        parts = f", {n_epochs} times {series.known_total}" if n_epochs > 1 and series.known_total else ""
        total = self._total_of(chosen)
        unit = series.mention.family if series.mention.is_fraction else "step" if total == 1 else "steps"
        return f"{total:.12g} {unit} in all{parts}, as in {_quoted(series)}"

    def _say(self, code: str, text: str) -> None:
        if code not in self._told:
            self._told.add(code)
            self._notices.append(Reason(code, text))


def _told_doubt(chosen: Assessment, declared: float | None, effect: str) -> str:
    series, length = chosen.series, chosen.series.known_total
    remedy = "give the steps of the whole job (`--steps N`)"
    match chosen.doubt:
        case Doubt.EPOCHS if length:
            said = f"an epoch has {length} steps, and the output does not say how many epochs there are"
        case Doubt.RESTARTS if length:
            said = f"the count has begun again after {length}, and the output does not say how often it will"
        case Doubt.PART:
            said = f"a count up to {length} that takes less than a sixth of the deadline may be one part of several, as an epoch is"
            remedy = f"if it is all, start the job with `--steps {length}`; else with the steps of all parts"
        case Doubt.EXCEEDED:
            said = "the count has gone beyond its total, which is not believed any more"
        case Doubt.CHANGES:
            said = f"the total has changed {_N_CHANGES_MAX} times and is not believed any more"
        case Doubt.UNITS:
            said = f"`--steps {declared:.12g}` cannot be right: the output counts up to {length}"
            remedy = "give the steps of the whole job as the output counts them"
        case _:
            said = "the output counts and does not say how many steps there are"
    return f"{said} ({_quoted(series)}), so {effect}; {remedy}"


def _quoted(series: Series) -> str:
    text = " ".join(series.quote.split())
    return f"'{text[:_QUOTE_MAX]}…'" if len(text) > _QUOTE_MAX else f"'{text}'"
