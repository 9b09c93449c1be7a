"""Interpret the end of a process for its job."""

import re
import signal
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from punctual.channel import Fault
from punctual.core.commands import StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished
from punctual.core.ids import JobId
from punctual.core.program import Program
from punctual.executors.local.job_events import JobEvents
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


def found_faults(
    job: JobId,
    *,
    faults: AbstractSet[Fault],
    reported: bool,
    steps_done: float,
    steps_total: float | None,
) -> list[InvalidSpec]:
    """Return the faults of a successful job that reports its progress; empty if it did all that it had declared.

    * `faults`: faults that the job's own process noticed.
    * `reported`: whether it reported any progress.
    """
    where = f"job '{job}'"
    if Fault.ZERO_STEPS in faults and not steps_done:
        remedy = "Check that the loader is not empty and that the number of epochs or steps is above zero."
        return [InvalidSpec("a training must have at least one step", "0 steps", where, remedy)]
    if not reported:
        return [InvalidSpec("a job must report its progress", "no report until its end", where, _REPORT)]
    total = steps_total or 0.0
    if Fault.MORE_STEPS in faults or steps_done > total > 0:
        must = "a training must not take more steps than it declared"
        return [InvalidSpec(must, f"{steps_done:.12g} steps", where, _DECLARE)]
    if steps_done < total:
        must = f"a training must take the {total:.12g} steps it declared"
        return [InvalidSpec(must, f"{steps_done:.12g} steps", where, _FINISH)]
    return []


def end_event(
    events: JobEvents,
    program: Program,
    sample: ProgressSample,
    landed_at: float | None,
    last: Mapping[str, Any] | None,
    stop: StopJob | None,
    seen_bytes: int = 0,
    last_output: Callable[[], str] = str,
) -> JobFinished | JobFailed:
    """Return the last event about a job.

    * `sample`, `landed_at`: its last progress, and the instant of its results; None: the end of its process.
    * `last`: the supervisor's last line; None: it was killed.
    * `stop`: the command to end; None: there was none.
    * `seen_bytes`: the most memory that its processes were seen to hold.
    * `last_output`: the end of what the process has written.
    """
    code = None if last is None else last["code"] if "failed" in last else int(last["ended"])
    if last is not None and code == 0 and (stop is None or sample.all_steps_done):
        return events.finished(landed_at or last["at_ns"] / 1e9)
    if stop is not None:
        return events.stopped(stop, code)
    if last is None:
        return events.failed("its supervisor was killed, and the job with it", retryable=True)
    if "failed" in last:
        return events.failed(_not_run(program, last["failed"]), code)
    code = int(last["ended"])
    cause, out_of_memory = cause_of_failure(last, seen_bytes)
    cause += _of_device_memory(last_output())
    return events.failed(cause, code, retryable=is_retryable(code) or out_of_memory, out_of_memory=out_of_memory)


def cause_of_failure(last: Mapping[str, Any], seen_bytes: int = 0) -> tuple[str, bool]:
    """Return why a process failed, and whether it needed more memory than it asked for.

    * `last`: the supervisor's last line.
    * `seen_bytes`: the most memory that its processes were seen to hold.
    """
    code = int(last["ended"])
    lack = lack_of_memory(last.get("counted", {}), code, seen_bytes)
    if lack is None:
        return cause_of(code), False
    return f"{lack[0]}; {cause_of(code)}", lack[1]


def is_retryable(code: int) -> bool:
    """Whether a program that ended with this code, which is not 0, may succeed when it is started again."""
    return code not in _EXITS_FINAL


def faults_of(events: JobEvents, process: JobProcess, sample: ProgressSample) -> list[InvalidSpec]:
    """Return the faults of a job that ended with success; a job that does not report its progress has none."""
    if not process.is_tracked:
        return []
    return found_faults(
        events.job,
        faults=process.progress.faults,
        reported=sample.unit_at is not None,
        steps_done=sample.steps_done,
        steps_total=sample.steps_total,
    )


def _not_run(program: Program, why: str) -> str:
    if program.cwd is not None and why.endswith(f": '{program.cwd}'"):
        return f"the job's folder must be there: got {why}. Make it again, or submit the job from another one."
    return (
        f"the program must be one that can be run: got {program.argv[0]!r} ({why}) for the command line. "
        "Check its name, that it may be executed, and that its first line names an interpreter that is there (`#!/bin/sh`)."
    )


def _of_device_memory(output: str) -> str:
    """Return an addition to the cause of failure if the last output shows that a device's memory was exhausted."""
    if not _OUT_OF_DEVICE_MEMORY.search(output):
        return ""
    return ": there was not enough memory on its device for what it and others hold there"


def cause_of(code: int) -> str:
    """Describe why a process ended with this exit code, not 0, as a shell has it."""
    if code <= 128:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"its process ended with exit code {code}"
