"""Work of a job, estimated from an earlier run of the same command."""

from collections.abc import Sequence
from contextlib import suppress

from punctual.core.errors import InvalidSpec
from punctual.daemon.runs import KnownJob, find_job, jobs_of, known_jobs, known_runs, messages_of
from punctual.history.run import RunSummary, summarize


def run_like(name: str) -> RunSummary:
    """Sum up an earlier job. Raises `InvalidSpec`: there is no such job, or it has not finished."""
    earlier = find_job(name, known_jobs())
    told = _summary(earlier)
    if told is None or told.status != "finished" or told.used_core_s <= 0:
        raise InvalidSpec(
            "`--like` must name a job that has finished",
            "one that has not" if told is None or told.status is None else f"one that has {told.status}",
            f"job '{earlier.title}'",
            "Say the core time yourself (`--work 30m`).",
            option="like",
        )
    return told


def core_s_of_same_program(argv: Sequence[str]) -> float | None:
    """Core-seconds of the last finished job with the same command line; None: there is none."""
    same = [
        (str(facts[job.job].get("submitted_wall", "")), job)
        for run in known_runs()
        if (facts := run.all_end_facts())
        for job in jobs_of(run)
        if job.steering == "ended" and facts.get(job.job, {}).get("argv") == list(argv)
    ]
    summaries = (_summary(job) for _, job in sorted(same, key=lambda pair: pair[0], reverse=True))
    last = next((summary for summary in summaries if summary is not None and summary.status == "finished"), None)
    return last.used_core_s if last is not None and last.used_core_s > 0 else None


def _summary(job: KnownJob) -> RunSummary | None:
    """Summarise the job from its journal; None: the journal has no such job."""
    messages = messages_of(job.run, [job.job])
    with suppress(InvalidSpec):
        return summarize(messages, job.job)
    return None
