"""Numbers that grow under one template, and how they nest."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from punctual.progress_text.mentions import SHARE, LineReading, Mention, Role, Unit

#: A count that falls to at most this share of itself begins anew; one that falls by less was overtaken by another line.
_RESTART_FRAC = 0.5
#: Share of irregular increments above which a number is no count: counts mostly grow by the same amount.
_IRREGULAR_FRAC = 0.34
#: A line that is seen next is at most so many increments on.
_GAP_INCREMENTS = 3
#: A number that is called a total is a count if it has grown so often.
N_TOTAL_GROWN = 2
#: Families that a word may mean. Steps are no time steps: of these a model may have as many for each of its predictions.
_MEANT = {"ep": ("ep", "epoch", "episode"), "timestep": ("timestep", "step")}
#: A number that is not seen again within so many lines counts nothing by now.
_N_LINES_ALIVE = 8
_QUOTE_MAX = 120


@dataclass(slots=True, kw_only=True, eq=False)
class Series:
    """A count under one template.

    Attributes
    ----------
    mention
        The first mention.
    quote
        The last line with this count.
    first_line, last_line, first_at, last_at
        Line and instant of the first mention, and of the last movement.
    first, last
        First and last number.
    lap_first, lap_at
        Number and instant of the last beginning.
    total, companion
        Totals: beside the count, or under another name in the same line.
    length
        The greatest number of a lap that has ended.
    increment
        Last growth.
    first_increment
        First growth, or the first number if that is greater.
    active_s
        Seconds of growth.
    n_seen, n_grown, n_laps
        Numbers of mentions, movements and new beginnings; `n_irregular` and `n_fallen` count movements by another amount
        than the one before, and falls to another number than the first.
    is_exceeded
        Whether the count went beyond its total, which then is none.
    is_result, is_measured, is_bare
        Whether a line with the last number was one, whether any line was, and whether the last one was not; see
        `LineReading`.
    is_whole
        Whether the count goes over the whole training, by evidence beside its own lines.
    has_batches_beside
        Whether the same line counts batches.
    before_fall
        Number and laps before the last fall, while that may have been a line of another process.
    words_after, is_varied
        Words behind the last number, and whether they were others behind each number so far.
    """

    mention: Mention
    quote: str
    first_line: int
    first_at: float
    last_line: int = field(init=False)
    last_at: float = field(init=False)
    first: int = field(init=False)
    last: int = field(init=False)
    lap_first: int = field(init=False)
    lap_at: float = field(init=False)
    total: int | None = field(init=False)
    companion: int | None = None
    length: int = 0
    increment: int = 0
    first_increment: int = 0
    active_s: float = 0.0
    n_seen: int = 1
    n_grown: int = 0
    n_irregular: int = 0
    n_fallen: int = 0
    n_laps: int = 0
    is_exceeded: bool = False
    is_result: bool = False
    is_measured: bool = False
    is_bare: bool = False
    is_whole: bool = False
    has_batches_beside: bool = False
    outer: "Outer | None" = None
    before_fall: tuple[int, int] | None = None
    words_after: str = ""
    is_varied: bool = True

    def __post_init__(self) -> None:
        self.last_line, self.last_at, self.lap_at = self.first_line, self.first_at, self.first_at
        self.first = self.last = self.lap_first = self.mention.step
        self.total = self.mention.total
        self.is_exceeded = self.total is not None and self.last > self.total
        self.is_whole = self.mention.is_overall
        self.words_after = self.mention.words_after

    @property
    def unit(self) -> Unit:
        return self.mention.unit

    @property
    def role(self) -> Role:
        return self.mention.role

    @property
    def is_of_steps(self) -> bool:
        """Whether the count mostly goes over the whole training. Rounds do, unless something is counted within them."""
        return self.unit in {Unit.STEP, Unit.ROUND}

    @property
    def known_total(self) -> int | None:
        """Total by the lines of the count; None if they have none, or a wrong one."""
        total = self.total if self.total is not None else self.companion
        return None if self.is_exceeded or not total else total

    @property
    def is_complete(self) -> bool:
        return self.known_total is not None and self.last >= self.known_total

    @property
    def is_told_complete(self) -> bool:
        """Whether it is only told when it is complete, as far as is seen: ``Epoch 3: 60/60``."""
        return self.is_complete and not self.n_grown

    @property
    def is_name(self) -> bool:
        """Whether it is the number of one training, as far as is seen, and counts none: ``run 17``."""
        return self.unit is Unit.FOLD and self.known_total is None and self.first > 1 and not self.n_grown

    @property
    def counts_from_zero(self) -> bool:
        """Whether its numbers are indices from 0."""
        return self.first == 0 and not self.mention.is_bar

    @property
    def is_of_stages(self) -> bool:
        """Whether it numbers pieces of work of different kinds, as headings do: ``Step 2/3: building the model``."""
        has_heading = self.is_varied and (self.n_grown > 0 or bool(self.words_after))
        return has_heading and (self.is_bare or not self.is_measured) and not self.mention.is_own

    @property
    def is_regular(self) -> bool:
        return self.n_irregular <= _IRREGULAR_FRAC * self.n_grown

    @property
    def is_constant(self) -> bool:
        """Whether a number without a total stays as it is: a setting, or the number of a process."""
        return self.known_total is None and not self.n_grown and self.n_seen > 1

    @property
    def counts_down(self) -> bool:
        """Whether it has fallen each time that it moved."""
        return self.n_laps == self.n_grown >= 2

    @property
    def is_measure(self) -> bool:
        """Whether the number goes up and down by any amount, as a speed does, or the use of memory."""
        is_of_many = self.mention.total is not None and self.mention.family != SHARE
        return self.n_fallen > _IRREGULAR_FRAC * self.n_grown and not self.is_regular and not is_of_many

    @property
    def done(self) -> int:
        """Steps of this lap that are done: one more than the index in a line with results."""
        is_more = self.counts_from_zero and self.is_result and self.increment == 1 and not self.is_complete
        return self.last + is_more

    @property
    def lap_length(self) -> int:
        return self.known_total or max(self.length, self.last)

    @property
    def is_nested(self) -> bool:
        """Whether the count begins anew when the series around it grows."""
        outer = self.outer
        if outer is None or self.is_whole or outer.series.is_name or outer.n_passed > outer.n_restarts:
            return False
        if outer.n_restarts or not outer.is_before:
            return outer.n_restarts > 0
        # Not seen yet. Steps without a total mostly go on, and so do those beside batches, and those told before an epoch of
        # nobody knows how many, or beside a round of such.
        is_aside = outer.is_behind or (outer.is_beside and outer.series.unit is Unit.ROUND)
        goes_on = self.total is None or self.has_batches_beside or (is_aside and not outer.series.known_total)
        return not self.is_of_steps or not goes_on

    @property
    def moves_with_epoch(self) -> bool:
        """Whether a count with an epoch in its line only ever moved together with that: it is a value of the epoch."""
        outer = self.outer
        if outer is None or not outer.is_beside or self.mention.is_bar:
            return False
        return outer.n_restarts + outer.n_passed > 0 and not outer.n_within

    def is_within(self, other: "Series") -> bool:
        """Return whether `other` is around it, or around a series that is."""
        outer = self.outer
        return outer is not None and (outer.series is other or outer.series.is_within(other))

    def goes_on_at(self, step: int) -> bool:
        """Return whether `step` is near enough to be the next number."""
        return 0 < step - self.last <= max(_GAP_INCREMENTS * self.increment, 1)

    def see(self, mention: Mention, i_line: int, at: float, *, is_result: bool) -> bool:
        """Take in a mention; return whether the count has moved."""
        step, before = mention.step, self.last
        self.n_seen += 1
        if step != before:
            self.is_varied = self.is_varied and mention.words_after != self.words_after
            self.words_after = mention.words_after
        if mention.total is not None:
            # What was reached and moves on, as in `2/2`, `3/3`, is no total.
            self.is_exceeded = self.is_exceeded or (self.is_complete and step >= before and mention.total > before)
            self.total = mention.total
        if mention.is_total and step < before and self.n_grown < N_TOTAL_GROWN:  # said anew, of something else
            self.last = step
            return False
        begins_anew = step < before and (step <= _RESTART_FRAC * before or step <= self.lap_first)
        if step == before or (step < before and not begins_anew):
            self.n_fallen += step < before
            self.is_result = self.is_result or (is_result and step == before)
            return False
        if begins_anew:
            self.before_fall = before, self.n_laps
            self.n_fallen += step != self.lap_first
            self.n_laps += 1
            self.length = max(self.length, before)
            self.lap_first, self.lap_at = step, at
        else:
            self._grow(step - before)
            self.active_s += at - self.last_at
        self.last, self.last_line, self.last_at = step, i_line, at
        self.is_result = is_result
        self.n_grown += 1
        self.is_exceeded = self.is_exceeded or (self.total is not None and step > self.total)
        return True

    def _grow(self, increment: int) -> None:
        if self.before_fall is not None and self.last + increment > self.before_fall[0]:
            # It has not begun anew: a line of another process was between, which is not as far.
            self.n_laps = self.before_fall[1]
        else:
            if self.n_grown == 0:
                self.first_increment = max(increment, self.first)
            self.n_irregular += self.n_grown > 1 and increment != self.increment
            self.increment = increment
        self.before_fall = None


@dataclass(slots=True, kw_only=True)
class Outer:
    """The series around an inner one, mostly of epochs, as the inner one sees it.

    Attributes
    ----------
    step, n_laps, n_around
        Number and laps of the outer series at the last mention of the inner one, and the laps that had ended around it.
    is_beside
        Whether both are in one line.
    is_behind
        Whether the outer count comes after the inner one in that line.
    is_before
        Whether an epoch is told before its steps or with them, not only after them.
    is_found
        Whether the series around was found by its movement alone.
    inner_step, inner_laps
        Number and laps of the inner series when it was noted last, and at the last change of the outer one.
    n_restarts, n_passed
        How often the inner series began anew with a new epoch, and how often it went on.
    n_within
        How often it moved while the outer one did not.
    laps_each
        How often the inner series goes from its beginning to its end within one number of the outer one: once, or for each
        client of a round.
    laps_earlier
        Laps of the inner series in a loop of epochs that was over when this one began.
    """

    series: Series
    inner_step: int
    inner_laps: int
    step: int = 0
    n_laps: int = 0
    is_beside: bool = False
    is_behind: bool = False
    is_before: bool = True
    is_found: bool = False
    n_around: int = 0
    n_restarts: int = 0
    n_passed: int = 0
    n_within: int = 0
    laps_each: int = 0
    laps_earlier: int = 0

    @property
    def has_moved(self) -> bool:
        """Whether the outer series has moved since the last mention of the inner one."""
        return (self.n_laps, self.step) != (self.series.n_laps, self.series.last)

    @property
    def n_before(self) -> int:
        """Laps of the outer series that have ended since it began anew."""
        if not self.is_before:
            return self.step - self.series.first + 1
        return max(0, self.step - (self.series.first != 0))

    def is_over_before(self, other: Series) -> bool:
        """Return whether these epochs were all told, before they were done, when the `other` ones began."""
        return self.is_before and self.series.is_complete and other.first_line > self.series.last_line

    def follow(self, inner: Series) -> None:
        """Note the state of both series, after a mention of the inner one."""
        has_changed = self.has_moved
        self.n_within += not has_changed and inner.last != self.inner_step
        if not has_changed or self.judge(inner):
            self.note(inner)

    def note(self, inner: Series) -> None:
        """Note the state of both series."""
        self.step, self.n_laps = self.series.last, self.series.n_laps
        self.n_around = 0 if self.series.outer is None else self.series.outer.n_before
        self.inner_step = inner.last

    def judge(self, inner: Series) -> bool:
        """Note how the inner series moved since the outer one did; return whether that is clear."""
        has_restarted, moved = inner.n_laps > self.inner_laps, inner.last - self.inner_step
        if moved == 0 and not has_restarted and inner.mention.is_bar:  # a bar is drawn again as it was
            return False
        self.n_restarts += has_restarted or moved < 0 or (moved == 0 and not self.n_passed)
        self.n_passed += not has_restarted and moved > 0
        laps = max(1, inner.n_laps - self.inner_laps)
        self.laps_each = min(self.laps_each or laps, laps)
        self.inner_laps = inner.n_laps
        return True


class SeriesTable:
    """All series of one output.

    Attributes
    ----------
    n_lines
        Number of lines with numbers.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], Series] = {}
        #: The same by their first mentions; empty until it is asked for.
        self._in_order: list[Series] = []
        #: The last series that others are in and that has lines of its own, by its unit.
        self._around: dict[Unit, Series] = {}
        #: Values of other counts when a count began anew.
        self._at_restart: dict[Series, dict[Series, int]] = {}
        #: Series that announced a total, the last one first.
        self._stated: list[Series] = []
        #: The same of each epoch.
        self._stated_laps: list[Series] = []
        self.n_lines = 0

    def __iter__(self) -> Iterator[Series]:
        """Iterate in the order of the first mentions."""
        if not self._in_order:
            self._in_order = sorted(dict.fromkeys(self._by_key.values()), key=lambda series: series.first_line)
        return iter(self._in_order)

    def is_alive(self, series: Series) -> bool:
        """Return whether a number was seen again, or just now."""
        return series.n_seen > 1 or series.last_line > self.n_lines - _N_LINES_ALIVE

    def stated(self, family: str, least: int, counted: Series) -> int | None:
        """Return the total of a family that a line announced before the `counted` series; None if none did, or below `least`."""
        families = _MEANT.get(family, (family,))
        said = [series for series in self._announced(counted) if series.mention.family in families]
        # A number with which the count itself begins is how often it is told.
        said = [series for series in said if series.last >= max(least, 2) and series.last != counted.first]
        of_all = [series.last for series in said if not series.mention.is_qualified]
        # Of totals that may be of parts, one that others contradict is none.
        of_parts = {series.last for series in said}
        return of_all[0] if of_all else of_parts.pop() if len(of_parts) == 1 else None

    def stated_lap(self, counted: Series) -> int | None:
        """Return how many of the counted a line announced for each epoch; None if none did."""
        family = counted.mention.family
        said = (series for series in self._stated_laps if series.mention.family == family and not series.n_grown)
        return next((series.last for series in said if series.first_line < counted.first_line), None)

    def only_stated(self, counted: Series) -> int | None:
        """Return the only total that was announced before a count without a name; None if there are others."""
        said = {
            series.last
            for series in self._announced(counted)
            if series.unit in {Unit.STEP, Unit.EPOCH, Unit.ROUND} and series.last > 1
        }
        total = said.pop() if len(said) == 1 else None
        return None if total is None or total < max(counted.last, 2) else total

    def n_epochs_stated(self, counted: Series) -> int | None:
        """Return the number of epochs that a line announced before the `counted` series, be it one; None if none did."""
        return next((series.last for series in self._announced(counted) if series.unit is Unit.EPOCH), None)

    def is_stated(self, total: int, counted: Series) -> bool:
        """Return whether a line announced so many steps before the `counted` series."""
        return any(series.last == total for series in self._announced(counted) if series.is_of_steps)

    def _announced(self, counted: Series) -> Iterator[Series]:
        return (series for series in self._stated if not series.n_grown and series.first_line <= counted.first_line)

    def take(self, reading: LineReading, text: str, at: float) -> bool:
        """Take in a complete line; return whether it counts anything."""
        self.n_lines += 1
        seen = [(mention, *self._seen(mention, reading, text, at)) for mention in reading.mentions]
        # The first of a line is the present one, another may be the best of all; one without a total may count something else.
        in_order = sorted(seen, key=lambda each: each[0].total is None)
        beside = {
            mention.unit: series
            for mention, series, _ in reversed(in_order)
            if mention.is_outer and not _is_told_again(series, self._around.get(mention.unit))
        }
        units = [mention.unit for mention in reading.mentions]
        has_batches = any(mention.unit is Unit.BATCH and mention.total is not None for mention in reading.mentions)
        for mention, series, moved in seen:
            series.has_batches_beside = series.has_batches_beside or has_batches
            is_behind = any(unit >= Unit.EPOCH for unit in units[units.index(mention.unit) + 1 :])
            self._link(series, moved, beside, is_behind=is_behind)
            if moved < 0 and mention.total is not None:
                self._nest(series)
            if mention.is_total and mention.role is not Role.OTHER:
                self._state(series, reading.mentions)
        _name_totals(seen)
        if all(mention.is_outer or mention.is_total for mention in reading.mentions):
            self._around |= {unit: series for unit, series in beside.items() if series.role is not Role.OTHER}
        return bool(seen)

    def take_open(self, reading: LineReading, at: float) -> bool:
        """Take in a line that may go on, as a bar does; return whether it moved counts that are known."""
        known = [(mention, self._by_key.get(mention.key)) for mention in reading.mentions]
        if any(series is None or mention.step < series.last for mention, series in known):
            return False
        moved = [
            series.see(mention, self.n_lines, at, is_result=reading.is_result)
            for mention, series in known
            if series is not None and (not series.increment or series.goes_on_at(mention.step))
        ]
        return any(moved)

    def _seen(self, mention: Mention, reading: LineReading, text: str, at: float) -> tuple[Series, int]:
        """Return the series of a mention, which is taken in, and how far it moved."""
        series = self._find(mention)
        moved = 1
        if series is None:
            series = Series(
                mention=mention,
                quote=text[:_QUOTE_MAX],
                first_line=self.n_lines,
                first_at=at,
                is_result=reading.is_result,
            )
        else:
            before = series.last
            has_moved = series.see(mention, self.n_lines, at, is_result=reading.is_result)
            moved = series.last - before if has_moved else 0
            series.quote = text[:_QUOTE_MAX]
        is_new = self._by_key.pop(mention.key, None) is None
        self._by_key[mention.key] = series
        if is_new:
            self._in_order = []
        if len(self._by_key) > 64:
            # What was seen longest ago is forgotten, and first of all what was seen once.
            once = (
                key
                for key, other in self._by_key.items()
                if other.n_seen == 1 and not (other.mention.is_total or other.mention.is_outer)
            )
            del self._by_key[next(once, next(iter(self._by_key)))]
        series.is_measured = series.is_measured or reading.is_measured
        series.is_bare = not reading.is_measured
        return series, moved

    def _find(self, mention: Mention) -> Series | None:
        series = self._by_key.get(mention.key)
        if series is not None or (mention.unit, mention.total) == (Unit.UNKNOWN, None):
            return series
        return next((series for series in self._by_key.values() if _is_same(series, mention)), None)

    def _link(self, series: Series, moved: int, beside: dict[Unit, Series], *, is_behind: bool) -> None:
        """Note the series around this one: in its own line, or else the last that had a line of its own."""
        units = [unit for unit in (Unit.EPOCH, Unit.ROUND, Unit.FOLD) if unit > series.unit]
        candidates = [outers[unit] for outers in (beside, self._around) for unit in units if unit in outers]
        around, outer = candidates[0] if candidates else None, series.outer
        if outer is not None and (outer.is_found or outer.series is around):
            outer.follow(series)
            return
        if around is None or around.is_within(series):
            return
        is_beside = around in beside.values()
        if outer is None and not is_beside and around.is_complete and around.n_grown:  # it was over before
            return
        if outer is None or is_beside or not outer.is_beside:
            is_next_loop = outer is not None and around.known_total is not None and outer.is_over_before(around)
            is_before = is_beside or is_next_loop or around.first_line <= series.first_line
            outer = series.outer = Outer(
                series=around,
                inner_step=series.last - moved,
                inner_laps=series.n_laps - (moved < 0 and not is_before),
                is_beside=is_beside,
                is_behind=is_beside and is_behind,
                is_before=is_before,
                laps_earlier=series.n_laps if is_next_loop and around.first <= 1 else 0,
            )
            if not outer.is_before:
                outer.judge(series)
            outer.note(series)

    def _nest(self, series: Series) -> None:
        """Find the count around one that begins anew: one that has moved by one since the last beginning."""
        stood = self._at_restart.get(series)
        others = {
            other: other.last
            for other in self._by_key.values()
            if other is not series and other.known_total and not other.mention.is_total
        }
        self._at_restart[series] = others
        if series.outer is None:
            first = {other: other.first for other in others if other.first_line <= series.last_line}
            around = next((other for other, step in (stood or first).items() if other.last == step + 1), None)
            if around is not None and around.role is not Role.OTHER:
                if around.is_within(series):
                    around.outer = None
                series.outer = Outer(
                    series=around,
                    inner_step=series.last,
                    inner_laps=series.n_laps,
                    step=around.last,
                    is_found=True,
                    n_restarts=1,
                )

    def _state(self, series: Series, mentions: Iterable[Mention]) -> None:
        """Note a number that announces a total, unless it grows."""
        family = series.mention.family
        counts = any(
            mention.family == family
            and not mention.is_total
            and (mention.total is None or mention.total >= series.last)
            for mention in mentions
        )
        if family and series.last > 0 and not counts:
            stated = self._stated_laps if series.mention.is_lap else self._stated
            stated[:] = [series, *(other for other in stated if other is not series)][:16]


