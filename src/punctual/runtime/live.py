"""The engine as it runs live."""

import logging
from collections.abc import Sequence

from punctual.core.protocols import Executor, Journal, Message
from punctual.core.scheduler import Scheduler
from punctual.runtime.engine import Engine, Listener, TimeSource
from punctual.runtime.mailbox import Mailbox
from punctual.runtime.planner import Planner

_LOG = logging.getLogger(__name__)


class LiveEngine(Engine):
    """An engine on the monotonic clock: `post` may be called from any thread, also from a signal's code.

    Parameters
    ----------
    listeners
        One that raises is logged, and called again with the next message.
    time
        None: a mailbox of its own.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        planner: Planner,
        journal: Journal,
        *,
        listeners: Sequence[Listener] = (),
        time: TimeSource | None = None,
    ) -> None:
        super().__init__(
            scheduler,
            executor,
            planner,
            time or Mailbox(),
            journal=journal,
            listeners=[_logged(listener) for listener in listeners],
        )


def _logged(listener: Listener) -> Listener:
    """A view that fails must not cost a job its deadline."""

    def call(message: Message) -> None:
        try:
            listener(message)
        except Exception:  # noqa: BLE001 -- see above
            _LOG.exception("a listener failed on %s", type(message).__name__)

    return call
