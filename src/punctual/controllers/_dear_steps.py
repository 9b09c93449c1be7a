"""Steps that cost far more than others and recur, such as an evaluation inside the body of a step."""

from dataclasses import dataclass
from math import floor

#: One is overdue so many intervals after the last.
_OVERDUE = 1.5
#: A step that costs less than this share of the others is not counted: another program was busy for a moment, say.
_OF_THE_KIND = 0.25


@dataclass(frozen=True, slots=True)
class Span:
    """A number of steps that is known to lie within two bounds, `least` and `most`."""

    least: float
    most: float

    def minus(self, other: "Span") -> "Span":
        return Span(max(self.least - other.most, 1.0), max(self.most - other.least, 1.0))

    def within(self, other: "Span") -> "Span":
        """Return the overlap of both; `least` is above `most` if they have none."""
        return Span(max(self.least, other.least), min(self.most, other.most))


@dataclass(frozen=True, slots=True)
class DearSteps:
    """Dear steps so far, and the number still expected.

    Attributes
    ----------
    since
        Steps done when the cost was first known.
    n
        Dear steps seen since. After a single one no other is expected, though there may be: it may have been a compilation.
    mean_steps, most_steps
        Cost of one beyond that of a step, in steps: mean and largest.
    first, last
        Steps done at the end of the first and of the last one.
    every
        Steps from one to the next. They do not come regularly if nothing lies within its bounds, if there was none where
        the first should have been, or if the next is overdue.
    """

    since: float = 0.0
    n: int = 0
    mean_steps: float = 0.0
    most_steps: float = 0.0
    first: Span = Span(0.0, 0.0)
    last: Span = Span(0.0, 0.0)
    every: Span = Span(1.0, float("inf"))

    def is_one(self, extra_steps: float) -> bool:
        """Whether steps that cost `extra_steps` steps beyond their own may hold one of these."""
        return extra_steps > _OF_THE_KIND * self.mean_steps

    def seen(self, extra_steps: float, at: Span) -> "DearSteps":
        """Return the state after one more, which ended within `at` and cost `extra_steps` steps beyond its own."""
        if self.n == 1 and self.mean_steps < _OF_THE_KIND * extra_steps:
            return DearSteps(self.since).seen(extra_steps, at)
        n = self.n + 1
        every = self.every
        if self.n:
            between = at.minus(self.first)
            every = every.within(at.minus(self.last)).within(Span(between.least / self.n, between.most / self.n))
        return DearSteps(
            since=self.since,
            n=n,
            mean_steps=self.mean_steps + (extra_steps - self.mean_steps) / n,
            most_steps=max(self.most_steps, extra_steps),
            first=self.first if self.n else at,
            last=at,
            every=every,
        )

    def left(self, steps_done: float, steps_total: float) -> tuple[float, float]:
        """Dear steps until the last step: how many are expected, and how many there may be."""
        if not self.n:
            return 0.0, 0.0
        to_come = max(steps_total - steps_done, 0.0)
        if self.n == 1:
            return 0.0, to_come / max(self.last.most - self.since, steps_done - self.last.most)
        if not self._are_regular(steps_done):
            expected = to_come * self.n / (steps_done - self.since)
            return expected, expected
        least = max(floor((steps_total - self.last.most) / self.every.most), 0)
        most = max(floor((steps_total - self.last.least) / self.every.least), least)
        return (least + most) / 2, most

    def _are_regular(self, steps_done: float) -> bool:
        every = self.every
        is_first_missing = self.first.least - self.since > every.most
        return (
            every.least <= every.most and not is_first_missing and steps_done <= self.last.most + _OVERDUE * every.most
        )
