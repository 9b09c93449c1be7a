"""Summary figures of a trace."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, fsum
from typing import TypeVar

from punctual.sim.traces.trace import Trace

T = TypeVar("T")

#: The quantiles that are told, by name.
QUANTILES = {"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Summary of a trace; quantiles by name, empty if the trace lacks the values.

    Attributes
    ----------
    first_at
        Earliest submission, seconds on the trace's own clock; 0 for no jobs.
    span_s
        Seconds from the first submission to the last.
    in_order
        Whether the file is in order of submission.
    n_gpus
        Device count -> jobs; jobs that do not say are missing.
    gpu_s
        Device-seconds of all jobs that say both.
    durations_s
        Quantiles of the durations.
    n_deadlines
        Jobs with a deadline.
    slack
        Quantiles of deadline over duration, for the jobs that have both.
    devices
        Kinds of devices asked for -> jobs; for jobs with a duration per kind, those kinds.
    """

    format: str
    n_jobs: int
    n_bad_rows: int
    first_at: float
    span_s: float
    in_order: bool
    n_gpus: Mapping[float, int]
    gpu_s: float
    durations_s: Mapping[str, float]
    n_deadlines: int
    slack: Mapping[str, float]
    n_best_effort: int
    n_users: int
    models: Mapping[str, int]
    devices: Mapping[str, int]


def summarize(trace: Trace) -> TraceSummary:
    """Read `trace` once; keeps a number or two per job, not the jobs."""
    at, gpu_s, durations_s, slack = (array("d") for _ in range(4))
    n_gpus, models, devices, users = Counter[float](), Counter[str](), Counter[str](), set[str]()
    n_deadlines = n_best_effort = 0
    for job in trace:
        at.append(job.submitted_at)
        gpu_s.append(job.device_s or 0.0)
        n_best_effort += job.best_effort
        n_deadlines += job.deadline_s is not None
        n_gpus.update(_known(job.n_gpus))
        models.update(_known(job.model_name))
        devices.update(tuple(job.device_durations_s) or _known(job.device))
        users.update(_known(job.user))
        durations_s.extend(_known(job.duration_s))
        if job.deadline_s is not None and job.duration_s is not None:
            slack.append(job.deadline_s / job.duration_s)
    return TraceSummary(
        format=trace.format,
        n_jobs=len(at),
        n_bad_rows=trace.bad.n_rows,
        first_at=min(at, default=0.0),
        span_s=max(at, default=0.0) - min(at, default=0.0),
        in_order=all(earlier <= later for earlier, later in pairwise(at)),
        n_gpus=dict(sorted(n_gpus.items())),
        gpu_s=fsum(gpu_s),
        durations_s=_quantiles(durations_s),
        n_deadlines=n_deadlines,
        slack=_quantiles(slack),
        n_best_effort=n_best_effort,
        n_users=len(users),
        models=dict(models.most_common()),
        devices=dict(devices.most_common()),
    )


def _known(value: T | None) -> tuple[T, ...]:
    """Return `value` in a tuple; an empty one for None."""
    return () if value is None else (value,)


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    """The smallest value that at least the wanted fraction does not exceed."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {name: ordered[max(0, ceil(frac * len(ordered)) - 1)] for name, frac in QUANTILES.items()}
