"""Control socket of a run: one line of JSON in, one line of JSON out, over a Unix socket of mode 0600."""

import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingMixIn, UnixStreamServer
from stat import S_ISSOCK
from threading import BoundedSemaphore, Thread
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.executors.local.process_tree import state_of
from punctual.executors.local.socket_path import short_enough

#: Gets a request, gives the answer; both are JSON objects. Called in a thread of its own. What it raises is sent.
Answer = Callable[[dict[str, Any]], dict[str, Any]]

#: Field of a request, as its answerer gets it, with the descriptors that came with it; they are closed afterwards.
FDS = "fds"

#: A file of thousands of jobs has an environment of some kilobytes with each.
_REQUEST_BYTES_MAX = 1 << 28
#: A client that has not said what it wants by then is sent away, in seconds.
_REQUEST_S = 10.0
#: Simultaneous clients; each has a thread and may send a request of the greatest size.
_N_CLIENTS_MAX = 128
#: Layout of a peer's credentials, as the kernel gives them: process, user, group.
_CREDENTIALS = struct.Struct("3i")


#: What answering raises for a request that the daemon does not know.
MISTAKES = (AttributeError, KeyError, TypeError, ValueError)
#: Remedy for that.
OTHER_VERSION = (
    "It may be of another version of Punctual than the command: have the jobs go on in a new one (`punctual down --jobs "
    "continue`, then `punctual up`)."
)


class ControlFailed(Exception):
    """Raised if the host does not answer, or its answer reports a failure that is not the user's."""


class ControlBusy(ControlFailed):
    """Raised if the host is alive but serves as many clients as it may."""


class ControlUnable(ControlFailed):
    """Raised if the host does not know what it was asked."""


class ControlSilent(ControlFailed):
    """Raised if the host is there and says nothing: not in time, or because it is stopped."""


