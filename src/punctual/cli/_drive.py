"""Run jobs from a host to an exit status: displays, signals, closing reports."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from punctual.channel import DeviceUse, WorkerStatus
from punctual.cli._allocation import allocation, stopped_before_end
from punctual.cli._errors import tell_user, told_failure
from punctual.cli._interrupts import Interrupts
from punctual.cli._outcome import EXIT_BROKEN, Outcome, closing_report, closing_report_of_all, outcome_fields
from punctual.cli._plot import check_can_plot
from punctual.cli._report import draw
from punctual.cli._screens import Screen, screen_for
from punctual.cli._shown_job import ShownJob
from punctual.cli._streams import write_error
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.host_executor import OutputOf
from punctual.daemon.joined_host import JoinedHost, ended_of, ignore_output
from punctual.daemon.runs import messages_of
from punctual.history.run import RunSummary, summarize_all

#: Gives the host of the jobs that are shown, given who gets what jobs write.
OpenHost = Callable[[OutputOf], AbstractContextManager[JoinedHost]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options of a run's display and judgement. `grace_s`: grace period of its jobs; None: not given."""

    as_json: bool = False
    strict: bool = False
    report: Path | None = None
    quiet: bool = False
    page: bool = False
    grace_s: float | None = None


def drive(open_host: OpenHost, jobs: Sequence[JobId], options: OutputOptions) -> int:
    """Run jobs to their ends, show and report them; return the exit status of the command.

    Raises
    ------
    InvalidSpec
        The jobs cannot be run as wished; nothing was started then, and running jobs go on as before.
    """
    if options.report is not None:
        check_can_plot(options.report, n_jobs=len(jobs))
    screen = screen_for(as_json=options.as_json, quiet=options.quiet)
    if options.page:
        from punctual.api.server import check_installed  # most commands have no use for what it needs

        check_installed()
    outcomes = carry_out(open_host, jobs, screen, page=options.page, grace_s=options.grace_s)
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
    open_host: OpenHost, jobs: Sequence[JobId], screen: Screen, *, page: bool = False, grace_s: float | None = None
) -> list[Outcome]:
    """Run jobs to their ends; when this returns, nothing of them is left but the journal.

    `page`: serve them meanwhile. `grace_s`: grace period of the jobs; None: not given.
    """
    end = allocation(grace_s=grace_s)
    interrupts = Interrupts()
    # What several jobs write would be a jumble: it is in their logs.
    on_output = screen.on_output if len(jobs) == 1 else ignore_output
    with interrupts.caught(), open_host(lambda _: on_output) as host, stopped_before_end(host, end):
        names, jobs = jobs, host.shown_jobs
        shown = [ShownJob(host, job) for job in jobs]
        screen.open(*shown)
        for name, job in zip(names, jobs, strict=True):
            if name != job:
                screen.say(f"punctual: the name '{name}' was taken: this job is {job}")
        begun_s = time.process_time()
        try:
            interrupts.pass_on_to(host)
            with _served(host, screen) if page else nullcontext():
                host.run()
        except Exception as error:  # noqa: BLE001 -- a bug of ours, or a full disk: neither may end the training
            screen.close()
            _leave_it_to_the_keeper(jobs[0], error)
        finally:
            screen.close()
        controller_cpu_s = time.process_time() - begun_s
        facts = [job.facts() for job in shown]
    for job in host.left_alone:
        screen.say(
            f"punctual: job {job} goes on at full speed, and nobody steers it: its command was killed. "
            f"Steer it: punctual attach {job}"
        )
    # The host is left before the journal is read, which may take a while: other jobs are not to wait for that.
    summaries = summarize_all(messages_of(host.run_folder, jobs), jobs)
    return [
        _outcome(
            host,
            job,
            facts_of_job,
            summary=summaries[job],
            received=interrupts.received,
            cpu_s=controller_cpu_s,
        )
        for job, facts_of_job in zip(jobs, facts, strict=True)
    ]


@contextmanager
def _served(host: JoinedHost, screen: Screen) -> Iterator[None]:
    """Serve the page of this process's jobs while the block runs; if that is impossible, say so and let them run."""
    with ExitStack() as serving:
        if host.local is None:
            why = "the host of another command runs this job. Give jobs to a service (`punctual up`), or use `--alone`"
            screen.say(f"punctual: no page: {why}.", always=True)
        else:
            from punctual.api.server import serve_run

            try:
                address = serving.enter_context(serve_run(host.local))
                screen.say(f"punctual: page: {address}&job={host.shown_jobs[0]}", always=True)
            except (InvalidSpec, OSError, sqlite3.Error) as error:
                screen.say(f"punctual: no page: {error}", always=True)
        yield


def _outcome(
    host: JoinedHost, job: JobId, facts: dict[str, Any], *, summary: RunSummary, received: int | None, cpu_s: float
) -> Outcome:
    ended = ended_of(host.run_folder, job)
    workers, device = ended.get("workers"), ended.get("device")
    return Outcome(
        job=job,
        run=host.run_folder,
        summary=summary,
        facts=facts,
        faults=tuple(InvalidSpec(**fault) for fault in ended.get("faults", ())),
        received=received,
        workers=None if workers is None else WorkerStatus(**workers),
        device=None if device is None else DeviceUse(**device),
        controller_cpu_s=cpu_s,
    )


def _leave_it_to_the_keeper(job: JobId, error: Exception) -> NoReturn:
    """Exit at once: the keeper then lifts the quota and runs the job to its end, as after any death of this process."""
    text = (
        f"{told_failure(error)}; job '{job}' goes on at full speed and nobody steers it. "
        f"Take it over: `punctual attach {job}`; or end it: `punctual stop {job}`."
    )
    write_error(f"error: {text}")
    os._exit(EXIT_BROKEN)
