"""Notices: the changes of jobs that somebody who does not look wants to be told of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.history.judge import kind_of

NoticeKind = Literal["at-risk", "late", "stalled", "failed", "landed"]

#: Seconds in which a job makes one notice of a kind at most: a forecast may waver about its deadline for long.
_AGAIN_S = 600.0


@dataclass(slots=True)
class NoticeFilter:
    """Finds the changes that are worth a notice, each once.

    Attributes
    ----------
    known
        Kind of each job of the last look, by `notice_kind`.
    """

    known: dict[JobId, NoticeKind | None] = field(default_factory=dict)
    _made_at: dict[tuple[JobId, NoticeKind], float] = field(default_factory=dict)

    def changes(self, jobs: Sequence[JobStatus], at: float) -> Iterator[tuple[JobStatus, NoticeKind | None, bool]]:
        """Yield each job that stands otherwise than at the last look: its kind, and whether that is worth a notice."""
        present = {status.id for status in jobs}
        self.known = {job: kind for job, kind in self.known.items() if job in present}
        self._made_at = {made: made_at for made, made_at in self._made_at.items() if made_at > at - _AGAIN_S}
        for status in jobs:
            kind, job = notice_kind(status, at), status.id
            if job in self.known and self.known[job] == kind:
                continue
            self.known[job] = kind
            is_news = kind is not None and (job, kind) not in self._made_at
            if is_news and kind is not None:
                self._made_at[job, kind] = at
            yield status, kind, is_news


def notice_kind(status: JobStatus, at: float) -> NoticeKind | None:
    """Return the notice that a job's present standing is worth; None: it is as it should be, or its user ended it."""
    if status.landed_at is not None:
        return "landed"
    if status.display_state == "stalled":
        return "stalled"
    match kind_of(status, at):
        case "late" | "failed" as kind:
            return kind
        case "risk":
            return "at-risk"
    return None
