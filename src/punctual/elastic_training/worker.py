"""Start and end of a worker process: a fork of the forkserver becomes a worker, trains, and reports its end."""

import atexit
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.heartbeat_board import HeartbeatBoard
from punctual.tracking import session


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
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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
