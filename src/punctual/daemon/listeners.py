"""Listeners: functions that are told each message."""

import logging
from collections.abc import Callable

from punctual.core.protocols import Message

_LOG = logging.getLogger(__name__)

Listener = Callable[[Message], None]


def logged(listener: Listener) -> Listener:
    """Wrap a listener so that its exceptions are logged and never raised: no view may cost a job its deadline.

    Each kind of failure is logged once, or a log would grow with every message.
    """
    failures: set[tuple[type, type]] = set()

    def call(message: Message) -> None:
        try:
            listener(message)
        except Exception as error:  # noqa: BLE001 -- see above
            kind = type(message), type(error)
            if kind not in failures:
                failures.add(kind)
                _LOG.exception("a listener failed on %s", type(message).__name__)

    return call
