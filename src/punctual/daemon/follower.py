"""Follow jobs to their ends, whichever process is their daemon; a daemon that is missing is started again."""

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import inf
from types import FrameType
from typing import Any, Self

from punctual.core.control import Forecast
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed, Message
from punctual.core.ids import JobId
from punctual.core.lifecycle import about, ended_by
from punctual.core.protocols import Listener
from punctual.core.status import StatusBoard
from punctual.daemon.control_client import standings_of
from punctual.daemon.control_socket import ControlBusy, ControlFailed, ask
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.detached import caught
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import Joining, start_daemon
from punctual.daemon.polling import poll
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.status_reader import StatusReader, forecast_in, logged
from punctual.executors.local.output import LogTail, ProcessSettings, Receive, ignore_output, logs_of, write_through
from punctual.journal.boot import clock_shift
from punctual.journal.errors import StoreUnreachable
from punctual.request.submission import Submission

_LOG = logging.getLogger(__name__)

#: Seconds between two looks at the journal: while the jobs are new, and then.
_SOON_S, _POLL_INTERVAL_S = 0.02, 0.1
#: Seconds between two attempts to start a daemon, at first and at most; and after how long of attempts that fail alike the reason is given.
_PAUSE_S, _PAUSE_S_MAX, _ALIKE_S = 0.2, 5.0, 5.0
#: Signals by which the jobs of a command are asked to end: a terminal, a user, and a batch system before its limit of time.
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGXCPU)
#: Signals that are the jobs' own, as a batch system sends them before its limit of time.
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
#: Seconds between two queries to the daemon; and seconds that an answer may take.
_ASK_S, _ANSWER_S_MAX = 1.0, 4.0
#: A daemon that has not answered for so long is stopped or hangs. Longer than what its jobs' supervisors wait for.
SILENT_S = 10.0
#: Seconds for a job's last output and the record of its end to come after its end is in the journal.
_END_S_MAX = 5.0


