"""Rebuild the state of a run whose host was killed, from its journal and the records of its supervisors."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from punctual.core.codec import decode
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed, JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import ENDED, JobState
from punctual.core.lifecycle import about, end_state
from punctual.daemon.adoption import recorded_end
from punctual.daemon.host_state import HostState, facts_of_end, new_state
from punctual.daemon.local_host import STOPPED_UNSTEERED
from punctual.daemon.run_folder import RunFolder
from punctual.journal.errors import JournalUnusable
from punctual.journal.sqlite import SqliteJournal


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
