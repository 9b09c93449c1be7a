"""The chain behind each change of a job's grant: reading, demand with its reason, request, grant."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, StopJob, WarnUser
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    PlanProposed,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
    told_by,
)
from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobSpec
from punctual.core.lifecycle import about, end_state, ended_by
from punctual.core.protocols import Message
from punctual.core.resources import total
from punctual.core.status import n_workers_of
from punctual.history.decisions import gap_frac
from punctual.history.user_requests import told_request
from punctual.request.words import cores, holding, proven, short, steps


@dataclass(slots=True)
class DecisionStep:
    """One event in a job's history, with the facts that led to it; seconds count from the job's submission."""

    elapsed_s: float
    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)

    def copied(self) -> "DecisionStep":
        """Return a copy; a later answer changes a link."""
        return DecisionStep(self.elapsed_s, self.kind, self.text, dict(self.facts))


class DecisionTrace:
    """History of `job` with its reasons in `links`, oldest first: give it each message, in the journal's order.

    Parameters
    ----------
    every
        Also record commands that changed only the pacing line; almost every tick has one.
    """

    def __init__(self, job: JobId, *, every: bool = False) -> None:
        self._job, self._every = job, every
        self._submitted_at = 0.0
        self._spec: JobSpec | None = None
        #: Whether messages about all jobs concern it: it was submitted, and has not ended.
        self._is_open = False
        self._reading: ProgressReported | None = None
        self._asked: dict[int, DecisionStep] = {}
        self._asked_cores: float | None = None
        self._gap_frac: float | None = None
        self.links: list[DecisionStep] = []

    def take(self, message: Message) -> None:
        """Fold the next message; ignore those about other jobs, and those about all jobs while this one is absent."""
        subject = about(message)
        if subject not in (self._job, None) or (subject is None and not self._is_open):
            return
        match message:
            case JobSubmitted():
                self._submitted(message)
            case ProgressReported():
                self._reading = message
            case PlanProposed(plan=plan):
                self._gap_frac = None if plan is None else gap_frac(plan)
            case LaunchJob() | ResizeJob():
                self._ask(message)
            case (
                JobStarted(request=request, granted=granted, at=at)
                | GrantApplied(request=request, granted=granted, at=at)
            ):
                self._answer(request, f"given {self._amount(granted)}", at)
            case GrantFailed(request=request, cause=cause, at=at):
                self._answer(request, f"not given ({cause})", at)
            case _:
                self._tell_event(message)
        if ended_by(message) == self._job:
            self._is_open = False

    def _submitted(self, event: JobSubmitted) -> None:
        self._submitted_at, self._spec, self._is_open = event.at, event.spec, True
        deadline_s = event.spec.deadline_s
        goal = f"with a deadline {short(deadline_s)} after its start" if deadline_s else "without a deadline"
        ceiling, controller = cores(event.spec.ceiling.cores), event.spec.controller
        by = f" {told_by(event.by)}" if event.by else ""
        text = f"the job was submitted{by} {goal}, at most {ceiling}, steered by {controller}"
        if event.spec.after:
            text += f", to run after {', '.join(event.spec.after)}"
        self._add(event.at, "submitted", text, by=event.by)

    def _ask(self, command: LaunchJob | ResizeJob) -> None:
        wanted = total(command.grant.values()).cores
        if wanted == self._asked_cores and not self._every:  # only the pacing line is new
            return
        self._asked_cores = wanted
        verb = "launch with" if isinstance(command, LaunchJob) else "resize to"
        text = f"{self._read()}{command.reason.text}: asked to {verb} {self._amount(command.grant)}"
        text += proven(self._gap_frac)
        facts = {"code": command.reason.code, "asked_cores": wanted, "facts": dict(command.reason.facts)}
        link = self._add(command.at, "grant", text, **facts)
        self._asked[command.request] = link

    def _amount(self, grant: Allocation) -> str:
        n_workers = n_workers_of(self._spec, grant) if self._spec is not None else 0
        return holding(total(grant.values()).cores, n_workers)

    def _read(self) -> str:
        reading = self._reading
        if reading is None:
            return ""
        done = steps(reading.steps_done, reading.steps_total)
        return f"at {done} with {reading.used_core_s:.1f} core-seconds used, "

    def _answer(self, request: int, text: str, at: float) -> None:
        link = self._asked.pop(request, None)
        if link is not None:
            after_s = at - self._submitted_at - link.elapsed_s
            link.text += f"; {text} after {short(max(0.0, after_s))}"
            link.facts["answer"] = text

    def _tell_event(self, message: Message) -> None:
        match message:
            case SteeringResumed(at=at, lost_at=lost_at):
                text = f"it is steered again, after {short(at - lost_at)} in which nobody did"
                self._add(at, "resumed", text, unsteered_s=at - lost_at)
            case WarnUser(reason=reason):
                self._add(message.at, "warning", reason.text, code=reason.code, facts=dict(reason.facts))
            case StopJob(cause=cause):
                self._add(message.at, "stop", f"asked to stop: {cause}")
            case JobFinished(landed_at=landed_at):
                landed_s = landed_at - self._submitted_at
                self._add(message.at, "finished", f"the job finished; it had landed at {short(landed_s)}")
            case JobFailed(cause=cause, exit_code=exit_code, is_lost=True):
                self._add(message.at, "failed", f"its process is gone: {cause}", exit_code=exit_code)
            case JobFailed(cause=cause, exit_code=exit_code):
                self._end(message, cause, exit_code=exit_code)
            case RejectJob(reason=reason):
                self._end(message, reason.text, code=reason.code, facts=dict(reason.facts))
            case _:
                self._tell_request(message)

    def _end(self, message: JobFailed | RejectJob, cause: str, **facts: Any) -> None:
        """Record an end without success, or a failure before another launch."""
        state = end_state(message) or "failed"
        self._add(message.at, state, f"the job {'' if state == 'failed' else 'was '}{state}: {cause}", **facts)

    def _tell_request(self, message: Message) -> None:
        """Record a user's request."""
        request = told_request(message, self._spec)
        if request is not None:
            self._add(message.at, request.kind, request.text, **request.facts)
        if isinstance(message, SpecChanged):
            self._spec = message.spec

    def _add(self, at: float, kind: str, text: str, **facts: Any) -> DecisionStep:
        link = DecisionStep(at - self._submitted_at, kind, text, facts)
        self.links.append(link)
        return link


def chain(messages: Iterable[Message], job: JobId, *, every: bool = False) -> list[DecisionStep]:
    """The links of `DecisionTrace` after all of `messages`."""
    chain = DecisionTrace(job, every=every)
    for message in messages:
        chain.take(message)
    return chain.links
