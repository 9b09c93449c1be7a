"""Return what a journal says that must not be, after its host, its service or its jobs were disturbed."""

from collections.abc import Iterator, Sequence

from _faults_training import Job

from punctual.core.commands import RequestPlan, WarnUser
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    PlanProposed,
    SpecChanged,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.core.protocols import Message
from punctual.core.resources import total

#: Of sums of cores.
ROUNDING_CORES = 1e-6


def faults_of_job(name: str, job: Job, messages: Sequence[Message], n_killed: int) -> Iterator[str]:
    """Return what is wrong about a job that lost so many processes: it must end once, and as if nothing had been killed."""
    ends = [i for i, message in enumerate(messages) if ended_by(message) == name]
    if not ends:
        yield "lost: it has not ended"
        return
    if len(ends) > 1:
        yield f"ended {len(ends)} times"
    if any(isinstance(message, JobStarted) and message.job == name for message in messages[ends[0] :]):
        yield "started after its end"
    if isinstance(messages[ends[0]], JobFinished) != (job.ends == "finished"):
        yield f"{messages[ends[0]]}"
    n_retries = sum(_is_retry(message, name) for message in messages)
    n_crashes = int(job.crashes_at is not None)
    if job.ends == "finished" and not n_crashes - n_killed <= n_retries <= n_crashes + n_killed:
        yield f"retried {n_retries} times, {n_crashes} without kills, and {n_killed} of its processes were killed"
    changes = [message.spec for message in messages if isinstance(message, SpecChanged) and message.spec.id == name]
    if len(changes) > (job.moves is not None):
        yield f"its deadline was moved {len(changes)} times: the host had forgotten it"
    yield from (f"its deadline was moved to {spec.deadline_s}" for spec in changes if spec.deadline_s != job.moved_s)


def _is_retry(message: Message, name: str) -> bool:
    return isinstance(message, WarnUser) and message.job == name and message.reason.code == "retried"


def faults_of_promises(messages: Sequence[Message]) -> list[str]:
    """Return promises that are forgotten, or contradict the deadline that was known of.

    A promise holds until its job ends or is to stop, its deadline is moved or has come, or the job is told that it is lost.
    """
    faults, promised = [], dict[str, float]()
    due_at: dict[str, float] = {}
    asked: dict[int, dict[str, float]] = {}
    submitted_at: dict[str, float] = {}
    for message in messages:
        if isinstance(message, JobSubmitted | SpecChanged):
            name = message.spec.id
            submitted_at.setdefault(name, message.at)
            due_at.pop(name, None)
            promised.pop(name, None)
            if message.spec.deadline_s is not None:
                due_at[name] = submitted_at[name] + message.spec.deadline_s
        elif isinstance(message, RequestPlan):
            asked[message.revision] = dict(due_at)
        elif (ended := message.job if isinstance(message, StopRequested) else ended_by(message)) is not None:
            promised.pop(ended, None)
            due_at.pop(ended, None)
        elif isinstance(message, PlanProposed) and message.plan is not None and message.plan.promises is not None:
            told, known = {str(job): at for job, at in message.plan.promises.items()}, asked.get(message.revision, {})
            faults += [
                f"job '{name}' was promised {at:.3f}, and plan {message.revision} does not know of it"
                for name, at in promised.items()
                if told.get(name) != at and message.at < at and not _is_told(message, name)
            ]
            current = {name: at for name, at in told.items() if abs(at - due_at.get(name, -1.0)) < 1e-6}
            faults += [
                f"job '{name}' is promised {at:.3f} by plan {message.revision} and due at {known[name]:.3f}"
                for name, at in told.items()
                if name not in current and name in known and known[name] == due_at.get(name)
            ]
            promised = current
    return faults


def n_promises_of(messages: Sequence[Message]) -> int:
    """Return how many plans have told of promises."""
    return sum(
        isinstance(message, PlanProposed) and message.plan is not None and bool(message.plan.promises)
        for message in messages
    )


def _is_told(event: PlanProposed, name: str) -> bool:
    """Whether the plan tells the job that its promise is lost."""
    reason = event.plan.warnings.get(JobId(name)) if event.plan is not None else None
    return reason is not None and reason.code == "promise-lost"


def faults_of_grants(messages: Sequence[Message], capacity_cores: float) -> Iterator[str]:
    """Return grants that gave out more than the machine has. A new host may find more: nobody had held jobs to their quotas."""
    granted: dict[str, float] = {}
    for message in messages:
        before = sum(granted.values())
        if isinstance(message, SteeringResumed):
            granted = {job: total(allocation.values()).cores for job, allocation in message.granted.items()}
        elif isinstance(message, JobStarted | GrantApplied | GrantFailed):
            granted[message.job] = total(message.granted.values()).cores
            if sum(granted.values()) > max(before, capacity_cores) + ROUNDING_CORES:
                yield f"{sum(granted.values()):.3f} of {capacity_cores:g} cores were granted, by {message}"
        elif isinstance(message, JobFinished | JobFailed):
            granted.pop(message.job, None)
