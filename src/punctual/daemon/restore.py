"""Go on with a run whose host was killed or hangs: rebuild its state, and take over its jobs."""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from punctual.core.codec import decode
from punctual.core.commands import LaunchJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    Event,
    JobFailed,
    JobSubmitted,
    NodeJoined,
    NodeNoticed,
    ProgressReported,
    SteeringResumed,
)
from punctual.core.ids import JobId
from punctual.core.instants import moved
from punctual.core.job import ENDED, Allocation, JobState
from punctual.core.lifecycle import about, end_state
from punctual.core.reason import Reason
from punctual.daemon.adoption import actuator_of, adopted, claimed, recorded_end
from punctual.daemon.host import STOPPED_UNSTEERED, Host
from punctual.daemon.host_executor import (
    HERE,
    ExecutorSetup,
    cluster_executor,
    cluster_site,
    local_executor,
    local_site,
)
from punctual.daemon.host_options import HostOptions
from punctual.daemon.host_state import HostState, facts_of_end, new_state
from punctual.daemon.machine_providers import has_machines
from punctual.daemon.opening import opened, tidying
from punctual.daemon.run_folder import RunFolder
from punctual.executors.local.orphans import end_orphans
from punctual.executors.local.output import JobInputs
from punctual.journal.errors import JournalUnusable
from punctual.journal.sqlite import SqliteJournal

_ADOPTED = Reason("adopted", "the job was running when its host was resumed")

#: Site of a resumed run, the allocation of each job that still runs, and the events since the instant of the journal's last
#: message, in the journal's time.
Resumed = tuple[ExecutorSetup, Mapping[JobId, Allocation], Iterable[Event]]


class AllEndedError(InvalidSpec):
    """Raised if there is nothing left to steer: all jobs of the run have ended, with its machines, or its folder was removed."""


@contextmanager
def resumed_host(run: RunFolder, *, take: bool = False, is_service: bool = False) -> Iterator[Host]:
    """Make a host that continues `run`: it steers running jobs and starts the others from their checkpoints.

    Its state is the last snapshot and what the journal says since. Until that is there nothing is asked of any job,
    and each goes on as it was if this fails.

    * `take`: take the jobs also from a process that is still there: one that is stopped or hangs. Then its place is taken
      also if all jobs have ended: the next jobs would be submitted to it.
    * `is_service`: whether the host is to stay when its jobs have ended.

    * Raises `AllEndedError`: all jobs have ended, and no process is to be replaced; or the run's folder is gone.
    * Raises `InvalidSpec`: another process steers them, or what they left cannot be used.
    """
    if not run.state_dir.exists():
        raise AllEndedError(
            "a run must have a folder",
            "none any more",
            f"'{run.name}'",
            "What was recorded of its jobs is lost; those that still run go on to their end.",
        )
    if (there := run.machine()) is not None:
        raise InvalidSpec(
            "jobs must be gone on with where they are",
            f"those of machine '{there}'",
            f"'{run.name}'",
            "Give the command there: a job that runs would be started a second time here.",
        )
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
        record_ended(state)
        jobs = [status.id for status in state.board.jobs() if not status.ended]
        submissions = missed_submissions(state)
        if not jobs and not submissions and not has_machines(run) and not take:
            raise AllEndedError(
                "only a job that has not ended can be steered",
                "one that has ended",
                f"job '{run.name}'",
                "See `punctual ps` for what runs, and whether it is steered.",
            )
        options = HostOptions.of(run.facts())
        state.policy(options.policy)  # raises before the jobs are touched
        # The socket is the last host's: with it, who looks now would take this one for a host that hangs.
        run.socket.unlink(missing_ok=True)
        resume = _local_site if options.engine == "local" else _cluster_site
        ending.push(tidying(run))
        with ExitStack() as failing:
            failing.callback(_leave, run)
            steer = partial(run.record_steering, is_service=is_service)
            site, granted, missed = resume(state, options, jobs, steer, last_at)

            def begin(host: Host) -> None:
                host.take_in(missed)
                host.post(SteeringResumed(at=host.now(), lost_at=last_at, granted=dict(granted)))
                if site.capacity is None:
                    site.join(state.time.from_machine)
                for job in granted:
                    if run.is_stopping(job):
                        host.stop(job, STOPPED_UNSTEERED)
                for submission in submissions:
                    host.resubmit(submission)

            host = ending.enter_context(opened(state, site, begin, take=take))
            failing.pop_all()
        yield host


