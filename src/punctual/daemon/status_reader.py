"""Queries about a scheduler's jobs, answered from a status board in any process, and its listeners."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from punctual.core.cluster import Node
from punctual.core.control import Forecast
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.status import JobStatus, StatusBoard
from punctual.core.verdict import remaining_time
from punctual.history.judge import NO_WAIT, Wait, headline, judge
from punctual.request.deadlines import Now, moved_deadline_s, timed

_LOG = logging.getLogger(__name__)

_Told = TypeVar("_Told")


def logged(listener: Callable[[_Told], None]) -> Callable[[_Told], None]:
    """Wrap a listener so that its exceptions are logged and never raised: no view may cost a job its deadline.

    The listener gets a message, or a list of all that were written together, of which a failure names the last. Each kind of
    failure is logged once, or a log would grow with every message.
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


class StatusReader(ABC):
    """Answers questions about jobs from `board`, and passes messages to listeners."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._listeners: list[tuple[Callable[[Any], None], tuple[type[Message], ...]]] = []

    @abstractmethod
    def now(self) -> float:
        """Present instant on the clock of messages."""

    def clocks(self) -> Now:
        """Present instant on the clock of messages and on the wall clock."""
        return Now(self.now(), datetime.now().astimezone())

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return the statuses of all jobs, recently ended ones included, in order of submission."""
        return self._board.jobs()

    def subscribe(self, listener: Callable[[Any], None], *kinds: type[Message]) -> None:
        """Call `listener` with each message from now on, in the reading thread, once `status` reflects the message.

        `kinds`: only with messages of these; empty: with all.
        """
        self._listeners.append((listener, kinds))

    def nodes(self) -> tuple[Node, ...]:
        """Return the present nodes in order of their ids."""
        return self._board.nodes()

    def status(self, job: JobId) -> JobStatus:
        """Return the job's status; raises `InvalidSpec` if no such job is known, or its submission is still unread."""
        try:
            return self._board.job(job)
        except KeyError:
            raise InvalidSpec(
                "there must be a job of that name", f"'{job}'", "this host", "See `punctual ps` for what runs."
            ) from None

    def moved_deadline_s(self, job: JobId, when: str, now: Now) -> float:
        """Convert a deadline that a user writes as `when` to seconds from the job's submission.

        Raises `InvalidSpec` as `punctual.request.deadlines.moved_deadline_s` does.
        """
        status = self.status(job)
        return moved_deadline_s(
            when,
            started_at=status.submitted_at,
            present_s=status.spec.deadline_s,
            job=status.id,
            now=now,
        )

    def knows(self, job: JobId) -> bool:
        """Whether the job's submission has been processed."""
        return self._board.knows(job)

    def has_ended(self, job: JobId) -> bool:
        """Whether the job is known and has ended."""
        with suppress(KeyError):  # another thread may have it forgotten just now
            return self._board.job(job).ended
        return False

    def _tell(self, message: Message) -> None:
        for listener, kinds in self._listeners:
            if not kinds or isinstance(message, kinds):
                listener(message)


def forecast_in(standing: Mapping[str, Any]) -> tuple[Forecast | None, float | None]:
    """Return a job's forecast, and the steps that it is expected to take in all, as its host says; None: not known.

    The journal does not have them.
    """
    steps = standing.get("steps_expected") or standing.get("steps_total")
    if standing.get("forecast_s") is None:
        return None, steps
    forecast = Forecast(
        finish_s=standing["forecast_s"],
        std_s=standing["forecast_std_s"],
        earliest_finish_s=standing["earliest_finish_s"],
        feasible=standing["feasible"],
    )
    return forecast, steps


def measured(status: JobStatus) -> dict[str, Any]:
    """Encode the figures of the job that change while it runs; seconds count from its submission."""
    forecast = status.forecast
    return {
        "steps_done": float(status.steps_done),
        "steps_total": None if status.steps_total is None else float(status.steps_total),
        "steps_expected": status.steps_expected,
        "progress_frac": status.done_frac,
        "landed": status.landed,
        "grant_cores": status.held.cores,
        "nodes": sorted(status.granted),
        "n_workers": status.n_workers or None,
        "usage_cores": status.usage_cores,
        "used_core_s": status.used_core_s,
        "memory_bytes": status.memory_bytes,
        "peak_memory_bytes": status.peak_memory_bytes,
        "asked_memory_bytes": status.spec.ceiling.memory_bytes,
        "waits": status.reason.text if status.state == "queued" and status.reason is not None else "",
        "budget_usd": status.spec.budget_usd,
        "deadline_s": status.spec.deadline_s,
        "forecast_s": forecast.finish_s if forecast else None,
        "forecast_std_s": forecast.std_s if forecast else None,
        "earliest_finish_s": forecast.earliest_finish_s if forecast else None,
        "feasible": forecast.feasible if forecast else None,
    }


def received(standing: dict[str, Any]) -> dict[str, Any]:
    """Return a standing that another process sent, with the instants in its texts as clocks here show them."""
    return {**standing, **{name: timed(standing[name]) for name in ("phrase", "headline")}}


def standing(
    status: JobStatus,
    now: Now,
    wait: Wait = NO_WAIT,
    *,
    most_cores: float | None = None,
    is_promised: bool = False,
    is_sent: bool = False,
) -> dict[str, Any]:
    """Encode the job's status as plain fields; seconds count from its submission.

    * `wait`: what it waits for.
    * `most_cores`, `is_promised`: as `punctual.history.judge.headline` takes them.
    * `is_sent`: whether another process, perhaps in another zone, shows it: its texts have instants with their offsets
      then.
    """
    time_text = now.iso if is_sent else now.clock
    deadline_at, began_at = status.deadline_at, status.submitted_at
    judged, remaining = judge(status, now.at, time_text, wait), remaining_time(status, now.at)
    lands = None if remaining is None or status.landed else remaining

    def since(at: float | None) -> float | None:
        return None if at is None else at - began_at

    return {
        "job": status.id,
        "state": status.display_state,
        **asdict(judged),
        "headline": headline(status, judged, now.at, time_text, most_cores=most_cores, is_promised=is_promised),
        "submitted_wall": now.wall_of(began_at).isoformat(timespec="seconds"),
        "argv": [] if status.program is None else list(status.program.argv),
        "cause": status.cause,
        "elapsed_s": since(now.at if status.ended_at is None else status.ended_at),
        "deadline_wall": None if deadline_at is None else now.wall_of(deadline_at).isoformat(),
        "left_s": None if deadline_at is None or status.ended else deadline_at - now.at,
        "started_s": since(status.started_at),
        "starts_s": since(wait.starts_at),
        "landed_s": since(status.landed_at),
        "lands_s": None if lands is None else since(now.at + lands.expected_s),
        "lands_low_s": None if lands is None else since(now.at + lands.low_s),
        "lands_high_s": None if lands is None else since(now.at + lands.high_s),
        **measured(status),
        **({} if wait.unbought is None else {"waits": wait.unbought.text}),
    }
