"""Shared parts of generators: arrivals, and the checks of their parameters."""

from collections.abc import Iterator, Sequence

from punctual.core.units import DAY_S
from punctual.sim.traces.draw import Draw
from punctual.sim.traces.limits import N_JOBS_MAX
from punctual.sim.traces.named import check

#: Choices and how likely each is.
Choices = Sequence[tuple[int, float]]


def steady_arrivals(draw: Draw, n_jobs: int, gap_s: float) -> Iterator[float]:
    """Yield the times of a Poisson process with mean gap `gap_s`; the first is 0."""
    at = 0.0
    for _ in range(n_jobs):
        yield at
        at += draw.exponential(gap_s)


def daily_arrivals(draw: Draw, n_jobs: int, gap_s: float, swing_frac: float, peak_at_s: float) -> Iterator[float]:
    """Times of a Poisson process whose rate goes up and down once a day, in straight lines.

    Candidates come at the highest rate, and each stays with the ratio of the rate at its time to the highest.

    Parameters
    ----------
    gap_s
        Mean gap over whole days.
    swing_frac
        Relative amplitude of the rate: 0 steady, 1 down to zero.
    peak_at_s
        Time of day of the highest rate, seconds after the start; twelve hours later it is lowest.
    """
    highest, at, n_left = 1.0 + swing_frac, 0.0, n_jobs
    while n_left:
        if draw.chance((1.0 + swing_frac * _wave(at - peak_at_s)) / highest):
            yield at
            n_left -= 1
        at += draw.exponential(gap_s / highest)


def check_jobs(name: str, n_jobs: int) -> None:
    """There must be a job at least, and no more than a trace may have."""
    check(n_jobs >= 1, "`n_jobs` must be above zero", n_jobs, name)
    check(n_jobs <= N_JOBS_MAX, f"`n_jobs` must be at most {N_JOBS_MAX:,}", n_jobs, name)


def check_choices(name: str, parameter: str, choices: Choices) -> None:
    """Choices must be above zero, likelihoods not below it, and one of them above."""
    holds = all(choice > 0 and weight >= 0 for choice, weight in choices) and any(weight for _, weight in choices)
    check(holds, f"`{parameter}` must be pairs of a number above zero and its weight", choices, name)


def _wave(since_peak_s: float) -> float:
    """Return a triangle wave: 1 at the peak, -1 twelve hours before and after it."""
    share = since_peak_s / DAY_S % 1.0
    return 1.0 - 4.0 * min(share, 1.0 - share)
