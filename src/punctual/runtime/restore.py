"""From a run whose host was killed, or hangs, to a host that goes on with its jobs."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, NodeJoined, ProgressReported, SteeringResumed
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.status import JobStatus
from punctual.core.story import Reason
from punctual.executors.local import LocalExecutor
from punctual.executors.local.actuator import Choice
from punctual.executors.local.executor import in_force
from punctual.executors.local.keeper import GRACE_S
from punctual.executors.local.keeper_link import LEASE_S, Kept, take_over, takeover_socket_of
from punctual.runtime.journal_time import JournalTime
from punctual.runtime.local_host import (
    HERE,
    HostOptions,
    HostState,
    LocalHost,
    OutputOf,
    capacity_here,
    local_executor,
    new_state,
    opened,
    tidying,
)
from punctual.runtime.run_folder import Run
from punctual.runtime.sweeping import end_event, unheard_ends
from punctual.store.boot import clock_shift
from punctual.store.sqlite import SqliteJournal
from punctual.wire import PageError

T = TypeVar("T")

_ADOPTED = Reason("adopted", "the job was running when its host was resumed")
_LOOK_S = 0.1
#: How long the end of a job may take whose keeper was killed, if the keeper's guard is there to see to it.
_ENDING_S_MAX = GRACE_S + 5.0


@contextmanager
def resumed_host(run: Run, *, output_of: OutputOf = lambda _: None, take: bool = False) -> Iterator[LocalHost]:
    """A host that goes on with the jobs of `run`: steers those that run, and starts the others from their checkpoints.

    Its state is the last snapshot and what the journal says since. Until that is there nothing is asked of any job,
    and each goes on as it was if this fails.

    Parameters
    ----------
    take
        Take the jobs also from a process that is still there: one that is stopped or hangs.

    Raises
    ------
    InvalidSpec
        All jobs have ended, another process steers them, or what they left cannot be used.
    """
    if not run.journal.is_file():
        raise InvalidSpec(
            "the run's journal must be there",
            "no such file",
            f"'{run.journal}'",
            "End its jobs (`punctual stop`): nobody can tell how they stand.",
        )
    with ExitStack() as ending:
        journal = ending.enter_context(SqliteJournal(run.journal, take=take))
        state, last_at = restored_state(run, journal)
        _note_ended(state)
        jobs = [status for status in state.board.jobs() if not status.ended]
        ends = unheard_ends(run)
        if not jobs:
            raise InvalidSpec(
                "only a job that has not ended can be steered",
                "one that has ended",
                f"job '{run.name}'",
                "See `punctual ps` for what runs, and whether it is steered.",
            )
        options = HostOptions(**run.record().get("options", {}))
        with ExitStack() as claims:
            kept = _claimed(run, [status.id for status in jobs if status.id not in ends], claims, take=take)
            # The socket is the last host's: with it, who looks now would take this one for a host that hangs.
            run.socket.unlink(missing_ok=True)
            run.record_steering()
            executor = local_executor(run, _actuator(kept, options), output_of)
            granted = _adopted(state, executor, kept)
            claims.pop_all()  # they are the executor's now
            executor.follow()
        events = [end_event(job, words, shift_s=state.time.shift_s, at_least=last_at) for job, words in ends.items()]
        ending.push(tidying(run))
        host = ending.enter_context(opened(state, executor, options.policy, take=take))
        for event in (*events, *_capacity_changed(state)):
            host.post(event)
        host.post(SteeringResumed(at=host.now(), lost_at=last_at, granted=granted))
        yield host


def restored_state(run: Run, journal: SqliteJournal) -> tuple[HostState, float]:
    """The state that the journal leads to, and the instant of its last message."""
    state = new_state(run, journal, JournalTime(clock_shift(journal)))
    sequence, last_at = 0, 0.0
    snapshot = journal.latest_snapshot()
    if snapshot is not None:
        sequence = snapshot[0]
        state.load(snapshot[1])
    for number, message in journal.read_from(max(1, sequence)):  # the last one of the snapshot tells the time
        last_at = max(last_at, message.at)
        if number > sequence:
            if isinstance(message, Event):
                state.scheduler.handle(message)
            state.board.fold(message)
    return state, last_at


def _note_ended(state: HostState) -> None:
    """Bring the run's record up to what the journal says: its host may have been killed between the two."""
    standing = {status.id: status.state for status in state.board.jobs()}
    for job in state.run.open_jobs():
        job_state = standing.get(job, "failed")  # it was never submitted
        if job_state in ("finished", "failed"):
            state.run.record_end(job, job_state)


def _claimed(run: Run, jobs: list[JobId], claims: ExitStack, *, take: bool) -> dict[JobId, Kept]:
    """The jobs that run on, which nobody else steers from now on; they are as they were when `claims` closes.

    Raises
    ------
    InvalidSpec
        Somebody else steers one.
    """
    kept: dict[JobId, Kept] = {}
    for job in jobs:
        address = takeover_socket_of(run.runtime_dir, job)
        if run.keeper_pid(job) is None:
            _await(partial(_is_gone, address), _ENDING_S_MAX)  # what was left of it is being ended
            continue
        claim = _await(partial(take_over, address), LEASE_S + 1.0 if take else 0.0)
        if claim is not None:
            kept[job] = claim
            claims.callback(claim.close)
        elif run.keeper_pid(job) is not None:
            raise InvalidSpec(
                "only a job that nobody steers can be taken over",
                "one that another command has just taken over",
                f"job '{job}'",
                "See `punctual ps` for what runs, and whether it is steered.",
            )
    return kept


def _is_gone(file: Path) -> bool:
    return not file.exists()


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
