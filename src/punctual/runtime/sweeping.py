"""What hosts that were killed have left: the ends of jobs that nobody heard of, and files that nobody needs."""

from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished
from punctual.core.ids import JobId
from punctual.executors.local.ending import cause_of
from punctual.executors.local.orphans import end_orphans
from punctual.runtime.run_folder import Run
from punctual.runtime.runs import live_folders
from punctual.store.boot import boot_id
from punctual.store.sqlite import SqliteJournal


def sweep() -> None:
    """End jobs that nobody looks after, write down what ended unheard, and remove what nobody will need."""
    end_orphans()
    for run in live_folders():
        if run.is_live() or run.machine() is not None:
            continue
        note_ends(run)
        if not run.kept_jobs() and not run.open_jobs():
            run.remove_live_places()


def note_ends(run: Run) -> None:
    """Write the ends of the jobs that ended while nobody steered them into the journal and the record of a run."""
    ends = unheard_ends(run)
    if not ends:
        return
    try:
        with SqliteJournal(run.journal) as journal:
            journal.append([end_event(job, words, at_least=_last_at(journal)) for job, words in ends.items()])
    except InvalidSpec:  # somebody resumes the run just now and will do it, or the journal cannot be read
        return
    for job, words in ends.items():
        run.record_end(job, "finished" if words.get("ended") == 0 else "failed")


def give_up(run: Run, jobs: list[JobId], cause: str) -> None:
    """End jobs that have no process any more, and that nobody shall resume."""
    with SqliteJournal(run.journal) as journal:
        at = _last_at(journal)
        journal.append([JobFailed(at=at, job=job, cause=cause) for job in jobs])
    for job in jobs:
        run.record_end(job, "failed")


def unheard_ends(run: Run) -> dict[JobId, dict[str, Any]]:
    """The last words of the keepers of open jobs, as far as those have ended."""
    ends = {job: run.unheard_end(job) for job in run.open_jobs()}
    return {job: words for job, words in ends.items() if words is not None}


def end_event(job: JobId, words: dict[str, Any], *, shift_s: float = 0.0, at_least: float) -> JobFinished | JobFailed:
    """What a keeper's last words mean.

    Parameters
    ----------
    shift_s
        What is added to instants of the journal to get the monotonic clock.
    at_least
        Instant of the last message about the job.
    """
    code = words.get("ended")
    is_of_now = words.get("boot") == boot_id() and "at_ns" in words
    at = max(at_least, words["at_ns"] / 1e9 - shift_s) if is_of_now else at_least
    if code == 0:
        return JobFinished(at=at, job=job, landed_at=at)
    cause = str(words["failed"]) if code is None else cause_of(code)
    return JobFailed(at=at, job=job, cause=cause, exit_code=words.get("code", code))


def _last_at(journal: SqliteJournal) -> float:
    """Instant of the last message."""
    return max((message.at for _, message in journal.read_from(journal.last_sequence)), default=0.0)
