"""Decide whether to launch a failed job again, and to repeat a command that had no effect."""

from punctual.core.events import GrantFailed, JobFailed
from punctual.core.job import stop_code
from punctual.core.reason import Reason
from punctual.core.scheduled_job import Periods, ScheduledJob
from punctual.core.units import format_bytes, span


def fault_of_retry(job: ScheduledJob, event: JobFailed) -> Reason | None:
    """Count the failure `event`, which may be retried. Returns why it is not retried, or None.

    A program that fails in the same way, without a step between that it had never done before, would fail in the same way
    again. Without an exit code it was not the program that failed. One that has run out of the memory that it asked for is
    retried only if it is to have more then, which is no failure of its program.
    """
    is_same = job.last_failure == (event.cause, event.exit_code, job.most_steps) and event.exit_code is not None
    job.last_failure = (event.cause, event.exit_code, job.most_steps)
    if job.stop_cause is not None and not job.restarts:
        return Reason(stop_code(job.stop_cause), f"it was asked to stop: {job.stop_cause}")
    if event.out_of_memory:
        return None if job.spec.with_more_memory() else Reason("out-of-memory", _without_more(job, event.cause))
    job.n_failures += 1
    if is_same:
        text = f"{event.cause}; it had failed in the same way before, and had done no new step since"
        return Reason("failed-again", text)
    if job.n_failures > job.n_retries:
        return Reason("no-retries-left", f"{event.cause}{_limit_text(job)}")
    return None


def _limit_text(job: ScheduledJob) -> str:
    """Return a text that says that all retries are used up; empty if the user asked for none."""
    if not job.n_retries:
        return ""
    allowed = "1 retry is" if job.n_retries == 1 else f"{job.n_retries} retries are"
    return f"; it has failed {job.n_failures} times in a row, and {allowed} allowed"


def after_refusal(
    job: ScheduledJob, event: GrantFailed, periods: Periods, *, was_launch: bool
) -> tuple[float | None, Reason | None]:
    """Count a command without effect. Returns the seconds until it is repeated, and a warning for the user.

    None: it is not, and that is why. What the job's node is short of comes back when something else ends: the job waits for it
    however often it must, and longer each time.
    """
    if event.short_of:
        job.n_shortages += 1
        reason = Reason("waits-for-room", f"it waits for {event.short_of}: {event.cause}")
        return periods.retry_after_s(job.n_shortages), reason if job.n_shortages == 1 else None
    job.n_failures += was_launch
    if was_launch and job.n_failures > job.n_retries:
        return None, Reason("not-started", f"it could not be started in {job.n_failures} attempts: {event.cause}")
    return periods.retry_s, None


def _without_more(job: ScheduledJob, cause: str) -> str:
    asked_bytes = job.spec.asked_memory_bytes
    asked, more = (format_bytes(n_bytes).replace(" ", "") for n_bytes in (asked_bytes, 2 * asked_bytes))
    return f"{cause}. Ask for more (`--memory {more}`), or have it started again with more (`--memory {asked}..{more}`)"


def retry_reason(job: ScheduledJob, event: JobFailed) -> Reason:
    """Return the reason for launching the job again after `event`, once it has waited."""
    wait_s = job.retry_at - event.at
    facts = {"n_failures": job.n_failures, "n_retries": job.n_retries, "wait_s": wait_s}
    again = f"retry {job.n_failures} of {job.n_retries}"
    if event.out_of_memory:
        again = f"started again with {format_bytes(job.spec.asked_memory_bytes)}"
        facts["memory_bytes"] = job.spec.asked_memory_bytes
    text = f"{event.cause}; {again} in {span(wait_s)}, from its last checkpoint if it made one"
    return Reason("retried", text, facts)
