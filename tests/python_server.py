"""Forks processes with the modules of Punctual, so that a test does not wait for these. Python runs it as a script.

Through the socket that is its standard input it is asked for processes: what a request holds, and the descriptors that
go with it, says `tests.forked_python`. Each is a copy of this process that has nothing but modules, and goes on as
Python with the arguments of the request. This process ends when the socket is closed.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

#: What a command loads before it does anything, and what `run` and other hosts load later.
PRELOADED = (
    "punctual.cli._app",
    "punctual.cli.run",
    "punctual.controllers.remaining_cost",
    "punctual.policies.promises_first",
    "punctual.policies.proportional",
    "punctual.api.app",
    "punctual.api.daemon_process",
    "punctual.journal.sqlite",
    "pydantic.dataclasses",
    "pydantic.type_adapter",
)
REQUEST_BYTES_MAX = 200_000


def serve(control: socket.socket) -> list[str] | None:
    """Fork what is asked for; returns in each process, with its arguments, and at the end, with none."""
    statuses: dict[int, socket.socket] = {}
    wakes, wake = socket.socketpair()
    for end in (wakes, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    for readable in (control, wakes):
        selector.register(readable, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if wakes in ready:
            wakes.recv(4096)
            reap(statuses)
        if control not in ready:
            continue
        text, (*streams, status), _, _ = receive(control)
        if not text:
            return None
        pid = os.fork()
        if pid == 0:
            selector.close()
            for end in (control, wakes, wake, *statuses.values()):
                end.close()
            os.close(status)
            return become(json.loads(text), streams)
        for stream in streams:
            os.close(stream)
        statuses[pid] = socket.socket(fileno=status)
        statuses[pid].send(str(pid).encode())


def receive(control: socket.socket) -> tuple[bytes, list[int], int, object]:
    """A request and its four descriptors; at the end no text."""
    text, fds, flags, address = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
    return text, fds or [-1, -1, -1, -1], flags, address


def reap(statuses: dict[int, socket.socket]) -> None:
    """Tell those who have asked for them how processes have ended."""
    for pid in list(statuses):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with statuses.pop(pid) as asker:
                asker.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, object], streams: list[int]) -> list[str]:
    """Be as a process that was just started, with these standard streams; the arguments."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for own, fd in enumerate(streams):
        os.dup2(fd, own)
        os.close(fd)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.path[0] = str(request["folder"])
    return list(request["arguments"])  # type: ignore[call-overload]


def run(arguments: list[str]) -> None:
    """Run what Python does with these arguments."""
    option, *rest = arguments
    if option == "-m":
        sys.argv[1:] = rest[1:]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(option).parent)
        runpy.run_path(option, run_name="__main__")


def leave() -> None:
    """End after all other functions that are called at the end: to free the modules takes more than a small command does."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    # A daemon that a command starts, and what a daemon starts, are copies of these.
    subprocess.Popen = importlib.import_module("forked_child").ForkedChild  # type: ignore[misc]
    for name in PRELOADED:
        with suppress(ModuleNotFoundError):  # of libraries that a test needs, but not all machines have
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    arguments = serve(socket.socket(fileno=os.dup(0)))
    if arguments is not None:
        exit_code = 1
        atexit.register(leave)
        try:
            run(arguments)
            exit_code = 0
        except SystemExit as left:
            exit_code = left.code if isinstance(left.code, int) else int(left.code is not None)
            raise
        except KeyboardInterrupt:  # Python then ends by the signal
            atexit.unregister(leave)
            raise
