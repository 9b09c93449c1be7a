"""The daemon: the one process that steers this machine's jobs, from its start to the end of its last job."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from math import inf
from threading import Thread
from types import FrameType, TracebackType
from typing import Self

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.lifecycle import ENDS, ended_by
from punctual.core.status import JobStatus
from punctual.daemon.control_client import is_silent
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host import Host
from punctual.daemon.joining import check_options
from punctual.daemon.machine_providers import end_abandoned, has_machines
from punctual.daemon.opening import new_host
from punctual.daemon.polling import poll
from punctual.daemon.restore import AllEndedError, resumed_host
from punctual.daemon.retention import prune
from punctual.daemon.run_folder import SERVICE, RunFolder, free_name, run_named
from punctual.daemon.sharing import SHARED_NAME, check_no_service, host_lock, is_outdated, run_to_continue, shared_run
from punctual.journal.errors import JournalTaken, JournalUnusable

#: Seconds between two looks at another process's progress.
_POLL_INTERVAL_S = 0.1
_LOCK_S_MAX, _START_S_MAX = 20.0, 60.0
#: Seconds of attempts that are refused alike, after which it refuses too.
_ALIKE_S = 10.0
#: Seconds for which a daemon waits for its first job: the command that has started it may have to wait for a core.
_FIRST_JOB_S_MAX = 60.0
#: Seconds from one removal of old jobs to the next.
_PRUNE_S = 600.0


class Daemon:
    """Steers jobs until its last one has ended or, if it stays, until it is asked to leave.

    Jobs that it has then are left running, for the next daemon. A context manager: leaving it gives up the host.

    * `taken_over`: the jobs that it found.
    * `other`: the run of another daemon that has the jobs already; None: this one has them.
    * `lingers_s`: seconds for which it waits for clients once its last job has ended.
    * `received`: signal that made it leave; None: none came.
    * `left`: the jobs that had not ended when it left.
    * `left_alone`: why jobs that no daemon has were left as they are, and a new run was begun; empty: there are none.
    """

    def __init__(self, request: DaemonRequest) -> None:
        self._request = request
        self.taken_over: tuple[JobId, ...] = ()
        self.other: RunFolder | None = None
        self.lingers_s = 0.0
        self.received: int | None = None
        self.left: Sequence[JobStatus] = ()
        self.left_alone = ""
        self._host: Host | None = None
        self._hosting = ExitStack()
        #: Why the jobs of a run that was found could not be taken over, and since when it is so.
        self._refused: InvalidSpec | None = None
        self._refused_at = 0.0
        #: When it began, and when its last job has ended.
        self._begun_at = self._ended_at = time.monotonic()
        self._prune_at = self._begun_at + _PRUNE_S

    @property
    def host(self) -> Host:
        """The host; valid once `begin` has returned, and unless there is an `other` daemon."""
        assert self._host is not None
        return self._host

    @property
    def has_ended(self) -> bool:
        """Whether it has ended because its last job has."""
        return self._host is None

    def begin(self) -> None:
        """Become the daemon of the request's run: in place of one that is gone, or hangs, or must leave, or as the first.

        Raises `InvalidSpec`: there is a service already, or no host could be begun.
        """
        give_up_at = time.monotonic() + _START_S_MAX
        while not self._try_to_begin():
            if self._refused is not None and self._is_for_good(self._refused):
                if self._request.run or self._request.stays:
                    raise self._refused
                self.left_alone = str(self._refused)  # they must not keep a new job from running
            if time.monotonic() > give_up_at:
                raise self._refused or InvalidSpec(
                    "the daemon must hand this machine's jobs to the next one",
                    "a daemon that still schedules them",
                    "the daemon of this machine",
                    "See `punctual ps` for what runs, and `punctual doctor` for what is wrong.",
                )
            time.sleep(_POLL_INTERVAL_S)
        if self.other is None:
            _in_background(end_abandoned, "punctual-abandoned")
            _in_background(prune, "punctual-retention")  # who waits for the daemon does not wait for this

    def run(self) -> None:
        """Steer all jobs until `leave` or, if it does not stay, until the last one has ended.

        Raises `JournalTaken`: this process was stopped, and another one is the daemon now.
        """
        host = self.host
        if self.received is not None:
            self.leave()
        while True:
            host.run(lambda: host.is_asked_to_leave or (host.all_ended() and not self._request.stays))
            # Nothing may come any more by which it would be woken.
            host.run_for(self._ends_in_s(), lambda: host.is_asked_to_leave or self._ends_in_s() in (0.0, inf))
            if host.is_asked_to_leave:
                return
            if self._ends_in_s() > 0.0:
                continue
            with host_lock(0.0) as has_lock:  # who has it may be just submitting a job
                if has_lock and self._ends_in_s() <= 0.0 and host.begin_to_close():
                    self._hosting.close()
                    self._host = None
                    return
            host.run_for(_POLL_INTERVAL_S)

    def leave(self) -> None:
        """Make `run` return; allowed in any thread and signal handler."""
        self.host.ask_to_leave()

    def leave_on(self, number: int, _: FrameType | None = None) -> None:
        """Leave because of a signal, even if that comes before there is a host; a handler of signals."""
        self.received = self.received or number
        if self._host is not None:
            self.leave()

    def _ends_in_s(self) -> float:
        """Return the seconds after which it ends if no job comes; `inf`: it has jobs, or stays."""
        if self._request.stays:
            return inf
        if not self.host.all_ended():
            return inf
        now, is_awaited = time.monotonic(), not self.host.jobs() and not self.host.is_unneeded
        first_job_s = self._begun_at + _FIRST_JOB_S_MAX - now if is_awaited else 0.0
        return max(0.0, first_job_s, self._ended_at + self.lingers_s - now)

    def _try_to_begin(self) -> bool:
        with host_lock(_LOCK_S_MAX) as has_lock:
            if not has_lock:
                return False
            run = self._run_to_resume()
            if run is None:
                self._open_new()
                return True
            return self._take_up(run)

    def _run_to_resume(self) -> RunFolder | None:
        """Return the run whose jobs are to be gone on with; None: a new one is to begin."""
        if self._request.run:
            run = run_named(self._request.run)
            return run if run.open_jobs() or has_machines(run) or not self._request.stays else None
        if self.left_alone:
            return None
        return shared_run() if self._request.options.shared else None

    def _open_new(self) -> None:
        request = self._request
        facts = {SERVICE: True} if request.stays else {}
        run = run_to_continue() if request.options.shared else None
        if run is not None:
            try:
                self._open(new_host(run.name, request.options, facts=facts, continues=True))
            except JournalUnusable as error:
                self.left_alone = str(error)  # its jobs have ended, and must not keep a new one from running
            else:
                return
        if request.options.shared:
            name = free_name(SHARED_NAME, is_new=True)
        else:  # one may have kept the name of its first job, which has ended, because another of its jobs has not
            job = request.name
            name = job if job in run_named(job).open_jobs() else free_name(job)
        self._open(new_host(name, request.options, facts=facts))

    def _take_up(self, run: RunFolder) -> bool:
        """Go on with the jobs of `run`, if its daemon is gone, hangs, or leaves; return whether there is a daemon now."""
        options, stays, facts = self._request.options, self._request.stays, run.facts()
        if not self._request.run:
            check_options(options, run.name, facts, "end its jobs first (`punctual stop`)")
            if options.allow_unauthenticated_ray:  # who takes the jobs over has the options of their run
                run.record_facts(options={**facts.get("options", {}), "allow_unauthenticated_ray": True})
        take = is_silent(run)
        if run.is_live() and not take:
            if not stays and not is_outdated(run, facts):
                self.other = run
                return True
            if not _has_left(run):
                return False
        try:
            self._open(resumed_host(run, take=take, is_service=stays))
        except JournalUnusable as error:
            if self._request.run or stays:
                raise
            self.left_alone = str(error)
            return False
        except InvalidSpec as error:  # all its jobs have ended, or its supervisors do not know yet
            if self._refused is None or str(error) != str(self._refused):
                self._refused, self._refused_at = error, time.monotonic()
            return False
        return True

    def _is_for_good(self, refused: InvalidSpec) -> bool:
        """Whether another attempt to take jobs over would be in vain, too."""
        if self._request.run and isinstance(refused, AllEndedError):
            return True
        return time.monotonic() > self._refused_at + _ALIKE_S

    def _open(self, opening: AbstractContextManager[Host]) -> None:
        with ExitStack() as hosting:
            self._host = hosting.enter_context(opening)
            self.taken_over = self._host.open_jobs()
            self._host.subscribe(self._note_end, *ENDS)
            self._hosting = hosting.pop_all()

    def _note_end(self, message: Message) -> None:
        """Note that a job has ended; remove those of the past now and then: all that they have left grows with their number."""
        if ended_by(message) is None:
            return
        self._ended_at = now = time.monotonic()
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE_S
            _in_background(prune, "punctual-retention")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._host is None:
            return
        host, give_up_at = self._host, time.monotonic() + _LOCK_S_MAX
        try:
            while True:
                # Another daemon that waits for this one's place has the lock, and needs it.
                with host_lock(_LOCK_S_MAX if error else 0.0) as has_lock:
                    if has_lock or error or host.is_asked_to_leave or time.monotonic() > give_up_at:
                        if host.open_jobs():
                            host.hand_over()
                        self._hosting.__exit__(kind, error, trace)
                        return
                host.run_for(_POLL_INTERVAL_S)
        except JournalTaken as taken:  # there is nothing left to hand over
            self._hosting.__exit__(type(taken), taken, taken.__traceback__)


def _in_background(task: Callable[[], object], name: str) -> None:
    with suppress(RuntimeError):  # no thread can be had just now
        Thread(target=task, name=name, daemon=True).start()


def _has_left(run: RunFolder) -> bool:
    """Ask the daemon of a run to leave its place; False: it has not yet. Raises `InvalidSpec` if it is a service."""
    check_no_service(run)
    with suppress(ControlFailed):
        ask(run.socket, {"verb": "leave"})
    return poll(lambda: not run.is_live(), 10.0)
