"""What the end of a process means for its job."""

import signal
from collections.abc import Mapping
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished
from punctual.core.program import Program
from punctual.executors.local.faults import found_faults
from punctual.executors.local.job_events import JobEvents
from punctual.executors.local.launch import JobProcess
from punctual.wire import EXIT_LEFT

#: Exit codes of a program that would fail in the same way again, as shells and command lines have them: it was called
#: wrongly, it may not be executed, it was not found.
_EXITS_FINAL = (2, 126, 127)


def end_event(
    events: JobEvents, program: Program, process: JobProcess, last: Mapping[str, Any] | None, stop_cause: str | None
) -> JobFinished | JobFailed:
    """The last event about a job.

    Parameters
    ----------
    last
        The keeper's last line; None: it was killed.
    stop_cause
        Why the job was asked to end; None: it was not.
    """
    stopped = None if stop_cause is None else stopped_by(stop_cause)
    if last is None:
        return events.failed(stopped or "its keeper was killed, and the job with it", retryable=stopped is None)
    if "failed" in last:
        return events.failed(stopped or _not_run(program, last["failed"]), last["code"])
    code = int(last["ended"])
    if code == 0 and (stopped is None or process.sample().all_steps_done):
        return events.finished(process.progress.landed_at() or last["at_ns"] / 1e9)
    return events.failed(stopped or cause_of(code), code, retryable=stopped is None and is_retryable(code))


def is_retryable(code: int) -> bool:
    """Whether a program that ended with this code, which is not 0, may succeed when it is started again."""
    return code not in _EXITS_FINAL


def has_left(last: Mapping[str, Any] | None) -> bool:
    """Whether the process has ended because it was told to leave, with a checkpoint that it goes on from."""
    return last is not None and last.get("ended") == EXIT_LEFT


def faults_of(events: JobEvents, process: JobProcess) -> list[InvalidSpec]:
    """Return the faults of a job that ended with success; a job that does not report its progress has none."""
    if not process.is_tracked:
        return []
    sample = process.sample()
    return found_faults(
        events.job,
        faults=process.progress.faults,
        reported=sample.unit_at is not None,
        steps_done=sample.steps_done,
        steps_total=sample.steps_total,
    )


def stopped_by(cause: str) -> str:
    """The cause of the end of a job that was stopped."""
    return f"stopped: {cause}"


def _not_run(program: Program, why: str) -> str:
    return (
        f"the program must be one that can be run: got {program.argv[0]!r} ({why}) for the command line. "
        "Check its name and that it may be executed."
    )


def cause_of(code: int) -> str:
    """Why a process ended whose exit code, as a shell has it, is not 0."""
    if code <= 128:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"its process ended with exit code {code}"
