"""Python processes that start with the modules of Punctual loaded: they are forked from `python_server`.

To load them takes about a second of CPU time, most of what a test of a command or of a host costs otherwise. In everything
else such a process is like any other of Python.
"""

import atexit
import functools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, AnyStr

from punctual.daemon.paths import HOME_VARIABLE

SERVER = Path(__file__).with_name("python_server.py")


class _Server:
    """Where processes are asked for, for all tests of this process; it ends with it."""

    def __init__(self) -> None:
        self.control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # It has the home of no test: a test that looks for processes of its home may be the first that needs it.
        environment = {name: value for name, value in os.environ.items() if name != HOME_VARIABLE}
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER)], env=environment, stdin=other_end.fileno(), stdout=subprocess.DEVNULL
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self.control.close()
        self._process.wait()


_first, _server_of = threading.Lock(), functools.cache(_Server)


def _server() -> _Server:
    with _first:
        return _server_of()


def punctual(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, in the home of this test."""
    arguments, pipe = [sys.executable, "-m", "punctual", *words], subprocess.PIPE
    with ForkedPython(arguments, stdout=pipe, stderr=pipe, text=True) as process:
        output, errors = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


class ForkedPython(subprocess.Popen[AnyStr]):
    """In place of `subprocess.Popen`, for the interpreter that runs now with ``-m``, ``-c`` or a script.

    Without a pipe or file, its standard input is empty, and its output goes where that of this process does.
    """

    def __init__(self, args: Sequence[str], **options: Any) -> None:
        assert args[0] == sys.executable
        self._status, self._status_there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(args, **{"stdin": subprocess.DEVNULL, **options})

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        """Have it forked in place of executing a program; called by the constructor, with the pipes' ends."""
        _executable, _preexec, _close, _pass, cwd, env, _info, _flags, _shell, *pipes = rest
        p2cread, _p2cwrite, _c2pread, c2pwrite, _errread, errwrite, *_ = pipes
        request = {
            "arguments": args[1:], "folder": str(cwd or Path.cwd()), "environment": dict(os.environ if env is None else env)
        }  # fmt: skip
        with self._status_there:
            fds: list[int] = [p2cread, 1 if c2pwrite == -1 else c2pwrite, 2 if errwrite == -1 else errwrite]
            socket.send_fds(_server().control, [json.dumps(request).encode()], [*fds, self._status_there.fileno()])
        self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]
        self.pid = int(self._status.recv(100))
        self._child_created = True

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        """Its exit status, once it is told within `timeout_s`."""
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = int(self._status.recv(100))
            self._status.close()
        return self.returncode
