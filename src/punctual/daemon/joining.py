"""Find the daemon of this machine, start it where there is none, and submit jobs to it."""

import json
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import ENDED
from punctual.core.units import span
from punctual.daemon.control_client import is_silent, submit
from punctual.daemon.control_socket import ControlFailed, ControlSilent, ask
from punctual.daemon.daemon_request import DaemonRequest, Ready
from punctual.daemon.detached import start_detached
from punctual.daemon.host_options import HostOptions
from punctual.daemon.paths import log_file, refused_if_unwritable
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.daemon.runs import open_jobs
from punctual.daemon.sharing import host_lock, is_outdated, lock_holder, shared_run, too_nice
from punctual.executors.local.cgroup_files import leave_command_group
from punctual.executors.local.output import ProcessSettings
from punctual.request.submission import Submission

_LOG = logging.getLogger(__name__)

#: Seconds to wait for the lock of the shared daemon before that is told, and seconds to find a daemon that answers.
_LOCK_S, _JOIN_S_MAX = 2.0, 60.0
#: Seconds that a daemon may take to answer, on a machine whose cores are all in use.
_START_S_MAX = 90.0
#: Most starts of a daemon for one command.
_N_STARTS_MAX = 3
#: Bytes shown of the log of a daemon that did not start.
_TOLD_BYTES = 4000


def log_notice() -> str:
    """Return the line that tells a user where a daemon's log is."""
    return f"punctual: what it says is in {log_file()}"


def start_daemon(request: DaemonRequest, n_starts: int = 1) -> Ready:
    """Start a daemon that outlives this command; return once it answers, or once it has found another one.

    One that is killed before is started again, up to `_N_STARTS_MAX` times.

    Raises
    ------
    InvalidSpec
        It refuses, or has ended at once, with its reason; or it does not answer.
    """
    log = log_file()
    ready_fd, write_fd = os.pipe()
    with os.fdopen(ready_fd, "rb", buffering=0) as ready:
        try:
            with refused_if_unwritable(log.parent):
                begun_at = log.stat().st_size if log.exists() else 0
                command = replace(request, ready_fd=write_fd).command()
                process = start_detached(command, log, os.environ, pass_fds=[write_fd])
                leave_command_group(process.pid)
        finally:
            os.close(write_fd)
        line = _line(ready_fd, time.monotonic() + _START_S_MAX, ready.read)
    if line:
        told = json.loads(line)
        if "refused" in told:
            process.wait()
            raise InvalidSpec.from_fields(told["refused"])
        return Ready(**told)
    if line is None:
        raise InvalidSpec(
            "a daemon that was started must answer",
            f"no answer of process {process.pid} within {span(_START_S_MAX)}",
            "the daemon of this machine",
            f"See what it has written: {log}.",
        )
    exit_code = process.wait()
    if exit_code in {-signal.SIGKILL, 128 + signal.SIGKILL} and n_starts < _N_STARTS_MAX:
        return start_daemon(request, n_starts + 1)
    raise _not_started(exit_code, _written_since(log, begun_at))


def _line(fd: int, give_up_at: float, read: Callable[[int], bytes | None]) -> bytes | None:
    """Read a line; empty: its writer has ended without one; None: nothing came in time."""
    line, poll = b"", select.poll()
    poll.register(fd, select.POLLIN)
    while not line.endswith(b"\n"):
        if not poll.poll(max(0.0, give_up_at - time.monotonic()) * 1e3):
            return None
        piece = read(65536)
        if not piece:
            return b""
        line += piece
    return line


