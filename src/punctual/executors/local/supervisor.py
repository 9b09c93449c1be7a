"""Supervisor: parent of a job, starts it in its control groups and clears up behind it, whatever becomes of Punctual.

A program of its own, run by path with nothing but the standard library, so that it starts in some milliseconds and
outlives the process that started it. Its only argument is the number of a connected socket, the *control connection* to
the process that steers the job. On it, one JSON object a line:

=========== ================================================================================================
direction   meaning
=========== ================================================================================================
out         ``{"ready": true, "keeper": pid}``: signals are dealt with from here on
in          `LaunchRequest` as an object: what to start, and what to clear up
out         ``{"started": pid, "at_ns": stamp}``, or, also instead of the first line, ``{"failed": why, "code": exit code,
            "errno": number}`` as the last line
in          anything, at least every `lease_s` seconds: the job is still steered; `STAY_PAUSED`: and stays paused;
            after `LEFT`: it is left on purpose
out         ``{"expired": true}`` as the last line: nothing has come for so long; the connection is closed
out         ``{"ended": exit code, "at_ns": stamp, "usage": text, "core_s": seconds, "counted": …}``, the last line; with
            ``"forced_after_s"`` if the job was asked to end, and was ended by force so many seconds later; with
            ``"left_running"``, names of programs, if the job ended by itself and they had to be ended
=========== ================================================================================================

========================================= ==================================================================
what happens                              what follows
========================================= ==================================================================
the job writes                            the supervisor writes it into the logs
the job ends                              the supervisor writes the end file, ends what the job left behind, and
                                          removes its control groups; after Ctrl-C processes that catch it may save first
nothing comes for `lease_s`: who steers   the supervisor lifts the quota and resumes a paused job, unless the last
hangs, or has closed the connection       word was `STAY_PAUSED`. Until then others may take it over as it is
nobody steers, after that or at the end   the supervisor starts the `successor` of its request, and again after longer and longer
                                          pauses; not if the job was `LEFT`
nothing comes for `fence_s`               as with SIGTERM: another machine may start the job soon
somebody comes to the *takeover socket*   the supervisor hands over the control connection, unless another holds
                                          it; see `LaunchRequest.takeover_fd`
SIGINT                                    the supervisor lifts the quota; SIGINT to the job's process group, as a
                                          terminal sends it; again, and all of the job ignores it: SIGKILL
SIGTERM                                   the supervisor lifts the quota; SIGTERM to the job's own process, or to what
                                          its shell waits for; after `grace_s` to all others, SIGKILL 5 s later
SIGALRM                                   the same as if `grace_s` were over
SIGTERM again, SIGQUIT                    SIGKILL at once
SIGUSR1, SIGUSR2                          the same to the first of the job's processes, from its own down, that catch
                                          it; if none does, to whom SIGTERM would go
the supervisor is killed                  the kernel sends the job SIGTERM; the process that steers it, or the next
                                          one, ends what is left and clears up (`punctual.executors.local.orphans`)
========================================= ==================================================================

The supervisor adopts processes whose parent has ended (as a *sub-reaper*), so none of the job's descendants escapes.
"""

import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from math import inf
from typing import Any

if __name__ != "__main__":
    from punctual.executors.local import job_signals, supervisor_files
    from punctual.executors.local.job_log import LOG_BYTES_MAX, JobLog
    from punctual.executors.local.successor import Successor, adopt_orphans
else:  # run by path, with nothing of the package loaded
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import job_signals  # type: ignore[import-not-found, no-redef]
    import supervisor_files  # type: ignore[import-not-found, no-redef]
    from job_log import LOG_BYTES_MAX, JobLog  # type: ignore[import-not-found, no-redef]
    from successor import Successor, adopt_orphans  # type: ignore[import-not-found, no-redef]

#: The signals that mean something to a supervisor.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Message that renews the lease of a job that its user has paused.
STAY_PAUSED = b"p"
#: Said before the last message: the job is left on purpose, and whoever steers it next comes by itself.
LEFT = b"l"

#: Exit status of a program that cannot be started, as shells have it; one that is not found has 127.
_EXIT_NOT_STARTED = 126


