"""Host of a service, which stays when its jobs have ended."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.control_client import is_silent, submit
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.host_options import HostOptions
from punctual.daemon.job_names import names_in
from punctual.daemon.joined_host import JoinedHost, check_options, ignore_output, receiver_of_none
from punctual.daemon.local_host import LocalHost, local_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import SERVICE, RunFolder, free_name
from punctual.daemon.sharing import host_lock, service_run, shared_run, unsteered_run
from punctual.executors.local.output import Streams
from punctual.journal.errors import JournalUnusable
from punctual.request.submission import Submission

#: Makes a host known to other programs as long as it is entered; gives the addresses at which it listens.
Listen = Callable[[LocalHost], AbstractContextManager[Sequence[str]]]

_NAME = "service"
#: Seconds between two looks at another process's progress.
_POLL_INTERVAL_S = 0.1
#: Seconds that another host may take to leave, and to be found not to.
_LEAVE_S_MAX = 10.0
_LOCK_S_MAX, _START_S_MAX, _SUBMIT_S_MAX = 20.0, 60.0, 60.0


class ServiceHost(JoinedHost):
    """Host of jobs that no command need wait for; runs until `leave`.

    Whatever jobs it has then are left to those that wait for them, or to nobody.

    Attributes
    ----------
    taken_over
        The jobs that it found.
    """

    def __init__(self) -> None:
        super().__init__(lambda _: ignore_output)
        self.taken_over: tuple[JobId, ...] = ()
        #: Why the jobs of a run that was found could not be taken over.
        self._refused: InvalidSpec | None = None

    @property
    def local(self) -> LocalHost:
        """The host; valid once `begin` has returned."""
        assert self._local is not None
        return self._local

    def begin(self, options: HostOptions, facts: Mapping[str, Any]) -> None:
        """Become the shared host of this machine: in place of the present one, or as a new one.

        Parameters
        ----------
        facts
            Kept in the record of a new run.

        Raises
        ------
        InvalidSpec
            There is a service already, or no host could be begun.
        """
        give_up_at = time.monotonic() + _START_S_MAX
        while not self._try_to_begin(options, facts):
            if time.monotonic() > give_up_at:
                raise self._refused or InvalidSpec(
                    "the shared host must hand this machine's jobs to the service",
                    "a host that still schedules them",
                    "the shared host",
                    "See `punctual ps` for what runs, and `punctual doctor` for what is wrong.",
                )
            time.sleep(_POLL_INTERVAL_S)

    def run(self) -> None:
        """Steer all jobs until `leave`, or until another process asks for the place.

        Raises
        ------
        JournalTaken
            This process was stopped, and another one is the host now.
        """
        self.local.run(lambda: self.local.is_asked_to_leave)

    def leave(self) -> None:
        """Make `run` return; allowed in any thread and signal handler."""
        self.local.ask_to_leave()

    def _try_to_begin(self, options: HostOptions, facts: Mapping[str, Any]) -> bool:
        with host_lock(_LOCK_S_MAX) as has_lock:
            if not has_lock:
                return False
            run = service_run() or shared_run() or unsteered_run()
            if run is None:
                facts = {**facts, SERVICE: True}
                self._open(local_host(free_name(_NAME), options, output_of=receiver_of_none, facts=facts))
                return True
            check_options(options, run, "end its jobs first (`punctual stop`)")
            if options.allow_unauthenticated_ray:  # who takes the jobs over has the options of their run
                run.record_facts(options={**run.facts().get("options", {}), "allow_unauthenticated_ray": True})
            take = run.is_live() and is_silent(run)
            if run.is_live() and not take and not _has_left(run):
                return False
            try:
                self._open(resumed_host(run, output_of=receiver_of_none, take=take, is_service=True))
            except JournalUnusable:
                raise
            except InvalidSpec as error:  # all its jobs have ended, or its keepers do not know yet
                self._refused = error
                return False
        return True

    def _open(self, opening: AbstractContextManager[LocalHost]) -> None:
        with ExitStack() as hosting:
            local = hosting.enter_context(opening)
            self.taken_over = local.open_jobs()
            self._is_at(local, hosting)

    def _asker_has_lock(self, local: LocalHost) -> bool:
        return False


def _has_left(run: RunFolder) -> bool:
    """Ask the host of a run to leave its place; False: it has not yet. Raises `InvalidSpec` if it is a service."""
    if run.has_service():
        raise InvalidSpec(
            "one service at a time must run for a user on these processors",
            f"another one, process {run.record()['pid']}",
            "`punctual up`",
            "Give it jobs (`punctual submit`), or end it first (`punctual down`).",
        )
    with suppress(ControlFailed):
        ask(run.socket, {"verb": "leave"})
    give_up_at = time.monotonic() + _LEAVE_S_MAX
    while run.is_live() and time.monotonic() < give_up_at:
        time.sleep(_POLL_INTERVAL_S)
    return not run.is_live()


def submit_jobs(submissions: Sequence[Submission], options: HostOptions) -> tuple[RunFolder, list[JobId]]:
    """Submit jobs to the service, all or none; return its run and the jobs' names once the journal has them.

    What they write is in their logs alone.

    Raises
    ------
    InvalidSpec
        A job is refused, the service has other options, or it does not answer.
    """
    named: tuple[RunFolder, list[Submission]] | None = None
    give_up_at = time.monotonic() + _SUBMIT_S_MAX
    while time.monotonic() < give_up_at:
        with host_lock(_LOCK_S_MAX) as has_lock:
            run = service_run() if has_lock else None
            if run is not None:
                check_options(options, run, "end the service first (`punctual down`)")
                if named is None or named[0] != run:  # said again under the same names, if it may have been heard
                    named = run, names_in(run, submissions)
                with suppress(ControlFailed):
                    submit(run, named[1], Streams())
                    return run, [submission.spec.id for submission in named[1]]
        time.sleep(_POLL_INTERVAL_S)
    raise InvalidSpec(
        "the service must answer",
        "no answer" if service_run() is not None else "a service that has ended",
        "`punctual submit`",
        "See whether the job is there all the same (`punctual ps`), and which process is the service (`punctual doctor`).",
    )


@contextmanager
def service_host(
    options: HostOptions,
    facts: Mapping[str, Any],
    listen: Listen = lambda _: nullcontext(()),
) -> Iterator[tuple[ServiceHost, Sequence[str]]]:
    """Yield a service's host and its addresses beside the control socket; leaving it leaves the jobs running.

    Parameters
    ----------
    listen
        Opens the service's addresses; entered once the host exists, and left before it ends.
    """
    with ServiceHost() as host:
        host.begin(options, facts)
        with listen(host.local) as addresses:
            yield host, addresses
