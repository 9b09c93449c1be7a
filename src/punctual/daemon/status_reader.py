"""Queries about a scheduler's jobs, answered from a status board in any process."""

from abc import ABC, abstractmethod
from datetime import datetime

from punctual.core.cluster import Node
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.status import JobStatus, StatusBoard
from punctual.daemon.engine import Listener
from punctual.request.deadlines import Now, moved_deadline_s


class StatusReader(ABC):
    """Answers questions about jobs from `board`, and passes messages to listeners."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._listeners: tuple[Listener, ...] = ()

    @abstractmethod
    def now(self) -> float:
        """Present instant on the clock of messages."""

    def clocks(self) -> Now:
        """Present instant on the clock of messages and on the wall clock."""
        return Now(self.now(), datetime.now().astimezone())

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return the statuses of all jobs, recently ended ones included, in order of submission."""
        return self._board.jobs()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each message from now on, in the reading thread, once `status` reflects the message."""
        self._listeners = (*self._listeners, listener)

    def nodes(self) -> tuple[Node, ...]:
        """Return the present nodes in order of their ids."""
        return self._board.nodes()

    def status(self, job: JobId) -> JobStatus:
        """Return the job's status; raises `InvalidSpec` if no such job is known, or its submission is still unread."""
        try:
            return self._board.job(job)
        except KeyError:
            raise InvalidSpec(
                "there must be a job of that name", f"'{job}'", "this host", "See `punctual ps` for what runs."
            ) from None

    def moved_deadline_s(self, job: JobId, when: str, now: Now) -> float:
        """Convert a deadline that a user writes as `when` to seconds from the job's submission.

        Raises `InvalidSpec` as `punctual.request.deadlines.moved_deadline_s` does.
        """
        status = self.status(job)
        return moved_deadline_s(
            when,
            started_at=status.submitted_at,
            present_s=status.spec.deadline_s,
            job=status.id,
            now=now,
        )

    def knows(self, job: JobId) -> bool:
        """Whether the job's submission has been processed."""
        return self._board.knows(job)

    def has_ended(self, job: JobId) -> bool:
        """Whether the job is known and has ended."""
        return self.knows(job) and self._board.job(job).ended

    def _tell(self, message: Message) -> None:
        for listener in self._listeners:
            listener(message)
