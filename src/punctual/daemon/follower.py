"""Follow jobs to their ends, whichever process is their daemon; a daemon that is missing is started again."""

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import inf
from types import FrameType
from typing import Any, Self

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.lifecycle import about, ended_by
from punctual.core.protocols import Message
from punctual.core.status import JobStatus
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.detached import caught
from punctual.daemon.followed_host import FollowedHost
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import Joining, start_daemon
from punctual.daemon.listeners import Listener, logged
from punctual.daemon.run_folder import RunFolder
from punctual.executors.local.output import LogTail, Receive, Streams, ignore_output, logs_of, write_through
from punctual.request.deadlines import Now
from punctual.request.submission import Submission

_LOG = logging.getLogger(__name__)

#: Seconds between two looks at the journal: while the jobs are new, and then.
_SOON_S, _POLL_INTERVAL_S = 0.02, 0.1
#: Seconds between two attempts to start a daemon, at first and at most; and after how long of attempts that fail alike the reason is given.
_PAUSE_S, _PAUSE_S_MAX, _ALIKE_S = 0.2, 5.0, 5.0
#: Signals by which the jobs of a command are asked to end: a terminal, a user, and a batch system before its limit of time.
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU)
#: Signals that are the jobs' own, as a batch system sends them before its limit of time.
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
#: Seconds for a job's last output and the record of its end to come after its end is in the journal.
_END_S_MAX = 5.0


