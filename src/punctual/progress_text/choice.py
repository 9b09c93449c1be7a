"""The choice of the series that counts the training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from punctual.progress_text.mentions import PER_EPOCH, SHARE, Role, Unit
from punctual.progress_text.series import N_TOTAL_GROWN, Series, SeriesTable

#: A count that says nothing but its own length may be one of many: of each epoch, or of what is done before. It is taken for
#: the whole where no more than so many of them fit before the deadline. At full speed a training takes more than a sixth of a
#: sensible deadline; one epoch of several, or what comes before, mostly takes less.
_N_FIT_MAX = 6
#: Share of a count, and number of steps, that must be seen before its duration is believed.
_SEEN_FRAC, _SEEN_STEPS = 0.05, 3


#: Epochs that go to 10 are declared as 30 steps if they begin anew for each of three parts: as steps of the data they
#: would be more, for an epoch mostly has at least this many.
_N_PARTS_MAX = 10


class Doubt(StrEnum):
    """Reasons why the number of all steps is not known.

    The output does not say the total, or the number of epochs, or how often a count begins again; the count may be one part of
    several; it went beyond its total; the total changed again and again; the count goes beyond the number that the user declared.
    """

    NONE = "none"
    NOT_SAID = "not-said"
    EPOCHS = "epochs"
    RESTARTS = "restarts"
    PART = "part"
    EXCEEDED = "exceeded"
    CHANGES = "changes"
    UNITS = "units"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The meaning of a series, taken as the training's.

    Attributes
    ----------
    steps, total
        Steps of the training; `total` is None if it is not known.
    is_sure
        Whether to act on it.
    n_epochs
        Number of all laps of the series; None if it has one, or the number is not known.
    """

    series: Series
    steps: float
    total: float | None
    is_sure: bool
    doubt: Doubt = Doubt.NONE
    n_epochs: int | None = None

    @property
    def has_total(self) -> bool:
        """Whether the total may be planned with."""
        return self.is_sure and self.total is not None

    @property
    def is_done(self) -> bool:
        series = self.series
        is_one_lap = series.is_complete and not series.is_nested and not series.n_laps
        return is_one_lap or (self.total is not None and self.steps >= self.total)

    @property
    def is_trained(self) -> bool:
        """Whether the series is a loop of a training, by its unit, its words or its values."""
        series = self.series
        return series.is_of_steps or series.role is Role.TRAINING or series.is_measured