def _leave(run: RunFolder) -> None:
    """Give up the run, so that another process can steer it."""
    if run.is_steered_here():
        run.record_left()


def _local_site(
    state: HostState, options: HostOptions, jobs: list[JobId], steer: Callable[[], None], last_at: float
) -> Resumed:
    """Make the site of this machine, with the jobs whose supervisors run.

    `steer`: writes down that this process steers the run, once nobody else does.
    """
    run, journal = state.run, state.journal
    with ExitStack() as claims:
        kept = claimed(run, jobs, claims)
        end_orphans()
        steer()
        inputs = JobInputs()
        executor = local_executor(run, journal, actuator_of(kept, options.actuator), inputs)
        granted = adopted(run, executor, kept, partial(_launched, state), state.time.from_machine)
        claims.pop_all()  # they are the executor's now
        executor.follow()
        for job in kept.keys() - granted.keys():
            kept[job].close()
    site = local_site(run, executor, options, inputs)
    # Only now: until it was claimed a job may still have ended.
    return site, granted, _missed_here(state, last_at, granted, site)


def _missed_here(
    state: HostState, last_at: float, granted: Mapping[JobId, Allocation], site: ExecutorSetup
) -> Iterator[Event]:
    for of_job in missed_events(state, last_at, granted):
        yield from of_job
    nodes = state.board.nodes()
    if last_at < -state.time.shift_s and any(node.ends_at is not None for node in nodes):  # the machine is back
        yield NodeNoticed(at=state.time.now(), node=HERE, ends_at=None)
    if site.capacity is not None:
        now = site.capacity, site.options.jobs_at_once_on(site.capacity)
        if now not in [(node.capacity, node.jobs_at_once) for node in nodes if node.id == HERE]:
            yield NodeJoined(at=state.time.now(), node=HERE, capacity=now[0], jobs_at_once=now[1])


def _cluster_site(
    state: HostState, options: HostOptions, jobs: list[JobId], steer: Callable[[], None], last_at: float
) -> Resumed:
    """Make the site of a cluster's nodes, with the jobs that their agents have."""
    steer()
    nodes = [node.id for node in state.board.nodes()]
    executor = cluster_executor(state.run, options, nodes, state.scheduler.machines())
    try:
        granted, events = executor.resume()
        for job in granted.keys() - set(jobs):  # it has ended, as far as its users know
            executor.perform(StopJob(at=time.monotonic(), job=job, cause="it has ended"), lambda _: None)
    except BaseException:
        executor.release()
        raise
    in_journal_time = [moved(event, -state.time.shift_s) for event in events]
    held = {job: granted[job] for job in jobs if job in granted}
    missed = [replace(event, at=max(event.at, last_at)) for event in in_journal_time]
    return cluster_site(executor, options), held, missed


def _launched(state: HostState, job: JobId) -> tuple[LaunchJob, ProgressReported | None]:
    """Return the command that would start a job as it is, and its last progress report, in the time of this machine.

    Later commands have higher numbers.
    """
    status = state.board.job(job)
    launch = LaunchJob(
        at=status.submitted_at,
        job=status.id,
        request=0,
        spec=status.spec,
        grant=status.granted,
        reason=status.reason or _ADOPTED,
        program=status.program,
        submitted_at=status.submitted_at,
    )
    if status.unit_at is None:
        return state.time.to_machine(launch), None
    latest = ProgressReported(
        at=status.unit_at,
        job=status.id,
        steps_done=status.steps_done,
        steps_total=status.steps_total,
        unit_at=status.unit_at,
        used_core_s=status.used_core_s,
        landed=status.landed,
    )
    return state.time.to_machine(launch), state.time.to_machine(latest)


# The state of a run.


def restored_state(run: RunFolder, journal: SqliteJournal) -> tuple[HostState, float]:
    """Return the state that the journal leads to, and the instant of its last message.

    Where the last snapshot is of another version of Punctual, all messages are taken, if they are there.

    Raises `JournalUnusable`: the snapshots cannot be used, and the messages before them do not all exist any more.
    """
    snapshot = journal.latest_snapshot()
    if snapshot is not None:
        state = new_state(run, journal)
        try:
            state.load(snapshot[1])
        except Exception as error:
            if journal.compacted_until > journal.begun_after:
                raise _of_other_version(run, error) from error
        else:
            return state, _fold(state, journal, snapshot[0])
    return state_by_messages(run, journal)