def _is_told_again(series: Series, heading: Series | None) -> bool:
    """Return whether a line tells an epoch again without their number, as `Epoch 3: saved` does below `Epoch 3/10`."""
    if heading is None or heading.first_line >= series.first_line:
        return False
    return bool(heading.known_total and not series.known_total) and abs(series.last - heading.last) <= 1


def _is_same(series: Series, mention: Mention) -> bool:
    """Return whether a count goes on under other words, which have changed, or with another total."""
    known = series.mention
    kinds = [(each.unit, each.family, each.role, each.process) for each in (known, mention)]
    is_bar_alike = known.is_bar == mention.is_bar or known.is_open
    is_alike = known.template == mention.template or series.total == mention.total
    is_same_text = known.template == mention.template
    has_more = not series.is_complete or (is_same_text and mention.step == mention.total)
    goes_on = series.goes_on_at(mention.step) or (known.is_open and mention.step == series.last)
    is_next_lap = is_same_text and series.is_complete and series.outer is not None and series.outer.has_moved
    return kinds[0] == kinds[1] and is_bar_alike and is_alike and ((has_more and goes_on) or is_next_lap)


def _name_totals(seen: list[tuple[Mention, Series, int]]) -> None:
    """Join a count and the total beside it, as in `step=3 max_steps=100`."""
    for named, names, _ in seen:
        if not named.is_total or names.n_grown:
            continue
        for mention, series, _ in seen:
            is_same = mention.family == named.family and mention.unit is not Unit.UNKNOWN
            is_only = named.unit is Unit.UNKNOWN and mention.unit is Unit.STEP and series.n_grown > 0
            if mention is not named and not mention.is_total and mention.total is None and (is_same or is_only):
                # A total that is as great as the count when it is seen first may be the count itself.
                is_more = named.step > mention.step or (named.step == mention.step and names.n_seen > 1)
                total = named.step if is_more else None
                if is_only or named.is_lap:
                    series.total = total
                else:
                    series.companion = total
