"""What a trace amounts to, in numbers."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, fsum
from types import MappingProxyType

from punctual.traces.trace import Trace

#: The quantiles that are told, by name.
QUANTILES: Mapping[str, float] = MappingProxyType({"min": 0.0, "p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0})


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A trace in numbers; quantiles by name, empty where the trace says nothing.

    Attributes
    ----------
    first_at
        Earliest submission, seconds on the trace's own clock; 0 for no jobs.
    span_s
        From the first submission to the last.
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
    tally = _Tally()
    for job in trace:
        tally.submitted_at.append(job.submitted_at)
        tally.n_best_effort += job.best_effort
        tally.users.add(job.user)
        tally.count(tally.models, job.model_name)
        for device in job.device_durations_s or (job.device,):
            tally.count(tally.devices, device)
        if job.n_gpus is not None:
            tally.n_gpus[job.n_gpus] += 1
        tally.gpu_s.append(job.device_s or 0.0)
        if job.duration_s is not None:
            tally.durations_s.append(job.duration_s)
        if job.deadline_s is not None:
            tally.n_deadlines += 1
            if job.duration_s is not None:
                tally.slack.append(job.deadline_s / job.duration_s)
    return tally.summary(trace)


@dataclass(slots=True)
class _Tally:
    """What has been counted so far."""

    submitted_at: "array[float]" = field(default_factory=lambda: array("d"))
    durations_s: "array[float]" = field(default_factory=lambda: array("d"))
    gpu_s: "array[float]" = field(default_factory=lambda: array("d"))
    slack: "array[float]" = field(default_factory=lambda: array("d"))
    n_gpus: Counter[float] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    users: set[str | None] = field(default_factory=set)
    n_deadlines: int = 0
    n_best_effort: int = 0

    def count(self, counter: Counter[str], name: str | None) -> None:
        if name is not None:
            counter[name] += 1

    def summary(self, trace: Trace) -> TraceSummary:
        at = self.submitted_at
        return TraceSummary(
            format=trace.format,
            n_jobs=len(at),
            n_bad_rows=trace.bad.n_rows,
            first_at=min(at, default=0.0),
            span_s=max(at, default=0.0) - min(at, default=0.0),
            in_order=all(earlier <= later for earlier, later in zip(at, at[1:], strict=False)),
            n_gpus=dict(sorted(self.n_gpus.items())),
            gpu_s=fsum(self.gpu_s),
            durations_s=_quantiles(self.durations_s),
            n_deadlines=self.n_deadlines,
            slack=_quantiles(self.slack),
            n_best_effort=self.n_best_effort,
            n_users=len(self.users - {None}),
            models=dict(self.models.most_common()),
            devices=dict(self.devices.most_common()),
        )


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    """The smallest value that at least the wanted fraction does not exceed."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {name: ordered[max(0, ceil(frac * len(ordered)) - 1)] for name, frac in QUANTILES.items()}
