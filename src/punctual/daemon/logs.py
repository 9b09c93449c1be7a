"""Log format of Punctual's processes."""

import logging
import sys
from typing import Any

from punctual.executors.local.output import write_or_discard
from punctual.request.words import visible


def write_error(*lines: str) -> None:
    """Write lines to standard error at once; after a failure later lines are dropped."""
    write_or_discard(sys.stderr, 2, "".join(f"{visible(line)}\n" for line in lines))


class LogFormatter(logging.Formatter):
    """Writes each record on one line, whatever it contains, and a traceback indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- as logging has it
        """Format the record without its traceback."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Format the traceback."""
        return "\n".join(f"    {visible(line)}" for line in super().formatException(ei).split("\n"))


def log_to_stderr(layout: str) -> None:
    """Log warnings and errors to standard error in this format, unless logging is set up already."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(layout))
    logging.basicConfig(handlers=[handler])
