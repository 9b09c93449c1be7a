"""Jobs that arrive more often by day than by night."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from punctual.core.errors import check_share
from punctual.core.units import HOUR_S
from punctual.sim.traces.draw import Draw
from punctual.sim.traces.generators._base import daily_arrivals
from punctual.sim.traces.generators.poisson import Poisson
from punctual.sim.traces.named import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal(Poisson):
    """`poisson` with a rate of arrivals that rises and falls every day; `load` is the mean over whole days.

    Queues then form at a mean load below 1, as they do in real clusters.

    Parameters
    ----------
    n_jobs, load, n_devices, gpus, duration_s
        See `poisson`.
    swing_frac
        Amplitude of the rate relative to its mean.
    peak_at_s
        Time of the highest rate, seconds after the start of each day; the first day starts at 0.
    """

    name: ClassVar[str] = "diurnal"

    swing_frac: float = 0.6
    peak_at_s: float = 15.0 * HOUR_S

    def __post_init__(self) -> None:
        Poisson.__post_init__(self)
        check_share(self.name, swing_frac=self.swing_frac)
        check(isfinite(self.peak_at_s), "`peak_at_s` must be a time of day", self.peak_at_s, self.name)

    def arrivals(self, draw: Draw, gap_s: float) -> Iterator[float]:
        """Yield the instants of arrival, with a mean gap of `gap_s`."""
        return daily_arrivals(draw, self.n_jobs, gap_s, self.swing_frac, self.peak_at_s)
