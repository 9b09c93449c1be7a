"""Listeners: functions that are told each message."""

import logging
from collections.abc import Callable
from typing import TypeVar

from punctual.core.protocols import Message

_LOG = logging.getLogger(__name__)

Listener = Callable[[Message], None]
_Told = TypeVar("_Told")


def logged(listener: Callable[[_Told], None]) -> Callable[[_Told], None]:
    """Wrap a listener so that its exceptions are logged and never raised: no view may cost a job its deadline.

    It is told a message, or all that were written together, of which the last one is named. Each kind of failure is logged once, or a log would grow with every message.
    """
    failures: set[tuple[type, type]] = set()

    def call(told: _Told) -> None:
        try:
            listener(told)
        except Exception as error:  # noqa: BLE001 -- see above
            message = told[-1] if isinstance(told, list) else told
            kind = type(message), type(error)
            if kind not in failures:
                failures.add(kind)
                _LOG.exception("a listener failed on %s", type(message).__name__)

    return call