@dataclass(kw_only=True)
class LaunchRequest(supervisor_files.GroupFiles):
    """Request to a supervisor: the job to start, and the files to clear up.

    The growth of `counters` up to the job's own end is reported as ``counted``, with `asked_memory_bytes`.

    * `cleanup_files`: (File, mark) pairs, see `punctual.executors.local.supervisor_files.mark_of`, also removed at the
      end; a file that another process has made in their place stays. If one of them is not there when the job is to be
      started, the job is not started: another process has it now.
    * `end_file`: file with the supervisor's last line, for a process that comes after the end. None: none.
    * `lease_s`: seconds without a message after which the job counts as unsteered. None: only the end of the connection
      says so.
    * `fence_s`: seconds without a message after which the job is ended. None: it goes on.
    * `grace_s`: seconds that the job's own process has to end when asked. None: the rest of its allocation, or a
      minute.
    * `kill_s`: seconds that its other processes have then before they are killed.
    * `unkept_s`: seconds after which a connected process is told the end also if `end_file` cannot be written. It writes
      its journal more often.
    * `logs`: for each log: its path, and the descriptor to read its content from.
    * `takeover_fd`: a listening socket, by which another process can take the job over. That process gets ``{"keeper":
      pid, "started": pid, "at_ns": stamp, "request": this, without the environment}``, then what any control connection
      brings. If somebody steers the job already, it gets nothing.
    * `page_fd`: the page of the job, which is there as long as the supervisor is; what it says at the end is left in
      `end_file`.
    * `limits`: limits of resources that the job gets, by their names in `resource`: soft and hard.
    * `umask`, `nice`: mask of file modes, and niceness, of the job, as far as that is allowed. None: those of the
      supervisor.
    * `cpus`: CPUs that the job may use, as far as they are there. Empty: those of the supervisor.
    * `asked_memory_bytes`: memory that the job has asked for; 0: none.
    * `actuator`: not for the supervisor, but for the process that takes the job over.
    * `successor`: command that starts another process to steer the job. Empty: none.
    * `successor_log`: file for its output.
    """

    argv: list[str]
    cwd: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    cleanup_files: list[list[str]] = field(default_factory=list)
    end_file: str | None = None
    lease_s: float | None = None
    fence_s: float | None = None
    grace_s: float | None = None
    kill_s: float = job_signals.GRACE_S
    unkept_s: float = 20.0
    logs: list[tuple[str, int]] = field(default_factory=list)
    takeover_fd: int | None = None
    actuator: str = ""
    limits: dict[str, tuple[int, int]] = field(default_factory=dict)
    umask: int | None = None
    nice: int | None = None
    cpus: list[int] = field(default_factory=list)
    page_fd: int | None = None
    asked_memory_bytes: int = 0
    successor: list[str] = field(default_factory=list)
    successor_log: str = os.devnull