class Judge:
    """Judge of series.

    Parameters
    ----------
    deadline_s, steps_total
        See `punctual.progress_text.reader.ProgressReader`.
    """

    def __init__(self, table: SeriesTable, deadline_s: float | None, steps_total: float | None) -> None:
        self._table = table
        self._deadline_s = deadline_s
        self._steps_total = steps_total

    def choose(self, current: Series | None) -> Assessment | None:
        """Return the series of the training, or None if no series may be that; `current` was chosen last."""
        alive = [series for series in self._table if series is current or self._table.is_alive(series)]
        assessed = [meaning for series in alive if (meaning := self.assess(series)) is not None]
        if not assessed:
            return None
        after = [meaning for meaning in assessed if meaning.has_total or meaning.series.n_grown > 1]
        best = max(assessed, key=lambda meaning: self._rank(meaning, after))
        kept = next((meaning for meaning in assessed if meaning.series is current), None)
        if kept is not None and kept.is_sure and self._rank(best, after)[:2] <= self._rank(kept, after)[:2]:
            return kept
        return best

    def _rank(self, meaning: Assessment, after: Sequence[Assessment]) -> tuple[float, ...]:
        """Return the rank; `after` has all that may go on when `meaning` has ended."""
        series = meaning.series
        return (
            not any(_is_over(meaning, other) or _is_turn_of(meaning, other) for other in after),
            meaning.has_total,
            not series.mention.is_fraction,
            series.role,
            meaning.total is not None,
            meaning.is_sure,
            series.is_regular,
            series.n_grown.bit_length(),
            series.is_of_steps,
            not series.is_nested and not series.n_laps,
            series.active_s,
            series.n_grown,
        )

    def assess(self, series: Series) -> Assessment | None:
        """Return the meaning of a series, taken as the training's; None if it cannot be that."""
        if self._is_no_training(series):
            return None
        if series.is_constant and series.unit < Unit.EPOCH and not series.mention.is_total:
            return None
        is_stated = series.known_total is not None and self._table.is_stated(series.known_total, series)
        if series.unit is Unit.UNKNOWN and series.moves_with_epoch and not (series.is_told_complete or is_stated):
            return None
        if series.mention.is_total and series.n_grown < N_TOTAL_GROWN:
            is_report = series.is_measured and series.is_of_steps
            return Assessment(series=series, steps=series.last, total=None, is_sure=False) if is_report else None
        if series.mention.is_fraction:
            return self._fraction(series)
        length, outer = series.known_total, series.outer
        if outer is not None and not outer.n_restarts and length is not None and self._table.is_stated(length, series):
            series.is_whole = True  # although an epoch is told beside it
        if series.unit is Unit.EPOCH or (
            series.unit is Unit.ROUND and any(_counts_within(series, other) for other in self._table)
        ):
            meaning = self._epochs_alone(series)
        elif series.is_nested or series.n_laps:
            meaning = self._laps(series)
        else:
            meaning = self._single(series)
        return None if meaning is None else _not_exceeded(self._declared(meaning))

    def _is_no_training(self, series: Series) -> bool:
        """Return whether a series is of something else, by itself or by what counts within it."""
        if series.role is Role.OTHER or series.is_measure or series.counts_down:
            return True
        if series.outer is not None and _is_single(series):
            return True  # what is around it is counted
        if series.mention.is_total and (series.unit < Unit.STEP or series.mention.is_lap):
            return True  # samples and batches of something
        return series.unit is Unit.FOLD and any(_counts_within(series, other) for other in self._table)

    def _laps(self, series: Series) -> Assessment:
        """Assess a count that begins anew."""
        length, outer = series.known_total or self._table.stated_lap(series), series.outer
        if outer is not None and series.is_nested:
            n_epochs, n_before = self._n_laps_of(outer.series), self._n_before(series)
            n_epochs = n_epochs and n_epochs * max(outer.laps_each, 1) + outer.laps_earlier
            # `Epoch 1/9: 11%|#   | 1/9` counts one thing twice, unless it begins anew.
            is_other = length is None or length != outer.series.known_total or outer.n_restarts > 0
            is_moved = series.n_grown > 0 or outer.n_restarts > 0 or series.is_complete
            is_sure = series.mention.is_own or (is_moved and is_other and not self._is_behind_epoch(series))
            doubt = Doubt.EPOCHS
        else:
            n_epochs, n_before = self._table.stated("epoch", series.n_laps, series), series.n_laps
            in_all = self._table.only_stated(series)
            if n_epochs is None and in_all and length and in_all > length and in_all % length == 0:
                n_epochs = in_all // length
            # Others may begin anew as well: evaluations, or what a script draws on the side.
            is_sure = all(other.active_s <= series.active_s for other in self._table if other.n_laps)
            doubt = Doubt.RESTARTS
        total = n_epochs * length if n_epochs and length and is_sure else None
        return Assessment(
            series=series,
            steps=n_before * series.lap_length + series.done,
            total=total,
            is_sure=is_sure,
            doubt=Doubt.NONE if total else doubt,
            n_epochs=n_epochs,
        )

    def _is_behind_epoch(self, series: Series) -> bool:
        """Return whether the epoch that a bar seems to be in was only told when another bar like it had ended in it."""
        outer = series.outer
        if outer is None or outer.n_restarts or outer.is_beside or outer.series.total or not series.mention.is_bar:
            return False
        alike = (other for other in self._table if other.mention.template == series.mention.template)
        return any(other.is_complete and other.first_line < outer.series.first_line for other in alike)

    def _single(self, series: Series) -> Assessment | None:
        """Assess a count that has not begun anew; None if it is no count."""
        total, steps, is_measured = series.known_total, series.done, series.is_measured
        of_rows = None
        if total is None and not series.is_exceeded:
            if series.unit is Unit.UNKNOWN and series.is_result and series.n_grown > 0:
                of_rows = self._table.only_stated(series)
            total = of_rows or self._table.stated(series.mention.family, series.last, series) or self._of_laps(series)
        if total is None and series.unit in {Unit.BATCH, Unit.SAMPLE} and not series.n_grown:
            return None  # a setting
        if total is None:
            is_named = series.unit is not Unit.UNKNOWN or is_measured or series.mention.is_open
            # Rows of a table that come at once are no progress.
            is_row = series.n_grown > 2 and series.is_regular and series.last_at - series.first_at >= 1.0
            is_sure = series.mention.is_own or (series.n_grown > 0 if is_named else is_row)
            return Assessment(series=series, steps=steps, total=None, is_sure=is_sure, doubt=Doubt.NOT_SAID)
        outer = series.outer
        if series.is_of_steps and (outer is None or not outer.is_behind or outer.n_passed):
            # A first line of fewer than ten may be the heading of a stage: `Step 1/6 : FROM ubuntu:22.04`.
            is_begun = series.n_grown > 0 or (is_measured and (total >= 10 or series.is_complete))
            is_sure = series.mention.is_own or (total > 1 and is_begun and not series.is_of_stages)
            return Assessment(series=series, steps=steps, total=total, is_sure=is_sure)
        if self._is_whole(series, total):
            is_sure = series.n_grown > (not series.mention.is_bar) and not series.is_of_stages
            return Assessment(series=series, steps=steps, total=total, is_sure=is_sure)
        is_training = is_measured or series.role is Role.TRAINING
        n_epochs = self._table.stated("epoch", 1, series) if of_rows is None else None
        if n_epochs is not None and is_training:
            is_sure = _is_seen(series, total)
            return Assessment(series=series, steps=steps, total=n_epochs * total, is_sure=is_sure, n_epochs=n_epochs)
        known = None if is_training else total
        return Assessment(series=series, steps=steps, total=known, is_sure=is_training, doubt=Doubt.PART)

    def _fraction(self, series: Series) -> Assessment | None:
        """Assess hundredths of an epoch; None if the number of epochs is not known."""
        n_epochs = self._table.n_epochs_stated(series)
        if n_epochs is None:
            return None
        meaning = Assessment(series=series, steps=series.last, total=n_epochs * PER_EPOCH, is_sure=series.n_grown > 0)
        return _not_exceeded(self._declared(meaning))

    def _of_laps(self, series: Series) -> int | None:
        """Return the total of steps of which a line said how many an epoch has, and another how many epochs there are."""
        length, n_epochs = self._table.stated_lap(series), self._table.stated("epoch", 1, series)
        return length * n_epochs if length and n_epochs else None

    def _epochs_alone(self, series: Series) -> Assessment | None:
        """Assess epochs; None if something with a length counts within them."""
        if series.first > 1 and not series.n_grown and not series.mention.is_own:
            return None
        inner = [other for other in self._table if _counts_within(series, other)]
        if any(_is_of_known_length(other, series.unit) for other in self._table):
            return None
        total = self._n_laps_of(series)
        if any(not other.n_laps for other in inner) or (inner and total is None):
            return None
        is_bar, from_zero = series.mention.is_bar, series.first == 0
        is_under_way = any(other.outer and other.outer.is_beside and other.n_grown > series.n_grown for other in inner)
        if (is_bar or series.is_result) and not is_under_way:
            steps = series.last + (from_zero and not is_bar)
        else:
            steps = max(0, series.last - (not from_zero))
        n_before = self._n_before(series) if series.is_nested else series.n_laps
        steps += n_before * series.lap_length
        is_begun = series.is_result and not is_bar and total is not None
        doubt = Doubt.NONE if total else Doubt.NOT_SAID
        return Assessment(series=series, steps=steps, total=total, is_sure=series.n_grown > 0 or is_begun, doubt=doubt)

    def _n_before(self, series: Series) -> int:
        """Return the number of laps that have ended, over all laps of the series around."""
        outer = series.outer
        assert outer is not None
        family = outer.series.mention.family or "epoch"
        length = _length(outer.series, self._table.stated(family, outer.series.last, outer.series))
        n_around = outer.n_around if outer.series.is_nested else outer.n_laps
        n_each = length or outer.series.length + (outer.series.first == 0)
        # A number of nobody knows how many may be a setting until it grows: `epoch: 100`.
        is_setting = length is None and outer.is_before and not outer.is_beside and not outer.series.n_grown
        n_before = 0 if is_setting else outer.n_before
        n_ended = (n_around * n_each + n_before) * max(outer.laps_each, 1)
        return n_ended + outer.laps_earlier + series.n_laps - outer.inner_laps

    def _n_laps_of(self, epochs: Series) -> int | None:
        """Return the number of all epochs; None if it is not known."""
        if epochs.unit is Unit.FOLD and epochs.is_of_stages:  # only some of which may be trainings
            return None
        others = (other for other in self._table if other.unit is epochs.unit and other.role is not Role.OTHER)
        stated = self._table.stated(epochs.mention.family or "epoch", epochs.last, epochs)
        said = next((_length(other, stated) for other in others if other.known_total), None)
        length = _length(epochs, said if said and not epochs.known_total else stated)
        if epochs.outer is not None and epochs.is_nested:
            folds = epochs.outer.series
            stated_folds = self._table.stated(folds.mention.family, folds.last, folds)
            n_folds = None if folds.is_of_stages else _length(folds, stated_folds)
            return length * n_folds * max(epochs.outer.laps_each, 1) if length and n_folds else None
        return None if epochs.n_laps else length

    def _is_whole(self, series: Series, total: int) -> bool:
        """Return whether a count without a name goes over the whole training, not over one part of it."""
        if not series.is_whole and not self._has_bar_around(series):
            mention = series.mention
            # A first increment of ten times the next ones: the count goes on where an earlier run has ended.
            n_jumped = max(_SEEN_FRAC * total, 10 * series.increment)
            is_resumed = mention.is_bar and series.n_grown > 1 and series.first_increment > n_jumped
            # Trainers whose bar goes over all epochs tell fractions of these beside it.
            is_trainer_s = mention.is_bar and not mention.template and series.n_grown > 1 and self._has_fractions()
            series.is_whole = (
                self._deadline_s is None
                or self._table.is_stated(total, series)
                or is_resumed
                or is_trainer_s
                or self._lasts(series, total, self._deadline_s)
            )
        return series.is_whole

    def _has_fractions(self) -> bool:
        return any(series.mention.is_fraction for series in self._table)

    def _has_bar_around(self, series: Series) -> bool:
        """Return whether a bar that began before this one may lie around it."""
        is_first_lap = series.mention.is_bar and not series.n_laps
        return is_first_lap and any(_may_be_around(other, series) for other in self._table)

    @staticmethod
    def _lasts(series: Series, total: int, deadline_s: float) -> bool:
        if not _is_seen(series, total):
            return False
        duration_s = (series.last_at - series.lap_at) * total / (series.last - series.lap_first)
        return _N_FIT_MAX * duration_s >= deadline_s

    def _declared(self, meaning: Assessment) -> Assessment:
        """Put the number of steps that the user has declared in place of the total."""
        declared, series, length = self._steps_total, meaning.series, meaning.series.known_total
        if declared is None:
            return meaning
        if series.unit is Unit.EPOCH or series.mention.is_fraction:  # perhaps in another unit than the user's
            steps, counted = meaning.steps, meaning.total or length
            is_of_parts = (
                counted and series.unit is Unit.EPOCH and declared in {n * counted for n in range(1, _N_PARTS_MAX)}
            )
            if counted and not is_of_parts:
                steps *= declared / counted
            return replace(meaning, steps=steps, total=declared, doubt=Doubt.NONE)
        if length is not None and length > declared:
            return replace(meaning, total=None, doubt=Doubt.UNITS)
        is_sure = meaning.is_sure or (series.n_grown > 0 and length is not None and declared % length == 0)
        return replace(meaning, total=declared, is_sure=is_sure, doubt=Doubt.NONE)


