"""Forkserver: a process with everything loaded, forked for each worker, so that a worker is ready in milliseconds.

Importing torch, and `torch._dynamo` with the first optimizer, takes some seconds; a copy of a process that has done
it takes milliseconds. That process must be free of threads and must not have touched a GPU, because neither survives
a fork; so it is one of its own, and neither the agent nor a worker is ever copied. While it loads, the libraries are
allowed one thread, so that they make none; a worker is given its number of threads after the fork.

It is started by `punctual.elastic_training.worker_spawner` and talks with it through a socket that keeps messages apart, in
JSON but for two that come as files:

=========== ================================================================================================
direction   meaning
=========== ================================================================================================
in          `ScriptOrigin`, pickled: the script and its surroundings
in          the training function, pickled: it is read when the script has been loaded, so that it can be found
out         ``{"said": "failed", "trace": traceback}`` as the last message, if the script cannot be loaded
in          ``{"fork": slot, "serves": bool}`` with the worker's or parameter server's socket; answered by
            ``{"said": "forked", "pid": id, "slot": slot}``, or ``{"said": "not forked", "slot": slot, "cause": text}``
in          ``{"kill": id}``
out         ``{"said": "ended", "slot": slot, "code": exit code}``, as soon as it has
=========== ================================================================================================

When the agent dies, the kernel ends this process, and with it, in the same way, all workers.
"""

import atexit
import ctypes
import gc
import importlib.util
import os
import pickle
import random
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn
from zlib import crc32

from punctual.channel import JOB_VARIABLE
from punctual.elastic_training import messages
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.heartbeat_board import HeartbeatBoard
from punctual.elastic_training.random_state import seed_all
from punctual.tracking import session
from punctual.tracking.complaint import invalid

#: Modules that every training needs. An optimizer's constructor imports `torch._dynamo`.
PRELOADED: tuple[str, ...] = ("torch", "torch._dynamo", "torch.distributed", "punctual.elastic_training.context")


def run(
    connection: socket.socket,
    i_slot: int,
    board_fd: int,
    environment: Mapping[str, str],
    train: Callable[[SocketAgentClient], object],
) -> NoReturn:
    """Run a worker, from the fork to the end of the process."""
    code = 1
    try:
        _become_ordinary(environment)
        code = _train(SocketAgentClient(connection, HeartbeatBoard(board_fd), i_slot), train)
        atexit._run_exitfuncs()  # noqa: SLF001 -- as multiprocessing does at the end of a forked process
        _flush()
    finally:
        os._exit(code)  # nothing of the forkserver's is to be wound up here


def _become_ordinary(environment: Mapping[str, str]) -> None:
    """Undo settings that only the forkserver needs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    session._session = None  # noqa: SLF001 -- the script's top level may have made one, for a process without a page
    os.environ.clear()
    os.environ.update(environment)
    n_threads = environment.get("OMP_NUM_THREADS", "")
    torch: Any = sys.modules.get("torch")
    if torch is not None and n_threads.isdigit():  # the libraries read the variable when they were loaded
        torch.set_num_threads(int(n_threads))


def _train(agent: SocketAgentClient, train: Callable[[SocketAgentClient], object]) -> int:
    """Run the training function, report its end to the agent, and return the exit code."""
    try:
        train(agent)
    except SystemExit as leaving:
        code = _code_of(leaving)
        agent.leave(code)
        return code
    except BaseException:  # noqa: BLE001 -- whatever it is, the agent shows it once for all workers
        _flush()
        agent.fail(traceback.format_exc())
        return 1
    agent.finish()
    return 0


def _code_of(leaving: SystemExit) -> int:
    """Return the exit code as the interpreter does: a text is written, and means failure."""
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    sys.stderr.write(f"{leaving.code}\n")
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


@dataclass(frozen=True)
class ScriptOrigin:
    """Properties of the script's own process that a worker must share.

    * `agent_pid`: the process that the script runs in.
    * `main_name`: name of the module that was started by ``python -m``; None: it was started by its path.
    * `main_path`: the script's file; None: there is none.
    * `board_fd`: descriptor of the board.
    * `preloaded`: modules that are loaded before the script.
    """

    agent_pid: int
    argv: list[str]
    python_path: list[str]
    environment: dict[str, str]
    main_name: str | None
    main_path: str | None
    board_fd: int
    preloaded: tuple[str, ...]


class Forkserver:
    """Forks workers on demand."""

    def __init__(
        self, control: socket.socket, origin: ScriptOrigin, train: Callable[[SocketAgentClient], object]
    ) -> None:
        self._control = control
        self._origin = origin
        self._train = train
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        #: Process and slot of each worker that lives, by a descriptor that can be read once it has ended.
        self._children: dict[int, tuple[int, int]] = {}

    def serve(self) -> None:
        """Serve requests until the agent closes the connection."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._children:
                    self._tell_end(fd)
                elif not self._handle_request():
                    return

    def _tell_end(self, fd: int) -> None:
        pid, i_slot = self._children.pop(fd)
        self._poll.unregister(fd)
        os.close(fd)
        _, status = os.waitpid(pid, 0)
        messages.send_or_exit(self._control, said="ended", slot=i_slot, code=os.waitstatus_to_exitcode(status))

    def _handle_request(self) -> bool:
        """Handle one message; False at the end."""
        words, fds = messages.receive(self._control, 1)
        if words is None:
            return False
        if "fork" in words:
            self._fork(words["fork"], fds[0], serves=words["serves"])
        elif any(words["kill"] == pid for pid, _ in self._children.values()):  # not reaped yet: the id is still its own
            os.kill(words["kill"], signal.SIGKILL)
        return True

    def _fork(self, i_slot: int, link_fd: int, *, serves: bool) -> None:
        parent, drawn = os.getpid(), random.getstate()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(link_fd)
            messages.send_or_exit(self._control, said="not forked", slot=i_slot, cause=str(error))
            return
        if pid == 0:
            exit_with_parent(parent)
            random.setstate(drawn)  # Python seeds it anew in a forked process: workers would shuffle in several orders
            self._control.close()
            body = _serve if serves else self._train
            run(socket.socket(fileno=link_fd), i_slot, self._origin.board_fd, self._origin.environment, body)
        os.close(link_fd)
        fd = os.pidfd_open(pid)
        self._children[fd] = pid, i_slot
        self._poll.register(fd, select.POLLIN)
        messages.send_or_exit(self._control, said="forked", pid=pid, slot=i_slot)