class Supervisor:
    """Runs one job to its end."""

    def __init__(self, request: LaunchRequest, connection_fd: int, wake_fd: int) -> None:
        self._request = request
        self._connection_fd: int | None = connection_fd
        self._heard_at = time.monotonic()
        self._is_steered = self._has_children = True
        self._stays_paused = self._is_fenced = self._is_left = False
        self._successor = Successor(request.successor, request.successor_log)
        self._wake_fd = wake_fd
        self._poll = select.poll()
        self._job_pid = self._started_at_ns = 0
        self._logs: dict[int, JobLog] = {}
        self._ended: tuple[int, int] | None = None
        self._ending: job_signals.Ending | None = None
        self._ctrl_c: tuple[float, float] | None = None
        self._gives_up = False
        self._counters = supervisor_files.Counters(request.counters)
        self._counted: dict[str, int] = {}

    def run(self) -> int:
        """Start the job and wait until it and all its descendants are gone; return its exit code."""
        if not all(supervisor_files.mark_of(path) == mark for path, mark in self._request.cleanup_files):
            self._clear_up()
            return _EXIT_NOT_STARTED
        try:
            self._job_pid = _start(self._request)
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else _EXIT_NOT_STARTED
            self._clear_up()
            place = "" if error.filename is None else f": '{error.filename}'"
            self._tell(failed=f"{error.strerror}{place}", code=code, errno=error.errno)
            return code
        self._started_at_ns = time.monotonic_ns()
        # Room for the last line and the page: without it, a job that ends while the disk is full is run again.
        supervisor_files.reserve(self._request.end_file, 1 << 14)
        self._tell(started=self._job_pid, at_ns=self._started_at_ns)
        _let_go_of_output()
        for path, source_fd in self._request.logs:
            self._logs[source_fd] = JobLog(path, LOG_BYTES_MAX, source_fd)
            self._poll.register(source_fd, select.POLLIN)
        for fd in (self._connection_fd, self._wake_fd, self._request.takeover_fd):
            if fd is not None:
                self._poll.register(fd, select.POLLIN)
        while self._has_children:
            self._wait()
            self._reap()
            if self._ending is not None:
                self._ending.go_on(os.getpid())
        return self._finish()

    def _wait(self, most_s: float = inf) -> None:
        ending_s = inf if self._ending is None else self._ending.left_s()
        timeout_s = min(self._lease_left_s(), self._fence_left_s(), self._successor.left_s(), ending_s, most_s)
        ready = [fd for fd, _ in self._poll.poll(None if timeout_s == inf else timeout_s * 1e3)]
        # The connection first: whoever comes to the takeover socket may know already that it has been closed.
        for fd in sorted(ready, key=lambda fd: fd != self._connection_fd):
            if fd == self._connection_fd:
                self._hear(fd)
            elif fd == self._wake_fd:
                self._take_signals()
            elif fd == self._request.takeover_fd:
                self._answer_takeover(fd)
            elif not self._logs[fd].relay():
                self._poll.unregister(fd)
        self._heed_silence()  # only now: after a stop of the whole machine what was sent in time is read first

    def _heed_silence(self) -> None:
        if self._lease_left_s() == 0.0:
            if self._connection_fd is not None:
                self._tell(expired=True)
                self._release(self._connection_fd)
            self._is_steered = False
            if not self._is_left:
                self._successor.schedule()
            if not self._stays_paused:
                self._lift()
        if not self._successor.left_s():
            self._successor.start()
        if self._fence_left_s() == 0.0:
            self._is_fenced = True
            self._end(grace_s=0.0)

    def _lease_left_s(self) -> float:
        if not self._is_steered:
            return inf
        if self._request.lease_s is None:
            return inf if self._connection_fd is not None else 0.0
        return max(0.0, self._heard_at + self._request.lease_s - time.monotonic())

    def _fence_left_s(self) -> float:
        if self._request.fence_s is None or self._ending is not None or not self._has_children:
            return inf
        return max(0.0, self._heard_at + self._request.fence_s - time.monotonic())

    def _hear(self, connection_fd: int) -> None:
        """Read the connection: any message renews the lease, an empty one is the connection's end."""
        try:
            said = os.read(connection_fd, 4096)
        except OSError:
            said = b""
        if said:
            self._heard_at, self._is_left = time.monotonic(), LEFT in said
            if said != LEFT:
                self._stays_paused = said.endswith(STAY_PAUSED)
        else:
            self._release(connection_fd)

    def _release(self, connection_fd: int) -> None:
        """Close the control connection: the job is unsupervised."""
        self._poll.unregister(connection_fd)
        os.close(connection_fd)
        self._connection_fd = None

    def _answer_takeover(self, takeover_fd: int) -> None:
        import socket  # it takes as long to load as everything else here, and is hardly ever needed

        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(takeover_fd)) as listening:
                connection, _ = listening.accept()
            with connection:
                if self._connection_fd is None:
                    self._accept_control(connection.detach())
        except (OSError, ImportError):  # whoever it was has left; and the job must not end, whatever is wrong here
            pass

    def _accept_control(self, connection_fd: int) -> None:
        self._connection_fd, self._heard_at, self._is_steered = connection_fd, time.monotonic(), True
        self._is_left = False
        self._successor.cancel()
        self._poll.register(connection_fd, select.POLLIN)
        request = {**vars(self._request), "environment": {}}
        self._tell(keeper=os.getpid(), started=self._job_pid, at_ns=self._started_at_ns, request=request)

    def _take_signals(self) -> None:
        for number in os.read(self._wake_fd, 64):
            if number in (signal.SIGTERM, signal.SIGALRM, signal.SIGQUIT):
                self._end_by(number)
            elif number == signal.SIGINT:
                self._lift()
                now, jobs = time.monotonic(), job_signals.descendants(os.getpid())
                if self._ctrl_c is not None and all(job_signals.ignores(pid, number) for pid in jobs):
                    self._end(grace_s=0.0).kill()
                self._ctrl_c = now, now + self._grace_s()
                job_signals.send(-self._job_pid, signal.SIGINT)
            elif number in (signal.SIGUSR1, signal.SIGUSR2):
                for pid in job_signals.receivers(self._job_pid, number):
                    job_signals.send(pid, number)

    def _end_by(self, number: int) -> None:
        if self._ended is not None and not self._has_children:  # only the record of the end is still to be written
            self._gives_up = True
        elif number == signal.SIGQUIT or (number == signal.SIGTERM and self._ending is not None):
            self._end(grace_s=0.0).kill()
        else:
            self._end(grace_s=self._grace_s() if number == signal.SIGTERM else 0.0)

    def _grace_s(self) -> float:
        # Seconds that a job has to end, unless its request sets them.
        return job_signals.stop_grace_s(self._request.grace_s, self._request.environment, 60.0)

    def _end(self, *, grace_s: float) -> job_signals.Ending:
        """End the job within so many seconds, or at once if it was asked before."""
        self._lift()
        if self._ending is None:
            self._ending = job_signals.Ending(self._job_pid, grace_s, self._request.kill_s)
        elif not grace_s:
            self._ending.hurry()
        return self._ending

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return
            if not pid:
                return
            if pid == self._job_pid and self._ended is None:
                self._ended = (_exit_code(status), time.monotonic_ns())
                # End the job's remaining descendants: outside its groups nothing would limit them.
                if self._ending is None:  # otherwise it was told to end, or killed
                    self._counted = self._counters.more()
                    # Helpers, as a `tee` behind its output, have a moment to end after it by themselves.
                    self._ending = job_signals.Ending(0, 0.2, self._request.kill_s, self._ctrl_c)
                else:
                    self._ending.own_has_ended()

    def _lift(self) -> None:
        """Lift the quota, and resume paused processes."""
        for path, text in self._request.lift:
            supervisor_files.write(path, text)
        for pid in job_signals.descendants(os.getpid()):
            job_signals.send(pid, signal.SIGCONT)

    def _finish(self) -> int:
        for log in self._logs.values():
            log.finish()
        code, at_ns = self._ended or (_EXIT_NOT_STARTED, time.monotonic_ns())
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        last: dict[str, Any] = {
            "ended": code,
            "at_ns": at_ns,
            "usage": supervisor_files.read(self._request.usage_file),
            "core_s": spent.ru_utime + spent.ru_stime,
            "counted": {**self._counted, "asked_memory_bytes": self._request.asked_memory_bytes},
            **({"fenced": True} if self._is_fenced else {}),
        }
        if (ending := self._ending) is not None and ending.forced_after_s is not None:
            last["forced_after_s"] = ending.forced_after_s
        if ending is not None and ending.left_running:
            last["left_running"] = ending.left_running[:3]
        boot = supervisor_files.read("/proc/sys/kernel/random/boot_id").strip()
        page = b"" if self._request.page_fd is None else os.pread(self._request.page_fd, 1 << 16, 0)
        self._keep_end(json.dumps({**last, "boot": boot, "page": page.hex(), "started_ns": self._started_at_ns}))
        self._clear_up()
        self._tell(**last)
        if self._connection_fd is None and not self._is_left:  # the job may have to be started again
            self._successor.start()
        return code

    def _clear_up(self) -> None:
        supervisor_files.clear_up(self._request.remove_dirs, self._request.cleanup_files)

    def _keep_end(self, text: str) -> None:
        """Write the record of the end, at once or as soon as the disk allows.

        Without that record the next host takes the job for one that was killed, and runs it once more. So it is tried for an hour;
        and while a process is connected for `unkept_s`, in which that finds out whether it can write its journal: if not, it ends.
        """
        self._ending = None  # nothing is left to be killed; SIGTERM is for this process now
        begun_at = time.monotonic()
        while not supervisor_files.write_whole(self._request.end_file, text):
            most_s = 3600.0 if self._connection_fd is None else self._request.unkept_s
            if self._gives_up or time.monotonic() > begun_at + most_s:
                return
            self._wait(0.5)

    def _tell(self, **fields: Any) -> None:
        if self._connection_fd is not None:
            say(self._connection_fd, **fields)


