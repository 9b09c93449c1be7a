"""Spans of OpenTelemetry for each decision of the policy and each job, from a host's messages."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from threading import Event, Thread

from opentelemetry.trace import StatusCode, Tracer

from punctual.core.commands import RejectJob, RequestPlan
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished, PlanProposed
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.core.protocols import Message
from punctual.daemon.local_host import LocalHost
from punctual.daemon.runs import messages_of
from punctual.history.decision_trace import decision_steps
from punctual.history.job import JobHistory
from punctual.history.run import RunSummary, history_of, series, summary
from punctual.journal.errors import StoreUnreachable

_LOG = logging.getLogger(__name__)

Value = str | bool | int | float
#: Name, nanoseconds since 1970, and attributes.
SpanEvent = tuple[str, int, Mapping[str, Value]]

_KINDS = (RequestPlan, PlanProposed, JobFinished, JobFailed, RejectJob)
#: Seconds between two looks at new messages.
_POLL_INTERVAL_S = 1.0


class SpanReader:
    """Makes spans of a host's messages, in a thread of its own, while it is entered.

    What a job did is read from the journal once the job has ended, so nothing is kept of jobs that run, and a job that
    was submitted to an earlier host has its whole span.
    """

    def __init__(self, host: LocalHost, tracer: Tracer) -> None:
        self._host, self._tracer = host, tracer
        # Messages that wait for the next look: the oldest are dropped.
        self._messages: deque[Message] = deque(maxlen=10_000)
        #: The last messages about jobs of which nothing was told yet.
        self._ends: dict[JobId, Message] = {}
        self._asked_at: float | None = None
        self._is_ending = Event()
        self._thread = Thread(target=self._read, name="punctual-spans", daemon=True)

    def take(self, message: Message) -> None:
        """Queue a message: the steering thread does no more than that."""
        if isinstance(message, _KINDS):
            self._messages.append(message)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._is_ending.wait(_POLL_INTERVAL_S):
            self._look()
        self._look()

    def _tell_ends(self) -> None:
        for job, end in list(self._ends.items()):
            try:
                history = history_of(messages_of(self._host.run_folder, [job]), job)
            except StoreUnreachable:  # to ask for each job would take as long each time
                return
            except InvalidSpec:  # its messages are gone
                del self._ends[job]
                continue
            if history.end is not None and history.end.at == end.at:  # otherwise the journal has not the end yet
                told = summary(history)
                span = (self._ns(told.submitted_at), self._ns(told.ended_at or told.submitted_at))
                self._tell(
                    "job",
                    span,
                    _attributes(told),
                    self._events(history),
                    error="" if told.status in ("finished", "stopped") else told.cause or str(told.status),
                )
                del self._ends[job]

    def _look(self) -> None:
        while self._messages:
            message = self._messages.popleft()
            if isinstance(message, RequestPlan):
                self._asked_at = message.at
            elif isinstance(message, PlanProposed):
                self._tell_plan(message)
            else:
                self._note_end(message)
        try:
            self._tell_ends()
        except Exception:  # noqa: BLE001 -- nothing is told of these jobs; of those after them it is
            self._ends.clear()
            _LOG.exception("no spans could be made of jobs that have ended")

    def _note_end(self, message: Message) -> None:
        job = ended_by(message)
        if job is not None:
            self._ends[job] = message
        # Ends that wait for a readable journal.
        while len(self._ends) > 1000:
            del self._ends[next(iter(self._ends))]

    def _tell_plan(self, event: PlanProposed) -> None:
        from_at = event.at if self._asked_at is None else min(self._asked_at, event.at)
        plan, self._asked_at = event.plan, None
        said: dict[str, Value | None] = {
            "punctual.plan.revision": event.revision,
            "punctual.plan.policy": self._host.policy,
            "punctual.plan.status": None if plan is None else plan.status,
            "punctual.plan.jobs": None if plan is None else len(plan.grants),
            "punctual.plan.objective": None if plan is None else plan.objective,
            "punctual.plan.bound": None if plan is None else plan.bound,
        }
        self._tell("plan", (self._ns(from_at), self._ns(event.at)), said, error=event.cause)

    def _events(self, history: JobHistory) -> list[SpanEvent]:
        """Return a job's events. If a span has too many, the SDK drops the first: changes of grants come first."""
        since = history.submitted_at
        told: list[SpanEvent] = [
            (link.kind, self._ns(since + link.elapsed_s), {"text": link.text}) for link in decision_steps(history)
        ]
        phases: list[SpanEvent] = [
            ("phase", self._ns(since + phase.from_s), {"name": phase.name, "seconds": phase.until_s - phase.from_s})
            for phase in series(history).phases
        ]
        milestones = (("started", history.started_at), ("landed", history.landed_at))
        reached: list[SpanEvent] = [(name, self._ns(at), {}) for name, at in milestones if at is not None]
        grants = [event for event in told if event[0] == "grant"]
        return [*grants, *phases, *reached, *(event for event in told if event[0] != "grant")]

    def _tell(
        self,
        name: str,
        between: tuple[int, int],
        said: Mapping[str, Value | None],
        events: Sequence[SpanEvent] = (),
        *,
        error: str,
    ) -> None:
        attributes = {key: value for key, value in said.items() if value is not None}
        span = self._tracer.start_span(name, start_time=between[0], attributes=attributes)
        for what, at_ns, facts in events:
            span.add_event(what, facts, at_ns)
        if error:
            span.set_status(StatusCode.ERROR, error)
        span.end(between[1])

    def _ns(self, at: float) -> int:
        return int(self._host.clocks().wall_of(at).timestamp() * 1e9)


def _attributes(summary: RunSummary) -> dict[str, Value | None]:
    return {
        "punctual.job.name": summary.job,
        "punctual.job.status": summary.status,
        "punctual.job.exit_code": summary.exit_code,
        "punctual.job.controller": summary.controller or None,
        "punctual.job.deadline_seconds": summary.deadline_s,
        "punctual.job.deviation_seconds": summary.deviation_s,
        "punctual.job.on_time": summary.on_time,
        "punctual.job.steps": summary.steps_done,
        "punctual.job.used_core_seconds": summary.used_core_s,
        "punctual.job.granted_core_seconds": summary.granted_core_s,
        "punctual.job.resizes": summary.n_resizes,
    }
