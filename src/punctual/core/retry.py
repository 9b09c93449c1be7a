"""Whether a job that failed is launched again."""

from punctual.core.events import JobFailed
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.story import Reason


def fault_of_retry(job: ScheduledJob, event: JobFailed) -> Reason | None:
    """Count the failure `event`, which may be retried; why it is not retried, or None if it is.

    A program that fails in the same way, without a step between that it had never done before, would fail in the same way
    again. Without an exit code it was not the program that failed.
    """
    is_same = job.last_failure == (event.cause, event.exit_code, job.most_steps) and event.exit_code is not None
    job.last_failure = (event.cause, event.exit_code, job.most_steps)
    job.n_failures += 1
    if job.stop_cause is not None and not job.restarts:
        return Reason("stopped", f"it was asked to stop: {job.stop_cause}")
    if is_same:
        text = f"{event.cause}; it had failed in the same way before, and had done no new step since"
        return Reason("failed-again", text)
    if job.n_failures > job.n_retries:
        times = "once" if job.n_failures == 1 else f"{job.n_failures} times in a row"
        return Reason(
            "no-retries-left", f"{event.cause}; it has failed {times}, and {job.n_retries} retries are allowed"
        )
    return None


def told_of_retry(job: ScheduledJob, cause: str, wait_s: float) -> Reason:
    """That the job is launched again."""
    text = (
        f"{cause}; retry {job.n_failures} of {job.n_retries} in {wait_s:g} s, from its last checkpoint if it made one"
    )
    return Reason("retried", text, {"n_failures": job.n_failures, "n_retries": job.n_retries, "wait_s": wait_s})