def _serve(agent: SocketAgentClient) -> None:
    importlib.import_module("punctual.elastic_training.servers.parameter_server").serve(agent)


def exit_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends, for any reason, and even if this one hangs."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(os.EX_SOFTWARE)


def _unpickled(control: socket.socket) -> Any:
    """Receive the agent's next object, as a file; if the agent is gone, end this process."""
    _, (fd,) = messages.receive_or_exit(control, 1)
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return pickle.load(file)  # noqa: S301 -- the agent is of this program


def _training_function(control: socket.socket) -> Callable[[SocketAgentClient], object]:
    """Receive the training function; raises `ValueError` if the script that was loaded here does not have it."""
    try:
        return _unpickled(control)
    except AttributeError as error:
        raise invalid(
            "the training function, and what it is given, must be there when the script is loaded",
            str(error),
            "`punctual.elastic`",
            'Define them at the top level of the script, and above `if __name__ == "__main__":`.',
        ) from None


def seed_of_job(environment: Mapping[str, str]) -> int:
    """Return a number of 32 bits that all processes of a job have in common, also on other nodes."""
    return crc32(environment.get(JOB_VARIABLE, "").encode())


def _load_script(origin: ScriptOrigin) -> None:
    """Run the script's top level as a module other than the main one, so that it starts nothing."""
    if origin.main_path is None:
        return
    script = ModuleType("__mp_main__")
    script.__file__ = origin.main_path
    if origin.main_name is not None:
        script.__spec__ = importlib.util.find_spec(origin.main_name)
        script.__package__ = origin.main_name.rpartition(".")[0]
    sys.modules["__main__"] = sys.modules["__mp_main__"] = script  # pickled functions name the first
    # What a script draws without a seed, to shuffle its files, say, must be the same on all nodes.
    seed_all(seed_of_job(origin.environment))
    with open(origin.main_path, "rb") as file:  # noqa: PTH123 -- the only file that is opened here
        code = compile(file.read(), origin.main_path, "exec")
    exec(code, script.__dict__)  # noqa: S102 -- it is the user's own script


def _check_no_gpu(origin: ScriptOrigin) -> None:
    """Raise `ValueError` if the script's top level has used a GPU: no worker could use one then."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise invalid(
            "the script's top level must not use a GPU", "CUDA, begun while the script was loaded",
            f"'{origin.main_path}'", "Move what uses the GPU into the training function.",
        )  # fmt: skip


def main(control_fd: int) -> None:
    """Serve the agent at the other end of `control_fd`."""
    global is_forkserver
    is_forkserver = True
    control = socket.socket(fileno=control_fd)
    origin: ScriptOrigin = _unpickled(control)
    exit_with_parent(origin.agent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.argv[:], sys.path[:] = origin.argv, origin.python_path
        for name in origin.preloaded:
            importlib.import_module(name)
        _load_script(origin)
        _check_no_gpu(origin)
        gc.collect()
        gc.freeze()  # what is never collected is never written to, and stays shared by all workers
        train = _training_function(control)
    except BaseException:  # noqa: BLE001 -- whatever the script raises is the user's to know
        messages.send_or_exit(control, said="failed", trace=traceback.format_exc()[-8_000:])
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the script may have it ignored, and then no end could be asked for
    Forkserver(control, origin, train).serve()


#: Whether this process is one: a script that does not protect its start would start itself here.
is_forkserver = False

if __name__ == "__main__":
    # As a module that others find too, so that there is one `is_forkserver`.
    importlib.import_module("punctual.elastic_training.forkserver").main(int(sys.argv[1]))
