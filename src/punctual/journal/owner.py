"""Ownership of a journal: one process at a time writes it."""

import os
import secrets
import select
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from punctual.journal.boot import boot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that writes a journal.

    * `token`: secret of this claim, stored in the file only; each claim of a process has its own.
    * `start_ticks`: clock ticks from boot to the process's start, which tell it from a later one with the same id.
    """

    pid: int
    start_ticks: int
    boot_id: str
    machine: str
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def may_live(self) -> bool:
        """Whether the process may still write: it lives, or its machine cannot be checked from here."""
        if self.boot_id == boot_id():
            return start_ticks(self.pid) == self.start_ticks
        return self.machine != os.uname().nodename

    def is_stopped(self) -> bool:
        """Whether the process lives on this machine and is stopped, by a signal or a debugger."""
        return self.boot_id == boot_id() and self.may_live() and _status(self.pid)[0] in {"T", "t"}

    def kill(self) -> None:
        """Kill the process if it lives on this machine and is not this one; returns once it is gone."""
        if self.boot_id != boot_id() or self.pid == os.getpid():
            return
        with suppress(ProcessLookupError):
            process = os.pidfd_open(self.pid)
            try:
                if self.may_live():  # asked once nobody else can get its number
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    poll = select.poll()
                    poll.register(process, select.POLLIN)
                    # Longest wait for the end of a killed process, in milliseconds.
                    poll.poll(10_000)
            finally:
                os.close(process)


def this_process() -> Owner:
    """The calling process, with a new token."""
    pid = os.getpid()
    return Owner(pid=pid, start_ticks=start_ticks(pid) or 0, boot_id=boot_id(), machine=os.uname().nodename)


def start_ticks(pid: int) -> int | None:
    """Return the start of process `pid`, in clock ticks since boot; None if it does not exist or has ended."""
    state, *fields = _status(pid)
    return None if state in {"", "Z", "X"} else int(fields[18])


def _status(pid: int) -> list[str]:
    """Return the fields of the kernel's status of process `pid`, from its state on."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [""]
    return status.rpartition(")")[2].split()  # the name before may hold spaces and brackets
