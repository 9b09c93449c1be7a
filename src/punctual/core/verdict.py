"""A job's standing against its deadline, as one word and in seconds."""

from dataclasses import dataclass
from typing import Literal

from punctual.core.control import INTERVAL_SIGMAS, Forecast
from punctual.core.status import JobStatus

#: *met*, *missed*: the job has landed in time, or cannot any more. *infeasible*: its controller says that it will be late
#: whatever it is given. *at_risk*: it may be. *on_track*: neither.
Verdict = Literal["on_track", "at_risk", "infeasible", "met", "missed"]

#: *late*, *risk*, *good*: it runs, and its forecast says so. *measuring*: it runs, and no forecast can be believed yet.
#: *free*: it runs without a deadline. *waiting*, *paused*; and how it ended: *met*, *missed*, *done* (without a
#: deadline), *failed*, *stopped*.
JobKind = Literal[
    "late", "risk", "good", "measuring", "free", "waiting", "paused", "met", "missed", "done", "failed", "stopped"
]


@dataclass(frozen=True, slots=True)
class RemainingTime:
    """Seconds until a job lands: expected, and the ends of an interval that holds the truth in nine of ten cases."""

    expected_s: float
    low_s: float
    high_s: float


def remaining_time(status: JobStatus, at: float) -> RemainingTime | None:
    """Return the remaining time of a job from instant `at` on; None if it has ended, or no forecast can be believed yet.

    A forecast is founded on steps that the job has made at a known speed.
    """
    if status.landed:
        return RemainingTime(0.0, 0.0, 0.0)
    if status.ended or status.forecast is None or not _is_measured(status, status.forecast, at):
        return None
    expected_s = status.submitted_at + status.forecast.finish_s - at
    spread_s = INTERVAL_SIGMAS * status.forecast.std_s
    return RemainingTime(max(0.0, expected_s), max(0.0, expected_s - spread_s), max(0.0, expected_s + spread_s))


def _is_measured(status: JobStatus, forecast: Forecast, at: float) -> bool:
    if not status.done_frac or not status.rate_sps:
        return False
    n_left = max(0.0, (status.steps_expected or status.steps_total or 0.0) - status.steps_done)
    # A job that uses less than half of its grant, and does not wait for its pacing line, goes no faster with a larger one:
    # a forecast by which it goes twice as fast as it does is none. Within a second of its landing the speed of the last
    # seconds says nothing more.
    is_idle = status.usage_cores < 0.5 * status.held.cores and not status.is_held_back
    left_s = status.submitted_at + forecast.finish_s - at
    return not (is_idle and left_s < n_left / status.rate_sps / 2.0 - 1.0)


def slack_s(status: JobStatus, at: float) -> float | None:
    """Seconds between the earliest landing, as seen at instant `at`, and the deadline; of a landed job, how early it was.

    Negative if late. None without a deadline, after a failure, or while nothing is known.
    """
    if status.deadline_at is None:
        return None
    if status.landed_at is not None:
        return status.deadline_at - status.landed_at
    if status.ended or status.forecast is None:
        return None
    return status.deadline_at - (status.submitted_at + status.forecast.earliest_finish_s + _stood_s(status, at))


def _stood_s(status: JobStatus, at: float) -> float:
    """Seconds by which a job that holds nothing will land later than its last forecast said."""
    return 0.0 if status.granted or status.forecast_at is None else max(0.0, at - status.forecast_at)


def verdict(status: JobStatus, at: float) -> Verdict | None:
    """Return the job's standing against its deadline at instant `at`.

    None if it has no deadline, no forecast yet, or has ended without landing, which its state says.
    A failed job counts as missed from its deadline on; a job that was stopped or turned away never does.
    """
    deadline_at, forecast = status.deadline_at, status.forecast
    if deadline_at is None:
        return None
    if status.landed_at is not None:
        return "met" if status.landed_at <= deadline_at else "missed"
    if status.state in ("stopped", "turned away"):
        return None
    if at > deadline_at:
        return "missed"
    if status.ended or forecast is None:
        return None
    if not forecast.feasible:
        return "infeasible"
    spread_s, deadline_s = INTERVAL_SIGMAS * forecast.std_s, deadline_at - status.submitted_at
    # At full speed it may be late; or it goes so slowly that it is late unless something changes.
    earliest_s = forecast.earliest_finish_s + _stood_s(status, at)
    may_be_late = earliest_s + spread_s > deadline_s or forecast.finish_s - spread_s > deadline_s
    return "at_risk" if may_be_late else "on_track"
