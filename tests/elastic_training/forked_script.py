"""Runs a script as a process of its own that has PyTorch loaded from its start, which takes seconds of CPU time otherwise.

The process is forked from the one that also forks the workers of `stage`, and so is the process that its agent forks workers
from. In everything else they are as if they had been executed; `tests/cli` has trainings whose processes are.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from tests.forked_child import ForkedChild

from punctual.elastic_training import worker_spawner


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
    worker_spawner.subprocess = SimpleNamespace(Popen=ForkedChild, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]
    runpy.run_path(argv[0], run_name="__main__")
