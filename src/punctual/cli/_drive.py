"""From a host to an exit status: displays, signals, the jobs themselves, and what is said at the end."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from punctual.cli._errors import EXIT_USER_ERROR, tell_user
from punctual.cli._plot import check_can_plot
from punctual.cli._report import as_fields, draw, paragraph
from punctual.cli._screens import Screen, screen_for
from punctual.cli._shown_job import ShownJob
from punctual.cli._workers import told_of, worker_fields
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.metrics.run import RunSummary, summarize
from punctual.runtime.joined_host import JoinedHost, ended_of
from punctual.runtime.local_host import OutputOf
from punctual.runtime.run_folder import Run
from punctual.runtime.runs import messages_of
from punctual.store.sqlite import JournalTaken
from punctual.wire import WorkerStatus

EXIT_MISSED = 75
#: As in sysexits.h: an internal software error.
EXIT_BROKEN = 70
#: As shells have it for a command that Ctrl-C has ended.
EXIT_INTERRUPTED = 128 + signal.SIGINT

#: Gives the host of the job that is shown, given who gets what jobs write.
OpenHost = Callable[[OutputOf], AbstractContextManager[JoinedHost]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How a run is shown and judged."""

    as_json: bool = False
    strict: bool = False
    report: Path | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job came to.

    Attributes
    ----------
    received
        The signal that ended it; None: none did.
    workers
        Its workers, if it was made of any.
    controller_cpu_s
        CPU time that steering took, without starting this program and reading the journal at the end.
    """

    job: JobId
    run: Run
    summary: RunSummary
    facts: Mapping[str, Any]
    faults: tuple[InvalidSpec, ...]
    received: int | None
    workers: WorkerStatus | None
    controller_cpu_s: float

    def exit_code(self, *, strict: bool) -> int:
        """What the command leaves with: what ended it, the job's own, the user's error, or a missed deadline."""
        if self.received is not None:
            return 128 + self.received
        if self.summary.status != "finished":
            return _shell_code(self.summary.exit_code)
        if self.faults:
            return EXIT_USER_ERROR
        return EXIT_MISSED if strict and self.summary.on_time is False else 0


class Interrupts:
    """The first signal asks the jobs of this command to end, the second ends them.

    Signals are caught from before the host is there until after it is cleared away, so that none of them can leave half
    of it behind.
    """

    def __init__(self) -> None:
        self._host: JoinedHost | None = None
        self.received: int | None = None

    def pass_on_to(self, host: JoinedHost) -> None:
        """Let `host` know of signals from now on, and of one that has come already."""
        self._host = host
        if self.received is not None:
            self._stop_all(host, self.received)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_first = self.received is None
        self.received = self.received or number
        if self._host is not None:
            if is_first:
                self._stop_all(self._host, number)
            else:
                self._kill_all(self._host)

    def _stop_all(self, host: JoinedHost, number: int) -> None:
        for job in host.jobs:
            host.stop(job, _name(number))

    def _kill_all(self, host: JoinedHost) -> None:
        for job in host.jobs:
            host.kill(job)

    @contextmanager
    def caught(self) -> Iterator[None]:
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM)}
        # A terminal that is closed takes the display with it, not the deadline.
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: None)
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)


def _name(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def drive(open_host: OpenHost, job: JobId, options: OutputOptions) -> int:
    """Bring a job to its end, show it, report it; the exit status of the command.

    Raises
    ------
    InvalidSpec
        When it cannot be run as wished; nothing was started then, and what ran already goes on as before.
    """
    if options.report is not None:
        check_can_plot(options.report)
    screen = screen_for(as_json=options.as_json, quiet=options.quiet)
    outcome = carry_out(open_host, job, screen)
    exit_code = outcome.exit_code(strict=options.strict)
    drawn = _drawn(outcome, options.report)
    for fault in outcome.faults:
        tell_user(fault)
    bad = exit_code != 0 or outcome.summary.on_time is False
    screen.conclude(_last_words(outcome, drawn), _report(outcome, exit_code), bad=bad)
    return exit_code


def _drawn(outcome: Outcome, path: Path | None) -> Path | None:
    """Where the run was drawn; if it could not be, that is told, and the exit status of the training stays."""
    try:
        if path is not None:
            draw(path, messages_of(outcome.run), outcome.job)
    except InvalidSpec as error:
        tell_user(error)
        return None
    return path


def carry_out(open_host: OpenHost, job: JobId, screen: Screen) -> Outcome:
    """Run the host's jobs to their ends; when this returns, nothing of them is left but the journal."""
    interrupts = Interrupts()
    with interrupts.caught(), open_host(lambda _: screen.on_output) as host:
        screen.open(ShownJob(host, job))
        begun_s = time.process_time()
        try:
            interrupts.pass_on_to(host)
            host.run()
        except Exception as error:  # noqa: BLE001 -- a bug of ours, or a full disk: neither may end the training
            screen.close()
            _leave_it_to_the_keeper(job, error)
        finally:
            screen.close()
        controller_cpu_s = time.process_time() - begun_s
        run, facts = host.run_folder, ShownJob(host, job).facts()
    # The host is left before the journal is read, which may take a while: other jobs are not to wait for that.
    ended = ended_of(run, job)
    return Outcome(
        job=job,
        run=run,
        summary=summarize(messages_of(run, [job]), job),
        facts=facts,
        faults=tuple(InvalidSpec(**fault) for fault in ended.get("faults", ())),
        received=interrupts.received,
        workers=None if ended.get("workers") is None else WorkerStatus(**ended["workers"]),
        controller_cpu_s=controller_cpu_s,
    )


def _leave_it_to_the_keeper(job: JobId, error: Exception) -> NoReturn:
    """Crash at once: the keeper then lifts the quota and sees the job to its end, as after any other death of ours."""
    if isinstance(error, JournalTaken):
        text = f"another command has taken over job '{job}', and steers it now."
    else:
        traceback.print_exception(error)
        text = (
            f"Punctual itself has failed ({error}); job '{job}' goes on at full speed and nobody steers it. "
            f"Take it over: `punctual attach {job}`; or end it: `punctual stop {job}`."
        )
    print(f"error: {text}", file=sys.stderr, flush=True)
    os._exit(EXIT_BROKEN)


def _last_words(outcome: Outcome, drawn: Path | None) -> str:
    run, job = outcome.run, outcome.job
    where = f"Why it got what it got: punctual why {job}; journal: {run.journal}; output: {run.log(job)}"
    report = f"; report: {drawn}" if drawn is not None else ""
    return f"{paragraph(outcome.summary)}{told_of(outcome.workers)} {where}{report}."


def _report(outcome: Outcome, exit_code: int) -> dict[str, Any]:
    """The last object of `--json`; the job's own exit status is beside the command's."""
    summary = outcome.summary
    return {
        **as_fields(summary),
        **outcome.facts,
        "steps": summary.steps_done,
        "controller_cpu_s": outcome.controller_cpu_s,
        "command_cpu_s": time.process_time(),
        "job_exit_code": summary.exit_code,
        "exit_code": exit_code,
        "workers": worker_fields(outcome.workers),
        "faults": [str(fault) for fault in outcome.faults],
        "journal": str(outcome.run.journal),
        "output": str(outcome.run.log(outcome.job)),
    }


def _shell_code(exit_code: int | None) -> int:
    """A status as shells say it: 128 and the signal for a job that was killed."""
    if exit_code is None:
        return 1
    return 128 - exit_code if exit_code < 0 else exit_code or 1
