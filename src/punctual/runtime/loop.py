"""The loop that makes time pass for the scheduler."""

import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.events import Event, TimerFired
from punctual.core.protocols import Executor, Journal, Message
from punctual.core.scheduler import Scheduler
from punctual.runtime.clock import WaitingClock
from punctual.runtime.planner import Planner
from punctual.runtime.timers import Timers

Listener = Callable[[Message], None]

_LOG = logging.getLogger(__name__)


class Runtime:
    """Brings events to the scheduler, one at a time, and its commands to those who perform them.

    The order is always the same: handle the event; write it and the commands that follow from it into the journal;
    perform the commands; tell the listeners. Whoever performs a command answers by `post`, never by a return value.

    Parameters
    ----------
    listeners
        Called in the loop's thread with each message once it is in the journal. One that raises is logged, and
        called again with the next message.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        planner: Planner,
        journal: Journal,
        clock: WaitingClock,
        *,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._planner = planner
        self._journal = journal
        self._clock = clock
        self._listeners = tuple(listeners)
        self._timers = Timers()
        # The one queue whose `put` may also be called from a signal's code while the same thread waits in `get`.
        self._mailbox: SimpleQueue[Event] = SimpleQueue()

    def post(self, event: Event) -> None:
        """Give the loop an event; from any thread, also from a signal's code."""
        self._mailbox.put(event)

    def run(self, until: Callable[[], bool]) -> None:
        """Handle events until `until` holds; it is asked after every event and every timer.

        Raises
        ------
        InvalidSpec, InvariantBroken
            From the scheduler; the event that led to it is not in the journal.
        """
        while not until():
            event = self._clock.wait(self._mailbox, self._timers.next_at())
            if event is not None:
                self._deliver(event)
            self._fire_due()

    def _fire_due(self) -> None:
        now = self._clock.now()
        due = self._timers.pop_due(now)
        for timer in due:
            if (
                timer.kind == "tick"
            ):  # the answer is in the mailbox before the tick is: a tick decides on a fresh reading
                self._executor.observe(timer.job, now, self.post)
            self.post(TimerFired(at=now, timer=timer))

    def _deliver(self, event: Event) -> None:
        commands = self._scheduler.handle(event)
        self._journal.append([event, *commands])
        for command in commands:
            self._perform(command)
        for message in (event, *commands):
            self._tell(message)

    def _perform(self, command: Command) -> None:
        match command:
            case SetTimer():
                self._timers.set(command.timer, command.fire_at)
            case RequestPlan():
                self._planner.request(self._scheduler.snapshot(command.at), self.post)
            case LaunchJob() | ResizeJob() | StopJob():
                self._executor.perform(command, self.post)
            case RejectJob() | WarnUser():
                pass  # for listeners only

    def _tell(self, message: Message) -> None:
        for listener in self._listeners:
            try:
                listener(message)
            except Exception:  # noqa: BLE001 -- a view that fails must not cost the job its deadline
                _LOG.exception("a listener failed on %s", type(message).__name__)


def replay(
    journal: Journal, make_scheduler: Callable[[], Scheduler], *, listeners: Sequence[Listener] = ()
) -> Scheduler:
    """A scheduler in the state that the journal's events lead to.

    Parameters
    ----------
    make_scheduler
        Makes one with the same controllers, seed and periods as the one that wrote the journal.
    listeners
        Called with each message, commands included, as they were then.
    """
    scheduler = make_scheduler()
    for _, message in journal.read_from(1):
        if isinstance(message, Event):
            scheduler.handle(message)
        for listener in listeners:
            listener(message)
    return scheduler