def ask(
    path: Path,
    request: dict[str, Any],
    timeout_s: float = 5.0,
    fds: Sequence[int] = (),
    on_slow: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Send `request`, with descriptors, to the process that listens at `path` and return its answer.

    `on_slow`: called with that process once it has not answered for a second.

    * Raises `InvalidSpec`: the request was refused as the user's mistake.
    * Raises `ControlSilent`: no answer came in time, or the process has been stopped for a second.
    * Raises `ControlFailed`: nobody listens there, or answering failed.
    """
    try:
        with connected(path, timeout_s) as connection:
            line = _exchanged(
                connection, json.dumps(request).encode() + b"\n", fds, _Patience(connection, timeout_s, on_slow)
            )
    except TimeoutError as error:
        raise ControlSilent(f"no answer at {path}: {error.strerror or error}") from error
    except OSError as error:
        raise ControlFailed(f"no answer at {path}: {error.strerror or error}") from error
    return _opened(line, path)


class _Patience:
    """Waits for the process at the other end of a connection until it has been stopped for a second or the time is over.

    * `most_s`: seconds from now on, for all that is waited for.
    * `on_slow`: see `ask`.
    """

    def __init__(self, connection: socket.socket, most_s: float, on_slow: Callable[[int], None]) -> None:
        self._fd, self._on_slow = connection.fileno(), on_slow
        self._pid = peer_of(connection)[0]
        self._give_up_at = time.monotonic() + most_s
        self._is_slow = self._was_stopped = False

    def wait(self, event: int) -> None:
        """Wait for an event of `select.poll`; raises `TimeoutError` if it does not come."""
        poll = select.poll()
        poll.register(self._fd, event)
        # A shell stops a process for a moment when it puts it in the background; after a second it is stopped for long.
        while not poll.poll(1e3 * min(1.0, max(0.0, self._give_up_at - time.monotonic()))):
            if time.monotonic() >= self._give_up_at:
                raise TimeoutError("time-out")
            if not self._is_slow:
                self._on_slow(self._pid)
            self._is_slow, was_stopped = True, self._was_stopped
            self._was_stopped = state_of(self._pid) == "T"
            if was_stopped and self._was_stopped:
                raise TimeoutError(f"process {self._pid} is stopped")


def _exchanged(connection: socket.socket, request: bytes, fds: Sequence[int], patience: _Patience) -> bytes:
    """Send a request and return the line that answers it, however long both are; raises `OSError`."""
    rest = memoryview(request)
    with suppress(ConnectionError):  # who has too many clients says so, and closes, before it is asked anything
        if fds:
            rest = rest[socket.send_fds(connection, [rest[:1]], fds) :]
        connection.setblocking(False)
        while rest:
            patience.wait(select.POLLOUT)
            rest = rest[connection.send(rest) :]
    line = bytearray()
    while not line.endswith(b"\n"):
        patience.wait(select.POLLIN)
        piece = connection.recv(1 << 20)
        if not piece:
            break
        line += piece
    return bytes(line)


def _opened(line: bytes, path: Path) -> dict[str, Any]:
    try:
        envelope = json.loads(line)
    except ValueError as error:
        raise ControlFailed(f"no answer at {path}: the connection was closed") from error
    if "refused" in envelope:
        raise InvalidSpec.from_fields(envelope["refused"])
    if "busy" in envelope:
        raise ControlBusy(envelope["busy"])
    if "failed" in envelope:
        failed = str(envelope["failed"])
        raise (ControlUnable if failed.startswith(tuple(kind.__name__ for kind in MISTAKES)) else ControlFailed)(failed)
    answer: dict[str, Any] = envelope["answer"]
    return answer


class ControlSocket(ThreadingMixIn, UnixStreamServer):
    """Answers requests from its creation to `close`, in threads of its own.

    * `path`: path of the socket. A socket left behind by a process that is gone is replaced.
    * `take`: also replace one of a process that is still there.

    Raises `InvalidSpec`: another process answers there already, or `path` is another kind of file.
    """

    daemon_threads = True
    request_queue_size = 64
    block_on_close = False  # a silent client must not hold up the end of a run

    def __init__(self, path: Path, answer: Answer, *, take: bool = False) -> None:
        make_room(path, take)
        self.answer = answer
        #: The conversations in which a request has come and is not answered yet.
        self.answering: set[_Conversation] = set()
        self._places = BoundedSemaphore(_N_CLIENTS_MAX)
        with short_enough(path) as address:
            super().__init__(address, _Conversation)
        self._path, self._inode = path, path.stat().st_ino
        # Seconds that `close` may wait; the server's thread wakes as often, so a shorter time costs CPU.
        self._thread = Thread(target=self.serve_forever, args=(0.2,), name="punctual-control", daemon=True)
        self._thread.start()

    def is_answering(self) -> bool:
        """Whether a client waits for the answer to a request that has come."""
        return bool(self.answering)

    def close(self) -> None:
        """Stop answering and remove the socket; a second time, do nothing."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        with suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:  # else another process has taken its place
                self._path.unlink()

    def __exit__(self, *_: object) -> None:
        self.close()

    def server_bind(self) -> None:
        super().server_bind()
        # Between bind and listen nobody can connect yet, so that there is no instant with a wider mode.
        Path(str(self.server_address)).chmod(0o600)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in a thread of its own, or turn it away if there are too many."""
        if not self._places.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(b'{"busy": "too many others ask at the same time; try again"}\n')
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no room for another thread
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the failure of a client that went away or was turned away."""


class _Conversation(BaseRequestHandler):
    server: ControlSocket
    request: socket.socket

    def handle(self) -> None:
        fds: list[int] = []
        try:
            line = _received(self.request, time.monotonic() + _REQUEST_S, fds)
            if line:
                self.server.answering.add(self)
                self.request.settimeout(_REQUEST_S)
                self.request.sendall(json.dumps(_envelope(line, self.server.answer, fds)).encode() + b"\n")
        finally:
            self.server.answering.discard(self)
            for fd in fds:
                os.close(fd)


def _received(connection: socket.socket, until_at: float, fds: list[int]) -> bytes:
    """Receive up to the end of the line; return b"" if it has not come by `until_at`. Raises `OSError`.

    Descriptors that come with it are added to `fds`, and are the caller's to close.
    """
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _REQUEST_BYTES_MAX:
        connection.settimeout(max(0.001, until_at - time.monotonic()))
        piece, new, *_ = socket.recv_fds(connection, 65536, 4)
        fds += new
        if not piece:
            break
        line += piece
    return bytes(line)


def _envelope(line: bytes, answer: Answer, fds: Sequence[int] = ()) -> dict[str, Any]:
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            return {"failed": "a request must be a JSON object"}
        request.pop(FDS, None)  # a number in a text is no descriptor
        return {"answer": answer({**request, FDS: fds} if fds else request)}
    except InvalidSpec as error:
        return {"refused": error.as_fields()}
    except Exception as error:  # noqa: BLE001 -- the client is to learn of it, and the run must go on
        return {"failed": f"{type(error).__name__}: {error}"}


def make_room(path: Path, take: bool) -> None:
    """Remove a socket that was left at `path`; with `take` also one of a running process.

    Raises `InvalidSpec`: another process answers there, or `path` is another kind of file.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not S_ISSOCK(mode):
        raise _occupied(path, "another kind of file", "Remove the file.")
    if not take and is_answered(path):
        raise _occupied(path, "a socket that answers", "Wait for the run to end, or give this one another name.")
    path.unlink(missing_ok=True)


def listener_pid(path: Path) -> int | None:
    """Process id of the listener at the socket; None: nobody listens."""
    with suppress(OSError), connected(path, 1.0) as connection:
        return peer_of(connection)[0]
    return None


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


def _occupied(path: Path, got: str, remedy: str) -> InvalidSpec:
    return InvalidSpec("the control socket's place must be free", got, f"'{path}'", remedy)


def is_answered(path: Path) -> bool:
    """Whether a process listens at the socket: also one that is stopped, and has no room for another connection."""
    try:
        with connected(path, 1.0):
            return True
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True  # whoever it is, it is alive: better to refuse than to take its place


def connected(path: Path, timeout_s: float | None) -> socket.socket:
    """Return a connection to the socket at `path`; raises `OSError`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        with short_enough(path) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection
