"""The host of a command's jobs: in this process, or in that of another command with which it shares the machine."""

import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from types import TracebackType
from typing import Any, Self

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.lifecycle import about, ended_by
from punctual.core.protocols import Message
from punctual.core.status import JobStatus
from punctual.daemon.control_client import submit
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.engine import Listener, logged
from punctual.daemon.followed_host import FollowedHost
from punctual.daemon.host_executor import OutputOf
from punctual.daemon.host_options import INLINE_POLICY, HostOptions
from punctual.daemon.job_names import names_in
from punctual.daemon.local_host import LocalHost, local_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import RunFolder, free_name, run_named
from punctual.daemon.sharing import host_lock, shared_run
from punctual.executors.local.context import OnOutput
from punctual.executors.local.output import LogTail, Streams, logs_of
from punctual.journal.errors import JournalTaken, JournalUnusable
from punctual.request.deadlines import Now
from punctual.request.submission import Submission

_LOG = logging.getLogger(__name__)

#: Seconds between two looks at another process's progress.
_POLL_INTERVAL_S = 0.1
#: After an attempt to take the host's place that failed; and after how long of attempts that fail alike it is said why.
_PAUSE_S, _ALIKE_S = 0.1, 5.0
#: Seconds that others may hold the lock of the shared host, and seconds to find a host that answers.
_LOCK_S_MAX, _JOIN_S_MAX = 20.0, 60.0
#: Seconds for a job's last output and the record of its end to come after its end is in the journal.
_END_S_MAX = 5.0


