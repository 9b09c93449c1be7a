"""Forks commands of Punctual, so that a test does not wait for their modules to be loaded. Python runs it as a script.

Through the socket that is its standard input it is asked for commands: what a request holds, and the descriptors that
go with it, says `tests.cli.forked_command`. A command is a copy of this process that has nothing but modules, and goes
on as `python -m punctual`. This process ends when the socket is closed.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys

#: What a command loads before it does anything, and what `run` loads later.
PRELOADED = (
    "punctual.cli._app",
    "punctual.cli.run",
    "punctual.cli.attach",
    "punctual.controllers.remaining_cost",
    "punctual.policies.promises_first",
    "punctual.policies.proportional",
    "punctual.service.app",
    "punctual.store.postgresql",
    "pydantic.dataclasses",
    "pydantic.type_adapter",
)
REQUEST_BYTES_MAX = 200_000


def serve(control: socket.socket) -> list[str] | None:
    """Fork what is asked for; returns in each command, with its arguments, and at the end, with none."""
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
        text, (*outputs, status), _, _ = receive(control)
        if not text:
            return None
        pid = os.fork()
        if pid == 0:
            selector.close()
            for end in (control, wakes, wake, *statuses.values()):
                end.close()
            os.close(status)
            return become(json.loads(text), outputs)
        for output in outputs:
            os.close(output)
        statuses[pid] = socket.socket(fileno=status)
        statuses[pid].send(str(pid).encode())


def receive(control: socket.socket) -> tuple[bytes, list[int], int, object]:
    """A request and its three descriptors; at the end no text."""
    text, fds, flags, address = socket.recv_fds(control, REQUEST_BYTES_MAX, 3)
    return text, fds or [-1, -1, -1], flags, address


def reap(statuses: dict[int, socket.socket]) -> None:
    """Tell those who have asked for them how commands have ended."""
    for pid in list(statuses):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with statuses.pop(pid) as asker:
                asker.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, object], outputs: list[int]) -> list[str]:
    """Be as a process that was just started; the arguments."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, own in ((null, 0), (outputs[0], 1), (outputs[1], 2)):
        os.dup2(fd, own)
        os.close(fd)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.path[0] = str(request["folder"])
    return list(request["arguments"])  # type: ignore[call-overload]


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    arguments = serve(socket.socket(fileno=os.dup(0)))
    if arguments is not None:
        sys.argv[1:] = arguments
        runpy.run_module("punctual", run_name="__main__", alter_sys=True)
