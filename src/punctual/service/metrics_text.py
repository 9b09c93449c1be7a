"""Metrics as Prometheus reads them (text format, version 0.0.4)."""

from collections.abc import Iterable, Mapping
from typing import get_args

from punctual.core.job import JobState
from punctual.runtime.local_host import LocalHost
from punctual.service.schema import JobStanding
from punctual.service.standing import cluster_standing, job_standing

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: A value, and the labels that say of what.
Sample = tuple[Mapping[str, str], float]

#: Name, help and field of each metric of a job that has not ended.
_OF_JOBS = (
    ("punctual_job_progress_ratio", "Share of the steps that is done.", "progress_percentage", 0.01),
    ("punctual_job_granted_cores", "Cores the job holds.", "granted_cores", 1.0),
    ("punctual_job_used_cores", "Cores the job uses.", "used_cores", 1.0),
    ("punctual_job_remaining_seconds", "Expected time to its landing.", "estimated_remaining_seconds", 1.0),
    ("punctual_job_slack_seconds", "How much later it may land and be in time.", "slack_seconds", 1.0),
)


def metrics_text(host: LocalHost) -> str:
    """How jobs and nodes stand."""
    now, cluster = host.clocks(), cluster_standing(host)
    jobs = [job_standing(host, status, now) for status in host.jobs()]
    lines = []
    states = [({"state": state}, cluster.jobs_by_state.get(state, 0)) for state in get_args(JobState)]
    lines += _metric("punctual_jobs", "Jobs by state, those that have ended lately included.", states)
    for kind in ("capacity", "held", "free"):
        amounts = [({"node": node.name}, getattr(node, kind).cores) for node in cluster.nodes]
        lines += _metric(f"punctual_node_{kind}_cores", f"Cores of a node: {kind}.", amounts)
    verdicts = [({"job": job.name, "verdict": job.verdict}, 1) for job in jobs if job.verdict is not None]
    lines += _metric("punctual_job_verdict", "How the job stands against its deadline.", verdicts)
    for name, text, field, scale in _OF_JOBS:
        lines += _metric(name, text, _samples([job for job in jobs if job.ended is None], field, scale))
    return "\n".join(lines) + "\n"


def _samples(jobs: Iterable[JobStanding], field: str, scale: float) -> list[Sample]:
    told = [(job.name, getattr(job, field)) for job in jobs]
    return [({"job": name}, scale * value) for name, value in told if value is not None]


def _metric(name: str, text: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    for labels, value in samples:
        told = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
        lines.append(f"{name}{{{told}}} {value:g}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
