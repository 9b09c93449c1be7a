"""Follow jobs from their submission to an exit status: displays, signals, outcomes, closing reports."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from punctual.channel import DeviceUse, WorkerStatus
from punctual.cli._allocation import allocation, stopped_before_end
from punctual.cli._errors import EXIT_USER_ERROR, tell_user
from punctual.cli._plot import check_can_plot
from punctual.cli._screens import Screen, ShownJob, screen_for
from punctual.cli._words import span
from punctual.cli.report import draw, kind_of, paragraph, report_fields
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.control_client import page_of
from punctual.daemon.follower import JobFollower, ended_of
from punctual.daemon.log_snapshot import LogSnapshot
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import messages_of
from punctual.executors.local.output import ProcessSettings, ignore_output, logs_of
from punctual.history.run import RunSummary, summarize_all

#: Makes a follower follow the jobs that are shown; raises `InvalidSpec` if that is impossible.
Begin = Callable[[JobFollower], None]

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


def drive(
    begin: Begin,
    jobs: Sequence[JobId],
    *,
    as_json: bool,
    strict: bool,
    report: Path | None,
    quiet: bool,
    page: bool = False,
    grace_s: float | None = None,
) -> int:
    """Run jobs to their ends, show and report them; return the exit status of the command.

    `page`, `grace_s`: as for `carry_out`.

    Raises `InvalidSpec`: the jobs cannot be run as wished; nothing was started then, and running jobs go on as before.
    """
    if report is not None:
        check_can_plot(report, n_jobs=len(jobs))
    screen = screen_for(as_json=as_json, quiet=quiet)
    if page:
        from punctual.api.server import check_installed  # most commands have no use for what it needs

        check_installed()
    try:
        outcomes = carry_out(begin, jobs, screen, page=page, grace_s=grace_s)
    except OutcomeUnknown as error:
        if strict:
            raise
        tell_user(error)
        return error.exit_code
    exit_codes = [outcome.exit_code(strict=strict) for outcome in outcomes]
    exit_code = next((code for code in exit_codes if code), 0)
    drawn = _drawn(outcomes, report)
    for fault in (fault for outcome in outcomes for fault in outcome.faults):
        tell_user(fault)
    bad = exit_code != 0 or any(outcome.summary.on_time is False for outcome in outcomes)
    screen.conclude(*_conclusion(outcomes, drawn, exit_codes, exit_code), bad=bad)
    return exit_code


def _conclusion(
    outcomes: Sequence[Outcome], drawn: Path | None, exit_codes: Sequence[int], exit_code: int
) -> tuple[list[str], dict[str, Any]]:
    """Return the closing report, for people and for machines."""
    if len(outcomes) == 1:
        return closing_report(outcomes[0], drawn), outcome_fields(outcomes[0], exit_code)
    jobs = [outcome_fields(outcome, code) for outcome, code in zip(outcomes, exit_codes, strict=True)]
    return closing_report_of_all(outcomes, drawn), {"jobs": jobs, "exit_code": exit_code}


def _drawn(outcomes: Sequence[Outcome], path: Path | None) -> Path | None:
    """Draw the run and return the file's path; a failure is reported, and the training's exit status stays."""
    try:
        if path is not None:
            jobs = [outcome.job for outcome in outcomes]
            draw(path, outcomes[0].run, messages_of(outcomes[0].run, jobs), *jobs)
    except InvalidSpec as error:
        tell_user(error)
        return None
    return path


def carry_out(
    begin: Begin, jobs: Sequence[JobId], screen: Screen, *, page: bool = False, grace_s: float | None = None
) -> list[Outcome]:
    """Follow jobs to their ends; when this returns, nothing of them is left but the journal.

    `page`: tell the address of their page. `grace_s`: grace period of the jobs; None: not given.

    Raises `OutcomeUnknown`: they have ended, and their journal cannot be read any more.
    """
    end = allocation(grace_s=grace_s)
    # What several jobs write would be a jumble: it is in their logs.
    on_output = screen.on_output if len(jobs) == 1 else ignore_output
    follower = JobFollower(on_output, partial(_halting, screen))
    # Signals are caught from before there is a job until after all is cleared away: none can leave half of it behind.
    with follower.signals_caught(), follower, stopped_before_end(follower, end):
        begin(follower)
        names, jobs = jobs, follower.job_ids
        shown = [ShownJob(follower, job) for job in jobs]
        screen.open(*shown)
        try:
            for name, job in zip(names, jobs, strict=True):
                if name != job:
                    screen.say(f"punctual: the name '{name}' was taken: this job is {job}")
            follower.act_on_signals()
            if page:
                _tell_page(follower, screen)
            follower.run()
        finally:
            screen.close()
        facts = [job.facts() for job in shown]
    received = follower.received
    try:
        messages = chain(messages_of(follower.run_folder, jobs), *follower.unwritten.values())
        summaries = summarize_all(messages, jobs)
    except InvalidSpec as error:
        statuses = [follower.status(job) for job in jobs]
        for status in statuses:
            screen.say(f"punctual: {status.id} has ended ({status.state}), and its journal was lost", always=True)
        codes = [end_code(status.state, status.exit_code, received) for status in statuses]
        raise OutcomeUnknown(error, next((code for code in codes if code), 0)) from error
    return [
        _outcome(follower, job, facts_of_job, summary=summaries[job], received=received)
        for job, facts_of_job in zip(jobs, facts, strict=True)
    ]


@contextmanager
def _halting(screen: Screen) -> Iterator[None]:
    """Leave the terminal to the shell in the block, in which this command halts."""
    screen.close()
    screen.say("punctual: this command halts, and what it follows goes on (`punctual pause` halts a job)")
    yield
    screen.open()


def _tell_page(follower: JobFollower, screen: Screen) -> None:
    """Tell the address of the jobs' page or, if there is none, why."""
    try:
        screen.say(f"punctual: page: {page_of(follower.run_folder, follower.job_ids[0])}", always=True)
    except InvalidSpec as error:
        screen.say(f"punctual: no page: {error}", always=True)


