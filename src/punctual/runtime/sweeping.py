"""What hosts that were killed have left: the ends of jobs that are in no journal, and files that nobody needs."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed, JobFinished
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.core.protocols import Message
from punctual.executors.local.orphans import end_orphans, end_processes_of, processes_of
from punctual.runtime.restored_state import missed_events, record_ended, restored_state, state_by_messages
from punctual.runtime.run_folder import RunFolder
from punctual.runtime.run_journal import writer
from punctual.runtime.runs import live_folders
from punctual.store.stored import JournalUnusable, StoredJournal


def sweep() -> None:
    """End jobs that nobody looks after, write down what ended unsteered, and remove what nobody will need."""
    end_orphans()
    for run in live_folders():
        if run.is_live() or run.machine() is not None:
            continue
        _end_unkept(run)
        note_ends(run)
        if not run.kept_jobs() and not run.open_jobs():
            run.remove_live_places()


def _end_unkept(run: RunFolder) -> None:
    """End what runs on of jobs whose keeper and guard were killed."""
    if processes_of(*_unkept(run)):
        with suppress(InvalidSpec), writer(run):  # nobody resumes the run meanwhile
            end_processes_of(*_unkept(run))


def _unkept(run: RunFolder) -> list[Path]:
    """Where the keepers of those open jobs were that nobody looks after."""
    return [run.takeover_socket(job) for job in run.open_jobs() if not run.is_looked_after(job)]


def note_ends(run: RunFolder) -> None:
    """Write the ends of the jobs that ended while nobody steered them into the journal and the record of a run.

    A job whose process has failed, and that may be started again, has not ended: it waits for who resumes the run.
    """
    if not any(run.end_record(job) for job in run.open_jobs()):
        return
    with suppress(InvalidSpec), writer(run) as journal:
        # Otherwise somebody resumes the run just now and will do it, or the journal cannot be read.
        handle: Callable[[Event], Iterable[Message]]
        try:
            state, last_at = restored_state(run, journal)
            handle = state.scheduler.handle
        except JournalUnusable:  # nobody can go on with its jobs: nothing follows from an end
            (state, last_at), handle = state_by_messages(run, journal), lambda _: ()
        record_ended(state)
        for events in missed_events(state, last_at):
            messages = [message for event in events for message in (event, *handle(event))]
            ends = [end for end in map(ended_by, messages) if end is not None]
            if ends:
                journal.append(messages)
                run.record_end(ends[0], "finished" if isinstance(events[-1], JobFinished) else "failed")


def give_up(run: RunFolder, jobs: list[JobId], cause: str) -> None:
    """End jobs that have no process any more, and that nobody shall resume."""
    with writer(run) as journal:
        at = _last_at(journal)
        journal.append([JobFailed(at=at, job=job, cause=cause) for job in jobs])
        end_processes_of(*map(run.takeover_socket, jobs))
    for job in jobs:
        run.record_end(job, "failed")


def _last_at(journal: StoredJournal) -> float:
    """Instant of the last message."""
    return max((message.at for _, message in journal.read_from(journal.last_sequence)), default=0.0)