def _written_since(log: Path, begun_at: int) -> str:
    with log.open("rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        file.seek(max(begun_at if begun_at <= n_bytes else 0, n_bytes - _TOLD_BYTES))  # it may have been begun anew
        return file.read().decode("utf-8", "replace").strip()


def _not_started(exit_code: int, written: str) -> InvalidSpec:
    said = f", and said:\n{written}" if written else ""
    return InvalidSpec(
        "a daemon that was started must go on",
        f"one that ended at once with status {exit_code}{said}",
        "the daemon of this machine",
        f"See what it has written: {log_file()}.",
    )


class Joining:
    """Submits jobs to the daemon of this machine, and starts one first where there is none.

    Parameters
    ----------
    options
        Options of the daemon; those that differ from its own are refused.
    or_else
        The user's alternative to a daemon with other options.
    before
        Called with the run and the submissions, under their names there, before they are submitted.
    http
        HTTP options of a daemon that is started.
    """

    def __init__(
        self,
        options: HostOptions,
        *,
        settings: ProcessSettings,
        or_else: str = "run the job beside the others (`--alone`)",
        before: Callable[[RunFolder, Sequence[Submission]], None] = lambda *_: None,
        http: Mapping[str, Any] | None = None,
    ) -> None:
        self._options, self._settings, self._or_else = options, settings, or_else
        self._before, self._http = before, http
        #: Submissions under the names free in the run tried last; one tried before gets the same names again.
        self._named: tuple[RunFolder, list[Submission]] | None = None
        #: The run of a daemon that shares nothing, once that was started.
        self._own: RunFolder | None = None
        #: Answer of the daemon that this command has started; None: it has started none.
        self.started: Ready | None = None

    def submit(
        self, submissions: Sequence[Submission], stdin_fd: int | None = None
    ) -> tuple[RunFolder, list[Submission]]:
        """Submit jobs, all or none; return their run, and the submissions under their names, once the journal has them.

        `stdin_fd`: standard input of the first job; None: it has none.

        Raises
        ------
        InvalidSpec
            A job is refused, the daemon has other options, or no daemon can be had.
        """
        give_up_at, waited_for = time.monotonic() + _JOIN_S_MAX, ""
        while time.monotonic() < give_up_at:
            must_end = False
            with host_lock(_LOCK_S) as has_lock:
                run = self._present() if has_lock else None
                facts = {} if run is None else run.facts()
                is_usable = run is not None and run.is_live() and not is_outdated(run, facts)
                if run is not None and is_usable:
                    try:
                        return run, self._submit(run, facts, submissions, stdin_fd)
                    except ControlFailed as error:
                        must_end = isinstance(error, ControlSilent) or is_silent(run)
            if has_lock and (must_end or not is_usable):
                self._start(run, submissions)
                continue
            if not has_lock and (holder := lock_holder()) != waited_for:
                _LOG.warning("waiting for %s", holder)
                waited_for = holder
            time.sleep(0.05)
        raise InvalidSpec(
            "the daemon of this machine must answer",
            f"no answer; waited for {waited_for}" if waited_for else "no answer",
            "the daemon of this machine",
            "See whether the job is there all the same (`punctual ps`), and which process is the daemon (`punctual doctor`).",
        )

    def _submit(
        self, run: RunFolder, facts: Mapping[str, Any], submissions: Sequence[Submission], stdin_fd: int | None
    ) -> list[Submission]:
        """Submit jobs to the daemon of a run, under names that are free there; raises as `submit` does."""
        try:
            named = self._name(run, submissions)
            check_options(self._options, run.name, facts, self._or_else)
            self._before(run, named)
            _tell_of_niceness(run)
            submit(run, named, self._settings, stdin_fd)
        except InvalidSpec:
            if self.started is not None:  # a daemon that was started for these jobs is to end
                with suppress(ControlFailed):
                    ask(run.socket, {"verb": "leave", "only_without_jobs": True})
            raise
        return named

    def _present(self) -> RunFolder | None:
        return shared_run() if self._options.shared else self._own

    def _start(self, run: RunFolder | None, submissions: Sequence[Submission]) -> None:
        request = DaemonRequest(
            options=self._options,
            name=submissions[0].spec.id,
            run=run.name if run is not None and run.is_live() else "",
            http=self._http,
        )
        ready = start_daemon(request)
        self.started = ready
        if ready.left_alone:
            _LOG.warning("jobs that nobody steers are left as they are: %s", ready.left_alone)
        if not self._options.shared:
            self._own = run_named(ready.run)

    def _name(self, run: RunFolder, submissions: Sequence[Submission]) -> list[Submission]:
        if self._named is None or self._named[0] != run:
            self._named = run, names_in(run, submissions)
        return self._named[1]


def _tell_of_niceness(run: RunFolder) -> None:
    if (niceness := too_nice(run)) is not None:
        wanted = os.getpriority(os.PRIO_PROCESS, 0)
        _LOG.warning(
            "the job has niceness %d and not %d: the service was started with it, and this user may not undo that. "
            "Start the service again: punctual down, punctual up",
            niceness,
            wanted,
        )


def check_options(options: HostOptions, run: str, facts: Mapping[str, Any], or_else: str) -> None:
    """Raise `InvalidSpec` if `options` require another daemon than that of a run with these `facts`.

    `or_else`: the user's alternative.
    """
    begun = {"engine": HostOptions().engine, **facts.get("options", {})}
    if begun["engine"] == HostOptions().engine:  # the nodes of a cluster choose by themselves
        begun["actuator"] = facts.get("actuator")
    for name in ("actuator", "policy", "engine", "address", "cluster", "autoscale", "jobs_at_once"):
        wanted = getattr(options, name)
        if wanted not in {getattr(HostOptions(), name), begun.get(name)}:
            option = name.replace("_", "-")
            raise InvalidSpec(
                f"`--{option}` must be that of the host that there is",
                f"'{wanted}', and the host of '{run}' has '{begun.get(name)}'",
                "the shared host of this machine",
                f"Leave `--{option}` out, or {or_else}.",
            )


# Names: each stands for one job in the journal, the logs and all commands.


def names_in(run: RunFolder | None, submissions: Sequence[Submission]) -> list[Submission]:
    """Return the submissions under names that are free in `run`; None: in a run of their own.

    A job whose name belonged to an ended job of this run gets a number: ``train-2``. So does one whose generated name
    is used by any other job. A name that a user has chosen and that an open job has stays, to be refused.
    """
    states = {} if run is None else run.jobs()
    ended_names = {job for job, state in states.items() if state in ENDED}
    ended_names |= set() if run is None else run.removed_jobs()
    taken = {*states, *ended_names, *(known.job for known in open_jobs(but=run))}
    named: list[Submission] = []
    for submission in submissions:
        if (name := submission.spec.id) in (ended_names if submission.has_chosen_name else taken):
            spec = replace(submission.spec, id=_numbered(name, taken))
            submission = replace(submission, name=name, spec=spec)  # noqa: PLW2901
        named.append(submission)
        taken.add(submission.spec.id)
    renamed = {old.spec.id: new.spec.id for old, new in zip(submissions, named, strict=True)}
    return [_after_renamed(submission, renamed) for submission in named]


def _after_renamed(submission: Submission, renamed: Mapping[JobId, JobId]) -> Submission:
    """Return the job with its predecessors of the same request under their new names."""
    after = tuple(renamed.get(name, name) for name in submission.spec.after)
    return replace(submission, spec=replace(submission.spec, after=after))


def _numbered(name: JobId, taken: Collection[JobId]) -> JobId:
    number = 2
    # A name has at most 64 characters.
    while (numbered := JobId(f"{name[: 64 - len(str(number)) - 1]}-{number}")) in taken:
        number += 1
    return numbered
