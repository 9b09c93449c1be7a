"""Choose the messages of the past that need not be kept.

Messages before a snapshot are not folded again; `punctual why`, `punctual report` and the metrics read them.
Nearly all of them repeat the same: a timer came due, a step more is done.

=================================== ============================================================================
messages                            what is kept of them
=================================== ============================================================================
timers, requests for a plan         nothing
plans                               those that failed, and those with a bound that led to a kept command
reports of progress, phases, losses the first and the last of each stretch between a start, a decision and an end;
                                    those that say something else than steps (a landing, another total); of all
                                    others so many that the time between two is 0.5 % of the job's age, between 5
                                    and 300 s
commands that change no grant       as many as of reports, and their answers
everything else                     all of it
=================================== ============================================================================

So the times and amounts of all grants, starts, ends, warnings and changes of the deadline are exact, and with them every
integral of a grant; curves of progress and usage are coarser.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: A message as it is stored: number, kind and text.
Row = tuple[int, str, str]

#: Kinds that tell nothing once they are in a snapshot.
_TIMERS = {"TimerFired", "RequestPlan"}
_REPORTS = {"ProgressReported", "PhaseReported", "LossReported"}
#: Kinds of messages that begin or end a stretch of a job's reports.
_TURNS = {"JobStarted", "JobFinished", "JobFailed", "LaunchJob"}
_ENDS = {"JobFinished", "JobFailed", "RejectJob"}
#: After messages of these kinds nothing is known of what jobs hold but what these say.
_UPHEAVALS = {"SteeringResumed", "NodeLost"}
#: Fields that change in each report and carry no news.
_COUNTS = ("at", "steps_done", "unit_at", "used_core_s", "in_flight_core_s")

#: Time between two reports that are kept, as a share of the job's age, and its limits in seconds.
SPACING_FRAC, SPACING_S_MIN, SPACING_S_MAX = 0.005, 5.0, 300.0


@dataclass(slots=True)
class _Stretch:
    """Reports of one kind about one job."""

    since: float
    kept_at: float | None = None
    #: The last report that was left out; it is kept if the stretch ends here.
    pending: int | None = None
    says: object = None

    def keeps(self, at: float, says: object) -> bool:
        """Whether to keep a report at that instant; `says`: its contents beside counts."""
        spacing_s = min(max(SPACING_S_MIN, SPACING_FRAC * (at - self.since)), SPACING_S_MAX)
        if self.kept_at is not None and says == self.says and at - self.kept_at < spacing_s:
            return False
        self.kept_at, self.says = at, says
        return True


@dataclass(slots=True)
class _JobThinning:
    """State of the thinning for one job."""

    since: float
    stretches: dict[str, _Stretch] = field(default_factory=dict)
    #: Its last request, and its last known grant.
    asked: object = None
    held: object = None
    #: Numbers of requests whose answers are kept.
    requests: set[int] = field(default_factory=set)

    def stretch(self, kind: str) -> _Stretch:
        return self.stretches.setdefault(kind, _Stretch(self.since))


class CompactionRules:
    """Reads a journal from its beginning, piece by piece, and says what may go.

    It remembers where stretches of reports begin; begun in the middle of a journal, it keeps some messages more.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _JobThinning] = {}
        self._removed: list[int] = []
        #: The last plan with a bound, as long as no command that it led to was kept.
        self._plan: int | None = None

    def take(self, rows: Iterable[Row]) -> list[int]:
        """Numbers of the messages that may be removed, of these rows and of earlier ones."""
        for number, kind, text in rows:
            self._take(number, kind, text)
        removed, self._removed = self._removed, []
        return removed

    def _take(self, number: int, kind: str, text: str) -> None:
        if kind in _TIMERS:
            self._removed.append(number)
            return
        message = json.loads(text)
        if kind == "PlanProposed":
            self._planned(number, message)
        elif kind in _REPORTS:
            stretch = self._job(message).stretch(kind)
            # Reports of phases and losses are new each time, like counts.
            is_count = kind == "ProgressReported"
            says = {name: value for name, value in message.items() if name not in _COUNTS} if is_count else None
            if stretch.pending is not None and says == stretch.says:
                self._removed.append(stretch.pending)
            stretch.pending = None if stretch.keeps(message["at"], says) else number
        elif kind == "ResizeJob":
            self._asked(number, message)
        elif kind in {"GrantApplied", "GrantFailed"}:
            self._answered(number, kind, message)
        elif kind in _TURNS or kind in _ENDS:
            self._turned(kind, message)
        elif kind in _UPHEAVALS:
            for job in self._jobs.values():
                self._decided(job)
                job.asked = job.held = None

    def _planned(self, number: int, message: dict[str, Any]) -> None:
        if self._plan is not None:
            self._removed.append(self._plan)
            self._plan = None
        plan = message["plan"]
        if plan is None:
            return
        if plan.get("bound") is None:
            self._removed.append(number)
        else:
            self._plan = number

    def _asked(self, number: int, message: dict[str, Any]) -> None:
        job = self._job(message)
        stretch = job.stretch("ResizeJob")
        if message["grant"] == job.asked and not stretch.keeps(message["at"], None):
            self._removed.append(number)
            return
        self._decided(job)
        job.asked, stretch.kept_at = message["grant"], message["at"]
        job.requests.add(message["request"])
        self._plan = None

    def _answered(self, number: int, kind: str, message: dict[str, Any]) -> None:
        job = self._job(message)
        is_kept = message["request"] in job.requests
        job.requests -= {request for request in job.requests if request <= message["request"]}
        if kind == "GrantApplied" and message["granted"] == job.held and not is_kept:
            self._removed.append(number)
        job.held = message["granted"]

    def _turned(self, kind: str, message: dict[str, Any]) -> None:
        job = self._job(message)
        self._decided(job)
        job.asked, job.held = message.get("grant", job.asked), message.get("granted", job.held)
        for stretch in job.stretches.values():
            stretch.kept_at = None
        if kind == "LaunchJob":
            self._plan = None
        if kind in _ENDS:
            del self._jobs[message["job"]]

    def _decided(self, job: _JobThinning) -> None:
        """The last report before a decision is what it rested on."""
        for stretch in job.stretches.values():
            stretch.pending = None

    def _job(self, message: dict[str, Any]) -> _JobThinning:
        return self._jobs.setdefault(message["job"], _JobThinning(since=message["at"]))