class JoinedHost:
    """Host of some jobs, in whichever process it is now.

    Where another process is the host and ends, or is killed, or hangs, one of those that wait for its jobs takes its
    place. Who is the host ends no job of another command: it leaves those to the others, or to nobody. One that was
    stopped and finds another in its place does nothing to the jobs any more, and waits for its own as any other.

    A context manager: leaving it gives up the host, if it is in this process.

    Parameters
    ----------
    output_of
        Returns the receiver of the output of a job of this command; it comes from the job's log.
    """

    def __init__(self, output_of: OutputOf) -> None:
        self._output_of = output_of
        #: The jobs of this command, and those of them that it shows.
        self.jobs: tuple[JobId, ...] = ()
        self.shown_jobs: tuple[JobId, ...] = ()
        #: Submissions of this command, under the names free in the run tried last; None: none was tried yet.
        self._named: tuple[RunFolder | None, list[Submission]] | None = None
        #: Jobs of other commands that nobody steers now that this one has left the host.
        self.left_alone: tuple[JobId, ...] = ()
        self._local: LocalHost | None = None
        self._hosting = ExitStack()
        self._followed: FollowedHost | None = None
        self._tails: list[LogTail] = []
        #: Listeners by job; None: those for all jobs.
        self._listeners: dict[JobId | None, list[Listener]] = {}
        #: `jobs` again, to look one up, and those that are not known to have ended: there may be thousands.
        self._own: frozenset[JobId] = frozenset()
        self._unended: list[JobId] = []
        #: Statuses of this command's ended jobs: a board forgets all but the last ends.
        self._ended: dict[JobId, JobStatus] = {}
        #: Jobs that are to be asked to stop, and why, until they have been.
        self._to_stop: dict[JobId, tuple[str, bool]] = {}
        #: Why the place of a host that is gone could not be taken, and when it first was so; `inf`: it has been said.
        self._refusals: dict[str, float] = {}

    # Entering.

    def run_jobs(self, submissions: Sequence[Submission], options: HostOptions, facts: Mapping[str, Any]) -> None:
        """Run jobs, all or none, on the shared host or, if there is none or none may be shared, on a new one.

        They are `jobs` then, in the same order, and may have other names than they came with: see `names_in`.

        Parameters
        ----------
        facts
            Kept in the record of a new host's run.

        Raises
        ------
        InvalidSpec
            A job is refused, or no host can be had.
        """
        give_up_at = time.monotonic() + _JOIN_S_MAX
        while not self._try_to_run(submissions, options, facts):
            if time.monotonic() > give_up_at:
                raise InvalidSpec(
                    "the host of this machine's jobs must answer, or this command must be able to take its place",
                    "; ".join(("no answer", *self._refusals)),
                    f"the host of '{self.run_folder.name}'" if self._followed else "the shared host",
                    "See `punctual ps`, or run these jobs beside it (`--alone`).",
                )
            time.sleep(_POLL_INTERVAL_S)

    def _try_to_run(self, submissions: Sequence[Submission], options: HostOptions, facts: Mapping[str, Any]) -> bool:
        with host_lock(_LOCK_S_MAX) as has_lock:
            run = shared_run() if has_lock and options.shared else None
            if not has_lock:
                return False
            submissions = self._name(submissions, run)
            if run is None:
                self._begin(submissions, options, facts)
                return True
            self._follow(run)
            check_options(options, run)
            with suppress(ControlFailed):
                if self._ask_to_run(run, submissions):
                    return True
        self._take_place()
        if self._local is None:
            return False
        self._local.submit_again(submissions, self._streams())
        self._follow_output(self._local.run_folder)
        return True

    def _name(self, submissions: Sequence[Submission], run: RunFolder | None) -> list[Submission]:
        """Name the submissions as is free in `run`; a run that was tried before gets the same names again."""
        if self._named is None or self._named[0] != run:
            self._named = run, names_in(run, submissions)
        named = self._named[1]
        self._take(tuple(submission.spec.id for submission in named))
        return named

    def _take(self, jobs: tuple[JobId, ...]) -> None:
        """Make these the jobs of this command, and show them."""
        self.jobs = self.shown_jobs = jobs
        self._own, self._unended = frozenset(jobs), list(reversed(jobs))

    def _begin(self, submissions: Sequence[Submission], options: HostOptions, facts: Mapping[str, Any]) -> None:
        self._unfollow()
        job = submissions[0].spec.id
        # A run may have kept the name of its first job, which has ended, because another of its jobs has not.
        name = job if job in run_named(job).open_jobs() else free_name(job)
        with ExitStack() as hosting:
            local = hosting.enter_context(local_host(name, options, output_of=receiver_of_none, facts=facts))
            local.submit_all(submissions, self._streams())
            self._is_at(local, hosting)
        self._follow_output(local.run_folder)

    def _ask_to_run(self, run: RunFolder, submissions: Sequence[Submission]) -> bool:
        if not run.is_live():
            return False
        submit(run, submissions, self._streams())
        self._follow_output(run)
        return True

    def _follow_output(self, run: RunFolder, *, skip: bool = False) -> None:
        """Follow the logs of the jobs that are shown; `skip`: only output from now on."""
        for job in self.shown_jobs:
            receive = self._output_of(job)
            if receive is not ignore_output:
                streams = run.streams(job) or self._streams()
                self._tails.append(LogTail(logs_of(run.log(job), streams), receive, skip=skip))

    def take_over(self, run: RunFolder, shown: JobId, *, take: bool) -> None:
        """Become the host of a run whose host is gone or, with `take`, hangs; all its open jobs become this command's.

        Parameters
        ----------
        shown
            The job that this command shows.

        Raises
        ------
        InvalidSpec
            As for `resumed_host`.
        """
        with host_lock(_LOCK_S_MAX), ExitStack() as hosting:
            local = hosting.enter_context(resumed_host(run, output_of=receiver_of_none, take=take))
            self._take(local.open_jobs())
            self.shown_jobs = (shown,)
            self._is_at(local, hosting)
        self._follow_output(run, skip=True)

    # The jobs.

    @property
    def local(self) -> LocalHost | None:
        """The host, if it is in this process; None otherwise."""
        return self._local

    @property
    def run_folder(self) -> RunFolder:
        """Folder of the run; still valid after leaving."""
        return self._present.run_folder

    def clocks(self) -> Now:
        """Present instant on the host's clock and on the wall clock."""
        return self._present.clocks()

    def subscribe(self, listener: Listener, job: JobId | None = None) -> None:
        """Call `listener` with each message once `status` reflects it; with `job`, only those that may concern it."""
        self._listeners.setdefault(job, []).append(logged(listener))

    def status(self, job: JobId) -> JobStatus:
        """Return the job's status; raises `InvalidSpec` until the host has processed the submission."""
        return self._ended.get(job) or self._present.status(job)

    def knows(self, job: JobId) -> bool:
        """Whether the host has processed the job's submission."""
        return job in self._ended or self._present.knows(job)

    def has_ended(self, job: JobId) -> bool:
        """Whether the job is known and has ended."""
        return job in self._ended or self._present.has_ended(job)

    def stop(self, job: JobId, cause: str, *, interrupts: bool = False) -> None:
        """Ask the job to end, after a checkpoint if it can make one; allowed in a signal handler.

        `interrupts`: as Ctrl-C does it in a terminal.
        """
        # Also where the host is here: another process may have its place already.
        self._to_stop[job] = cause, interrupts
        if self._local is not None:
            self._local.stop(job, cause, interrupts=interrupts)

    def kill(self, job: JobId) -> None:
        """End the job at once, without a checkpoint; allowed in a signal handler."""
        self.signal(job, signal.SIGQUIT)

    def signal(self, job: JobId, number: int) -> None:
        """Send a signal to the job through its keeper; allowed in a signal handler."""
        keeper_pid = self.run_folder.keeper_pid(job)
        if keeper_pid is not None:
            with suppress(ProcessLookupError):
                os.kill(keeper_pid, number)

    def run(self) -> None:
        """Return when all this command's jobs have ended; meanwhile steer the host's jobs if it is in this process."""
        if self._local is None:  # what is loaded now needs not be when the host's place is to be taken
            registry.load("policies", INLINE_POLICY)
        while not self._have_ended():
            if self._local is not None:
                self._steer(self._local)
            else:
                self._wait()
        for tail in self._tails:
            tail.finish(_END_S_MAX)

    def _steer(self, local: LocalHost) -> None:
        taken: JournalTaken | None = None
        try:
            local.run(lambda: local.is_asked_to_leave or self._have_ended())
            if self._have_ended():
                return
            local.hand_over()  # to a service, which has asked for it
        except JournalTaken as error:  # this process was stopped, and another one is the host now
            taken = error
        self._follow(local.run_folder)
        self._local = None
        self._hosting.__exit__(type(taken) if taken else None, taken, taken.__traceback__ if taken else None)
        self._follower.tell_from(local.n_written + 1)

    def _wait(self) -> None:
        followed = self._follower
        followed.look()
        self._pass_on_stops()
        if followed.is_lost() and not self._have_ended():
            self._take_place()
        if self._local is None:
            time.sleep(_POLL_INTERVAL_S)

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

    # Where the host is.

    @property
    def _present(self) -> LocalHost | FollowedHost:
        return self._local if self._local is not None else self._follower

    @property
    def _follower(self) -> FollowedHost:
        assert self._followed is not None
        return self._followed

    def _follow(self, run: RunFolder) -> None:
        if self._followed is None or self._followed.run_folder != run:
            self._unfollow()
            self._followed = FollowedHost(run, self.jobs)
            self._followed.subscribe(self._tell)

    def _unfollow(self) -> None:
        if self._followed is not None:
            self._followed.close()
            self._followed = None

    def _take_place(self) -> None:
        """Become the host if the followed one is lost and no other process is quicker."""
        with host_lock(_PAUSE_S) as has_lock:  # a host that leaves has it until it has closed everything
            local = self._resumed() if has_lock else None
        if local is None:  # its keepers do not know yet, or another process has just what it takes
            time.sleep(_PAUSE_S)
            return
        for job, (cause, interrupts) in self._to_stop.items():
            local.stop(job, cause, interrupts=interrupts)

    def _resumed(self) -> LocalHost | None:
        followed = self._follower
        run = followed.run_folder
        if not followed.is_lost() or followed.is_there():
            self._refusals.clear()
            return None
        with ExitStack() as hosting:
            try:
                local = hosting.enter_context(resumed_host(run, output_of=receiver_of_none, take=run.is_live()))
            except JournalUnusable:
                raise
            except InvalidSpec as error:
                self._say_once(f"the jobs of '{run.name}' cannot be taken over: {error}")
                return None
            followed.look()  # all that the host before has written
            self._is_at(local, hosting)
        self._unfollow()
        return local

    def _say_once(self, refusal: str) -> None:
        """Tell the user once why no process steers the jobs, unless that passes by itself."""
        now = time.monotonic()
        if now - self._refusals.setdefault(refusal, now) > _ALIKE_S:
            _LOG.warning("%s", refusal)
            self._refusals[refusal] = inf

    def _is_at(self, local: LocalHost, hosting: ExitStack) -> None:
        """Use a host in this process from now on; `hosting` ends it."""
        local.subscribe(self._tell)
        self._local, self._hosting = local, hosting.pop_all()

    def _tell(self, message: Message) -> None:
        job = ended_by(message)
        if job is not None and job in self._own and self._present.has_ended(job):
            self._ended[job] = self._present.status(job)
        subject = about(message)
        wanted = self._listeners if subject is None else (None, subject)
        for listener in [listener for name in wanted for listener in self._listeners.get(name, ())]:
            listener(message)

    def _streams(self) -> Streams:
        return Streams.here(self._output_of(self.jobs[0]))

    # Leaving.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tail in self._tails:
            tail.finish(_END_S_MAX)
        if self._local is None:
            if self._followed is not None:
                self._followed.close()
        else:
            self._leave(self._local, kind, error, trace)

    def _leave(
        self,
        local: LocalHost,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        give_up_at = time.monotonic() + _LOCK_S_MAX
        try:
            while True:
                with host_lock(_LOCK_S_MAX if error else 0.0) as has_lock:
                    if has_lock or error or self._asker_has_lock(local) or time.monotonic() > give_up_at:
                        if not self._hand_over(local):
                            self._hosting.__exit__(kind, error, trace)
                        return
                local.run_for(_POLL_INTERVAL_S)  # whoever has the lock may be waiting for this host's answer
        except JournalTaken as taken:  # there is nothing left to hand over
            self._hosting.__exit__(type(taken), taken, taken.__traceback__)

    def _asker_has_lock(self, local: LocalHost) -> bool:
        """Whether a starting service waits for this process's place and has the lock."""
        return local.is_asked_to_leave

    def _hand_over(self, local: LocalHost) -> bool:
        """Leave the host to the commands that wait for other jobs; False: all open jobs are this command's."""
        others = tuple(job for job in local.open_jobs() if job not in self._own)
        if not others:
            return False
        local.hand_over()
        self._hosting.close()
        if not local.run_folder.is_followed():
            self.left_alone = others
        return True


def receiver_of_none(_: JobId) -> OnOutput:
    """Return a receiver that ignores the output: whoever wants it follows the jobs' logs."""
    return ignore_output


def ignore_output(_: bytes) -> None:
    """Ignore output: the command that waits for the job follows its log."""


def check_options(
    options: HostOptions, run: RunFolder, or_else: str = "run the job beside the others (`--alone`)"
) -> None:
    """Raise `InvalidSpec` if `options` require another host than that of `run`; `or_else`: the user's alternative."""
    facts = run.facts()
    begun = {"engine": HostOptions().engine, **facts.get("options", {})}
    if begun["engine"] == HostOptions().engine:  # the nodes of a cluster choose by themselves
        begun["actuator"] = facts.get("actuator")
    for name in ("actuator", "policy", "engine", "address", "cluster", "autoscale", "jobs_at_once"):
        wanted = getattr(options, name)
        if wanted not in {getattr(HostOptions(), name), begun.get(name)}:
            option = name.replace("_", "-")
            raise InvalidSpec(
                f"`--{option}` must be that of the host that there is",
                f"'{wanted}', and the host of '{run.name}' has '{begun.get(name)}'",
                "the shared host of this machine",
                f"Leave `--{option}` out, or {or_else}.",
            )


def ended_of(run: RunFolder, job: JobId) -> dict[str, Any]:
    """Return the host's record of an ended job; empty if the host was killed before it could write it."""
    give_up_at = time.monotonic() + _END_S_MAX
    while job in run.open_jobs() and time.monotonic() < give_up_at:
        time.sleep(_POLL_INTERVAL_S)
    return run.end_facts(job)


@contextmanager
def host_of_new_jobs(
    submissions: Sequence[Submission],
    options: HostOptions,
    *,
    output_of: OutputOf,
    facts: Mapping[str, Any],
) -> Iterator[JoinedHost]:
    """Yield the host that runs new jobs; see `JoinedHost.run_jobs`."""
    with JoinedHost(output_of) as host:
        host.run_jobs(submissions, options, facts)
        yield host


@contextmanager
def host_of_old_jobs(run: RunFolder, shown: JobId, *, output_of: OutputOf, take: bool) -> Iterator[JoinedHost]:
    """Yield the host that continues the open jobs of a run; see `JoinedHost.take_over`."""
    with JoinedHost(output_of) as host:
        host.take_over(run, shown, take=take)
        yield host
