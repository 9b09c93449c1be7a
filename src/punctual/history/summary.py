"""Figures of a cluster: all jobs of a record in one summary."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import fsum

import numpy as np

from punctual.core.ids import JobId
from punctual.history.job import JobRecord, Outcome


@dataclass(frozen=True, slots=True)
class Spread:
    """`n` values in five numbers, in the unit of the values; quantiles by definition 7 of [hyndman1996], NumPy's default."""

    n: int
    mean: float
    median: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Return the spread of `values`, in any order; None if they are empty."""
        ascending = sorted(values)
        if not ascending:
            return None
        mean, (median, p95, p99) = fsum(ascending) / len(ascending), np.quantile(ascending, (0.5, 0.95, 0.99)).tolist()
        return cls(len(ascending), mean, median, p95, p99, ascending[-1])


#: Seconds in which a job would finish alone on a private share of the cluster; None: not known.
PrivateTime = Callable[[JobRecord], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTotals:
    """Figures of the cluster that belong to no job.

    Attributes
    ----------
    makespan_s
        Seconds from the first submission to the last job's end; to the last message while a job is unfinished.
    capacity_device_s, capacity_core_s
        Integral of the nodes' capacities, over the same time.
    n_rounds
        Plans requested.
    n_plans_refused
        Plans that could not be used, or were not made because the policy failed.
    decision_mean_s, decision_max_s
        Time between request and proposal of a plan, on the record's clock; None: no plan was proposed.
    """

    makespan_s: float
    capacity_device_s: float
    capacity_core_s: float
    n_rounds: int
    n_plans_refused: int
    decision_mean_s: float | None
    decision_max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary(ClusterTotals):
    """Figures of all jobs; `docs/reference/metrics.md` defines each, and which jobs it is over.

    A `Spread` or a share is None if no job, or no capacity, has a value for it.
    """

    n_jobs: int
    n_finished: int
    n_failed: int
    n_stopped: int
    n_rejected: int
    n_unfinished: int
    n_never_started: int
    n_deadlines: int
    n_deadlines_met: int
    n_deadlines_open: int
    deadlines_met_frac: float | None
    deadlines_met_weighted_frac: float | None
    tardiness_s: Spread | None
    jct_s: Spread | None
    queued_s: Spread | None
    waiting_s: Spread | None
    efficiency: Spread | None
    slowdown: Spread | None
    fairness: Spread | None
    granted_device_frac: float | None
    granted_core_frac: float | None
    useful_device_frac: float | None
    device_h: float
    core_h: float
    resizes_per_job: float | None
    preemptions_per_job: float | None
    n_failures: int
    n_grants_failed: int
    work_lost_steps: float
    work_lost_frac: float | None

    def row(self) -> dict[str, float | None]:
        """Return one flat row of a table; a spread `jct_s` becomes `n_jct`, `jct_mean_s`, `jct_median_s` and so on."""
        row: dict[str, float | None] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            row.update(_columns(field.name, value) if field.name in _SPREADS else {field.name: value})
        return row


_SPREADS = ("tardiness_s", "jct_s", "queued_s", "waiting_s", "efficiency", "slowdown", "fairness")


def _columns(name: str, spread: Spread | None) -> dict[str, float | None]:
    stem, unit = (name[:-2], "_s") if name.endswith("_s") else (name, "")
    numbers = {
        f"{stem}_{field.name}{unit}": getattr(spread, field.name, None) for field in fields(Spread) if field.name != "n"
    }
    return {f"n_{stem}": spread.n if spread else 0, **numbers}


def summarize_cluster(
    jobs: Sequence[JobRecord],
    totals: ClusterTotals,
    *,
    alone_s: Mapping[JobId, float] | None,
    private_s: PrivateTime | None,
    least_device_s: Mapping[JobId, float] | None,
) -> ClusterSummary:
    """`jobs` in one set of numbers.

    What a journal cannot say comes as an argument; a job that is missing there is left out of the metrics that need it.

    Parameters
    ----------
    alone_s
        Seconds from start to landing if the job held its ceiling all the time, alone on the cluster.
    private_s
        Seconds from submission to landing if the job had 1/n of the cluster for itself, n being its `n_present`.
    least_device_s
        Device-seconds that the job's whole work costs with no loss: alone, on the number of devices that is fastest
        per device.
    """
    alone_s, least_device_s = alone_s or {}, least_device_s or {}
    device_s = fsum(job.device_s for job in jobs)
    core_s = fsum(job.core_s for job in jobs)
    useful_device_s = fsum(least_device_s[job.id] * job.done_frac for job in jobs if job.id in least_device_s)
    started = [job for job in jobs if job.started_at is not None]
    due = [job for job in jobs if job.deadline_s is not None and job.status != "stopped"]
    met = [job for job in due if job.on_time]
    return ClusterSummary(
        **asdict(totals),
        n_jobs=len(jobs),
        n_finished=_n(jobs, "finished"),
        n_failed=_n(jobs, "failed"),
        n_stopped=_n(jobs, "stopped"),
        n_rejected=_n(jobs, "turned away"),
        n_unfinished=_n(jobs, "unfinished"),
        n_never_started=len(jobs) - len(started),
        n_deadlines=len(due),
        n_deadlines_met=len(met),
        n_deadlines_open=sum(job.on_time is None for job in due),
        deadlines_met_frac=_ratio(len(met), len(due)),
        deadlines_met_weighted_frac=_ratio(fsum(job.weight for job in met), fsum(job.weight for job in due)),
        tardiness_s=Spread.of(_known(job.tardiness_s for job in jobs)),
        jct_s=Spread.of(_known(job.jct_s for job in jobs)),
        queued_s=Spread.of(_known(job.queued_s for job in jobs)),
        waiting_s=Spread.of(job.waiting_s for job in jobs),
        efficiency=Spread.of(_known(_ratio(alone_s.get(job.id), job.training_s) for job in jobs)),
        slowdown=Spread.of(_known(_ratio(job.jct_s, alone_s.get(job.id)) for job in jobs)),
        fairness=Spread.of(_known(_ratio(job.jct_s, private_s(job)) for job in jobs)) if private_s else None,
        granted_device_frac=_ratio(device_s, totals.capacity_device_s),
        granted_core_frac=_ratio(core_s, totals.capacity_core_s),
        useful_device_frac=_ratio(useful_device_s, totals.capacity_device_s) if least_device_s else None,
        device_h=device_s / 3600,
        core_h=core_s / 3600,
        resizes_per_job=_ratio(sum(job.n_resizes for job in started), len(started)),
        preemptions_per_job=_ratio(sum(job.n_preemptions for job in started), len(started)),
        n_failures=sum(job.n_failures for job in jobs),
        n_grants_failed=sum(job.n_grants_failed for job in jobs),
        work_lost_steps=fsum(job.work_lost_steps for job in jobs),
        work_lost_frac=_work_lost_frac(jobs),
    )


def _n(jobs: Iterable[JobRecord], status: Outcome) -> int:
    return sum(job.status == status for job in jobs)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _ratio(part: float | None, total: float | None) -> float | None:
    return part / total if part is not None and total else None


def _work_lost_frac(jobs: Iterable[JobRecord]) -> float | None:
    shares = [_ratio(job.work_lost_steps, job.work_lost_steps + job.steps_done) for job in jobs]
    spread = Spread.of(_known(shares))
    return spread.mean if spread else None
