"""Decision trace: each change of a job's grant with what led to it: reading, demand with its reason, request, grant."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from punctual.core import events
from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, StopJob, WarnUser
from punctual.core.events import Message
from punctual.core.job import Allocation, JobSpec
from punctual.core.lifecycle import end_state
from punctual.core.resources import total
from punctual.core.status import OVER, n_workers_of
from punctual.core.units import span
from punctual.history.job import JobHistory, TracedMessage
from punctual.history.user_requests import user_request
from punctual.request.words import cores, holding, proven, steps

#: Codes of warnings that make a job late or at risk as long as they are in force.
_AGAINST_THE_DEADLINE = {"infeasible", "deadline-passed", "stalled"}


@dataclass(slots=True)
class DecisionStep:
    """One event in a job's history, with the facts that led to it; seconds count from the job's submission."""

    elapsed_s: float
    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)


def decision_steps(history: JobHistory, n_steps: int | None = None, *, every: bool = False) -> list[DecisionStep]:
    """Return the last `n_steps` steps of a history with curves, oldest first; None: all.

    Parameters
    ----------
    every
        Also commands that changed only the pacing line; almost every tick has one.
    """
    return [step for _, step in islice(_latest_first(history, every=every), n_steps)][::-1]


def decisive_step(history: JobHistory) -> DecisionStep | None:
    """Return the step that explains how the job stands now; None: nothing has happened.

    Of a job that is late or at risk that is the warning in force, otherwise its end, or the last change of its grant or
    of what it waits for.
    """
    if history.end is None and (warning := _warning_in_force(history)) is not None:
        return _step(warning, history)
    submitted = None
    for message, step in _latest_first(history):
        if _changes_the_standing(message):
            return step
        submitted = step
    return submitted


def _latest_first(history: JobHistory, *, every: bool = False) -> Iterator[tuple[Message, DecisionStep]]:
    """Yield messages with their steps, the latest first."""
    assert history.curves is not None
    #: Answers to commands that are left out because they repeat an earlier one, by request.
    answers: dict[int, events.GrantAnswer] = {}
    for traced in reversed(history.curves.trace):
        if not isinstance(traced.message, LaunchJob | ResizeJob):
            step = _step(traced, history)
        elif traced.repeats and not every:
            if traced.answer is not None:
                answers[traced.message.request] = traced.answer
            continue
        else:
            answer = traced.answer or answers.pop(traced.message.request, None)
            step = _grant(traced, traced.message, answer, history)
        if step is not None:
            yield traced.message, step


def _warning_in_force(history: JobHistory) -> TracedMessage | None:
    """Return the last warning against the deadline that nothing has revoked since."""
    assert history.curves is not None
    is_at_work = history.granted and history.landed_at is None
    over = set() if is_at_work else {"infeasible", "stalled"}
    for traced in reversed(history.curves.trace):
        match traced.message:
            case WarnUser(reason=reason) if reason.code in _AGAINST_THE_DEADLINE - over:
                return traced
            case WarnUser(reason=reason) if reason.code in OVER:
                over.add(OVER[reason.code])
            case events.SpecChanged(spec=spec) if traced.spec is not None and spec.deadline_s != traced.spec.deadline_s:
                over.add("deadline-passed")
            case events.JobFailed() | LaunchJob():  # another process is measured for itself
                over.add("stalled")
    return None


def _changes_the_standing(message: Message) -> bool:
    if isinstance(message, WarnUser):
        return message.reason.code == "waits"
    commands = LaunchJob | ResizeJob | StopJob | RejectJob
    return isinstance(message, commands | events.PauseRequested | events.JobFailed | events.JobFinished)


def _grant(
    traced: TracedMessage, command: LaunchJob | ResizeJob, answer: events.GrantAnswer | None, history: JobHistory
) -> DecisionStep:
    reading, read = traced.reading, ""
    if reading is not None:
        done = steps(reading.steps_done, reading.steps_total)
        read = f"at {done} with {reading.used_core_s:.1f} core-seconds used, "
    verb = "launch with" if isinstance(command, LaunchJob) else "resize to"
    text = f"{read}{command.reason.text}: asked to {verb} {_amount(traced.spec, command.grant)}"
    text += proven(traced.gap_frac)
    asked_cores = total(command.grant.values()).cores
    facts = {"code": command.reason.code, "asked_cores": asked_cores, "facts": dict(command.reason.facts)}
    if answer is not None:
        told = f"given {_amount(traced.spec, answer.granted)}"
        if isinstance(answer, events.GrantFailed):
            told = f"not given ({answer.cause})"
        text += f"; {told} after {span(max(0.0, answer.at - command.at))}"
        facts["answer"] = told
    return DecisionStep(command.at - history.submitted_at, "grant", text, facts)


def _amount(spec: JobSpec | None, grant: Allocation) -> str:
    n_workers = n_workers_of(spec, grant) if spec is not None else 0
    return holding(total(grant.values()).cores, n_workers)


def _step(traced: TracedMessage, history: JobHistory) -> DecisionStep | None:
    """Return the step of a message that asks for no grant; None: a message of its own says as much."""
    message, since_at = traced.message, history.submitted_at

    def step(kind: str, text: str, facts: dict[str, Any]) -> DecisionStep:
        return DecisionStep(message.at - since_at, kind, text, facts)

    match message:
        case events.JobSubmitted(by=by):
            return step("submitted", _submitted(message), {"by": by})
        case events.SteeringResumed(at=at, lost_at=lost_at):
            text = f"it is steered again, after {span(at - lost_at)} in which nobody did"
            return step("resumed", text, {"unsteered_s": at - lost_at})
        case WarnUser(reason=reason):
            return step("warning", reason.text, {"code": reason.code, "facts": dict(reason.facts)})
        case StopJob(cause=cause, moves=False):
            return step("stop", f"asked to stop: {cause}", {})
        case events.JobFinished(landed_at=landed_at):
            return step("finished", f"the job finished; it had landed at {span(landed_at - since_at)}", {})
        case events.JobFailed() | RejectJob():
            return step(*_failed(message))
    request = user_request(message, traced.spec)
    return None if request is None else step(request.kind, request.text, request.facts)


def _failed(message: events.JobFailed | RejectJob) -> tuple[str, str, dict[str, Any]]:
    """Return kind, text and facts of an end without success, or of a failure before another launch."""
    if isinstance(message, events.JobFailed) and message.is_lost:
        return "failed", f"its process is gone: {message.cause}", {"exit_code": message.exit_code}
    if isinstance(message, events.JobFailed) and message.is_stopped and message.retryable:
        return "moved", f"it has left its node: {message.cause}", {"exit_code": message.exit_code}
    state = end_state(message) or "failed"
    verb = "the job" if state == "failed" else "the job was"
    if isinstance(message, events.JobFailed):
        return state, f"{verb} {state}: {message.cause}", {"exit_code": message.exit_code}
    reason = message.reason
    return state, f"{verb} {state}: {reason.text}", {"code": reason.code, "facts": dict(reason.facts)}


def _submitted(event: events.JobSubmitted) -> str:
    spec = event.spec
    goal = f"with a deadline {span(spec.deadline_s)} after its start" if spec.deadline_s else "without a deadline"
    by = f" {events.by_user(event.by)}" if event.by else ""
    after = f", to run after {', '.join(spec.after)}" if spec.after else ""
    at_most = f"at most {cores(spec.ceiling.cores)}, steered by {spec.controller}{after}"
    return f"the job was submitted{by} {goal}, {at_most}"
