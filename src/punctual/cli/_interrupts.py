"""Handling of Ctrl-C and other signals in a command that runs jobs to their ends."""

import signal
from contextlib import AbstractContextManager
from types import FrameType

from punctual.daemon.detached import caught
from punctual.daemon.follower import JobFollower

#: Signals by which the jobs of a command are asked to end: a terminal, a user, and a batch system before its limit of time.
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU)
#: Signals that are the jobs' own, as a batch system sends them before its limit of time.
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Interrupts:
    """Handler of signals: the first asks this command's jobs to end, the second ends them.

    Signals are caught from before the host is there until after it is cleared away, so that none of them can leave half
    of it behind. Those that are the jobs' own are passed on to them.
    """

    def __init__(self) -> None:
        self._host: JobFollower | None = None
        self.received: int | None = None

    def pass_on_to(self, host: JobFollower) -> None:
        """Pass `host` signals from now on, and one that has come already."""
        self._host = host
        if self.received is not None:
            self._stop_all(host, self.received)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_own, is_first = number in _PASSED_ON, self.received is None
        if not is_own:
            self.received = self.received or number
        if self._host is None:
            return
        if is_own:
            for job in self._host.jobs:
                self._host.signal(job, number)
        elif is_first:
            self._stop_all(self._host, number)
        else:
            self._kill_all(self._host)

    def _stop_all(self, host: JobFollower, number: int) -> None:
        for job in host.jobs:
            host.stop(
                job,
                "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name,
                interrupts=number == signal.SIGINT,
            )

    def _kill_all(self, host: JobFollower) -> None:
        for job in host.jobs:
            host.kill(job)

    def caught(self) -> AbstractContextManager[None]:
        return caught(self, (*_STOPPING, *_PASSED_ON))
