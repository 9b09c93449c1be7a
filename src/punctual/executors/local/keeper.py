"""The job's parent: starts it in its control groups, and clears up behind it, whatever becomes of Punctual.

A program of its own, run by path with nothing but the standard library, so that it starts in some milliseconds and
outlives the process that started it. Its only argument is the number of a connected socket, the *leash*. On it,
one JSON object a line:

=========== ================================================================================================
direction   meaning
=========== ================================================================================================
out         ``{"ready": true}``: signals are dealt with from here on
in          ``Errand`` as an object: what to start, and what to clear up
out         ``{"started": pid, "at_ns": stamp}``, or ``{"failed": why, "code": exit code}`` as the last line
out         ``{"ended": exit code, "at_ns": stamp, "usage": text, "core_s": seconds}``, the last line
=========== ================================================================================================

====================================== =====================================================================
what happens                           what the keeper does
====================================== =====================================================================
the job ends                           ends what it left behind, removes its control groups and its page
the leash is let go (Punctual died)    lifts the quota and swallows the output: the job goes on at full speed
somebody comes to the *door*           hands over a leash, unless another holds it; see ``Errand.door_fd``
SIGTERM                                lifts the quota; SIGTERM to the job's process group, SIGKILL after 5 s
SIGTERM again                          SIGKILL at once
it is killed itself                    the kernel sends the job SIGTERM; Punctual, if it is there, clears up
====================================== =====================================================================

The keeper adopts processes whose parent has ended (as a *sub-reaper*), so none of the job's descendants escapes it.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

GRACE_S = 5.0
#: Between two looks for processes that were born while their parents were being killed.
_SWEEP_S = 0.05

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_EXIT_NOT_FOUND, _EXIT_NOT_STARTED = 127, 126


@dataclass
class Errand:
    """What a keeper is to do.

    Attributes
    ----------
    entrances
        Files that a process writes its id to in order to enter the job's control groups.
    lift
        (File, text) pairs whose writing takes the quota away.
    usage_file
        File with the CPU time used, whose text is reported at the end.
    remove_dirs, remove_files
        What is removed at the end, in this order; folders that others still use stay.
    drain_fd
        Where the job's output can be read; nobody's business while Punctual lives.
    door_fd
        A listening socket, by which another Punctual can take the job over. It gets a blank line, with `drain_fd`; then
        ``{"keeper": pid, "started": pid, "at_ns": stamp, "errand": this, without the environment}``; then what any leash
        brings. If somebody steers the job already, it gets nothing.
    actuator, page, progress_pattern
        Not for the keeper, but for who takes the job over.
    """

    argv: list[str]
    cwd: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    entrances: list[str] = field(default_factory=list)
    lift: list[list[str]] = field(default_factory=list)
    usage_file: str | None = None
    remove_dirs: list[str] = field(default_factory=list)
    remove_files: list[str] = field(default_factory=list)
    drain_fd: int | None = None
    door_fd: int | None = None
    actuator: str = ""
    page: str | None = None
    progress_pattern: str | None = None


class Keeper:
    """Sees one job through."""

    def __init__(self, errand: Errand, leash_fd: int, wake_fd: int) -> None:
        self._errand = errand
        self._leash_fd: int | None = leash_fd
        self._wake_fd = wake_fd
        self._poll = select.poll()
        self._job_pid = 0
        self._started_at_ns = 0
        self._drains = False
        self._ended: tuple[int, int] | None = None
        self._has_children = True
        self._kill_at: float | None = None

    def run(self) -> int:
        """Start the job and stay until it and all its descendants are gone; its exit code."""
        try:
            self._job_pid = _start(self._errand)
        except OSError as error:
            return self._give_up(error)
        self._started_at_ns = time.monotonic_ns()
        self._tell(started=self._job_pid, at_ns=self._started_at_ns)
        _let_go_of_output()
        for fd in (self._leash_fd, self._wake_fd, self._errand.door_fd):
            if fd is not None:
                self._poll.register(fd, select.POLLIN)
        while self._has_children:
            self._wait()
            self._reap()
            self._sweep()
        return self._finish()

    def _wait(self) -> None:
        timeout_s = None if self._kill_at is None else max(_SWEEP_S, self._kill_at - time.monotonic())
        ready = [fd for fd, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1e3)]
        # The leash first: whoever comes to the door may know already that nobody holds it any more.
        for fd in sorted(ready, key=lambda fd: fd != self._leash_fd):
            if fd == self._leash_fd:
                self._let_go(fd)
            elif fd == self._wake_fd:
                self._take_signals()
            elif fd == self._errand.door_fd:
                self._answer_the_door(fd)
            elif self._drains:
                self._drain(fd)

    def _let_go(self, leash_fd: int) -> None:
        """Nothing more is said on the leash after the errand, so that this is its end."""
        self._poll.unregister(leash_fd)
        os.close(leash_fd)
        self._leash_fd = None
        self._lift()
        if self._errand.drain_fd is not None:
            self._poll.register(self._errand.drain_fd, select.POLLIN)
            self._drains = True

    def _answer_the_door(self, door_fd: int) -> None:
        import socket  # it takes as long to load as everything else here, and is hardly ever needed

        drain_fd = self._errand.drain_fd
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(door_fd)) as door:
                connection, _ = door.accept()
            with connection:
                if self._leash_fd is None:
                    socket.send_fds(connection, [b"\n"], [] if drain_fd is None else [drain_fd])
                    self._be_led(connection.detach())
        except (OSError, ImportError):  # whoever it was has left; and the job must not end, whatever is wrong here
            pass

    def _be_led(self, leash_fd: int) -> None:
        self._leash_fd = leash_fd
        self._poll.register(leash_fd, select.POLLIN)
        self._stop_draining()
        errand = {**vars(self._errand), "environment": {}}
        self._tell(keeper=os.getpid(), started=self._job_pid, at_ns=self._started_at_ns, errand=errand)

    def _drain(self, fd: int) -> None:
        """A job whose output nobody reads would stop at the next line it writes."""
        try:
            at_end = not os.read(fd, 65536)
        except OSError:  # how a pseudo-terminal says that nobody writes any more
            at_end = True
        if at_end:
            self._stop_draining()

    def _stop_draining(self) -> None:
        if self._drains and self._errand.drain_fd is not None:
            self._poll.unregister(self._errand.drain_fd)
        self._drains = False

    def _take_signals(self) -> None:
        for number in os.read(self._wake_fd, 64):
            if number == signal.SIGTERM:
                self._terminate()

    def _terminate(self) -> None:
        self._lift()
        if self._kill_at is not None:
            self._kill_at = 0.0
            return
        self._kill_at = time.monotonic() + GRACE_S
        _signal_group(self._job_pid, signal.SIGTERM)

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
                self._end_descendants()

    def _end_descendants(self) -> None:
        """What the job has left behind must not run on where nothing caps it."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_S
        for pid in descendants(os.getpid()):
            _signal(pid, signal.SIGTERM)

    def _sweep(self) -> None:
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        for pid in descendants(os.getpid()):
            _signal(pid, signal.SIGKILL)

    def _lift(self) -> None:
        for path, text in self._errand.lift:
            _write(path, text)

    def _give_up(self, error: OSError) -> int:
        code = _EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else _EXIT_NOT_STARTED
        self._clear_up()
        self._tell(failed=f"{error.strerror}: '{error.filename}'", code=code)
        return code

    def _finish(self) -> int:
        code, at_ns = self._ended or (_EXIT_NOT_STARTED, time.monotonic_ns())
        usage = _read(self._errand.usage_file)
        self._clear_up()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._tell(ended=code, at_ns=at_ns, usage=usage, core_s=spent.ru_utime + spent.ru_stime)
        return code

    def _clear_up(self) -> None:
        for folder in self._errand.remove_dirs:
            _remove_dir(folder)
        for path in self._errand.remove_files:
            try:
                os.unlink(path)
            except OSError:  # gone already
                pass

    def _tell(self, **words: Any) -> None:
        if self._leash_fd is not None:
            say(self._leash_fd, **words)


