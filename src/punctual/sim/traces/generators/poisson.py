"""Jobs that arrive at random, in a Poisson process."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from punctual.core.errors import check_above_zero
from punctual.sim.traces.draw import Draw, mean_of
from punctual.sim.traces.generators._base import Choices, check_choices, check_jobs, steady_arrivals
from punctual.sim.traces.job import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Poisson arrivals, exponential durations, device counts drawn for themselves.

    With jobs of one device this is the M/M/c queue, of which the waiting times are known in closed form.

    Parameters
    ----------
    n_jobs
        Number of jobs.
    load
        Expected device-seconds of the jobs over those of `n_devices`: sets the gap between arrivals.
    n_devices
        Devices of the cluster that the load is meant for.
    gpus
        Pairs of a device count and its weight; more than `n_devices` count as these.
    duration_s
        Mean duration.
    """

    name: ClassVar[str] = "poisson"

    n_jobs: int = 1000
    load: float = 0.9
    n_devices: int = 64
    gpus: Choices = ((1, 0.5), (2, 0.2), (4, 0.2), (8, 0.1))
    duration_s: float = 3600.0

    def __post_init__(self) -> None:
        check_jobs(self.name, self.n_jobs)
        check_above_zero(self.name, load=self.load, n_devices=self.n_devices, duration_s=self.duration_s)
        check_choices(self.name, "gpus", self.gpus)

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in order of submission."""
        draw = Draw(seed)
        gpus = tuple((min(n, max(1, int(self.n_devices))), weight) for n, weight in self.gpus)
        gap_s = mean_of(gpus) * self.duration_s / (self.load * self.n_devices)
        for i_job, at in enumerate(self.arrivals(draw, gap_s)):
            yield TraceJob(
                id=f"{self.name}-{i_job}",
                submitted_at=at,
                n_gpus=draw.pick(gpus),
                duration_s=draw.exponential(self.duration_s),
            )

    def arrivals(self, draw: Draw, gap_s: float) -> Iterator[float]:
        """Yield the instants of arrival, with a mean gap of `gap_s`."""
        return steady_arrivals(draw, self.n_jobs, gap_s)
