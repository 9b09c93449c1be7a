"""Follow jobs from their submission to an exit status: displays, signals, closing reports."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from punctual.channel import DeviceUse, WorkerStatus
from punctual.cli._allocation import allocation, stopped_before_end
from punctual.cli._errors import tell_user
from punctual.cli._outcome import (
    Outcome,
    OutcomeUnknown,
    closing_report,
    closing_report_of_all,
    end_code,
    outcome_fields,
)
from punctual.cli._plot import check_can_plot
from punctual.cli._report import draw
from punctual.cli._screens import Screen, screen_for
from punctual.cli._shown_job import ShownJob
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.control_client import page_of
from punctual.daemon.follower import JobFollower, ended_of
from punctual.daemon.runs import messages_of
from punctual.executors.local.output import ignore_output
from punctual.history.run import RunSummary, summarize_all

#: Makes a follower follow the jobs that are shown; raises `InvalidSpec` if that is impossible.
Begin = Callable[[JobFollower], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options of a run's display and judgement. `grace_s`: grace period of its jobs; None: not given."""

    as_json: bool = False
    strict: bool = False
    report: Path | None = None
    quiet: bool = False
    page: bool = False
    grace_s: float | None = None


def drive(begin: Begin, jobs: Sequence[JobId], options: OutputOptions) -> int:
    """Run jobs to their ends, show and report them; return the exit status of the command.

    Raises `InvalidSpec`: the jobs cannot be run as wished; nothing was started then, and running jobs go on as before.
    """
    if options.report is not None:
        check_can_plot(options.report, n_jobs=len(jobs))
    screen = screen_for(as_json=options.as_json, quiet=options.quiet)
    if options.page:
        from punctual.api.server import check_installed  # most commands have no use for what it needs

        check_installed()
    try:
        outcomes = carry_out(begin, jobs, screen, page=options.page, grace_s=options.grace_s)
    except OutcomeUnknown as error:
        if options.strict:
            raise
        tell_user(error)
        return error.exit_code
    exit_codes = [outcome.exit_code(strict=options.strict) for outcome in outcomes]
    exit_code = next((code for code in exit_codes if code), 0)
    drawn = _drawn(outcomes, options.report)
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
        _outcome(
            follower,
            job,
            facts_of_job,
            summary=summaries[job],
            received=received,
        )
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
