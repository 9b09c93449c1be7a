"""Runs as their journals tell them, whether they still run or not."""

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.runtime.paths import Run, find_run, known_runs, live_runs
from punctual.store.sqlite import SqliteJournal


def some_run(text: str | None) -> Run:
    """The run that `text` names or begins; None: the only one that runs, or else the one that ran last."""
    if text is not None:
        return find_run(text, known_runs())
    return find_run(None, live_runs() or sorted(known_runs(), key=_written_at)[-1:])


def _written_at(run: Run) -> float:
    """When the run's journal was last written; 0: it has none."""
    return run.journal.stat().st_mtime if run.journal.exists() else 0.0


def messages_of(run: Run) -> list[Message]:
    """All messages of the run's journal, oldest first."""
    with SqliteJournal(run.journal, read_only=True) as journal:
        return [message for _, message in journal.read_from(1)]


def job_in(messages: list[Message]) -> JobId:
    """The job that a run's journal is about: the run's folder is renamed when its name is used again, the job is not.

    Raises
    ------
    InvalidSpec
        When the run ended before its job was submitted.
    """
    for message in messages:
        if isinstance(message, JobSubmitted):
            return message.spec.id
    raise InvalidSpec(
        "a run must have begun to be told about", "a journal without a job", "the run", "Name another run."
    )
