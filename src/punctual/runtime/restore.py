"""From a run whose host was killed, or hangs, to a host that goes on with its jobs."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import NodeJoined, ProgressReported, SteeringResumed
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.status import JobStatus
from punctual.core.story import Reason
from punctual.executors.local.actuator import Choice
from punctual.executors.local.executor import LocalExecutor, in_force
from punctual.executors.local.keeper_link import GUARD_S_MAX, LEASE_S, Kept, take_over
from punctual.executors.local.orphans import end_orphans, end_processes_of
from punctual.runtime.local_host import (
    HERE,
    HostOptions,
    HostState,
    LocalHost,
    OutputOf,
    capacity_here,
    local_executor,
    opened,
    tidying,
)
from punctual.runtime.restored_state import (
    STOPPED_UNSTEERED,
    missed_events,
    missed_submissions,
    record_ended,
    restored_state,
)
from punctual.runtime.run_folder import Run
from punctual.runtime.run_journal import host_journal
from punctual.store.stored import JournalBusy, StoredJournal
from punctual.wire import PageError

T = TypeVar("T")

_ADOPTED = Reason("adopted", "the job was running when its host was resumed")
_LOOK_S = 0.1
#: How long a keeper that has begun to clear up may take to end.
_CLEARING_S_MAX = 5.0


@contextmanager
def resumed_host(
    run: Run, *, output_of: OutputOf = lambda _: None, take: bool = False, is_service: bool = False
) -> Iterator[LocalHost]:
    """A host that goes on with the jobs of `run`: steers those that run, and starts the others from their checkpoints.

    Its state is the last snapshot and what the journal says since. Until that is there nothing is asked of any job,
    and each goes on as it was if this fails.

    Parameters
    ----------
    take
        Take the jobs also from a process that is still there: one that is stopped or hangs. It is killed if it was
        stopped while it wrote the journal: nobody else can write until it is gone.
    is_service
        Whether the host is to stay when its jobs have ended.

    Raises
    ------
    InvalidSpec
        All jobs have ended, another process steers them, or what they left cannot be used.
    """
    if not run.has_journal():
        raise InvalidSpec(
            "the run's journal must be there",
            "no such file",
            f"'{run.journal}'",
            "End its jobs (`punctual stop`): nobody can tell how they stand.",
        )
    with ExitStack() as ending:
        journal = ending.enter_context(_journal(run, take=take))
        state, last_at = restored_state(run, journal)
        record_ended(state)
        jobs = [status.id for status in state.board.jobs() if not status.ended]
        submissions = missed_submissions(state)
        if not jobs and not submissions:
            raise InvalidSpec(
                "only a job that has not ended can be steered",
                "one that has ended",
                f"job '{run.name}'",
                "See `punctual ps` for what runs, and whether it is steered.",
            )
        options = HostOptions(**run.record().get("options", {}))
        with ExitStack() as claims:
            # The socket is the last host's: with it, who looks now would take this one for a host that hangs.
            run.socket.unlink(missing_ok=True)
            kept = _claimed(run, jobs, claims)
            end_orphans()
            run.record_steering(is_service=is_service)
            executor = local_executor(run, journal, _actuator(kept, options), output_of)
            granted = _adopted(state, executor, kept)
            claims.pop_all()  # they are the executor's now
            executor.follow()
            for job in kept.keys() - granted.keys():
                kept[job].close()
        # Only now: until it was claimed a job may still have ended.
        events = [event for of_job in missed_events(state, last_at, granted) for event in of_job]
        ending.push(tidying(run))
        host = ending.enter_context(opened(state, executor, options.policy, take=take))
        for event in (*events, *_capacity_changed(state)):
            host.post(event)
        host.post(SteeringResumed(at=host.now(), lost_at=last_at, granted=granted))
        for job in granted:
            if run.jobs()[job] == "stopping":
                host.stop(job, STOPPED_UNSTEERED)
        for submission in submissions:
            host.resubmit(submission)
        yield host


def _journal(run: Run, *, take: bool) -> StoredJournal:
    try:
        return host_journal(run, take=take)
    except JournalBusy:
        if not take:
            raise
    run.kill_steering()
    return host_journal(run, take=take)


def _claimed(run: Run, jobs: list[JobId], claims: ExitStack) -> dict[JobId, Kept]:
    """The jobs that run on, which nobody else steers from now on; they are as they were when `claims` closes.

    Nothing is left of the others.

    Raises
    ------
    InvalidSpec
        Somebody else steers one.
    """
    kept: dict[JobId, Kept] = {}
    for job in jobs:
        claim = _claim(run, job)
        if claim is not None:
            kept[job] = claim
            claims.callback(claim.close)
    return kept


def _claim(run: Run, job: JobId) -> Kept | None:
    """None: the job has no process any more, and none that a stopped host was about to start will be."""
    address = run.takeover_socket(job)
    give_up_at = time.monotonic() + LEASE_S + 1.0
    while run.keeper_pid(job) is not None:  # it may be just ending, or wait for the word of a host that is stopped
        claim = take_over(address)
        if claim is not None:
            return claim
        if time.monotonic() > give_up_at:
            raise InvalidSpec(
                "only a job that nobody steers can be taken over", "one that another command has just taken over",
                f"job '{job}'", "See `punctual ps` for what runs, and whether it is steered.",
            )  # fmt: skip
        time.sleep(_LOOK_S)
    address.unlink(missing_ok=True)
    _await(lambda: not run.is_looked_after(job), GUARD_S_MAX)  # it ends what the keeper has left
    end_processes_of(address)
    return None


def _is_unkept(run: Run, job: JobId) -> bool:
    return run.keeper_pid(job) is None


def _await(look: Callable[[], T], most_s: float) -> T:
    """What `look` returns: the first that is true, or the last within `most_s` seconds."""
    give_up_at = time.monotonic() + most_s
    while not (seen := look()) and time.monotonic() < give_up_at:
        time.sleep(_LOOK_S)
    return seen


def _actuator(kept: dict[JobId, Kept], options: HostOptions) -> str | Choice:
    """What enforces grants: the same as before, where jobs run under it."""
    return next((in_force(claim.request.actuator) for claim in kept.values()), options.actuator)


def _adopted(state: HostState, executor: LocalExecutor, kept: dict[JobId, Kept]) -> dict[JobId, Allocation]:
    """Have the executor go on with the jobs that run; what each holds."""
    granted = {}
    for job, claim in kept.items():
        status = state.board.job(job)
        launch, latest = state.time.to_machine(_launch_of(status)), _latest_of(status)
        try:
            granted[job] = executor.take_over(
                claim, launch, None if latest is None else state.time.to_machine(latest), state.time.from_machine
            )
        except (OSError, PageError) as error:
            if _await(partial(_is_unkept, state.run, job), _CLEARING_S_MAX):
                continue  # its process has just ended
            raise InvalidSpec(
                "the job's page and control groups must be there for this user",
                str(error),
                f"job '{job}'",
                "Take it over as the user who started it; it goes on meanwhile.",
            ) from error
    return granted


def _launch_of(status: JobStatus) -> LaunchJob:
    """The command that would start the job as it is; commands that follow have higher numbers."""
    return LaunchJob(
        at=status.submitted_at,
        job=status.id,
        request=0,
        spec=status.spec,
        grant=status.granted,
        reason=status.reason or _ADOPTED,
        program=status.program,
        submitted_at=status.submitted_at,
    )


def _latest_of(status: JobStatus) -> ProgressReported | None:
    """What was last reported of the job's progress; None: nothing was."""
    if status.unit_at is None:
        return None
    return ProgressReported(
        at=status.unit_at,
        job=status.id,
        steps_done=status.steps_done,
        steps_total=status.steps_total,
        unit_at=status.unit_at,
        used_core_s=status.used_core_s,
        landed=status.landed,
    )


def _capacity_changed(state: HostState) -> list[NodeJoined]:
    """What is to be told of this machine, if it has not what it had."""
    known = {node.id: node.capacity for node in state.board.nodes()}
    capacity = capacity_here()
    return [] if known.get(HERE) == capacity else [NodeJoined(at=state.time.now(), node=HERE, capacity=capacity)]