def _is_of_known_length(inner: Series, unit: Unit) -> bool:
    """Return whether `inner` has a total and counts within one of the unit."""
    if inner.outer is None or inner.known_total is None:
        return False
    epochs = inner.outer.series
    return epochs.unit is unit and epochs.role is not Role.OTHER and _counts_within(epochs, inner)


def _counts_within(epochs: Series, other: Series) -> bool:
    """Return whether `other` counts within an epoch."""
    if other.outer is None or other.outer.series is not epochs or other.role is Role.OTHER or other.is_measure:
        return False
    if _is_single(other):
        return False
    if other.mention.family == SHARE and other.outer.is_beside and other.n_seen > 1 and not other.outer.n_within:
        return False  # it says the same as the epoch
    if other.unit is Unit.UNKNOWN and other.moves_with_epoch and not other.is_told_complete:
        return False
    if other.is_constant or (other.mention.is_total and (other.mention.is_lap or other.unit < Unit.STEP)):
        return False
    moves_with_it = other.known_total is None and not other.n_laps and 0 < other.n_grown <= epochs.n_grown
    return not (moves_with_it and other.outer.is_beside)


def _is_single(series: Series) -> bool:
    """Return whether a loop has one step, as a prediction has, or an epoch of all data at once: it cannot be seen to go on."""
    return series.known_total == 1 and series.unit < Unit.EPOCH


