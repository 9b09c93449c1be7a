"""Spans of OpenTelemetry for each decision of the policy and each job, from a host's journal."""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread

from opentelemetry.trace import StatusCode, Tracer

from punctual.core.commands import RejectJob, RequestPlan
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished, Message, PlanProposed
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.daemon.host import Host
from punctual.daemon.runs import messages_of
from punctual.history.decision_trace import decision_steps
from punctual.history.job import JobHistory
from punctual.history.run import RunSummary, history_of, series, summary
from punctual.journal.errors import StoreUnreachable
from punctual.journal.sqlite import About

_LOG = logging.getLogger(__name__)

Value = str | bool | int | float
#: Name, nanoseconds since 1970, and attributes.
SpanEvent = tuple[str, int, Mapping[str, Value]]

_ABOUT = About(kinds=tuple(kind.__name__ for kind in (RequestPlan, PlanProposed, JobFinished, JobFailed, RejectJob)))
#: Seconds between two looks at new messages.
_POLL_INTERVAL_S = 1.0


class SpanReader:
    """Makes spans of what a host writes into its journal, in a thread of its own, while it is entered.

    What a job did is read once the job has ended, so nothing is kept of jobs that run, and a job that was submitted to an
    earlier host has its whole span.
    """

    def __init__(self, host: Host, tracer: Tracer) -> None:
        self._host, self._tracer = host, tracer
        #: Number of the first message that was not read.
        self._sequence = host.n_written + 1
        self._asked_at: float | None = None
        self._is_ending = Event()
        self._thread = Thread(target=self._read, name="punctual-spans", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._is_ending.wait(_POLL_INTERVAL_S):
            self._look()
        self._look()

    def _look(self) -> None:
        """Tell of what was written since the last look; where the journal cannot be read now, at a later one."""
        n_written = self._host.n_written
        if n_written < self._sequence:
            return
        # The last two: no descriptor is free just now.
        with suppress(InvalidSpec, OSError, sqlite3.Error), self._host.run_folder.read_journal() as journal:
            for number, message in journal.read_from(self._sequence, _ABOUT):
                try:
                    self._tell_of(message)
                except StoreUnreachable:
                    raise
                except InvalidSpec:
                    pass  # the messages of this job are gone
                except Exception:  # noqa: BLE001 -- nothing is told of this one; of those after it it is
                    _LOG.exception("no span could be made of a message")
                self._sequence = number + 1
            self._sequence = max(self._sequence, n_written + 1)

    def _tell_of(self, message: Message) -> None:
        if isinstance(message, RequestPlan):
            self._asked_at = message.at
        elif isinstance(message, PlanProposed):
            self._tell_plan(message)
        elif (job := ended_by(message)) is not None:
            self._tell_job(job)

    def _tell_job(self, job: JobId) -> None:
        history = history_of(messages_of(self._host.run_folder, [job]), job)
        told = summary(history)
        span = (self._ns(told.submitted_at), self._ns(told.ended_at or told.submitted_at))
        error = "" if told.status in ("finished", "stopped") else told.cause or str(told.status)
        self._tell("job", span, _attributes(told), self._events(history), error=error)

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
