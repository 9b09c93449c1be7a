"""Devices free from now on, and the minimum satisfactory share of a job in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from punctual.core.errors import InvalidSpec
from punctual.optim.solution import FloatArray, IntArray

#: Work left below this share of a job's work is rounding, not work.
_WORK_TOLERANCE_FRAC = 1e-9
#: Sums of core fractions are sums of floats: this much less free is still enough.
_ROOM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The amounts that one job can hold, and its speed with each.

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


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What a job is to hold: `amounts[t]` from `starts_s[t]` on, the last until `end_s`, when its work is done."""

    starts_s: FloatArray
    amounts: FloatArray
    end_s: float

    @property
    def now(self) -> float:
        """What it holds at once."""
        return float(self.amounts[0]) if self.end_s > 0 else 0.0

    def rises_at_s(self, above: float) -> float:
        """Seconds until it holds more than `above`; infinite if it never does."""
        more = self.amounts > above
        return float(self.starts_s[more.argmax()]) if more.any() else inf


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
        """With `amount` more at all times."""
        return Timeline(self.starts_s, self.free + amount) if amount else self

    def least_share(self, levels: Levels, work: float, until_s: float, *, least: int = 0) -> Share | None:
        """The least share with which the work is done in time; None if there is none.

        Parameters
        ----------
        work
            In the unit of the rates; above 0.
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
        goal = work * (1.0 - _WORK_TOLERANCE_FRAC)
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
        """As much as there is at once until the work is done; it never ends if nothing becomes free."""
        n_spans = len(self.starts_s)
        columns = np.maximum(self._caps(levels, n_spans), least)
        # The last span is as long as it takes.
        last_s = work / levels.rates[columns[-1]] if columns[-1] else 0.0
        return self._share(levels, columns, np.append(np.diff(self.starts_s), last_s), work)

    def follow(
        self, levels: Levels, work: float, starts_s: Sequence[float], amounts: Sequence[float], *, least: int = 0
    ) -> Share:
        """What a plan made before says, as far as it is free, until the work is done; it never ends if that is too little.

        Parameters
        ----------
        starts_s, amounts
            From when on how much; a span begins at each start that is not past (`split`).
        """
        planned = np.searchsorted(levels.amounts, np.array([0.0, *amounts]) + _ROOM_TOLERANCE, side="right") - 1
        i_step = np.searchsorted(starts_s, self.starts_s, side="right")
        columns = np.maximum(np.minimum(planned[i_step], self._caps(levels, len(self.starts_s))), least)
        last_s = work / levels.rates[columns[-1]] if columns[-1] else 0.0
        return self._share(levels, columns, np.append(np.diff(self.starts_s), last_s), work)

    def split(self, starts_s: Iterable[float]) -> "Timeline":
        """The same with a span that begins at each of `starts_s`, those in the past left out."""
        new = np.setdiff1d([start for start in starts_s if start > 0], self.starts_s)
        if not len(new):
            return self
        i = np.searchsorted(self.starts_s, new)
        return Timeline(np.insert(self.starts_s, i, new), np.insert(self.free, i, self.free[i - 1]))

    def take(self, share: Share) -> "Timeline":
        """Without `share`, which was made for this timeline."""
        n_spans = len(share.amounts)
        starts_s, free = self.starts_s, self.free
        if share.end_s < self._end_of(n_spans):
            starts_s = np.insert(starts_s, n_spans, share.end_s)
            free = np.insert(free, n_spans, free[n_spans - 1])
        else:
            free = free.copy()
        free[:n_spans] -= share.amounts
        return Timeline(starts_s, free)

    def _end_of(self, n_spans: int) -> float:
        """When the first so many spans are over."""
        return float(self.starts_s[n_spans]) if n_spans < len(self.starts_s) else inf

    def _caps(self, levels: Levels, n_spans: int) -> IntArray:
        """The largest level that is free in each span."""
        found = np.searchsorted(levels.amounts, self.free[:n_spans] + _ROOM_TOLERANCE, side="right") - 1
        return np.maximum(found, 0)

    def _share(self, levels: Levels, columns: IntArray, lengths_s: FloatArray, work: float) -> Share:
        """The job in these columns until its work is done."""
        rates = levels.rates[columns]
        done = (rates * lengths_s).cumsum()
        last = int(np.searchsorted(done, work * (1.0 - _WORK_TOLERANCE_FRAC)))
        if last == len(columns):
            return Share(self.starts_s[: len(columns)], levels.amounts[columns], inf)
        before = float(done[last - 1]) if last else 0.0
        span_s = min((work - before) / float(rates[last]), float(lengths_s[last]))
        end_s = float(self.starts_s[last]) + span_s
        return Share(self.starts_s[: last + 1], levels.amounts[columns[: last + 1]], end_s)
