"""Jobs that come by day more than by night."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from punctual.core.units import HOUR_S
from punctual.traces.draw import Draw, mean_of
from punctual.traces.generators._base import (
    Choices,
    check_choices,
    check_jobs,
    check_load,
    check_swing,
    daily_arrivals,
)
from punctual.traces.job import TraceJob
from punctual.traces.named import check

_NAME = "diurnal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """As `poisson`, with a rate of arrivals that rises and falls every day.

    Queues then form at a mean load below 1, as they do in real clusters.

    Parameters
    ----------
    n_jobs
        How many.
    load
        Expected device-seconds of the jobs over those of `n_devices`, over whole days.
    n_devices
        Devices of the cluster that the load is meant for.
    gpus
        Pairs of a device count and its weight.
    duration_s
        Mean duration.
    swing_frac
        How far the rate goes above and below its mean.
    peak_at_s
        When the rate is highest, seconds after the start of each day; the first day starts at 0.
    """

    n_jobs: int = 1000
    load: float = 0.9
    n_devices: int = 64
    gpus: Choices = ((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1))
    duration_s: float = 3600.0
    swing_frac: float = 0.6
    peak_at_s: float = 15.0 * HOUR_S

    def __post_init__(self) -> None:
        check_jobs(_NAME, self.n_jobs)
        check_load(_NAME, self.load, self.n_devices)
        check_choices(_NAME, "gpus", self.gpus)
        check(
            isfinite(self.duration_s) and self.duration_s > 0, "`duration_s` must be above zero", self.duration_s, _NAME
        )
        check_swing(_NAME, self.swing_frac)
        check(isfinite(self.peak_at_s), "`peak_at_s` must be a time of day", self.peak_at_s, _NAME)

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in order of submission."""
        draw = Draw(seed)
        gap_s = mean_of(self.gpus) * self.duration_s / (self.load * self.n_devices)
        arrivals = daily_arrivals(draw, self.n_jobs, gap_s, self.swing_frac, self.peak_at_s)
        for i_job, at in enumerate(arrivals):
            yield TraceJob(
                id=f"diurnal-{i_job}",
                submitted_at=at,
                n_gpus=draw.pick(self.gpus),
                duration_s=draw.exponential(self.duration_s),
            )
