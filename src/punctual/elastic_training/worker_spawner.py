"""Spawner of workers: the agent's side of the forkserver."""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from punctual.channel import BLOCK_VARIABLE
from punctual.elastic_training import forkserver, messages
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.forkserver import ScriptOrigin, seed_of_job
from punctual.tracking.complaint import invalid

#: `-P`: a file of the user's named like one of Python's must not be taken for it.
_COMMAND = (sys.executable, "-P", "-m", "punctual.elastic_training.forkserver")


class WorkerSpawner:
    """Starts a forkserver, which loads the script and then forks workers.

    * `train`: the worker's training function, called with its connection; found by the name of its module and its own.
    * `board_fd`: kept open in the workers.

    Raises `ValueError`: the function cannot be found by its name.
    """

    def __init__(self, train: Callable[[SocketAgentClient], object], board_fd: int) -> None:
        function = _by_name(train)
        self.control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:
            fds = (other_end.fileno(), board_fd)
            command = [*_COMMAND, str(other_end.fileno())]
            self._process = subprocess.Popen(command, pass_fds=fds, env=_environment(), stdin=subprocess.DEVNULL)
        for content in (pickle.dumps(_origin(board_fd)), function):
            messages.send_file(self.control, content)

    def receive(self) -> dict[str, Any] | None:
        """Return the forkserver's next message; None: it has ended."""
        # If it has ended before it has read all, the first call fails, and only the next returns what it has said.
        return messages.receive(self.control)[0] or messages.receive(self.control)[0]

    def fork(self, i_slot: int, *, serves: bool = False) -> socket.socket:
        """Request a worker, or a parameter server; return the agent's end of its connection."""
        connection, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:  # if the forkserver has ended, `receive` tells it
            messages.send(self.control, {"fork": i_slot, "serves": serves}, [other_end.fileno()])
        return connection

    def kill(self, pid: int) -> None:
        """Kill a worker at once."""
        messages.send(self.control, {"kill": pid})

    def close(self) -> None:
        """Close the connection; running workers are ended."""
        self.control.close()
        self._process.wait()


def _by_name(train: Callable[[SocketAgentClient], object]) -> bytes:
    try:
        return pickle.dumps(train)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise invalid(
            "the training function must be found by its name in another process", f"{train!r} ({error})",
            "`punctual.elastic`", "Define it with `def` at the top level of the script or of a module.",
        ) from None  # fmt: skip


def _environment() -> dict[str, str]:
    """Return the environment of the forkserver, which makes no threads and leaves the page and the GPUs alone.

    A script that only asks at its top level whether there is a GPU must not have CUDA's driver started for the answer. And a
    script that numbers the elements of a set must do so alike on all nodes.
    """
    environment = {
        "PYTHONHASHSEED": str(seed_of_job(os.environ)), **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }  # fmt: skip
    environment.pop(BLOCK_VARIABLE, None)
    return environment


def _origin(board_fd: int) -> ScriptOrigin:
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    return ScriptOrigin(
        agent_pid=os.getpid(),
        argv=list(sys.argv),
        python_path=list(sys.path),
        environment=dict(os.environ),
        main_name=None if spec is None else spec.name,
        main_path=None if path is None else os.path.abspath(path),  # noqa: PTH100 -- pathlib would resolve links
        board_fd=board_fd,
        preloaded=forkserver.PRELOADED,
    )
