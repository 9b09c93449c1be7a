"""Interpret the end of a process for its job."""

import re
import signal
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from punctual.channel import EXIT_PREEMPTED, Fault
from punctual.core.commands import StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished
from punctual.core.ids import JobId
from punctual.core.program import Program
from punctual.executors.local.launch import JobProcess
from punctual.executors.local.memory import lack_of_memory
from punctual.executors.local.progress import ProgressSample

#: Exit codes of a program that would fail in the same way again, as shells and command lines have them: it was called
#: wrongly, it may not be executed, it was not found.
_EXITS_FINAL = (2, 126, 127)
#: Messages of frameworks when a device's memory is exhausted: PyTorch, JAX, TensorFlow.
_OUT_OF_DEVICE_MEMORY = re.compile(
    r"(CUDA|HIP|device|GPU)[^\n]{0,40} out of memory|out of device memory|RESOURCE_EXHAUSTED|OOM when allocating"
)

_DECLARE = "Declare all steps at the first `punctual.track`, and put evaluation into `punctual.phase`."
_FINISH = "Declare the steps that it takes, or say with `run.finish()` that it is done before the last."
_REPORT = "Go through the batches with `punctual.track`."


def found_faults(job: JobId, noticed: AbstractSet[Fault], sample: ProgressSample) -> list[InvalidSpec]:
    """Return the faults of a successful job that reports its progress; empty if it did all that it had declared.

    * `noticed`: faults that the job's own process noticed.
    * `sample`: its last progress.
    """
    where, done, total = f"job '{job}'", sample.steps_done, sample.steps_total or 0.0
    if Fault.ZERO_STEPS in noticed and not done:
        remedy = "Check that the loader is not empty and that the number of epochs or steps is above zero."
        return [InvalidSpec("a training must have at least one step", "0 steps", where, remedy)]
    if sample.unit_at is None:
        return [InvalidSpec("a job must report its progress", "no report until its end", where, _REPORT)]
    if Fault.MORE_STEPS in noticed or done > total > 0:
        must = "a training must not take more steps than it declared"
        return [InvalidSpec(must, f"{done:.12g} steps", where, _DECLARE)]
    if done < total:
        must = f"a training must take the {total:.12g} steps it declared"
        return [InvalidSpec(must, f"{done:.12g} steps", where, _FINISH)]
    return []


def end_event(
    job: JobId,
    process: JobProcess,
    sample: ProgressSample,
    landed_at: float | None,
    last: Mapping[str, Any] | None,
    stop: StopJob | None,
) -> JobFinished | JobFailed:
    """Return the last event about a job.

    * `sample`, `landed_at`: its last progress, and the instant of its results; None: the end of its process.
    * `last`: the supervisor's last line; None: it was killed.
    * `stop`: the command to end; None: there was none.
    """
    now = time.monotonic()
    code = None if last is None else last["code"] if "failed" in last else int(last["ended"])
    if last is not None and code == 0 and (stop is None or sample.all_steps_done):
        return JobFinished(at=now, job=job, landed_at=landed_at or last["at_ns"] / 1e9)
    if stop is not None:
        return stopped(stop, code)
    if last is None:
        return JobFailed(at=now, job=job, cause="its supervisor was killed, and the job with it", retryable=True)
    if "failed" in last:
        return JobFailed(at=now, job=job, cause=_not_run(process.program, last["failed"]), exit_code=code)
    seen_bytes = 0 if process.group is None else process.group.memory.peak_bytes
    return failed(job, now, last, seen_bytes, process.last_output())


def stopped(stop: StopJob, exit_code: int | None = None) -> JobFailed:
    """Return the end of a job that was asked to end by `stop`."""
    return JobFailed(
        at=time.monotonic(),
        job=stop.job,
        cause=stop.cause,
        exit_code=exit_code,
        retryable=stop.restarts,
        is_stopped=stop.moves or not stop.restarts,
        is_due=stop.is_due,
        has_saved=exit_code == EXIT_PREEMPTED,
    )


def failed(job: JobId, at: float, last: Mapping[str, Any], seen_bytes: int = 0, output: str = "") -> JobFailed:
    """Return the end of a job whose process has failed.

    * `last`: the supervisor's last line.
    * `seen_bytes`: the most memory that its processes were seen to hold.
    * `output`: the end of what it has written.
    """
    code = int(last["ended"])
    lack, needed_more = lack_of_memory(last.get("counted", {}), code, seen_bytes) or ("", False)
    cause = f"{lack}; {_cause_of(code)}" if lack else _cause_of(code)
    if _OUT_OF_DEVICE_MEMORY.search(output):
        cause += ": there was not enough memory on its device for what it and others hold there"
    retryable = code not in _EXITS_FINAL or needed_more
    return JobFailed(at=at, job=job, cause=cause, exit_code=code, retryable=retryable, out_of_memory=needed_more)


def _not_run(program: Program, why: str) -> str:
    if program.cwd is not None and why.endswith(f": '{program.cwd}'"):
        return f"the job's folder must be there: got {why}. Make it again, or submit the job from another one."
    return (
        f"the program must be one that can be run: got {program.argv[0]!r} ({why}) for the command line. "
        "Check its name, that it may be executed, and that its first line names an interpreter that is there (`#!/bin/sh`)."
    )


def _cause_of(code: int) -> str:
    """Describe why a process ended with this exit code, not 0, as a shell has it."""
    if code <= 128:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"its process ended with exit code {code}"