def say(connection_fd: int, **fields: Any) -> None:
    """Write a line to the connection, if any process is there to read it."""
    try:
        os.write(connection_fd, json.dumps(fields).encode() + b"\n")
    except OSError:
        pass


def _start(request: LaunchRequest) -> int:
    """Start the job and return its process id; raises the `OSError` that kept it from starting."""
    outcome_fd, failure_fd = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_job(request, parent, failure_fd)
    os.close(failure_fd)
    with open(outcome_fd, encoding="utf-8") as outcome:
        failure = outcome.read()  # empty: the pipe was closed by a successful `exec`
    if failure:
        os.waitpid(pid, 0)
        raise OSError(*json.loads(failure))
    return pid


def _become_job(request: LaunchRequest, parent: int, failure_fd: int) -> None:
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(_EXIT_NOT_STARTED)
        for entrance in request.cgroup_procs_files:
            _enter(entrance)
        if request.cwd is not None:
            os.chdir(request.cwd)
        _inherit(request)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and `exec` would hand that down
            signal.signal(number, signal.SIG_DFL)
        _execute(request.argv, request.environment)
    except OSError as error:
        # A program looked for on the PATH is named as it was given, and not by the last place looked at.
        place = error.filename if isinstance(error.filename, str) else request.argv[0]
        os.write(failure_fd, json.dumps([error.errno, error.strerror, place]).encode())
    except Exception as error:  # noqa: BLE001 -- a variable that no process can have, say
        os.write(failure_fd, json.dumps([0, f"{error}", request.argv[0]]).encode())
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """Become the program. A script without a first line that names its interpreter is the shell's, as for `execvp` of C."""
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        with open(error.filename, "rb") as file:
            if b"\0" in file.read(256):
                raise
        os.execve("/bin/sh", [argv[0], os.fsdecode(error.filename), *argv[1:]], environment)


