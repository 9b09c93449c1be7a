"""Jobs of the daemon, followed in another process by the daemon's journal and answers."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import inf
from typing import Any

from punctual.core.control import Demand, Forecast
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.core.recent_messages import Reason
from punctual.core.resources import NOTHING
from punctual.core.status import StatusBoard
from punctual.daemon.control_socket import ControlBusy, ControlFailed, ask
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.status_reader import StatusReader, received
from punctual.journal.boot import clock_shift
from punctual.journal.errors import StoreUnreachable
from punctual.journal.state import loads

#: Seconds between two queries to the host; and seconds that an answer may take.
_ASK_S, _ANSWER_S_MAX = 1.0, 4.0
#: A host that has not answered for so long is stopped or hangs. Longer than what its jobs' supervisors wait for.
SILENT_S = 10.0

_TOLD = Reason("told", "the host says so")


class ToldForecasts:
    """Forecasts from the host's last answer; the journal does not have them."""

    def __init__(self) -> None:
        self._told: Mapping[str, Mapping[str, Any]] = {}

    def take(self, standings: Sequence[Mapping[str, Any]]) -> None:
        """Store the host's forecast of each job."""
        self._told = {str(standing["job"]): standing for standing in standings}

    def told(self, job: JobId) -> Mapping[str, Any]:
        """Return how the host says that the job stands; empty: it has not said so."""
        return self._told.get(job, {})

    def demand(self, job: JobId) -> Demand | None:
        """Return a demand that carries only the forecast; None: no forecast is known."""
        told = self.told(job)
        if told.get("forecast_s") is None:
            return None
        forecast = Forecast(
            finish_s=told["forecast_s"],
            std_s=told["forecast_std_s"],
            earliest_finish_s=told["earliest_finish_s"],
            feasible=told["feasible"],
        )
        return Demand(resources=NOTHING, next_tick_s=_ASK_S, reason=_TOLD, forecast=forecast)

    def steps_total(self, job: JobId) -> tuple[float | None, float]:
        told = self.told(job)
        return told.get("steps_expected") or told.get("steps_total"), 0.0


class FollowedHost(StatusReader):
    """Jobs of the daemon: their status comes from its journal, forecasts from its answers.

    The journal is the same whoever writes it, so the display goes on when another process becomes the daemon.

    Parameters
    ----------
    jobs
        Jobs to follow; messages about others are not read. None: all.
    waits
        Whether this process starts the next daemon if no other does; False: it only watches.
    """

    def __init__(self, run: RunFolder, jobs: Sequence[JobId] | None, *, waits: bool = True) -> None:
        self.run_folder = run
        self._jobs = None if jobs is None else tuple(jobs)
        self._forecasts = ToldForecasts()
        super().__init__(StatusBoard(self._forecasts))
        self._ask_at = -inf
        self._answered_at = time.monotonic()
        #: Instant of the last message that was read.
        self._last_at = 0.0
        #: Last messages about jobs that have ended, which the journal does not have yet.
        self.unwritten: dict[JobId, tuple[Event, ...]] = {}
        with ExitStack() as closing:
            self._journal = closing.enter_context(run.read_journal())
            if waits:
                closing.enter_context(run.followed())
            self._shift_s = clock_shift(self._journal)
            self._next = self._begin()
            self._closing = closing.pop_all()

    def close(self) -> None:
        """Stop following; a second call does nothing."""
        self._closing.close()

    def now(self) -> float:
        """Present instant on the clock of messages."""
        return time.monotonic() - self._shift_s

    def told(self, job: JobId) -> Mapping[str, Any]:
        """Return how the job stood at the host's last answer; empty: it was not in it."""
        return self._forecasts.told(job)

    def look(self) -> None:
        """Read new messages of the journal, and query the host now and then."""
        with suppress(StoreUnreachable):  # what is in it is told once it is back
            self._read()
        if time.monotonic() >= self._ask_at:
            self.ask()

    def ask(self) -> bool:
        """Query the host for the jobs' status; return whether it answered."""
        try:
            request = {"verb": "status", "jobs": None if self._jobs is None else list(self._jobs)}
            self._forecasts.take(list(map(received, ask(self.run_folder.socket, request, _ANSWER_S_MAX)["jobs"])))
        except ControlBusy:
            self._answered_at = time.monotonic()
            return False
        except ControlFailed:
            return False
        else:
            self._answered_at = time.monotonic()
            return True
        finally:
            self._ask_at = time.monotonic() + _ASK_S

    def read_ends(self) -> None:
        """Read the ends that supervisors have recorded and no daemon could write, of jobs that are not started again."""
        from punctual.daemon.adoption import recorded_end  # most commands have no use for what it needs

        for status in [status for status in self.jobs() if not status.ended]:
            if (record := self.run_folder.end_record(status.id)) is None:
                continue
            report, end = recorded_end(status.id, record, shift_s=self._shift_s, at_least=self._last_at)
            if isinstance(end, JobFailed) and end.retryable:
                if status.spec.n_retries != 0 or end.out_of_memory or end.is_lost:
                    continue  # the next daemon may start it again
                end = replace(end, retryable=False)
            self.unwritten[status.id] = (end,) if report is None else (report, end)
            for event in self.unwritten[status.id]:
                self._board.fold(event)
                self._tell(event)

    def is_lost(self) -> bool:
        """Whether another process must take the host's place: it has left, was killed, or is silent for long."""
        return not self.run_folder.is_live() or time.monotonic() - self._answered_at > SILENT_S

    def is_there(self) -> bool:
        """Whether the host answers now."""
        return self.run_folder.is_live() and self.ask()

    def _begin(self) -> int:
        """Read the journal from the beginning of its state; return the number that follows its last message."""
        snapshot = self._journal.latest_snapshot()
        self._next = self._journal.begun_after + 1
        if snapshot is not None:
            with suppress(InvalidSpec):  # of another version: what there is of the messages says as much
                self._board.load(loads(snapshot[1])[1])
                self._next = snapshot[0] + 1
        self._read()
        return self._next

    def _read(self) -> None:
        last = self._journal.last_sequence
        journal, first = self._journal, self._next
        for number, message in journal.read_from(first) if self._jobs is None else journal.read_of(self._jobs, first):
            last, self._next, self._last_at = max(last, number), number + 1, message.at
            if (job := ended_by(message)) is not None and self.unwritten.pop(job, None) is not None:
                continue  # its end is known
            self._board.fold(message)
            self._tell(message)
        self._next = last + 1