def _outcome(
    follower: JobFollower, job: JobId, facts: dict[str, Any], *, summary: RunSummary, received: int | None
) -> Outcome:
    ended = {} if job in follower.unwritten else ended_of(follower.run_folder, job)
    workers, device = ended.get("workers"), ended.get("device")
    return Outcome(
        job=job,
        run=follower.run_folder,
        summary=summary,
        facts=facts,
        faults=tuple(InvalidSpec(**fault) for fault in ended.get("faults", ())),
        received=received,
        workers=None if workers is None else WorkerStatus(**workers),
        device=None if device is None else DeviceUse(**device),
        controller_cpu_s=ended.get("controller_cpu_s", 0.0),
    )


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
    tally = _tally([outcome.summary for outcome in outcomes])
    lines = [f"{outcome.job}: {_text_of(outcome)}" for outcome in outcomes]
    run = outcomes[0].run
    report = f" Report: {drawn}." if drawn is not None else ""
    return [tally, *lines, f"What they wrote, and the journal: {run.state_dir}.{report}"]


def _tally(summaries: Sequence[RunSummary]) -> str:
    """Count the outcomes of several jobs, the best first: `4 jobs: 2 on time, 1 late, 1 stopped.`."""
    counts = Counter(map(kind_of, summaries))
    told = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind])
    return f"{len(summaries)} jobs: {told}."


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
    told = {name: getattr(use, name) for name in ("name", "memory_bytes", "total_bytes", "n_turns")}
    return {**told, "waited_s": use.waited_ns / 1e9}


def _device_sentence(use: DeviceUse | None) -> str:
    """Describe the device in a sentence after a blank: name and memory; empty if there was none."""
    if use is None:
        return ""
    gib = f"{use.memory_bytes / 2**30:.1f} of {use.total_bytes / 2**30:.1f} GiB"
    turns = f", and waited {span(use.waited_ns / 1e9)} in all for {use.n_turns} turns on it" if use.n_turns else ""
    return f" It held {gib} on {use.name}{turns}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