def _may_be_around(other: Series, series: Series) -> bool:
    """Return whether a bar that began before `series` has not moved yet, or only when `series` was done."""
    if not other.mention.is_bar or other.first_line >= series.first_line or other.role is Role.OTHER:
        return False
    is_renamed = other.known_total == series.known_total
    is_open = other.known_total is not None and other.known_total > 1 and not other.is_complete
    has_moved = other.n_grown > (series.is_complete and other.last_line > series.last_line)
    return is_open and not has_moved and not is_renamed


def _is_over(meaning: Assessment, other: Assessment) -> bool:
    """Return whether `other` goes on after the end of `meaning`."""
    series, after = meaning.series, other.series
    if after is series or after.last_line <= series.last_line:
        return False
    if (series.outer and series.outer.series is after) or (after.outer and after.outer.series is series):
        return False
    is_same = series.unit is after.unit is Unit.EPOCH and after.first_line < series.last_line
    if is_same and abs(after.last - series.last) <= 1:  # told in a heading and in what follows
        return False
    if meaning.has_total and not meaning.is_done and not other.is_trained:  # an evaluation may last
        return False
    has_begun = after.last_at > after.first_at or (after.known_total is not None and not after.n_grown)
    is_next = other.has_total or (other.is_sure and other.is_trained)
    if meaning.is_done and is_next and after.first_line > series.last_line and has_begun:
        return True
    if after.n_grown <= 1:
        return False
    # A series is over when another one has grown for this share of the time in which it grew, or for all of that time.
    share = 0.3 if meaning.is_done or other.has_total else 1.0
    return after.last_at - max(after.first_at, series.last_at) > share * series.active_s


