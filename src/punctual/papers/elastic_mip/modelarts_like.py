"""Elastic jobs with a range of devices, in the style of the evaluation on ModelArts."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.core.errors import check_above_zero, check_share
from punctual.core.units import HOUR_S
from punctual.sim.traces.draw import Draw, mean_between, mean_of
from punctual.sim.traces.generators._base import check_jobs, daily_arrivals
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.named import check_bounds

_NAME = "modelarts-like"
_PEAK_AT_S = 15.0 * HOUR_S

#: Devices asked for and how many jobs of a hundred ask for so many.
_GPUS = ((1, 30), (2, 20), (4, 20), (8, 20), (16, 7), (32, 3))

#: Quantiles of the duration with the devices asked for: minutes for most jobs, days for the last.
_DURATIONS_S = ((0.0, 120.0), (0.25, 900.0), (0.5, 3_000.0), (0.75, 10_800.0), (0.95, 57_600.0), (1.0, 172_800.0))

#: A job may get down to this part of what it asked for, and up to this multiple of it.
_SHRINK, _STRETCH = 4, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelartsLike:
    """Many small and a few large elastic jobs, daily arrivals, a deadline for some of them.

    Made after the description in [hu2021] of a simulation with unpublished jobs of a public cloud: sizes and
    durations are ours. The range of devices stands in the parameters ``n_gpus_min`` and ``n_gpus_max``.

    Parameters
    ----------
    n_jobs
        Number of jobs.
    load
        Expected device-seconds of the jobs, with the devices they ask for, over those of `n_devices`.
    n_devices
        Devices of the cluster that the load is meant for; no job can use more.
    swing_frac
        Relative amplitude of the daily rate of arrivals.
    deadline_frac
        Share of the jobs with a deadline.
    slack_low, slack_high
        Bounds of the multiple of the duration at which the deadline lies.
    """

    n_jobs: int = 1000
    load: float = 0.9
    n_devices: int = 256
    swing_frac: float = 0.5
    deadline_frac: float = 0.5
    slack_low: float = 1.2
    slack_high: float = 4.0

    def __post_init__(self) -> None:
        check_jobs(_NAME, self.n_jobs)
        check_above_zero(_NAME, load=self.load, n_devices=self.n_devices)
        check_share(_NAME, swing_frac=self.swing_frac, deadline_frac=self.deadline_frac)
        check_bounds(_NAME, slack_low=self.slack_low, slack_high=self.slack_high)

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in order of submission."""
        draw = Draw(seed)
        counts = [(min(n_gpus, self.n_devices), weight) for n_gpus, weight in _GPUS]
        gap_s = mean_of(counts) * mean_between(_DURATIONS_S) / (self.load * self.n_devices)
        arrivals = daily_arrivals(draw, self.n_jobs, gap_s, self.swing_frac, _PEAK_AT_S)
        for i_job, at in enumerate(arrivals):
            yield self._job(draw, i_job, at, draw.pick(counts))

    def _job(self, draw: Draw, i_job: int, at: float, n_gpus: int) -> TraceJob:
        duration_s = draw.between(_DURATIONS_S)
        slack, has_deadline = draw.uniform(self.slack_low, self.slack_high), draw.chance(self.deadline_frac)
        return TraceJob(
            id=f"modelarts-like-{i_job}",
            submitted_at=at,
            n_gpus=n_gpus,
            duration_s=duration_s,
            deadline_s=slack * duration_s if has_deadline else None,
            parameters={
                "n_gpus_min": max(1, n_gpus // _SHRINK),
                "n_gpus_max": min(n_gpus * _STRETCH, self.n_devices),
            },
        )