def say(leash_fd: int, **words: Any) -> None:
    """Write a line to the leash; nobody may be there to read it."""
    try:
        os.write(leash_fd, json.dumps(words).encode() + b"\n")
    except OSError:
        pass


def descendants(ancestor: int) -> list[int]:
    """All processes below `ancestor`, zombies included."""
    parents = dict(_parents())
    found, last = [ancestor], {ancestor}
    while last:
        last = {pid for pid, parent in parents.items() if parent in last}
        found += last
    return found[1:]


def _parents() -> Iterator[tuple[int, int]]:
    """Each process of this machine, and its parent."""
    for name in os.listdir("/proc"):
        status = _read(f"/proc/{name}/stat") if name.isdigit() else ""
        if status:
            # The program's name stands in brackets and may hold brackets and spaces itself.
            yield int(name), int(status.rpartition(")")[2].split()[1])


def _start(errand: Errand) -> int:
    """Start the job and return its process id; raises the `OSError` that kept it from starting."""
    outcome_fd, failure_fd = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_job(errand, parent, failure_fd)
    os.close(failure_fd)
    with open(outcome_fd, encoding="utf-8") as outcome:
        failure = outcome.read()  # empty: the pipe was closed by a successful `exec`
    if failure:
        os.waitpid(pid, 0)
        raise OSError(*json.loads(failure))
    return pid