def _inherit(request: LaunchRequest) -> None:
    """Take over what the job inherits of the command that has submitted it, as far as that is allowed."""
    for name, (soft, hard) in request.limits.items():
        number = getattr(resource, name)
        hard_here = resource.getrlimit(number)[1]
        allowed = _lower(hard, hard_here)
        for limits in ((soft, hard), (_lower(soft, allowed), allowed)):  # who may, raises what the daemon has
            try:
                resource.setrlimit(number, limits)
                break
            except (OSError, ValueError):  # it may not, or this kernel knows the limit otherwise
                pass
    if request.umask is not None:
        os.umask(request.umask)
    if request.nice is not None:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, request.nice)
        except OSError:  # the daemon is nicer, and this user may not undo that
            pass
    if request.cpus:
        try:
            os.sched_setaffinity(0, request.cpus)
        except OSError:  # none of them is there any more, or may be used any more
            pass


def _lower(limit: int, other: int) -> int:
    """Return the lower of two limits of a resource, of which either may be infinite."""
    finite = [each for each in (limit, other) if each != resource.RLIM_INFINITY]
    return min(finite, default=resource.RLIM_INFINITY)


def _enter(entrance: str) -> None:
    """Enter a control group; an `OSError` names the file, also if writing fails."""
    try:
        with open(entrance, "w") as file:
            file.write(str(os.getpid()))
    except OSError as error:
        error.filename = entrance
        raise


def _let_go_of_output() -> None:
    """Close the job's output in the supervisor: otherwise its readers would never see its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def _exit_code(status: int) -> int:
    """Return the exit code as a shell has it: 128 and the number of the signal, if a signal ended the process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _read_request(connection_fd: int, most_s: float = 20.0) -> LaunchRequest | None:
    """Read the request; None: the process that was to send it has ended, or is stopped.

    A process that is stopped before it sends one must not keep others from the job for longer than `most_s`.
    """
    text, give_up_at, poll = b"", time.monotonic() + most_s, select.poll()
    poll.register(connection_fd, select.POLLIN)  # its number may be too large for `select.select`
    while not text.endswith(b"\n"):
        if not poll.poll(max(0.0, give_up_at - time.monotonic()) * 1e3):
            return None
        part = os.read(connection_fd, 65536)
        if not part:
            return None
        text += part
    return LaunchRequest(**json.loads(text))


def main(connection_fd: int) -> int:
    """Run one job, whose request comes over `connection_fd`, and return its exit code."""
    # Signals that do not matter get a function too: if they were ignored, so would they be in the job.
    for number in (signal.SIGCHLD, signal.SIGHUP, *SIGNALS):
        signal.signal(number, lambda *_: None)
    try:
        wake_fd, wakes_fd = os.pipe()
    except OSError as error:  # no more files may be had
        say(connection_fd, failed=error.strerror, code=_EXIT_NOT_STARTED, errno=error.errno)
        return _EXIT_NOT_STARTED
    os.set_blocking(wakes_fd, False)
    # Signals are only noted, and dealt with by the loop; one that comes before the job has started waits there.
    signal.set_wakeup_fd(wakes_fd, warn_on_full_buffer=False)
    adopt_orphans(True)
    say(connection_fd, ready=True, keeper=os.getpid())
    request = _read_request(connection_fd)
    if request is None:
        return _EXIT_NOT_STARTED
    for fd in (connection_fd, request.takeover_fd, request.page_fd, *(fd for _, fd in request.logs)):
        if fd is not None:
            os.set_inheritable(fd, False)
    return Supervisor(request, connection_fd, wake_fd).run()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
