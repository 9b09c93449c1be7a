"""Limit of log lines that others cause: callers of the service, or a collector that does not answer."""

import logging
import time
from collections.abc import Callable
from math import inf


class LogLimit(logging.Filter):
    """Passes a record of each place in the code once in `period_s` seconds, with the number left out since.

    * `period_s`: seconds between two lines from one place in the code.
    * `untraced`: exceptions that are told in the line itself, without their traceback.
    """

    def __init__(
        self,
        period_s: float = 60.0,
        *,
        untraced: tuple[type[BaseException], ...] = (BaseException,),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._period_s, self._untraced, self._now = period_s, untraced, now
        #: Instant of each place's last record, and the number left out since.
        self._passed: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is written."""
        error = record.exc_info[1] if record.exc_info else None
        # Not by its text, of which a caller could make as many as it likes.
        place = (record.name, record.pathname, record.lineno, type(error))
        now = self._now()
        passed_at, n_left_out = self._passed.get(place, (-inf, 0))
        if now < passed_at + self._period_s:
            self._passed[place] = (passed_at, n_left_out + 1)
            return False
        self._passed[place] = (now, 0)
        text = record.getMessage().rstrip()
        if isinstance(error, self._untraced):
            record.exc_info = None
            text = f"{text}: {error}"
        record.msg = f"{text} ({n_left_out:,} more like this since the last line)" if n_left_out else text
        record.args = ()
        return True
