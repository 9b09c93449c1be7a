"""Clear up after killed hosts: record the ends of jobs that no journal has, and remove files that are not needed."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from punctual.core.commands import SetTimer
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed, Message
from punctual.core.ids import JobId
from punctual.core.lifecycle import about, end_state
from punctual.daemon.host_state import HostState, facts_of_end
from punctual.daemon.restore import missed_events, record_ended, restored_state, state_by_messages
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import live_folders
from punctual.executors.local.orphans import end_left, end_orphans, processes_of
from punctual.journal.errors import JournalUnusable
from punctual.journal.sqlite import SqliteJournal


def sweep() -> None:
    """End jobs without a supervisor, record ends that no process saw, and remove files that are not needed."""
    end_orphans()
    for run in live_folders():
        if run.is_live() or run.machine() is not None:
            continue
        # End remaining processes of jobs whose supervisor was killed.
        if _unkept(run):
            with suppress(InvalidSpec), SqliteJournal(run.journal):  # nobody resumes the run meanwhile
                end_left(partial(_unkept, run))
        note_ends(run)
        if not run.supervised_jobs() and not run.open_jobs():
            run.remove_live_places()


def _unkept(run: RunFolder) -> list[int]:
    """Return the processes of open jobs that no supervisor looks after any more."""
    return processes_of(*(run.takeover_socket(job) for job in run.open_jobs() if run.supervisor_pid(job) is None))


def note_ends(run: RunFolder) -> None:
    """Write the ends of jobs that ended unsteered into the journal and the record of a run.

    A job whose process has failed, and that may be started again, has not ended: it waits for who resumes the run.
    """
    if not any(run.end_record(job) for job in run.open_jobs()):
        return
    with suppress(InvalidSpec, sqlite3.Error), SqliteJournal(run.journal) as journal:
        # Otherwise somebody resumes the run just now and will do it, the journal cannot be read, or its disk is full.
        state, last_at, handle = _restored(run, journal)
        record_ended(state)
        for events in missed_events(state, last_at):
            _note(state, events, handle)


def give_up(run: RunFolder, jobs: list[JobId], cause: str) -> None:
    """End jobs that have no process any more and that are not to be resumed."""
    with SqliteJournal(run.journal) as journal:
        state, last_at, handle = _restored(run, journal)
        end_left(partial(processes_of, *map(run.takeover_socket, jobs)))
        for job in jobs:
            _note(state, [JobFailed(at=last_at, job=job, cause=cause, is_stopped=True)], handle)


def _restored(run: RunFolder, journal: SqliteJournal) -> tuple[HostState, float, Callable[[Event], Iterable[Message]]]:
    """Restore a run: its state, the instant of the journal's last message, and the function that handles an event."""
    try:
        state, last_at = restored_state(run, journal)
    except JournalUnusable:  # nobody can go on with its jobs: nothing follows from an end
        return *state_by_messages(run, journal), lambda _: ()
    return state, last_at, state.scheduler.handle


def _note(state: HostState, events: Sequence[Event], handle: Callable[[Event], Iterable[Message]]) -> None:
    """Journal a job's end and its consequences: jobs that were to run after it may end with it."""
    told = (message for event in events for message in (event, *handle(event)))
    messages = [message for message in told if not isinstance(message, SetTimer)]  # whoever goes on sets its own
    ends = [(job, ended) for message in messages if (job := about(message)) and (ended := end_state(message))]
    if ends:
        state.journal.append(messages)
        for message in messages:
            state.board.fold(message)
    for job, ended in ends:
        state.run.record_end(job, ended, facts_of_end(state.board.job(job), state.clocks(), state.scheduler.bill))
