"""Measures of runs to compare: their names, and which of two values is better."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from punctual.core.units import format_duration

Better = Literal["low", "high", "neither"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of a table.

    Attributes
    ----------
    name
        Name in a run's summary.
    heading
        Heading in a table.
    shown
        The number as text.
    """

    name: str
    heading: str
    better: Better
    shown: Callable[[float], str]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _plain(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"


#: Measures in order of importance: a narrow table leaves out the last ones.
MEASURES = (
    Measure("deadlines_met_frac", "deadlines met", "high", _percent),
    Measure("cost_usd", "cost", "low", lambda value: f"${value:,.2f}"),
    Measure("jct_mean_s", "mean JCT", "low", format_duration),
    Measure("waiting_mean_s", "mean waiting", "low", format_duration),
    Measure("jct_p95_s", "p95 JCT", "low", format_duration),
    Measure("granted_device_frac", "devices in use", "neither", _percent),
    Measure("preemptions_per_job", "preemptions/job", "neither", _plain),
    Measure("resizes_per_job", "resizes/job", "neither", _plain),
    Measure("makespan_s", "makespan", "low", format_duration),
    Measure("fairness_p95", "p95 ρ", "low", _plain),
    Measure("useful_device_frac", "useful", "high", _percent),
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and half the width of its 95 % interval, which is None for a single seed."""

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Estimate | None":
        """Return the estimate from one value for each seed; None if a seed has none.

        The interval is Student's: mean ± t(n-1, 97.5 %) · s / √n with the standard deviation s of n seeds.
        """
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        if len(known) == 1:
            return cls(known[0], None)
        return cls(fmean(known), _student(len(known) - 1) * stdev(known) / sqrt(len(known)))


def _student(n_free: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(n_free, 0.975))


def best_of(measure: Measure, estimates: Sequence[Estimate | None]) -> list[int]:
    """Return the places of the best in a column; empty if the measure has no better, or all are equal."""
    means = [estimate.mean for estimate in estimates if estimate is not None]
    if measure.better == "neither" or len(means) < 2 or min(means) == max(means):
        return []
    best = max(means) if measure.better == "high" else min(means)
    return [place for place, estimate in enumerate(estimates) if estimate is not None and estimate.mean == best]