class JobFollower:
    """Jobs of a daemon that one command waits for.

    Where their daemon was killed, or hangs, the command starts the next one, which goes on with them. The end of the
    command ends no job. A context manager: leaving it ends the following.

    `receive`: called with what the jobs write, from other threads. None: it is written where this process writes.
    """

    def __init__(self, receive: Receive | None) -> None:
        self._receive = receive
        self.jobs: tuple[JobId, ...] = ()
        self._followed: FollowedHost | None = None
        self._tails: list[LogTail] = []
        #: Listeners by job; None: those for all jobs.
        self._listeners: dict[JobId | None, list[Listener]] = {}
        #: `jobs` again, to look one up, and those that are not known to have ended: there may be thousands.
        self._own: frozenset[JobId] = frozenset()
        self._unended: list[JobId] = []
        #: Statuses of ended jobs: a board forgets all but the last ends.
        self._ended: dict[JobId, JobStatus] = {}
        #: Jobs that are to be asked to stop, and why, until they have been.
        self._to_stop: dict[JobId, tuple[str, bool]] = {}
        #: Whether the user has ended the jobs at once, and waits for no record of it.
        self._is_given_up = False
        #: The first signal by which the jobs are to end; None: none came. Signals are acted on once `act_on_signals` was called.
        self.received: int | None = None
        self._acts_on_signals = False
        #: Why no daemon could be started, and when it first was so; `inf`: it has been said.
        self._refusals: dict[str, float] = {}
        #: Why the last attempt to start one has failed; None: there is a daemon.
        self._refused: InvalidSpec | None = None
        self._begun_at, self._pause_s = time.monotonic(), _PAUSE_S

    # Entering.

    def submit(self, submissions: Sequence[Submission], options: HostOptions) -> None:
        """Submit jobs, all or none, and follow them.

        They are `jobs` then, in the same order, and may have other names than they came with: see `names_in`.

        Raises `InvalidSpec`: a job is refused, or no daemon can be had.
        """
        streams = Streams.here(self._receive)
        joining = Joining(options, streams=streams, before=self._follow_all)
        run, _ = joining.submit(submissions, _input_fd())
        self._follow_output(run, streams)

    def follow(self, run: RunFolder, job: JobId) -> None:
        """Follow an open job from now on; raises `InvalidSpec` if it has no daemon and none can be started."""
        if not run.is_live():
            start_daemon(DaemonRequest(run=run.name))
        self._follow(run, (job,))
        self._follow_output(run, Streams.here(self._receive), skip=True)

    def _follow_all(self, run: RunFolder, submissions: Sequence[Submission]) -> None:
        self._follow(run, tuple(submission.spec.id for submission in submissions))

    def _follow(self, run: RunFolder, jobs: tuple[JobId, ...]) -> None:
        if self._followed is not None and (self._followed.run_folder, self.jobs) == (run, jobs):
            return
        self._close()
        self.jobs, self._own, self._unended = jobs, frozenset(jobs), list(reversed(jobs))
        self._followed = FollowedHost(run, jobs)
        self._followed.subscribe(self._tell)

    def _close(self) -> None:
        if self._followed is not None:
            self._followed.close()

    def _follow_output(self, run: RunFolder, streams: Streams, *, skip: bool = False) -> None:
        """Follow the logs of the jobs; `skip`: only output from now on."""
        if self._receive is ignore_output:
            return
        for job in self.jobs:
            for fd, log in enumerate(logs_of(run.log(job), run.streams(job) or streams), start=1):
                self._tails.append(LogTail(log, self._receive or partial(write_through, fd), skip=skip))

    # The jobs.

    @property
    def run_folder(self) -> RunFolder:
        """Folder of the run."""
        return self._daemon.run_folder

    def clocks(self) -> Now:
        """Present instant on the daemon's clock and on the wall clock."""
        return self._daemon.clocks()

    def subscribe(self, listener: Listener, job: JobId | None = None) -> None:
        """Call `listener` with each message once `status` reflects it; with `job`, only those that may concern it."""
        self._listeners.setdefault(job, []).append(logged(listener))

    def status(self, job: JobId) -> JobStatus:
        """Return the job's status; raises `InvalidSpec` until the daemon has processed the submission."""
        return self._ended.get(job) or self._daemon.status(job)

    def told(self, job: JobId) -> Mapping[str, Any]:
        """Return how the job stood when the daemon last said so; empty: it has not yet."""
        return self._daemon.told(job)

    @property
    def unwritten(self) -> Mapping[JobId, Sequence[Message]]:
        """Last messages about jobs that have ended, which the journal does not have yet: no daemon can be started."""
        return self._daemon.unwritten

    def knows(self, job: JobId) -> bool:
        """Whether the daemon has processed the job's submission."""
        return job in self._ended or self._daemon.knows(job)

    def has_ended(self, job: JobId) -> bool:
        """Whether the job is known and has ended."""
        return job in self._ended or self._daemon.has_ended(job)

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

    def signal(self, job: JobId, number: int) -> None:
        """Send a signal to the job through its supervisor; allowed in a signal handler."""
        supervisor_pid = self.run_folder.supervisor_pid(job)
        if supervisor_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(supervisor_pid, number)

    def signals_caught(self) -> AbstractContextManager[None]:
        """Catch signals in the block: the first asks the jobs to end, the second ends them; the jobs' own are passed on."""
        return caught(self._on_signal, (*_STOPPING, *_PASSED_ON))

    def act_on_signals(self) -> None:
        """Act on signals from now on, and on one that has come already."""
        self._acts_on_signals = True
        if self.received is not None:
            self._stop_all(self.received)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        is_own, is_first = number in _PASSED_ON, self.received is None
        if not is_own:
            self.received = self.received or number
        if not self._acts_on_signals:
            return
        if is_first and not is_own:
            self._stop_all(number)
            return
        for job in self.jobs:
            if is_own:
                self.signal(job, number)
            else:
                self.kill(job)

    def _stop_all(self, number: int) -> None:
        interrupts = number == signal.SIGINT
        for job in self.jobs:
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
        followed = self._daemon
        followed.look()
        self._pass_on_stops()
        if self._have_ended():
            return
        if followed.is_lost() and not followed.is_there():
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
            self._daemon.look()  # they may just have ended
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
            self._daemon.read_ends()
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

    @property
    def _daemon(self) -> FollowedHost:
        assert self._followed is not None
        return self._followed

    def _say_once(self, refusal: str) -> None:
        """Tell the user once why no process steers the jobs, unless that passes by itself."""
        now = time.monotonic()
        if now - self._refusals.setdefault(refusal, now) > _ALIKE_S:
            _LOG.warning("%s", refusal)
            self._refusals[refusal] = inf

    def _tell(self, message: Message) -> None:
        job = ended_by(message)
        if job is not None and job in self._own and self._daemon.has_ended(job):
            self._ended[job] = self._daemon.status(job)
        subject = about(message)
        wanted = self._listeners if subject is None else (None, subject)
        for listener in [listener for name in wanted for listener in self._listeners.get(name, ())]:
            listener(message)

    # Leaving.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for tail in self._tails:
            tail.finish(_END_S_MAX)
        self._close()


def _input_fd() -> int | None:
    """Return the standard input for a job; None: it is a terminal, which stays this command's, or closed."""
    try:
        os.fstat(0)
    except OSError:
        return None
    return None if os.isatty(0) else 0


def ended_of(run: RunFolder, job: JobId) -> dict[str, Any]:
    """Return the daemon's record of an ended job; empty if the daemon was killed before it could write it."""
    give_up_at = time.monotonic() + _END_S_MAX
    while job in run.open_jobs() and time.monotonic() < give_up_at:
        time.sleep(_SOON_S)
    return run.end_facts(job)
