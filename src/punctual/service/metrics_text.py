"""Metrics as Prometheus reads them (text format, version 0.0.4)."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import get_args

from punctual.core.job import JobState
from punctual.core.status import JobStatus
from punctual.core.verdict import remaining_time, slack_s, verdict
from punctual.runtime.local_host import LocalHost
from punctual.runtime.when import Now
from punctual.service.kept_texts import KeptTexts
from punctual.service.standing import cluster_standing

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: A value, and the labels that say of what.
Sample = tuple[Mapping[str, str], float]
#: The line of a job in each metric of `_OF_JOBS`; empty: it has none there.
JobMetrics = tuple[str, ...]

#: Name and help of each metric of jobs. All but the first leave out jobs that have ended.
_OF_JOBS = (
    ("punctual_job_verdict", "How the job stands against its deadline."),
    ("punctual_job_progress_ratio", "Share of the steps that is done."),
    ("punctual_job_granted_cores", "Cores the job holds."),
    ("punctual_job_used_cores", "Cores the job uses."),
    ("punctual_job_remaining_seconds", "Expected time to its landing."),
    ("punctual_job_slack_seconds", "How much later it may land and be in time."),
)


def metrics_text(host: LocalHost, kept: KeptTexts[JobMetrics]) -> str:
    """How jobs and nodes stand; `kept` has the lines that `job_metrics` makes."""
    now, cluster = host.clocks(), cluster_standing(host)
    lines = []
    states = [({"state": state}, cluster.jobs_by_state.get(state, 0)) for state in get_args(JobState)]
    lines += _metric("punctual_jobs", "Jobs by state, those that have ended lately included.", states)
    for kind in ("capacity", "held", "free"):
        amounts = [({"node": node.name}, getattr(node, kind).cores) for node in cluster.nodes]
        lines += _metric(f"punctual_node_{kind}_cores", f"Cores of a node: {kind}.", amounts)
    of_jobs = kept.of_all(host.jobs(), now)
    for i, (name, text) in enumerate(_OF_JOBS):
        lines += [*_head(name, text), *(job[i] for job in of_jobs if job[i])]
    return "\n".join(lines) + "\n"


def job_metrics(status: JobStatus, now: Now) -> JobMetrics:
    """The lines of one job, as `KeptTexts` makes them."""
    told, remaining = verdict(status, now.at), remaining_time(status, now.at)
    remaining_s = None if remaining is None else remaining.expected_s
    values = (status.done_frac, status.held.cores, status.usage_cores, remaining_s, slack_s(status))
    job = {"job": status.id}
    lines = [""] if told is None else [_line(_OF_JOBS[0][0], {**job, "verdict": told}, 1)]
    for (name, _), value in zip(_OF_JOBS[1:], values, strict=True):
        is_told = value is not None and isfinite(value) and not status.ended
        lines.append(_line(name, job, value or 0.0) if is_told else "")
    return tuple(lines)


def _metric(name: str, text: str, samples: Iterable[Sample]) -> list[str]:
    return [*_head(name, text), *(_line(name, labels, value) for labels, value in samples)]


def _head(name: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    told = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
    return f"{name}{{{told}}} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
