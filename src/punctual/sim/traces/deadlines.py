"""Deadlines for jobs that have none, by rules of the literature.

A job's deadline depends on the seed, the rule and the job's name only: it stays the same when other jobs are left out,
or when they are put in another order.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from punctual.core.errors import InvalidSpec, check_not_negative, check_share
from punctual.sim.traces.draw import fraction
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.named import check_bounds


class DeadlineRule(Protocol):
    """Turns a job into the same job with, or without, a deadline."""

    def apply(self, job: TraceJob, seed: int) -> TraceJob:
        """`job` with the deadline the rule gives it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The deadlines the trace has."""

    def apply(self, job: TraceJob, seed: int) -> TraceJob:
        """Return `job` unchanged."""
        return job


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformSlack:
    """A deadline at a random multiple of the job's duration.

    Parameters
    ----------
    low, high
        Bounds of the multiple. The defaults are the rule of ElasticFlow's traces: half of its jobs can only be on time
        if they get more devices than they ran with.
    share_frac
        Share of the jobs that get a deadline, whether the trace calls them best-effort or not; the others have none.

    Notes
    -----
    *Formula*: deadline = submission + U(low, high) × duration.

    *Source*: [elasticflow2023], by its published traces.
    """

    low: float = 0.5
    high: float = 1.5
    share_frac: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("uniform-slack", low=self.low, high=self.high)
        check_share("uniform-slack", share_frac=self.share_frac)

    def apply(self, job: TraceJob, seed: int) -> TraceJob:
        """`job` with a deadline of this rule, or with none."""
        if fraction(seed, "has deadline", job.id) >= self.share_frac:
            return replace(job, deadline_s=None)
        multiple = self.low + (self.high - self.low) * fraction(seed, "slack", job.id)
        return replace(job, deadline_s=multiple * _duration_s(job), best_effort=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChronusDeadlines:
    """Deadlines at a random multiple of the duration plus some time; best-effort jobs have none.

    Parameters
    ----------
    low, high
        Bounds of the multiple.
    extra_s
        Upper bound of the time on top, seconds.
    best_effort_frac
        Share of the jobs without a deadline: 0 as in Chronus's trace `SLO`, 0.3 as in `MIX1`.

    Notes
    -----
    *Formula*: deadline = submission + U(low, high) × duration + U(0, extra).

    *Source*: read off the traces published with [chronus2021], whose code has the result but not the rule. All of their
    strict deadlines lie within these bounds.

    *Differs*: in the traces, jobs of more than 1,000 minutes have somewhat tighter deadlines (median 1.49 times the
    duration, by the rule 1.56).
    """

    low: float = 1.1
    high: float = 2.0
    extra_s: float = 3600.0
    best_effort_frac: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("chronus", low=self.low, high=self.high)
        check_not_negative("chronus", extra_s=self.extra_s)
        check_share("chronus", best_effort_frac=self.best_effort_frac)

    def apply(self, job: TraceJob, seed: int) -> TraceJob:
        """`job` with a deadline of this rule, or as a best-effort job."""
        if fraction(seed, "best effort", job.id) < self.best_effort_frac:
            return replace(job, deadline_s=None, best_effort=True)
        multiple = self.low + (self.high - self.low) * fraction(seed, "slack", job.id)
        extra_s = self.extra_s * fraction(seed, "extra", job.id)
        return replace(job, deadline_s=multiple * _duration_s(job) + extra_s, best_effort=False)


#: The rules by the names that scenario files use.
RULES: Mapping[str, type[DeadlineRule]] = {"keep": Keep, "uniform-slack": UniformSlack, "chronus": ChronusDeadlines}


def assign(jobs: Iterable[TraceJob], rule: DeadlineRule, seed: int) -> Iterator[TraceJob]:
    """`jobs` with the deadlines that `rule` gives them.

    Raises
    ------
    InvalidSpec
        The rule needs a duration and a job has none.
    """
    return (rule.apply(job, seed) for job in jobs)


def _duration_s(job: TraceJob) -> float:
    if job.duration_s is None:
        raise InvalidSpec(
            "a deadline by duration needs a duration", "none", f"job '{job.id}'",
            "Keep the trace's own deadlines (rule 'keep'), or take a trace with durations.",
        )  # fmt: skip
    return job.duration_s