def _become_job(errand: Errand, parent: int, failure_fd: int) -> None:
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_EXIT_NOT_STARTED)
        for entrance in errand.entrances:
            with open(entrance, "w") as file:
                file.write(str(os.getpid()))
        if errand.cwd is not None:
            os.chdir(errand.cwd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and `exec` would hand that down
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(errand.argv[0], errand.argv, errand.environment)
    except OSError as error:
        # A program looked for on the PATH is named as it was given, and not by the last place looked at.
        place = error.filename if isinstance(error.filename, str) else errand.argv[0]
        os.write(failure_fd, json.dumps([error.errno, error.strerror, place]).encode())
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _let_go_of_output() -> None:
    """With the keeper holding it too, whoever reads the job's output would never come to its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def _exit_code(status: int) -> int:
    """As a shell has it: 128 and the number of the signal, for a process that a signal ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _remove_dir(folder: str) -> None:
    """A control group stays busy for a moment after its last process has gone."""
    for _ in range(20):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.EBUSY or _holds_groups(folder):
                return
            time.sleep(0.01)
        else:
            return


def _holds_groups(folder: str) -> bool:
    try:
        return any(entry.is_dir() for entry in os.scandir(folder))
    except OSError:
        return False


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # gone already
        pass


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except OSError:  # gone already
        pass


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:  # the group is gone: there is nothing left to lift
        pass


def _read(path: str | None) -> str:
    try:
        with open(path or "") as file:
            return file.read()
    except OSError:
        return ""


def _read_errand(leash_fd: int) -> Errand | None:
    """None: Punctual died before it said anything."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(leash_fd, 65536)
        if not part:
            return None
        text += part
    words: Mapping[str, Any] = json.loads(text)
    return Errand(**words)


def main(leash_fd: int) -> int:
    """Keep one job, whose errand comes over `leash_fd`; its exit code."""
    wake_fd, wakes_fd = os.pipe()
    os.set_blocking(wakes_fd, False)
    signal.set_wakeup_fd(wakes_fd, warn_on_full_buffer=False)
    # Signals are only noted, and dealt with by the loop; one that comes before the job has started waits there.
    # Those that do not matter get the same function: if they were ignored, so would they be in the job.
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    say(leash_fd, ready=True)
    errand = _read_errand(leash_fd)
    if errand is None:
        return _EXIT_NOT_STARTED
    for fd in (leash_fd, errand.drain_fd, errand.door_fd):
        if fd is not None:
            os.set_inheritable(fd, False)
    return Keeper(errand, leash_fd, wake_fd).run()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
