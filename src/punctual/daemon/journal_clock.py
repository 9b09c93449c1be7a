"""Time of a journal, which continues where it stopped even if the machine was restarted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from punctual.core.cluster import Snapshot
from punctual.core.commands import JobCommand
from punctual.core.events import Event
from punctual.core.ids import JobId
from punctual.core.instants import moved
from punctual.core.protocols import Executor, Sink
from punctual.core.quoting import Quote, QuoteRequest
from punctual.daemon.mailbox import Mailbox
from punctual.daemon.planner import QuotingPlanner

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

    def stamped(self, planner: QuotingPlanner) -> QuotingPlanner:
        """Wrap `planner`, which uses the monotonic clock, to use the journal's time."""
        return _ClockShiftedPlanner(planner, self) if self.shift_s else planner

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


class _ClockShiftedPlanner:
    """Stamps plans with the journal's time on arrival."""

    def __init__(self, planner: QuotingPlanner, time: Mailbox) -> None:
        self._planner = planner
        self._time = time

    def use(self, policy: str, parameters: Mapping[str, Any]) -> None:
        self._planner.use(policy, parameters)

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        self._planner.request(snapshot, lambda plan: sink(replace(plan, at=self._time.now())))

    def quote(self, request: QuoteRequest, limit_s: float) -> Quote:
        return self._planner.quote(request, limit_s)  # its instants are those of the snapshot
