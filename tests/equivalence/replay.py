"""From a journal to the scheduler that wrote it."""

from collections.abc import Callable, Sequence

from punctual.core.events import Event
from punctual.core.protocols import Journal, Listener
from punctual.core.scheduler import Scheduler


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
