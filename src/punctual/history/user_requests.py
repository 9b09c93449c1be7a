"""Users' requests about running jobs, as text and as plain fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from punctual.core import events
from punctual.core.events import Message
from punctual.core.job import JobSpec
from punctual.core.units import counted, span
from punctual.request.words import cores


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A user's request: a word for its subject, a sentence, and its contents (plain values)."""

    kind: str
    text: str
    facts: dict[str, Any]


def user_request(message: Message, before: JobSpec | None) -> UserRequest | None:
    """Return the user's request in `message`; `before`: the job's declaration until then (None: unknown).

    None: it is no request of a user, or one to stop that the command to stop already reports.
    """
    match message:
        case events.SpecChanged():
            return _changed(message, before)
        case events.PauseRequested(cause=cause, by=by):
            return UserRequest("pause", message.text(), {"cause": cause, "by": by})
        case events.ResumeRequested(by=by):
            return UserRequest("resume", f"resumed {events.by_user(by)}", {"by": by})
        case events.PolicyChanged():
            return _policy(message)
        case events.StopRequested(cause=cause, by=by) if by:  # that it was asked to stop is told anyway
            return UserRequest("stop", f"to be stopped {events.by_user(by)}: {cause}", {"by": by})
    return None


def policy_text(policy: str, parameters: Mapping[str, Any]) -> str:
    """Return a policy with its parameters as text."""
    made_with = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f"{policy} ({made_with})" if made_with else policy


def _policy(event: events.PolicyChanged) -> UserRequest:
    now = policy_text(event.policy, event.parameters)
    text = f"the policy was changed {events.by_user(event.by)}: now {now}, before {event.before or 'another one'}"
    facts = {"policy": event.policy, "parameters": event.parameters, "before": event.before, "by": event.by}
    return UserRequest("policy", text, facts)


def _changed(event: events.SpecChanged, before: JobSpec | None) -> UserRequest:
    spec, by = event.spec, events.by_user(event.by)
    said: list[str] = []
    facts: dict[str, Any] = {}
    if before is None or spec.deadline_s != before.deadline_s:
        now = f"{span(spec.deadline_s)} after the start" if spec.deadline_s else "none"
        said.append(f"the deadline was changed {by}: now {now}")
        facts["deadline_s"] = spec.deadline_s
    if before is not None and spec.weight != before.weight:
        said.append(f"the weight was changed {by}: now {spec.weight:g}")
        facts["weight"] = spec.weight
    if before is not None and (spec.floor, spec.ceiling, spec.counts) != (before.floor, before.ceiling, before.counts):
        bounds = f"{cores(spec.floor.cores)} to {cores(spec.ceiling.cores)}"
        if counts := spec.worker_counts():
            bounds = f"{counts[0]} to {counted(counts[-1], 'worker')}"
        said.append(f"what it may have was changed {by}: now {bounds}")
        facts |= {"floor_cores": spec.floor.cores, "ceiling_cores": spec.ceiling.cores}
    if before is not None and spec.budget_usd != before.budget_usd:
        said.append(
            f"the budget was changed {by}: now {'none' if spec.budget_usd is None else f'${spec.budget_usd:g}'}"
        )
        facts["budget_usd"] = spec.budget_usd
    kind = "deadline" if list(facts) == ["deadline_s"] else "change"
    return UserRequest(kind, "; ".join(said) or "nothing was changed", {**facts, "by": event.by})
