"""Allocation of a batch system around a command: it ends at a given time, with all that runs in it."""

import os
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Timer

from punctual.cli._streams import write_error
from punctual.core.units import span
from punctual.daemon.follower import JobFollower
from punctual.executors.local.job_signals import ALLOCATION_END_VARIABLE, allocation_left_s
from punctual.executors.slurm_commands import SlurmFailure, slurm_answer
from punctual.request.submission import Submission

#: Seconds that Slurm's controller may take to answer before the command goes on without.
ANSWER_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class SlurmAllocation:
    """End of an allocation, and the instant at which its jobs are asked to stop; monotonic seconds."""

    ends_at: float
    stop_at: float


def allocation(environment: Mapping[str, str] = os.environ, *, grace_s: float | None = None) -> SlurmAllocation | None:
    """Return the allocation that this command runs in; None: there is none, or its end is not known.

    Jobs are asked to stop a fiftieth of the time left before its end, but 1 to 5 minutes before it; with less than ten
    minutes left, a tenth. Where they are to have `grace_s` to end, it is no later than that, but not in the first half.
    """
    left_s = allocation_left_s(environment)
    if left_s is None:
        return None
    lead_s = min(left_s / 10, 300.0, max(60.0, left_s / 50))
    if grace_s is not None:
        lead_s = max(lead_s, min(grace_s, left_s / 2))
    now = time.monotonic()
    return SlurmAllocation(now + left_s, now + left_s - lead_s)


def note_end(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variable with the allocation's end, for this command and its jobs, where Slurm left it empty or moved the end."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdecimal() or allocation_left_s(environment) is not None:
        return
    for line in _answer_of_squeue(job, environment).splitlines():
        *other, text = line.split() or [""]
        if other not in ([], [job]):  # another task of the array, or another part of the heterogeneous job
            continue
        with suppress(ValueError, OverflowError):  # "N/A", "Unknown"
            environment[ALLOCATION_END_VARIABLE] = str(int(datetime.fromisoformat(text).timestamp()))


def _answer_of_squeue(job: str, environment: Mapping[str, str]) -> str:
    """Return lines with a job's number and its end, in local time; nothing if Slurm does not answer."""
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%A %e"]
    try:
        return slurm_answer(command, {**environment, "SLURM_TIME_FORMAT": "standard"}, ANSWER_S_MAX)
    except SlurmFailure:
        return ""


def longest_grace_s(submissions: Sequence[Submission]) -> float | None:
    """Longest grace period of these jobs, in seconds; None: none of them has one."""
    return max((s.spec.ends.grace_s for s in submissions if s.spec.ends.grace_s is not None), default=None)


def warn_of_end(submissions: Sequence[Submission], end: SlurmAllocation | None) -> None:
    """Warn of each job whose deadline is later than the instant at which it will be asked to stop."""
    if end is None:
        return
    for submission in submissions:
        spec, began_at = submission.spec, submission.submitted_at
        if spec.deadline_s is None or began_at + spec.deadline_s <= end.stop_at:
            continue
        behind_s = began_at + spec.deadline_s - end.ends_at
        where = f"{span(behind_s)} {'after' if behind_s > 0 else 'before'}"
        write_error(
            f"punctual: warning: the deadline of job '{spec.id}' is {where} the end of this Slurm allocation, and the job is "
            f"asked to stop {span(end.ends_at - end.stop_at)} before that end. Give an earlier deadline, or ask "
            "Slurm for more time (sbatch --time)."
        )


@contextmanager
def stopped_before_end(host: JobFollower, end: SlurmAllocation | None) -> Iterator[None]:
    """Ask this command's jobs of `host` to stop before the allocation ends, while the block runs."""
    if end is None:
        yield
        return
    timer = Timer(max(0.0, end.stop_at - time.monotonic()), _stop_all, [host])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _stop_all(host: JobFollower) -> None:
    for job in host.job_ids:
        host.stop(job, "the end of the Slurm allocation")
