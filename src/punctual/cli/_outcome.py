"""Outcome of a job, in its command's closing words."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from punctual.channel import DeviceUse, WorkerStatus
from punctual.cli._errors import EXIT_USER_ERROR
from punctual.cli._report import paragraph, report_fields
from punctual.cli._words import span
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.log_snapshot import LogSnapshot
from punctual.daemon.run_folder import RunFolder
from punctual.executors.local.output import ProcessSettings, logs_of
from punctual.history.run import RunSummary

EXIT_MISSED = 75
#: Codes of warnings of a program whose output is read: nothing was found there, or it did not count to its end.
_NOT_READ = ("no-progress", "ended-early")
#: Exit statuses for a job that ended without landing and without its own status: failed, stopped.
EXIT_FAILED, EXIT_STOPPED = 1, 128 + signal.SIGTERM
#: Exit statuses of programs that a signal has ended, as shells have them.
_KILLED = range(129, 128 + signal.NSIG)
#: Kinds of outcomes, the best first.
_KINDS = ("on time", "landed without a deadline", "late", "failed", "stopped", "turned away", "not landed")


#: The last line of a traceback, coloured or not; the second is a debugger's.
_END_OF_INPUT = re.compile(rb"^(?:\x1b\[[\d;]*m)*(?:EOFError|bdb\.BdbQuit)\b", re.MULTILINE)
_NO_INPUT = (
    "It asked for input, and a job gets none from a terminal: give it the answer as an argument, as a variable, or as a "
    "file (`punctual run ... < answers.txt`); run it without `punctual` to look into it with a debugger."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a job.

    * `received`: the signal that ended it; None: none did.
    * `workers`: status of its workers, if it had any.
    * `device`: device that it computed on, if it reported one.
    * `controller_cpu_s`: CPU time that steering took, without starting this program and reading the journal at the end.
    """

    job: JobId
    run: RunFolder
    summary: RunSummary
    facts: Mapping[str, Any]
    faults: tuple[InvalidSpec, ...]
    received: int | None
    workers: WorkerStatus | None
    device: DeviceUse | None
    controller_cpu_s: float

    def exit_code(self, *, strict: bool) -> int:
        """Exit status of the command: the signal's, the job's own, that of a user's error, or of a missed deadline."""
        code = end_code(self.summary.status, self.summary.exit_code, self.received)
        is_due = self.summary.status == "stopped" and self.summary.on_time is False
        if strict and is_due and self.received is None and code in _KILLED:
            return EXIT_MISSED
        if code or self.received is not None:
            return code
        if self.faults:
            return EXIT_USER_ERROR
        if strict and self.summary.on_time is False:
            return EXIT_MISSED
        return EXIT_USER_ERROR if strict and any(map(self.summary.warned, _NOT_READ)) else 0


class OutcomeUnknown(InvalidSpec):
    """The jobs have ended, and their journal cannot be read any more. `exit_code`: exit status by what is known."""

    def __init__(self, error: InvalidSpec, exit_code: int) -> None:
        super().__init__(error.must, error.got, error.where, error.remedy)
        self.exit_code = exit_code


def end_code(status: str | None, own: int | None, received: int | None) -> int:
    """Return the exit status by a job's end, its exit status `own`, and the signal that the command received."""
    if received is not None:  # the program's own if it ended by itself, else the shell's for the signal
        return own if own is not None and own not in _KILLED else 128 + received
    if status == "turned away":
        return EXIT_USER_ERROR
    if status == "stopped":
        return own or EXIT_STOPPED
    return 0 if status == "finished" else own or EXIT_FAILED


def closing_report(outcome: Outcome, drawn: Path | None) -> list[str]:
    """Return lines for people about a job's end: its outcome, and where to look further."""
    run, job = outcome.run, outcome.job
    output = f"; output: {run.log(job)}" if outcome.summary.started_at is not None else ""
    report = f"; report: {drawn}" if drawn is not None else ""
    where = f"Why it got what it got: punctual why {job}; journal: {run.journal}{output}{report}."
    return [_text_of(outcome), *([_NO_INPUT] if _lacked_input(outcome) else []), where]


