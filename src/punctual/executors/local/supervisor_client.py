"""Connection to a supervisor, for the process that steers its job: its starter, or one that took the job over."""

import array
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from punctual.executors.local import supervisor
from punctual.executors.local.cgroup_files import leave_command_group
from punctual.executors.local.job_files import read_end
from punctual.executors.local.socket_path import short_enough
from punctual.executors.local.supervisor import LEFT, STAY_PAUSED, LaunchRequest

#: Command that starts a supervisor, without the user's settings and packages, which would only take time.
_PYTHON = (sys.executable, "-I", "-S", supervisor.__file__)


#: After so many seconds without a sign of life the process that steers a job is taken for stopped or hung.
LEASE_S = 4.0

#: Seconds that a supervisor may take to end once its job has, or once it was killed.
_END_S_MAX = 5.0

#: Seconds that a supervisor may take to answer at its takeover socket, and to read messages.
_ANSWER_S_MAX = 10.0


class SteeringLostError(Exception):
    """Raised if another process steers the job now."""


class SupervisorLink:
    """The control connection to a supervisor; closing it leaves the job unsteered.

    `process`: what this process has started and must wait for; None for a supervisor that another process has started.
    """

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._connection = connection
        self._process = process
        self._lines = connection.makefile("r", encoding="utf-8")
        #: Whether the supervisor has its request: what is said before would be taken for a part of it.
        self._has_request = process is None
        #: The process id of the supervisor; 0 until it has told it.
        self.pid = 0
        #: Descriptor for signals to the supervisor.
        self._supervisor_fd: int | None = None
        self._is_released = False
        #: Last message that has renewed the lease.
        self._word = b""
        #: Instant since which a message to the supervisor waits to be read; None: none waits.
        self._unheard_since: float | None = None

    def send(self, request: LaunchRequest) -> None:
        """Send the supervisor its request; to be called once."""
        self._connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
        self._has_request = True

    def renew(self, *, stays_paused: bool = False) -> None:
        """Renew the lease with the supervisor, if it has a job; never blocks.

        `stays_paused`: whether the job is paused and is to stay so when no process steers it.
        """
        if not self._has_request:
            return
        self._word = STAY_PAUSED if stays_paused else b"\n"
        # Check whether the supervisor has read the earlier messages.
        n_bytes = array.array("i", [0])
        with suppress(OSError, ValueError):  # it has ended, is just being connected again, or this system does not tell
            fcntl.ioctl(self._connection, termios.TIOCOUTQ, n_bytes)
        if not n_bytes[0]:
            self._unheard_since = None
        elif self._unheard_since is None:
            self._unheard_since = time.monotonic()
        with suppress(OSError):  # it has ended, or has not read for long and is told by what waits there
            self._connection.send(self._word, socket.MSG_DONTWAIT)

    @property
    def is_deaf(self) -> bool:
        """Whether the supervisor has read nothing for long: it was stopped, or hangs, as with its log's file system."""
        return self._unheard_since is not None and time.monotonic() - self._unheard_since > _ANSWER_S_MAX

    def read(self) -> dict[str, Any] | None:
        """Return the supervisor's next line; None: it has ended."""
        try:
            line: dict[str, Any] | None = json.loads(self._lines.readline() or "null")
        except (OSError, ValueError):
            return None
        if line is not None:
            self.pid = line.get("keeper", self.pid)
            if "ready" in line:
                leave_command_group(self.pid)
            if "keeper" in line:
                with suppress(ProcessLookupError):  # it has just been killed
                    self._supervisor_fd = os.pidfd_open(self.pid)
        return line

    def await_end(self, address: Path, end_file: Path | None, on_regained: Callable[[], None]) -> dict[str, Any] | None:
        """Wait for the supervisor's last line, however long the job runs; None: the supervisor was killed before it had one.

        * `address`: the supervisor's takeover socket. If this process was stopped for longer than the lease, the
          supervisor has closed the connection, and it is made again there.
        * `end_file`: file with the last line if the job has ended meanwhile, or the supervisor was killed afterwards.
        * `on_regained`: called when the connection has been made again: the supervisor has lifted the quota before.

        Raises `SteeringLostError`: another process has taken the job over meanwhile, or `release` has left it to one.
        """
        while (line := self.read()) is not None and "expired" in line:
            if self._is_released:
                raise SteeringLostError
            if not self._reconnect(address):
                last = read_end(end_file)
                if last is None and address.exists():
                    raise SteeringLostError
                return last
            on_regained()
        if line is None and self._is_released:
            raise SteeringLostError
        return read_end(end_file) if line is None else line

    def _reconnect(self, address: Path) -> bool:
        """Reconnect to the supervisor; return whether that was possible."""
        link = take_over(address)
        if link is None:
            return False
        self._lines.close()
        self._connection.close()
        self._connection, self._lines = link._connection, link._lines  # noqa: SLF001 -- it is one of our own
        if link._supervisor_fd is not None:  # noqa: SLF001
            os.close(link._supervisor_fd)  # noqa: SLF001
        return True

    def release(self) -> None:
        """Leave the job unsteered; another process may take it over, and the supervisor starts none."""
        self._is_released = True
        with suppress(OSError):  # the supervisor has ended
            if self._has_request:
                self._connection.send(LEFT + self._word, socket.MSG_DONTWAIT)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def terminate(self) -> None:
        """Ask the supervisor to end the job within its grace period; a second call kills it."""
        self._ask(signal.SIGTERM)

    def interrupt(self) -> None:
        """Interrupt the job as Ctrl-C in a terminal does: the program may catch it and go on."""
        self._ask(signal.SIGINT)

    def hurry(self) -> None:
        """End the job, whose grace period is over: SIGTERM for all of it, then SIGKILL."""
        self._ask(signal.SIGALRM)

    def kill(self) -> None:
        """Kill the supervisor itself, and count it as gone even if it hangs in the kernel."""
        self._signal(signal.SIGKILL)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _ask(self, number: int) -> None:
        """Send the supervisor a signal, and resume it if it was stopped."""
        self._signal(number)
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Close the connection; return when a supervisor that is a child of this process has ended."""
        self._hang_up()
        self._close_supervisor_fd()
        if self._process is not None:
            self._process.wait()

    def finish(self) -> None:
        """Close the connection to a supervisor that has ended or is ending; return when it is gone.

        It clears up at places that are used again. One that was stopped goes on. One that does not end is killed, and left if
        it hangs in the kernel.
        """
        self._hang_up()
        self._signal(signal.SIGCONT)
        if self._supervisor_fd is not None:
            poll = select.poll()
            poll.register(self._supervisor_fd, select.POLLIN)
            if not poll.poll(_END_S_MAX * 1e3):
                self._signal(signal.SIGKILL)
        self._close_supervisor_fd()
        if self._process is not None:
            try:
                self._process.wait(_END_S_MAX)
            except subprocess.TimeoutExpired:  # it is reaped whenever it ends
                threading.Thread(target=self._process.wait, name="punctual-reaper", daemon=True).start()

    def _hang_up(self) -> None:
        self._lines.close()
        self._connection.close()

    def _close_supervisor_fd(self) -> None:
        if self._supervisor_fd is not None:
            os.close(self._supervisor_fd)
            self._supervisor_fd = None

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self._supervisor_fd is not None:
                signal.pidfd_send_signal(self._supervisor_fd, number)
            elif self._process is not None and not self.pid:
                self._process.send_signal(number)


def start_supervisor(
    prefix: Sequence[str],
    fds: Sequence[int] = (),
    stdout_fd: int | None = None,
    stderr_fd: int | None = None,
    stdin_fd: int = subprocess.DEVNULL,
) -> SupervisorLink:
    """Start a supervisor.

    * `prefix`: first words of the command line.
    * `fds`: handed to the supervisor under the same numbers, for its request.
    * `stdout_fd`, `stderr_fd`: descriptors for the job's output; None: those of this process.
    * `stdin_fd`: descriptor for the job's input.

    Raises `OSError`: the supervisor could not be started.
    """
    connection, other_end = socket.socketpair()
    with other_end:
        command = [*prefix, *_PYTHON, str(other_end.fileno())]
        try:
            # A session of its own: what the terminal sends (Ctrl-C, hanging up) is for us alone.
            process = subprocess.Popen(
                command,
                pass_fds=[other_end.fileno(), *fds],
                stdin=stdin_fd,
                stdout=stdout_fd,
                stderr=stderr_fd,
                start_new_session=True,
            )
        except BaseException:
            connection.close()
            raise
    return SupervisorLink(connection, process)


# Taking over.


class AdoptableJob(SupervisorLink):
    """A claimed job: it runs, and only the holder of this connection steers it. Closing it leaves the job as it was found.

    * `request`: request that its supervisor got, without the environment.
    * `started_at`: start of the job's process, monotonic seconds.

    Raises `ConnectionError`: another process steers the job.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        line = self.read()  # the supervisor's description of itself and its job
        if line is None:
            raise ConnectionError
        connection.settimeout(None)
        known = {field.name for field in fields(LaunchRequest)}  # it may be of another version
        self.request = LaunchRequest(**{name: value for name, value in line["request"].items() if name in known})
        self.job_pid: int = line["started"]
        self.started_at: float = line["at_ns"] / 1e9


def listen_for_takeover(address: Path) -> socket.socket:
    """Return a socket that listens at `address`, for a supervisor; raises `OSError`."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        address.unlink(missing_ok=True)
        with short_enough(address) as place:
            listening.bind(place)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def take_over(address: Path) -> AdoptableJob | None:
    """Take over the job whose supervisor listens at `address`; None: it has ended, or another process steers it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S_MAX)
    try:
        with short_enough(address) as place:
            connection.connect(place)
        return AdoptableJob(connection)
    except OSError:
        connection.close()
        return None