def state_by_messages(run: RunFolder, journal: SqliteJournal) -> tuple[HostState, float]:
    """Fold all readable messages of the present state; return it and the instant of the last message.

    Where the journal was thinned out, its `board` says how the jobs stand, and its `scheduler` is not to be used.
    """
    state = new_state(run, journal)
    return state, _fold(state, journal, journal.begun_after)


def _of_other_version(run: RunFolder, error: Exception) -> JournalUnusable:
    version = run.facts().get("version")
    writer = f"Punctual {version}" if version else "the Punctual that wrote it"
    return JournalUnusable(
        "the last snapshot of the journal must be of this version of Punctual",
        error.got if isinstance(error, InvalidSpec) else f"{type(error).__name__}: {error}",
        str(run.journal),
        f"Nothing is lost, and jobs that run go on. Install {writer}, have it end the jobs (`punctual up`, or `punctual "
        "attach JOB`), and update then; or give the jobs up (`punctual stop JOB`).",
    )


def _fold(state: HostState, journal: SqliteJournal, sequence: int) -> float:
    """Fold the messages after number `sequence` into the state; return the instant of the last one."""
    last_at = 0.0
    for number, message in journal.read_from(max(1, sequence)):  # the last one of the snapshot tells the time
        last_at = max(last_at, message.at)
        if number > sequence:
            if isinstance(message, Event):
                state.scheduler.handle(message)
            state.board.fold(message)
    return last_at


def record_ended(state: HostState) -> None:
    """Bring the run's record up to the journal: its host may have been killed between the two writes."""
    open_jobs = state.run.open_jobs()
    standing = {status.id: status.state for status in state.board.jobs()}
    standing.update(_ends_of_forgotten(state.journal, [job for job in open_jobs if job not in standing]))
    now, bill = state.clocks(), state.scheduler.bill
    for job in open_jobs:
        if job not in standing and (state.run.submission(job) is not None or state.run.supervisor_pid(job) is not None):
            continue  # it is still to be submitted; or it runs, and the journal has lost it
        job_state = standing.get(job, "failed")
        if job_state in ENDED:
            facts = facts_of_end(state.board.job(job), now, bill) if state.board.knows(job) else None
            state.run.record_end(job, job_state, facts)


def _ends_of_forgotten(journal: SqliteJournal, jobs: Sequence[JobId]) -> dict[JobId, JobState]:
    """Return the ends of jobs that the board no longer remembers; jobs that have not ended are left out."""
    if not jobs:
        return {}
    ends: dict[JobId, JobState] = {}
    for _, message in journal.read_of(jobs):
        job, state = about(message), end_state(message)
        if job is not None and job in jobs and state is not None:
            ends[job] = state
    return ends


def missed_submissions(state: HostState) -> list[JobSubmitted]:
    """Return the jobs that the host had accepted and that are not in its journal."""
    known = {status.id for status in state.board.jobs()}
    kept = [state.run.submission(job) for job in state.run.open_jobs() if job not in known]
    events = [decode(JobSubmitted.__name__, text) for text in kept if text is not None]
    return [event for event in events if isinstance(event, JobSubmitted)]


def missed_events(state: HostState, last_at: float, kept: Container[JobId] = ()) -> Iterator[tuple[Event, ...]]:
    """Yield, for each open job whose process ended unsteered, its last progress report, if any, and its end.

    * `last_at`: instant of the last message.
    * `kept`: jobs that still run.
    """
    run = state.run
    for job, recorded in run.jobs().items():
        record = run.end_record(job) if job not in kept else None
        if record is None:
            continue
        status = state.board.job(job) if state.board.knows(job) else None
        if record.get("ended") != 0 and status is not None and (status.ended or status.state == "queued"):
            run.forget_end(job)
            continue
        report, event = recorded_end(job, record, shift_s=state.time.shift_s, at_least=last_at)
        if recorded == "stopping" and isinstance(event, JobFailed):
            event = replace(event, cause=STOPPED_UNSTEERED, retryable=False, is_stopped=True)
        yield (event,) if report is None else (report, event)
