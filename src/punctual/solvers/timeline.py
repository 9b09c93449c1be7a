"""Devices free from now on, and three rules for a job's share of them that is done in time."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from punctual.core.errors import InvalidSpec
from punctual.solvers.solution import FloatArray, IntArray

#: Work left below this share of a job's work is rounding, not work.
WORK_TOLERANCE_FRAC = 1e-9
#: Sums of core fractions are sums of floats: this much less free is still enough.
ROOM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Levels:
    """The amounts that one job can hold, and its speed with each.

    Examples
    --------
    >>> Levels.of([1, 2, 3, 4], [1.0, 2.0, 2.1, 3.0]).hull.tolist()
    [0, 1, 2, 4]

    Attributes
    ----------
    amounts
        Shape (m,), devices (or cores), ascending, the first 0.
    rates
        Shape (m,), work per second, strictly ascending, the first 0: an amount that is not faster is none of them.

    Raises
    ------
    InvalidSpec
        Amounts or rates do not ascend from 0.
    """

    amounts: FloatArray
    rates: FloatArray

    def __post_init__(self) -> None:
        for name, values in (("amounts", self.amounts), ("rates", self.rates)):
            if len(values) != len(self.amounts) or values[0] != 0 or np.any(np.diff(values) <= 0):
                raise InvalidSpec(
                    f"`{name}` of a job's levels must ascend from 0", f"{values.tolist()}", "a timeline",
                    "Leave out what is not faster than something smaller.",
                )  # fmt: skip

    @classmethod
    def of(cls, amounts: Sequence[float], rates: Sequence[float]) -> "Levels":
        """Return the levels of ascending `amounts` above zero, without those that are no faster than a smaller one."""
        pairs = [(0.0, 0.0)]
        for amount, rate in zip(amounts, rates, strict=True):
            if rate > pairs[-1][1]:
                pairs.append((amount, rate))
        return cls(*np.array(pairs, dtype=np.float64).T)

    @cached_property
    def hull(self) -> IntArray:
        """Shape (S + 1,), columns on the upper concave hull of the rates, those on its straight parts included."""
        return np.array(_hull(self.amounts.tolist(), self.rates.tolist()), dtype=np.int64)

    @cached_property
    def best(self) -> float:
        """Work per second and unit, with the amount with which that is most."""
        return float((self.rates[1:] / self.amounts[1:]).max()) if len(self.rates) > 1 else 0.0

    @cached_property
    def _pairs(self) -> tuple[list[float], list[float]]:
        """Amounts, a little less than they are, and rates: a list is quicker to look one number up in."""
        return (self.amounts - ROOM_TOLERANCE).tolist(), self.rates.tolist()

    def rate(self, amount: float) -> float:
        """Work per second with the largest of the amounts that is not above `amount`."""
        amounts, rates = self._pairs
        return rates[bisect_right(amounts, amount) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCosts:
    """A job's holding when its share begins, and the costs of changing it.

    Attributes
    ----------
    holds
        Devices (or cores).
    ready_s
        Seconds until it works with that: a change is under way.
    start_s, change_s
        Seconds without work after a start from nothing, and after another change. Changes
        that follow each other before the job works cost their sum.
    reserve_s
        Seconds more without work, from its first amount on.
    """

    holds: float = 0.0
    ready_s: float = 0.0
    start_s: float = 0.0
    change_s: float = 0.0
    reserve_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A job's amounts over time: `amounts[t]` from `starts_s[t]` on, the last until `end_s`, when its work is done."""

    starts_s: FloatArray
    amounts: FloatArray
    end_s: float

    @property
    def now(self) -> float:
        """Amount that it holds at once."""
        return float(self.amounts[0]) if len(self.amounts) and self.end_s > 0 else 0.0

    def at(self, after_s: float) -> float:
        """Return the amount after `after_s` seconds, if its work is not done by then."""
        return float(self.amounts[self.starts_s.searchsorted(after_s, side="right") - 1])

    def each_at(self, points_s: FloatArray) -> FloatArray:
        """Return what the share holds at each of these points; 0 once its work is done."""
        i = self.starts_s.searchsorted(points_s, side="right") - 1
        amounts: FloatArray = np.where(points_s < self.end_s, np.append(self.amounts, 0.0)[i], 0.0)
        return amounts

    def rises_at_s(self, above: float) -> float:
        """Seconds until the share exceeds `above`; infinite if it never does."""
        more = self.amounts > above
        return float(self.starts_s[more.argmax()]) if more.any() else inf

    def work(self, levels: Levels, changes: "ChangeCosts") -> float:
        """Work that a job does with this share, in the unit of the rates, less what its changes cost.

        Parameters
        ----------
        changes
            The job's first amount, and the time that each change costs.

        Examples
        --------
        >>> levels = Levels.of([1, 2], [1.0, 1.5])
        >>> share = Share(np.array([0.0, 10.0]), np.array([1.0, 2.0]), 20.0)
        >>> share.work(levels, ChangeCosts(holds=1.0)), share.work(levels, ChangeCosts(start_s=4.0, change_s=2.0))
        (25.0, 18.0)
        """
        work, held, ready_s, reserve_s = 0.0, changes.holds, changes.ready_s, changes.reserve_s
        for amount, begin_s, end_s in self._steps():
            if amount > 0:
                if amount != held:
                    ready_s = max(ready_s, begin_s) + (changes.change_s if held > 0 else changes.start_s)
                if reserve_s:
                    ready_s, reserve_s = max(ready_s, begin_s) + reserve_s, 0.0
                work += levels.rate(amount) * max(0.0, end_s - max(ready_s, begin_s))
            held = amount
        return work

    def _steps(self) -> Iterator[tuple[float, float, float]]:
        """Yield each amount with its begin and end; equal neighbours are one."""
        amounts, starts_s, before = self.amounts.tolist(), self.starts_s.tolist(), None
        begin_s = 0.0
        for amount, start_s in zip(amounts, starts_s, strict=True):
            if amount != before:
                if before is not None:
                    yield before, begin_s, start_s
                before, begin_s = amount, start_s
        if before is not None:
            yield before, begin_s, self.end_s


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Devices that are free in consecutive spans of time; the last span never ends.

    A value: taking something gives another timeline. Spans begin where jobs begin or end, so that their number grows
    with that of the jobs and not with the time that is looked ahead.

    Attributes
    ----------
    starts_s
        Shape (T,), seconds from now, ascending, the first 0.
    free
        Shape (T,), devices (or cores).

    Examples
    --------
    >>> levels = Levels(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.5]))
    >>> share = Timeline.of(4).least_share(levels, work=12.0, until_s=10.0)
    >>> share.amounts.tolist(), share.end_s
    ([2.0], 8.0)
    """

    starts_s: FloatArray
    free: FloatArray

    @classmethod
    def of(cls, amount: float) -> "Timeline":
        """`amount` free for ever."""
        return cls(np.zeros(1), np.array([float(amount)]))

    def plus(self, amount: float) -> "Timeline":
        """Return the timeline with `amount` more at all times."""
        return Timeline(self.starts_s, self.free + amount) if amount else self

    def added(self, other: "Timeline") -> "Timeline":
        """Return the sum of both timelines."""
        timeline = self.split(other.starts_s)
        return Timeline(timeline.starts_s, timeline.free + other.split(timeline.starts_s).free)

    def without(self, other: "Timeline") -> "Timeline":
        """Return the timeline less `other`, at least zero."""
        timeline = self.split(other.starts_s)
        return Timeline(timeline.starts_s, np.maximum(timeline.free - other.split(timeline.starts_s).free, 0.0))

    def least_until(self, until_s: float) -> float:
        """The least that is free at a time before `until_s`, or now."""
        return float(self.free[: max(1, int(np.searchsorted(self.starts_s, until_s)))].min())

    def least_share(self, levels: Levels, work: float, until_s: float, *, least: int = 0) -> Share | None:
        """Return the least share that does the work in time; None if none does.

        Parameters
        ----------
        work
            Work in the unit of the rates; above 0.
        until_s
            Deadline, seconds from now.
        least
            Index of the level that the job holds at least until it is done, which is free at all times.

        Notes
        -----
        *Symbols.* τ_t length of span t up to the deadline, F_t devices free in it, r(c) rate, W work; c ∧ F the largest
        level within both.

        *Formula.* q = the least level with Σ_t τ_t r(q ∧ F_t) ≥ W. From the last span p with Σ_{t ≥ p} τ_t r(q ∧ F_t)
        ≥ W on the job holds q ∧ F_t; before that the next smaller level, so that it ends early; nothing from then on.

        *Source.* [elasticflow2023]; the smaller level before p as in its published programme.

        *Properties.* Deterministic, O(m T).
        """
        n_spans = int(np.searchsorted(self.starts_s, until_s))
        if n_spans == 0:
            return None
        lengths_s = np.diff(self.starts_s[:n_spans], append=min(until_s, self._end_of(n_spans)))
        caps = self._caps(levels, n_spans)
        goal = work * (1.0 - WORK_TOLERANCE_FRAC)
        shares = np.minimum(np.arange(len(levels.rates))[:, None], caps)
        enough = levels.rates[np.maximum(shares, least)] @ lengths_s >= goal
        if not enough[-1]:
            return None
        q = int(enough.argmax())
        columns = np.maximum(shares[q], least)
        left = (levels.rates[columns] * lengths_s)[::-1].cumsum()
        p = n_spans - 1 - int(np.searchsorted(left, goal))
        columns[:p] = np.maximum(shares[max(q - 1, 0), :p], least)
        return self._share(levels, columns, lengths_s, work)

    def soonest(self, levels: Levels, work: float, *, least: int = 0) -> Share:
        """Return the share that takes all that is free until the work is done; endless if nothing becomes free."""
        return self.follow(levels, work, [0.0], [inf], least=least)

    def follow(
        self, levels: Levels, work: float, starts_s: Sequence[float], amounts: Sequence[float], *, least: int = 0
    ) -> Share:
        """Return the share of an earlier plan, as far as it is free, until the work is done; endless if too little.

        Parameters
        ----------
        starts_s, amounts
            The plan: amounts from these instants on; a span begins at each start that is not past (`split`).
        """
        planned = np.searchsorted(levels.amounts, np.array([0.0, *amounts]) + ROOM_TOLERANCE, side="right") - 1
        i_step = np.searchsorted(starts_s, self.starts_s, side="right")
        columns = np.maximum(np.minimum(planned[i_step], self._caps(levels, len(self.starts_s))), least)
        # The last span is as long as it takes.
        last_s = work / levels.rates[columns[-1]] if columns[-1] else 0.0
        return self._share(levels, columns, np.append(np.diff(self.starts_s), last_s), work)

    def cheapest_share(self, levels: Levels, work: float, until_s: float, *, late: bool = False) -> Share | None:
        """Return the share of least device-seconds that does the work before `until_s`; None if none does.

        Spans are taken as a whole: the last one is the last that ends by `until_s`.

        Parameters
        ----------
        late
            Whether to do the work as late as its devices allow.

        Notes
        -----
        *Symbols.* As for `least_share`.

        *Formula.* The job takes in span t the best amount of the first s steps of its hull that F_t allows, for the
        least s with Σ_t τ_t r(·) ≥ W; then, from the last span on, spans go back to step s − 1, and one at last to the
        least amount with which the work is just done. Up to this last rounding and to what lies under the hull that is
        the least number of device-seconds. With `late`, the spans that go back are the first ones.

        *Properties.* Deterministic, O(S T).

        Examples
        --------
        >>> levels = Levels.of([1, 2], [1.0, 1.5])
        >>> Timeline.of(4).split([10.0, 20.0]).cheapest_share(levels, work=16.0, until_s=20.0).amounts.tolist()
        [1.0, 1.0]
        """
        starts_s = self.starts_s
        n_spans = int(starts_s[1:].searchsorted(until_s * (1 + WORK_TOLERANCE_FRAC), side="right"))
        lengths_s, goal = starts_s[1 : n_spans + 1] - starts_s[:n_spans], work * (1 - WORK_TOLERANCE_FRAC)
        if levels.best * float(self.free[:n_spans] @ lengths_s) * (1 + WORK_TOLERANCE_FRAC) < goal:
            return None  # not even if all that is free were used as well as possible
        caps = self._caps(levels, n_spans)
        below = levels.hull.searchsorted(caps, side="right") - 1
        columns_of = levels.hull[np.minimum(np.arange(len(levels.hull))[:, None], below)]
        i_enough = int((levels.rates[columns_of] @ lengths_s).searchsorted(goal))
        if i_enough == 0:
            return self._whole_spans(levels, np.zeros(n_spans, dtype=np.int64))
        if i_enough < len(columns_of):
            columns, low = columns_of[i_enough].copy(), columns_of[i_enough - 1]
        elif float(levels.rates[caps] @ lengths_s) >= goal:  # everything that is free, also under the hull
            columns, low = caps.copy(), columns_of[-1]
        else:
            return None
        return self._whole_spans(levels, _lowered(levels, columns, low, lengths_s, goal, late=late))

    def planned_share(self, starts_s: Sequence[float], amounts: Sequence[float]) -> Share | None:
        """Return the share of an earlier plan; None if it exceeds the free amount.

        Parameters
        ----------
        starts_s, amounts
            Instants, ascending, and the amounts from each on; the last amount is 0. A span begins at each start that is not
            past (`split`). The first amount also holds before the first start.
        """
        n_spans = int(np.searchsorted(self.starts_s, starts_s[-1]))
        if n_spans == 0 or n_spans >= len(self.starts_s):
            return None
        steps = np.searchsorted(starts_s, self.starts_s[:n_spans], side="right") - 1
        planned = np.array(amounts, dtype=np.float64)[np.maximum(steps, 0)]
        if np.any(planned > self.free[:n_spans] + ROOM_TOLERANCE):
            return None
        return Share(self.starts_s[:n_spans], planned, self._end_of(n_spans))

    def everything(self, levels: Levels) -> Share:
        """Return the share that takes all that is free in each span but the last, which never ends."""
        return self._whole_spans(levels, self._caps(levels, len(self.starts_s) - 1))

    def less(self, amount: float) -> "Timeline":
        """Return the timeline with `amount` less at all times, at least zero."""
        return Timeline(self.starts_s, np.maximum(self.free - amount, 0.0))

    def split(self, starts_s: Iterable[float]) -> "Timeline":
        """Return the timeline with a span that begins at each of `starts_s`, without those in the past."""
        new = np.setdiff1d([start for start in starts_s if start > 0], self.starts_s)
        if not len(new):
            return self
        i = np.searchsorted(self.starts_s, new)
        return Timeline(np.insert(self.starts_s, i, new), np.insert(self.free, i, self.free[i - 1]))

    def take(self, share: Share) -> "Timeline":
        """Return the timeline less `share`, which must be made for it."""
        n_spans = len(share.amounts)
        starts_s, free = self.starts_s, self.free
        if share.end_s < self._end_of(n_spans):
            starts_s = np.insert(starts_s, n_spans, share.end_s)
            free = np.insert(free, n_spans, free[n_spans - 1])
        else:
            free = free.copy()
        free[:n_spans] -= share.amounts
        return Timeline(starts_s, free)

    def _whole_spans(self, levels: Levels, columns: IntArray) -> Share:
        n_spans = len(columns)
        return Share(self.starts_s[:n_spans], levels.amounts[columns], self._end_of(n_spans))

    def _end_of(self, n_spans: int) -> float:
        """Return the end of the first `n_spans` spans."""
        return float(self.starts_s[n_spans]) if n_spans < len(self.starts_s) else inf

    def _caps(self, levels: Levels, n_spans: int) -> IntArray:
        """The largest level that is free in each span."""
        columns = levels.amounts.searchsorted(self.free[:n_spans] + ROOM_TOLERANCE, side="right") - 1
        return np.maximum(columns, 0)

    def _share(self, levels: Levels, columns: IntArray, lengths_s: FloatArray, work: float) -> Share:
        """The job in these columns until its work is done."""
        rates = levels.rates[columns]
        done = (rates * lengths_s).cumsum()
        last = int(np.searchsorted(done, work * (1.0 - WORK_TOLERANCE_FRAC)))
        if last == len(columns):
            return Share(self.starts_s[: len(columns)], levels.amounts[columns], inf)
        before = float(done[last - 1]) if last else 0.0
        span_s = min((work - before) / float(rates[last]), float(lengths_s[last]))
        end_s = float(self.starts_s[last]) + span_s
        return Share(self.starts_s[: last + 1], levels.amounts[columns[: last + 1]], end_s)


def _lowered(
    levels: Levels, columns: IntArray, low: IntArray, lengths_s: FloatArray, goal: float, *, late: bool
) -> IntArray:
    """`columns` with as many spans at `low` as the goal allows, the last ones or the first, and one just as needed."""
    rates = levels.rates
    saved = (rates[columns] - rates[low]) * lengths_s
    surplus = float(rates[columns] @ lengths_s) - goal
    order = np.arange(len(columns)) if late else np.arange(len(columns))[::-1]
    n_lowered = int(saved[order].cumsum().searchsorted(surplus, side="right"))
    lowered = order[:n_lowered]
    columns[lowered] = low[lowered]
    if n_lowered < len(order):
        t = order[n_lowered]
        surplus -= float(saved[lowered].sum())
        columns[t] = np.searchsorted(rates, rates[columns[t]] - surplus / lengths_s[t])
    return columns


def _hull(amounts: Sequence[float], rates: Sequence[float]) -> list[int]:
    """Indices of the points on the upper concave hull."""
    points = list(zip(amounts, rates, strict=True))
    hull: list[int] = []
    for i, point in enumerate(points):
        while len(hull) > 1 and _is_under(points[hull[-2]], points[hull[-1]], point):
            hull.pop()
        hull.append(i)
    return hull


def _is_under(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle point lies under the line through the others, by more than rounding."""
    (x0, y0), (x1, y1), (x2, y2) = left, middle, right
    return (y1 - y0) * (x2 - x0) < (y2 - y0) * (x1 - x0) * (1 - 1e-12)
