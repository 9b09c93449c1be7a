"""How a process of Punctual writes its log."""

import logging
from typing import Any

from punctual.request.words import visible


class LogFormatter(logging.Formatter):
    """Writes each record on a line of its own, whatever is in it, and a traceback indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- as logging has it
        """The record without its traceback."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The traceback."""
        return "\n".join(f"    {visible(line)}" for line in super().formatException(ei).split("\n"))


def log_to_stderr(layout: str) -> None:
    """Have warnings, and what is worse, written to standard error in this layout, unless a log is set up already."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(layout))
    logging.basicConfig(handlers=[handler])
