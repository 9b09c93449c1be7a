"""Notices: the changes of jobs that somebody who does not look wants to be told of."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.core.verdict import verdict
from punctual.request.words import short

NoticeKind = Literal["at-risk", "late", "stalled", "failed", "landed"]

#: Notice of a running job by its verdict; a job that has no verdict yet, or is on track, makes none.
_BY_VERDICT: Mapping[str | None, NoticeKind] = {"at_risk": "at-risk", "infeasible": "late", "missed": "late"}


@dataclass(frozen=True, slots=True)
class JobNotice:
    """A change of one job, as a kind for programs and a text for people."""

    job: JobId
    kind: NoticeKind
    text: str


def notices(known: Mapping[JobId, NoticeKind | None], jobs: Iterable[JobStatus], at: float) -> Iterator[JobNotice]:
    """Yield a notice for each job whose kind differs from the one last known.

    Parameters
    ----------
    known
        Kind of each job at the last call, by `kind_of`; a job that is not there makes no notice, whatever it is.
    at
        Present instant.
    """
    for status in jobs:
        kind = kind_of(status, at)
        if kind is not None and status.id in known and known[status.id] != kind:
            yield JobNotice(status.id, kind, f"{status.id} {_text(status, kind, at)}")


def kind_of(status: JobStatus, at: float) -> NoticeKind | None:
    """Return the notice that a job's present standing is worth; None: it is as it should be, or was ended by its user."""
    if status.landed_at is not None:
        return "landed"
    if status.ended:
        return "failed" if status.state == "failed" else None
    if status.display_state == "stalled":
        return "stalled"
    return _BY_VERDICT.get(verdict(status, at))


def _text(status: JobStatus, kind: NoticeKind, at: float) -> str:
    """Return the notice's text after the job's name."""
    deadline_at, forecast = status.deadline_at, status.forecast
    match kind:
        case "landed" if deadline_at is not None and status.landed_at is not None:
            early_s = deadline_at - status.landed_at
            return f"landed {short(abs(early_s))} {'before' if early_s >= 0 else 'after'} its deadline"
        case "landed":
            return "landed"
        case "failed":
            return f"failed: {status.cause}" if status.cause else "failed"
        case "stalled":
            return "makes no steps any more"
        case "at-risk":
            return "may miss its deadline"
        case "late" if deadline_at is not None and at <= deadline_at and forecast is not None:
            late_s = status.submitted_at + forecast.earliest_finish_s - deadline_at
            return f"will be late: {short(late_s)} after its deadline" if 0 < late_s < inf else "will be late"
        case "late":
            return "is late: its deadline has passed"
