"""Metrics of a service, and their text for Prometheus (text format, version 0.0.4)."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple, get_args

from punctual.api.standing import cluster_standing
from punctual.api.status_json_cache import StatusJsonCache
from punctual.core.status import JobStatus, ToldState
from punctual.core.verdict import remaining_time, slack_s, verdict
from punctual.daemon.host import Host
from punctual.history.judge import Wait
from punctual.request.deadlines import Now

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """A value with its labels, and their text for Prometheus: made at once, because samples are cached."""

    labels: Mapping[str, str]
    value: float
    line: str


class Metric(NamedTuple):
    """A metric of several jobs or nodes, with their present values."""

    name: str
    text: str
    samples: Sequence[Sample]


#: The sample of a job in each metric of `_OF_JOBS`; None: it has none there.
JobMetrics = tuple[Sample | None, ...]

#: Name and help of each metric of jobs. All but the first leave out jobs that have ended.
_OF_JOBS = (
    ("punctual_job_verdict", "How the job stands against its deadline."),
    ("punctual_job_progress_ratio", "Share of the steps that is done."),
    ("punctual_job_granted_cores", "Cores the job holds."),
    ("punctual_job_used_cores", "Cores the job uses."),
    ("punctual_job_memory_bytes", "Memory the job holds."),
    ("punctual_job_remaining_seconds", "Expected time to its landing."),
    ("punctual_job_slack_seconds", "How much later it may land and be in time."),
)


def metrics(host: Host, kept: StatusJsonCache[JobMetrics]) -> list[Metric]:
    """Return the metrics of jobs and nodes; `kept` caches the results of `job_metrics`."""
    now, cluster = host.clocks(), cluster_standing(host)
    states = [({"state": state}, float(cluster.jobs_by_state.get(state, 0))) for state in get_args(ToldState)]
    told = [_metric("punctual_jobs", "Jobs by state, those that have ended lately included.", states)]
    for kind in ("capacity", "held", "free"):
        amounts = [({"node": node.name}, getattr(node, kind).cores) for node in cluster.nodes]
        told.append(_metric(f"punctual_node_{kind}_cores", f"Cores of a node: {kind}.", amounts))
        amounts = [({"node": node.name}, getattr(node, kind).memory_bytes) for node in cluster.nodes]
        told.append(_metric(f"punctual_node_{kind}_memory_bytes", f"Memory of a node: {kind}.", amounts))
    for name, text, usd in (
        ("punctual_usd_per_hour", "Dollars an hour that the machines of pools cost now.", cluster.usd_per_hour),
        ("punctual_spent_usd", "Dollars spent since the first machine.", cluster.spent_usd),
    ):
        told.append(_metric(name, text, [] if usd is None else [({}, usd)]))
    jobs = host.jobs()
    costs = [(each.id, host.spent_usd(each.id)) for each in jobs if not each.ended]
    spent = [_sample("punctual_job_spent_usd", {"job": job}, usd) for job, usd in costs if usd is not None]
    told.append(Metric("punctual_job_spent_usd", "Dollars that the job has cost so far.", spent))
    of_jobs = kept.of_all(jobs, now)
    for i, (name, text) in enumerate(_OF_JOBS):
        told.append(Metric(name, text, [sample for job in of_jobs if (sample := job[i]) is not None]))
    return told


def metrics_text(host: Host, kept: StatusJsonCache[JobMetrics]) -> str:
    """Return `metrics` in Prometheus's format."""
    lines = []
    for metric in metrics(host, kept):
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} gauge"]
        lines += [sample.line for sample in metric.samples]
    return "\n".join(lines) + "\n"


def job_metrics(status: JobStatus, now: Now, _wait: Wait) -> JobMetrics:
    """Make the samples of one job, for `StatusJsonCache`."""
    told, remaining = verdict(status, now.at), remaining_time(status, now.at)
    remaining_s = None if remaining is None else remaining.expected_s
    used = status.usage_cores, status.memory_bytes
    values = (status.done_frac, status.held.cores, *used, remaining_s, slack_s(status, now.at))
    job = {"job": status.id}
    samples = [None if told is None else _sample(_OF_JOBS[0][0], {**job, "verdict": told}, 1.0)]
    for (name, _), value in zip(_OF_JOBS[1:], values, strict=True):
        is_told = value is not None and isfinite(value) and not status.ended
        samples.append(_sample(name, job, value or 0.0) if is_told else None)
    return tuple(samples)


def _metric(name: str, text: str, values: Sequence[tuple[Mapping[str, str], float]]) -> Metric:
    return Metric(name, text, [_sample(name, labels, value) for labels, value in values])


def _sample(name: str, labels: Mapping[str, str], value: float) -> Sample:
    told = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
    return Sample(labels, value, f"{name}{{{told}}} {value:.15g}")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
