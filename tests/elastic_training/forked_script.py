"""Runs a script as a process of its own that has PyTorch loaded from its start, which takes seconds of CPU time otherwise.

The process is forked from the one that also forks the workers of `stage`, and so is the process that its agent forks workers
from. In everything else they are as if they had been executed; `tests/cli` has trainings whose processes are.
"""

import atexit
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from punctual.elastic_training import forkserver, worker_spawner


def run_script(argv: Sequence[str], environment: Mapping[str, str], output: str) -> None:
    """Be the process of ``python argv...`` whose output goes to the file `output`, in a session of its own."""
    os.setsid()
    fd = os.open(output, os.O_WRONLY | os.O_APPEND)
    for own in (1, 2):
        os.dup2(fd, own)
    os.close(fd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = argv
    sys.path.insert(0, os.path.dirname(argv[0]))  # noqa: PTH120 -- as Python does it
    worker_spawner.subprocess = SimpleNamespace(Popen=ForkedForkserver, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    runpy.run_path(argv[0], run_name="__main__")


class ForkedForkserver:
    """In place of the `Popen` of a forkserver: a copy of this process."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], stdin: int) -> None:
        assert command[-2] == "punctual.elastic_training.forkserver"
        assert stdin == subprocess.DEVNULL
        self.pid = os.fork()
        if self.pid == 0:
            _be_forkserver(int(command[-1]), pass_fds, env)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def _be_forkserver(control_fd: int, pass_fds: Sequence[int], environment: Mapping[str, str]) -> NoReturn:
    code = 1
    try:
        atexit._clear()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        kept: Any = sorted({0, 1, 2, *pass_fds})
        for before, after in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(before + 1, after)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.environ.clear()
        os.environ.update(environment)
        forkserver.main(control_fd)
        code = 0
    except BaseException:  # noqa: BLE001 -- as Python shows it at the end of a process
        traceback.print_exc()
    finally:
        os._exit(code)