def _lacked_input(outcome: Outcome) -> bool:
    """Whether a Python program failed because it asked for input where this command's input is a terminal."""
    if outcome.summary.status != "failed" or not os.isatty(0):
        return False
    written = map(LogSnapshot, logs_of(outcome.run.log(outcome.job), ProcessSettings(is_split=True)))
    ends = [b"".join(each.pieces(max(0, each.n_bytes - 4096), each.n_bytes)) for each in written]
    return any(map(_END_OF_INPUT.search, ends))


def _text_of(outcome: Outcome) -> str:
    return f"{paragraph(outcome.summary)}{workers_sentence(outcome.workers)}{_device_sentence(outcome.device)}"


def closing_report_of_all(outcomes: Sequence[Outcome], drawn: Path | None) -> list[str]:
    """Return lines for people about several jobs' ends: their outcomes in numbers, and a line for each."""
    lines = [
        _tally([outcome.summary for outcome in outcomes]),
        *(f"{outcome.job}: {_text_of(outcome)}" for outcome in outcomes),
    ]
    run = outcomes[0].run
    report = f" Report: {drawn}." if drawn is not None else ""
    return [*lines, f"What they wrote, and the journal: {run.state_dir}.{report}"]


def _tally(summaries: Sequence[RunSummary]) -> str:
    """Count the outcomes of several jobs, the best first: `4 jobs: 2 on time, 1 late, 1 stopped.`."""
    counts = Counter(_kind(summary) for summary in summaries)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind])
    return f"{len(summaries)} jobs: {told}."


def _kind(summary: RunSummary) -> str:
    if summary.status not in (None, "finished"):
        return str(summary.status)
    if summary.landed_at is None:
        return "not landed"
    if summary.on_time is None:
        return "landed without a deadline"
    return "on time" if summary.on_time else "late"


def outcome_fields(outcome: Outcome, exit_code: int) -> dict[str, Any]:
    """Return the last object of `--json`; it has the job's own exit status beside the command's."""
    summary = outcome.summary
    return {
        **report_fields(outcome.run, summary),
        **outcome.facts,
        "controller_cpu_s": outcome.controller_cpu_s,
        "command_cpu_s": time.process_time(),
        "job_exit_code": summary.exit_code,
        "exit_code": exit_code,
        "workers": worker_fields(outcome.workers),
        "device": None if outcome.device is None else _device_fields(outcome.device),
        "faults": [str(fault) for fault in outcome.faults],
    }


def worker_fields(status: WorkerStatus | None) -> dict[str, Any] | None:
    """Encode the statistics of the workers as plain fields; None: the job had none, or no agent."""
    if status is None or not status.agent_pid:
        return None
    return {
        "n_resizes": status.n_resizes,
        "longest_stop_s": status.longest_stop_ns / 1e9,
        "n_steps_redone": status.n_steps_redone,
        "n_workers_lost": status.n_workers_lost,
    }


def workers_sentence(status: WorkerStatus | None) -> str:
    """Describe the changes of workers in a sentence after a blank; empty if there were none."""
    if status is None or not status.longest_stop_ns:
        return ""
    lost = f", {status.n_workers_lost} lost and {status.n_steps_redone} steps done again" * (status.n_workers_lost > 0)
    stop_s = status.longest_stop_ns / 1e9
    return f" Its workers changed {_times(status.n_resizes)}{lost}; training stood still for {span(stop_s)} at most."


def _device_fields(use: DeviceUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "memory_bytes": use.memory_bytes,
        "total_bytes": use.total_bytes,
        "n_turns": use.n_turns,
        "waited_s": use.waited_ns / 1e9,
    }


def _device_sentence(use: DeviceUse | None) -> str:
    """Describe the device in a sentence after a blank: name and memory; empty if there was none."""
    if use is None:
        return ""
    gib = f"{use.memory_bytes / 2**30:.1f} of {use.total_bytes / 2**30:.1f} GiB"
    turns = f", and waited {span(use.waited_ns / 1e9)} in all for {use.n_turns} turns on it" if use.n_turns else ""
    return f" It held {gib} on {use.name}{turns}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