def _is_turn_of(meaning: Assessment, other: Assessment) -> bool:
    """Return whether a bar alternates with an earlier one of the same form, as that of an evaluation does."""
    series, first = meaning.series, other.series
    if not series.mention.is_bar or (series.mention.template, series.unit) != (first.mention.template, first.unit):
        return False
    return first.first_line < series.first_line and first.n_laps > 0 and first.lap_at > series.first_at


def _not_exceeded(meaning: Assessment) -> Assessment:
    is_within = meaning.total is None or meaning.steps <= meaning.total
    return (
        meaning if is_within and not meaning.series.is_exceeded else replace(meaning, total=None, doubt=Doubt.EXCEEDED)
    )


def _length(series: Series, stated: int | None) -> int | None:
    """Return the length of a series around others; `stated` is its length by an announcement."""
    total = series.known_total
    if total is None or series.total is None:  # not said, or by a name of its own
        return total or stated
    # Numbers of epochs are mostly multiples of five, so `Epoch 0/299` is the first of 300. `Epoch 0/2` is the first of three if
    # nothing but a bar is behind it; `[0/2]`, `Epoch 0/10`, `Epoch 0/2, loss` are not.
    is_number = total % 5 == 0 or (not series.mention.is_heading and (total < 19 or total % 5 != 4))
    is_last = series.last >= total or not is_number or stated == total + 1
    return total + 1 if series.counts_from_zero and is_last and stated != total else total


def _is_seen(series: Series, total: float) -> bool:
    return series.last - series.lap_first >= max(_SEEN_FRAC * total, _SEEN_STEPS)
