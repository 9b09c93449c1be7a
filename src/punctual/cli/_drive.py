"""From wishes to an exit status: displays, signals, the run itself, and what is said at its end."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from punctual.cli._compose import LiveRun, Origin
from punctual.cli._errors import EXIT_USER_ERROR, tell_user
from punctual.cli._past import messages_of
from punctual.cli._plot import check_can_plot
from punctual.cli._report import as_fields, draw, paragraph
from punctual.cli._screens import Screen, screen_for
from punctual.cli._workers import told_of, worker_fields
from punctual.core.errors import InvalidSpec
from punctual.executors.local.context import OnOutput
from punctual.metrics.run import RunSummary, summarize
from punctual.wire import WorkerStatus

EXIT_MISSED = 75
#: As in sysexits.h: an internal software error.
EXIT_BROKEN = 70
#: As shells have it for a command that Ctrl-C has ended.
EXIT_INTERRUPTED = 128 + signal.SIGINT

#: Makes the origin of a run, given who gets what the job writes.
MakeOrigin = Callable[[OnOutput], Origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a run is shown and judged."""

    as_json: bool = False
    strict: bool = False
    report: Path | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to; `received`: the signal that ended it; `workers`: its workers, if it was made of any."""

    run: LiveRun
    summary: RunSummary
    faults: tuple[InvalidSpec, ...]
    received: int | None
    workers: WorkerStatus | None = None

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
    """The first signal asks the job to end, the second ends it.

    Signals are caught from before the run is put together until after it is cleared away, so that none of them can
    leave half of it behind.
    """

    def __init__(self) -> None:
        self._run: LiveRun | None = None
        self.received: int | None = None

    def pass_on_to(self, run: LiveRun) -> None:
        """Let `run` know of signals from now on, and of one that has come already."""
        self._run = run
        if self.received is not None:
            run.stop(_name(self.received))

    def __call__(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = self.received or number
        if self._run is not None:
            (self._run.abandon if again else self._run.stop)(_name(number))

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


def drive(make: MakeOrigin, manner: Manner) -> int:
    """Bring a job to its end, show it, report it; the exit status of the command.

    Raises
    ------
    InvalidSpec
        When it cannot be run as wished; nothing was started then, and what ran already goes on as before.
    """
    if manner.report is not None:
        check_can_plot(manner.report)
    screen = screen_for(as_json=manner.as_json, quiet=manner.quiet)
    outcome = carry_out(make, screen)
    exit_code = outcome.exit_code(strict=manner.strict)
    drawn = _drawn(outcome, manner.report)
    for fault in outcome.faults:
        tell_user(fault)
    bad = exit_code != 0 or outcome.summary.on_time is False
    screen.conclude(_last_words(outcome, drawn), _report(outcome, exit_code), bad=bad)
    return exit_code


def _drawn(outcome: Outcome, path: Path | None) -> Path | None:
    """Where the run was drawn; if it could not be, that is told, and the exit status of the training stays."""
    try:
        if path is not None:
            draw(path, messages_of(outcome.run.places), outcome.run.job)
    except InvalidSpec as error:
        tell_user(error)
        return None
    return path


def carry_out(make: MakeOrigin, screen: Screen) -> Outcome:
    """Run the job to its end; when this returns, nothing of it is left but the journal."""
    interrupts = Interrupts()
    with interrupts.caught(), LiveRun(make(screen.on_output)) as run:
        screen.open(run)
        try:
            interrupts.pass_on_to(run)
            run.drive()
        except Exception as error:  # noqa: BLE001 -- a bug of ours, or a full disk: neither may end the training
            screen.close()
            _leave_it_to_the_keeper(run, error)
        finally:
            screen.close()
        summary, faults = summarize(run.messages(), run.job), tuple(run.executor.faults(run.job))
    workers = run.executor.worker_status(run.job)
    return Outcome(run=run, summary=summary, faults=faults, received=interrupts.received, workers=workers)


def _leave_it_to_the_keeper(run: LiveRun, error: Exception) -> NoReturn:
    """Crash at once: the keeper then lifts the quota and sees the job to its end, as after any other death of ours."""
    traceback.print_exception(error)
    print(
        f"error: Punctual itself has failed ({error}); job '{run.job}' goes on at full speed and nobody steers it. "
        f"Take it over: `punctual attach {run.job}`; or end it: `punctual stop {run.job}`.",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    os._exit(EXIT_BROKEN)


def _last_words(outcome: Outcome, drawn: Path | None) -> str:
    where = f"Why it got what it got: punctual why {outcome.run.job}; journal: {outcome.run.places.journal}"
    report = f"; report: {drawn}" if drawn is not None else ""
    return f"{paragraph(outcome.summary)}{told_of(outcome.workers)} {where}{report}."


def _report(outcome: Outcome, exit_code: int) -> dict[str, Any]:
    """The last object of `--json`; the job's own exit status is beside the command's."""
    summary = outcome.summary
    return {
        **as_fields(summary),
        **outcome.run.facts(),
        "steps": summary.steps_done,
        "controller_cpu_s": outcome.run.controller_cpu_s,
        "command_cpu_s": time.process_time(),
        "job_exit_code": summary.exit_code,
        "exit_code": exit_code,
        "workers": worker_fields(outcome.workers),
        "faults": [str(fault) for fault in outcome.faults],
        "journal": str(outcome.run.places.journal),
    }


def _shell_code(exit_code: int | None) -> int:
    """A status as shells say it: 128 and the signal for a job that was killed."""
    if exit_code is None:
        return 1
    return 128 - exit_code if exit_code < 0 else exit_code or 1
