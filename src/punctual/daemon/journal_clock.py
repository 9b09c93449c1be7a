"""Time of a journal, which continues where it stopped even if the machine was restarted."""

from typing import TypeVar

from punctual.core.commands import JobCommand
from punctual.core.events import Event
from punctual.core.ids import JobId
from punctual.core.instants import moved
from punctual.core.protocols import Executor, Sink
from punctual.daemon.mailbox import Mailbox

M = TypeVar("M")


class JournalClock(Mailbox):
    """Events and timers in the time of a journal: the monotonic clock minus `shift_s`.

    The shift is 0 for a journal that was begun since the machine was started.
    """

    def __init__(self, shift_s: float = 0.0) -> None:
        super().__init__()
        self.shift_s = shift_s

    def now(self) -> float:
        return super().now() - self.shift_s

    def to_machine(self, message: M) -> M:
        """Convert the instants of `message` from the journal's time to the monotonic clock."""
        return moved(message, self.shift_s)

    def from_machine(self, event: Event) -> None:
        """Enter an event with instants of the monotonic clock."""
        self.post(moved(event, -self.shift_s))

    def in_journal_time(self, executor: Executor) -> Executor:
        """Wrap `executor`, which uses the monotonic clock, to use the journal's time."""
        return _ClockShiftedExecutor(executor, self.shift_s) if self.shift_s else executor


class _ClockShiftedExecutor:
    """Converts the instants of commands and events between the two clocks."""

    def __init__(self, executor: Executor, shift_s: float) -> None:
        self._executor = executor
        self._shift_s = shift_s

    def perform(self, command: JobCommand, sink: Sink) -> None:
        self._executor.perform(moved(command, self._shift_s), self._received_by(sink))

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        self._executor.observe(job, at + self._shift_s, self._received_by(sink))

    def _received_by(self, sink: Sink) -> Sink:
        return lambda event: sink(moved(event, -self._shift_s))
