"""Transitions of a job's state, decided here for the scheduler and for all who follow its messages."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from punctual.core import commands, events
from punctual.core.commands import RejectJob
from punctual.core.ids import JobId
from punctual.core.job import Allocation, EndState, JobState

#: All kinds of messages, by name.
KINDS: Mapping[str, type[events.Message]] = {
    name: kind
    for name, kind in {**vars(events), **vars(commands)}.items()
    if isinstance(kind, type) and issubclass(kind, events.Message) and not kind.__subclasses__()
}
#: Number of ended jobs that are remembered; the name of a forgotten job may be used again.
N_ENDED_REMEMBERED = 1000

#: Kinds of messages with which a job may end.
ENDS = (events.JobFinished, events.JobFailed, RejectJob)
_WITH_SPEC = (events.JobSubmitted, events.SpecChanged)
#: Codes with which a `RejectJob` ends a job that was stopped, or that failed; with others it is turned away.
_STOPPED, _FAILED = {"stopped", "due"}, {"failed-again", "no-retries-left", "not-started", "out-of-memory"}


def after_answer(state: JobState, answer: events.GrantAnswer, granted: Allocation) -> JobState:
    """The state of a job in `state` once `answer` has said that it holds `granted`."""
    if isinstance(answer, events.JobStarted) and state in ("queued", "starting"):
        return "running" if granted else "paused"
    if isinstance(answer, events.GrantFailed) and state == "starting" and not granted:
        return "queued"
    if state in ("running", "paused"):
        return "running" if granted else "paused"
    return state


def found_again(state: JobState, granted: Allocation) -> JobState:
    """The state of a job in `state` whose process was found to hold `granted` when steering was resumed."""
    if state in ("running", "paused"):
        return "running" if granted else "paused"
    return "starting" if state == "queued" else state


def folds_in(methods: Mapping[str, Any]) -> dict[type, Callable[..., Any]]:
    """Return the methods that fold messages, by kind of message: that for `JobStarted` is named `_fold_job_started`.

    Raises `KeyError`: a method's name begins so, but there is no such kind.
    """
    kinds = {"_fold" + re.sub("([A-Z])", r"_\1", name).lower(): kind for name, kind in KINDS.items()}
    return {kinds[name]: method for name, method in methods.items() if name.startswith("_fold_")}


def about(message: events.Message) -> JobId | None:
    """Return the job that `message` concerns; None if it concerns all of them or none."""
    if isinstance(message, _WITH_SPEC):
        return message.spec.id
    return getattr(message, "job", None)


def end_state(message: events.Message) -> EndState | None:
    """Return the state in which `message` ends its job; None if the message ends no job.

    A failure that may be retried ends nothing: the job is launched again, or a `RejectJob` follows and says why not.
    """
    match message:
        case events.JobFinished():
            return "finished"
        case events.JobFailed(retryable=False, is_stopped=is_stopped):
            return "stopped" if is_stopped else "failed"
        case RejectJob(reason=reason):
            return "stopped" if reason.code in _STOPPED else "failed" if reason.code in _FAILED else "turned away"
    return None


def ended_by(message: events.Message) -> JobId | None:
    """Return the job that ends with `message`; None if none does."""
    return None if end_state(message) is None else about(message)
