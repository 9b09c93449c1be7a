"""What can be asked about a host's jobs, in the host's process or in another: all of it comes from a board."""

from abc import ABC, abstractmethod
from datetime import datetime

from punctual.core.cluster import Node
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.status import JobStatus, StatusBoard
from punctual.daemon.engine import Listener
from punctual.request.deadlines import Now, moved_deadline_s


class BoardReader(ABC):
    """Answers questions about jobs from `board`, and tells listeners of messages."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._listeners: tuple[Listener, ...] = ()

    @abstractmethod
    def now(self) -> float:
        """The present, as an instant of messages."""

    def clocks(self) -> Now:
        """The present on the clock of messages and on the wall's."""
        return Now(self.now(), datetime.now().astimezone())

    def jobs(self) -> tuple[JobStatus, ...]:
        """All jobs, those that have ended lately included, in order of submission."""
        return self._board.jobs()

    def subscribe(self, listener: Listener) -> None:
        """Let `listener` have each message from now on, in the thread that reads them, once `status` knows of it."""
        self._listeners = (*self._listeners, listener)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes there are, in order of their ids."""
        return self._board.nodes()

    def status(self, job: JobId) -> JobStatus:
        """How the job stands; raises `InvalidSpec` if there is none of that name, or it has not been come to yet."""
        try:
            return self._board.job(job)
        except KeyError:
            raise InvalidSpec(
                "there must be a job of that name", f"'{job}'", "this host", "See `punctual ps` for what runs."
            ) from None

    def moved_deadline_s(self, job: JobId, when: str, now: Now) -> float:
        """Seconds from the job's submission to the deadline that a user writes as `when`.

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
        """Whether the job's submission has been come to."""
        return self._board.knows(job)

    def has_ended(self, job: JobId) -> bool:
        """Whether the job was there and has ended."""
        return self.knows(job) and self._board.job(job).ended

    def _tell(self, message: Message) -> None:
        for listener in self._listeners:
            listener(message)