class JobFollower(StatusReader):
    """Jobs of a daemon that one command waits for: their status comes from its journal, forecasts from its answers.

    The journal is the same whoever writes it, so a display goes on when another process becomes the daemon. Where the
    daemon was killed, or hangs, the command starts the next one, which goes on with the jobs. The end of the command
    ends no job. A context manager: leaving it ends the following.

    * `receive`: called with what the jobs write, from other threads. None: it is written where this process writes.
    * `halting`: block in which Ctrl-Z halts this process.
    """

    def __init__(
        self, receive: Receive | None, halting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__(StatusBoard(self._forecast))
        #: How each job stood when the daemon last said so.
        self._standings: Mapping[str, Mapping[str, Any]] = {}
        self._receive, self._halting = receive, halting
        self.job_ids: tuple[JobId, ...] = ()
        self._run: RunFolder | None = None
        #: Closes the journal, and ends that the command waits for jobs of the run.
        self._closing = ExitStack()
        #: Offset of the journal's instants, the number behind its last message that was read, and the instant of that.
        self._shift_s, self._next, self._last_at = 0.0, 0, 0.0
        #: Instants of the next query to the daemon, and of its last answer.
        self._ask_at, self._answered_at = -inf, time.monotonic()
        #: Last messages about jobs that have ended, which the journal does not have yet: no daemon can be started.
        self.unwritten: dict[JobId, tuple[Event, ...]] = {}
        self._tails: list[LogTail] = []
        #: Listeners by job; None: those for all jobs.
        self._listeners_about: dict[JobId | None, list[Listener]] = {}
        #: Those of `job_ids` that are not known to have ended: there may be thousands.
        self._unended: list[JobId] = []
        #: Jobs that are to be asked to stop, and why, until they have been.
        self._to_stop: dict[JobId, tuple[str, bool]] = {}
        #: Whether the user has ended the jobs at once, and waits for no record of it.
        self._is_given_up = False
        #: The first signal by which the jobs are to end; None: none came. Signals are acted on once `act_on_signals` was called.
        self.received: int | None = None
        self._n_interrupts, self._acts_on_signals = 0, False
        #: Whether this command is to halt, as Ctrl-Z asks.
        self._is_to_halt = False
        #: Why no daemon could be started, and when it first was so; `inf`: it has been said.
        self._refusals: dict[str, float] = {}
        #: Why the last attempt to start one has failed; None: there is a daemon.
        self._refused: InvalidSpec | None = None
        self._begun_at, self._pause_s = time.monotonic(), _PAUSE_S

    # Entering.

    def submit(self, submissions: Sequence[Submission], options: HostOptions) -> None:
        """Submit jobs, all or none, and follow them.

        They are `job_ids` then, in the same order, and may have other names than they came with: see `names_in`.

        Raises `InvalidSpec`: a job is refused, or no daemon can be had.
        """
        settings = ProcessSettings.here(self._receive)

        def follow(run: RunFolder, named: Sequence[Submission]) -> None:
            self._follow(run, tuple(submission.spec.id for submission in named))

        joining = Joining(options, settings=settings, before=follow)
        run, _ = joining.submit(submissions, _input_fd())
        self._follow_output(run, settings)

    def follow(self, run: RunFolder, job: JobId) -> None:
        """Follow an open job from now on; raises `InvalidSpec` if it has no daemon and none can be started."""
        if not run.is_live():
            start_daemon(DaemonRequest(run=run.name))
        self._follow(run, (job,))
        self._follow_output(run, ProcessSettings.here(self._receive), skip=True)

    def _follow(self, run: RunFolder, jobs: tuple[JobId, ...]) -> None:
        if (self._run, self.job_ids) == (run, jobs):
            return
        self._closing.close()
        self.job_ids, self._unended = jobs, list(reversed(jobs))
        self._run, self._board = None, StatusBoard(self._forecast, n_ended=len(jobs))  # none is forgotten
        self._ask_at, self._answered_at = -inf, time.monotonic()
        with ExitStack() as closing:
            self._journal = closing.enter_context(run.read_journal())
            closing.enter_context(run.followed())
            self._shift_s, self._next = clock_shift(self._journal.clock), self._journal.begun_after + 1
            self._read()
            self._run, self._closing = run, closing.pop_all()

    def _follow_output(self, run: RunFolder, settings: ProcessSettings, *, skip: bool = False) -> None:
        """Follow the logs of the jobs; `skip`: only output from now on."""
        if self._receive is ignore_output:
            return
        for job in self.job_ids:
            facts = run.start_facts(job)
            of_job = settings if facts is None else facts.settings
            for fd, log in enumerate(logs_of(run.log(job), of_job), start=1):
                # Errors that the user has sent elsewhere than to the terminal go there, past the display.
                goes_elsewhere = fd == 2 and settings.is_split and settings.terminal_size is not None
                receive = None if goes_elsewhere else self._receive
                self._tails.append(LogTail(log, receive or partial(write_through, fd), skip=skip))

    # The jobs.

    @property
    def run_folder(self) -> RunFolder:
        """Folder of the run."""
        assert self._run is not None
        return self._run

    def now(self) -> float:
        return time.monotonic() - self._shift_s

    def listen(self, listener: Listener, job: JobId | None = None) -> None:
        """Call `listener` with each message once `status` reflects it; with `job`, only those that may concern it."""
        self._listeners_about.setdefault(job, []).append(logged(listener))

    def standing_of(self, job: JobId) -> Mapping[str, Any]:
        """Return how the job stood when the daemon last said so; empty: it has not yet."""
        return self._standings.get(job, {})

    def _forecast(self, job: JobId) -> tuple[Forecast | None, float | None]:
        return forecast_in(self.standing_of(job))

    def stop(self, job: JobId, cause: str, *, interrupts: bool = False) -> None:
        """Ask the job to end, after a checkpoint if it can make one; allowed in a signal handler.

        `interrupts`: as Ctrl-C does it in a terminal.
        """
        if self._refused is None:
            self._to_stop[job] = cause, interrupts
        else:
            self.signal(job, signal.SIGINT if interrupts else signal.SIGTERM)

    def kill(self, job: JobId) -> None:
        """End the job at once, without a checkpoint; allowed in a signal handler."""
        self._is_given_up = True
        self.signal(job, signal.SIGQUIT)

    def signal(self, job: JobId, number: int) -> bool:
        """Send a signal to the job through its supervisor; return whether there is one. Allowed in a signal handler."""
        supervisor_pid = self.run_folder.supervisor_pid(job)
        with suppress(ProcessLookupError):
            if supervisor_pid is not None:
                os.kill(supervisor_pid, number)
                return True
        return False

    def signals_caught(self) -> AbstractContextManager[None]:
        """Catch signals in the block: the first asks the jobs to end, the second ends them; the jobs' own are passed on.

        A second Ctrl-C is passed on as well, and the third ends them.
        """
        return caught(self._on_signal, (*_STOPPING, *_PASSED_ON, signal.SIGTSTP))

    def act_on_signals(self) -> None:
        """Act on signals from now on, and on one that has come already."""
        self._acts_on_signals = True
        if self.received is not None:
            self._stop_all(self.received)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._is_to_halt = True
            return
        is_own, is_first = number in _PASSED_ON, self.received is None
        if not is_own:
            self.received = self.received or number
            self._n_interrupts += number == self.received == signal.SIGINT
        if not self._acts_on_signals:
            return
        if is_first and not is_own:
            self._stop_all(number)
            return
        # A second Ctrl-C means to a program what it means without Punctual.
        is_passed_on = is_own or (number == signal.SIGINT and self._n_interrupts == 2)
        for job in self.job_ids:
            is_sent = is_passed_on and self.signal(job, number)
            if not (is_sent or is_own):
                self.kill(job)

    def _stop_all(self, number: int) -> None:
        interrupts = number == signal.SIGINT
        for job in self.job_ids:
            self.stop(job, "Ctrl-C" if interrupts else signal.Signals(number).name, interrupts=interrupts)

    def run(self) -> None:
        """Return when all jobs have ended.

        Raises `InvalidSpec`: the folder of their run was removed meanwhile; or they were ended by `kill`, and no daemon
        can record it.
        """
        while not self._have_ended():
            self._wait()
        for tail in self._tails:
            tail.finish(_END_S_MAX)

    def _wait(self) -> None:
        if self._is_to_halt:
            self._is_to_halt = False
            with self._halting():
                _halt()
        self._look()
        self._pass_on_stops()
        if self._have_ended():
            return
        # Another process must take the daemon's place: it has left, was killed, or is silent for long, and is so still.
        is_silent = time.monotonic() - self._answered_at > SILENT_S
        if (not self.run_folder.is_live() or is_silent) and not (self.run_folder.is_live() and self._ask()):
            self._restart()
        else:
            self._refusals.clear()
            self._refused = None
            self._pause_s = _PAUSE_S
            is_new = time.monotonic() < self._begun_at + 2.0
            time.sleep(_SOON_S if is_new else _POLL_INTERVAL_S)

    def _restart(self) -> None:
        """Start a daemon that goes on with the jobs; if that fails, say why, once."""
        run = self.run_folder
        if self._refused is not None and self._has_read_ends(self._refused):
            return
        try:
            start_daemon(DaemonRequest(run=run.name))
        except InvalidSpec as error:
            self._look()  # they may just have ended
            if self._has_read_ends(error):
                return
            if not run.state_dir.exists():
                raise
            if not self._have_ended():
                if self._is_given_up:
                    raise
                while self._to_stop:
                    job, (_, interrupts) = self._to_stop.popitem()
                    self.signal(job, signal.SIGINT if interrupts else signal.SIGTERM)
                self._say_once(f"the jobs of '{run.name}' cannot be taken over: {error}")
                self._pause_s = min(2.0 * self._pause_s, _PAUSE_S_MAX)
                time.sleep(self._pause_s)

    def _has_read_ends(self, refused: InvalidSpec) -> bool:
        """Whether all jobs have ended, also by what their supervisors have recorded while no daemon could be started."""
        self._refused = refused
        if not self._have_ended():
            self._read_ends()
            if self._have_ended():
                _LOG.warning("the end of %s is written by the next daemon: %s", ", ".join(self.unwritten), refused)
        return self._have_ended()

    def _have_ended(self) -> bool:
        while self._unended and self.has_ended(self._unended[-1]):
            self._unended.pop()
        return not self._unended

    def _pass_on_stops(self) -> None:
        for job, (cause, interrupts) in list(self._to_stop.items()):
            with suppress(ControlFailed, InvalidSpec):  # it is said again, or the job has ended
                request = {"verb": "stop", "job": job, "cause": cause, "interrupts": interrupts}
                ask(self.run_folder.socket, request)
                self._to_stop.pop(job, None)

    def _look(self) -> None:
        """Read new messages of the journal, and query the host now and then."""
        with suppress(StoreUnreachable):  # what is in it is told once it is back
            self._read()
        if time.monotonic() >= self._ask_at:
            self._ask()

    def _ask(self) -> bool:
        """Query the host for the jobs' status; return whether it answered."""
        try:
            told = standings_of(self.run_folder, self.job_ids, _ANSWER_S_MAX)
            self._standings = {str(standing["job"]): standing for standing in told}
        except (ControlBusy, InvalidSpec):  # it is there, perhaps of another version
            self._answered_at = time.monotonic()
            return False
        except ControlFailed:
            return False
        else:
            self._answered_at = time.monotonic()
            return True
        finally:
            self._ask_at = time.monotonic() + _ASK_S

    def _read_ends(self) -> None:
        """Read the ends that supervisors have recorded and no daemon could write, of jobs that are not started again."""
        from punctual.daemon.adoption import recorded_end  # most commands have no use for what it needs

        for status in [status for status in self.jobs() if not status.ended]:
            if (record := self.run_folder.end_record(status.id)) is None:
                continue
            report, end = recorded_end(status.id, record, shift_s=self._shift_s, at_least=self._last_at)
            if isinstance(end, JobFailed) and end.retryable:
                if status.spec.n_retries != 0 or end.out_of_memory or end.is_lost:
                    continue  # the next daemon may start it again
                end = replace(end, retryable=False)
            self.unwritten[status.id] = (end,) if report is None else (report, end)
            for event in self.unwritten[status.id]:
                self._board.fold(event)
                self._tell(event)

    def _read(self) -> None:
        if (last := self._journal.last_sequence) < self._next:
            return
        for number, message in self._journal.read_of(self.job_ids, self._next):
            last, self._next, self._last_at = max(last, number), number + 1, message.at
            if (job := ended_by(message)) is not None and self.unwritten.pop(job, None) is not None:
                continue  # its end is known
            self._board.fold(message)
            self._tell(message)
        self._next = last + 1

    def _say_once(self, refusal: str) -> None:
        """Tell the user once why no process steers the jobs, unless that passes by itself."""
        now = time.monotonic()
        if now - self._refusals.setdefault(refusal, now) > _ALIKE_S:
            _LOG.warning("%s", refusal)
            self._refusals[refusal] = inf

    def _tell(self, message: Message) -> None:
        subject = about(message)
        wanted = self._listeners_about if subject is None else (None, subject)
        for listener in [listener for name in wanted for listener in self._listeners_about.get(name, ())]:
            listener(message)
        super()._tell(message)

    # Leaving.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for tail in self._tails:
            tail.finish(_END_S_MAX)
        self._closing.close()


def _halt() -> None:
    """Halt this process as if it did not catch Ctrl-Z; returns once it goes on."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


def _input_fd() -> int | None:
    """Return the standard input for a job; None: it is a terminal, which stays this command's, or closed."""
    try:
        os.fstat(0)
    except OSError:
        return None
    return None if os.isatty(0) else 0


def ended_of(run: RunFolder, job: JobId) -> dict[str, Any]:
    """Return the daemon's record of an ended job; empty if the daemon was killed before it could write it."""
    poll(lambda: job not in run.open_jobs(), _END_S_MAX, _SOON_S)
    return run.end_facts(job)
