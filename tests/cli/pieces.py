"""Pieces that the tests of the command line share."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from punctual.cli._screens import ShownJob
from punctual.core.events import GrantApplied, JobStarted, JobSubmitted, Message, NodeJoined, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobState
from punctual.core.resources import Resources
from punctual.core.status import JobStatus, StatusBoard
from punctual.daemon.run_folder import RunFolder
from punctual.request.deadlines import Now

JOB = JobId("train-3f2a")
HERE = NodeId("here")


@contextmanager
def counted_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RunFolder]]:
    """Each run whose record of its jobs is read meanwhile, once for each time."""
    looks: list[RunFolder] = []
    read = RunFolder.jobs

    def jobs(run: RunFolder) -> dict[JobId, JobState]:
        looks.append(run)
        return read(run)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "jobs", jobs)
        yield looks


def submitted(at: float, deadline_s: float | None = 60.0, job: JobId = JOB) -> JobSubmitted:
    return JobSubmitted(at=at, spec=JobSpec(id=job, ceiling=Resources(2), deadline_s=deadline_s))


def started(at: float, cores: float = 2.0) -> JobStarted:
    return JobStarted(at=at, job=JOB, request=1, granted={HERE: Resources(cores)})


def granted(at: float, cores: float, request: int = 2) -> GrantApplied:
    return GrantApplied(at=at, job=JOB, request=request, granted={HERE: Resources(cores)})


def progressed(at: float, steps_done: float, used_core_s: float, *, landed: bool = False) -> ProgressReported:
    return ProgressReported(
        at=at, job=JOB, steps_done=steps_done, steps_total=1000, unit_at=at, used_core_s=used_core_s, landed=landed
    )


def board_of(at: float = 0.0, deadline_s: float | None = 60.0) -> StatusBoard:
    """The status of a job that was just submitted."""
    board = StatusBoard()
    board.fold(NodeJoined(at=at, node=HERE, capacity=Resources(8)))
    board.fold(submitted(at, deadline_s))
    return board


class JobOfBoard(ShownJob):
    """The job of a board, as displays ask about it; it has no host."""

    def __init__(self, board: StatusBoard) -> None:
        self.id = JOB
        self._board = board

    def status(self) -> JobStatus:
        return self._board.job(JOB)

    def clocks(self) -> Now:
        return Now.read()

    def facts(self) -> dict[str, Any]:
        return {"controller": "remaining-cost", "actuator": "cgroup-v1"}


def folded(*messages: Message, at: float | None = None, deadline_s: float | None = 60.0) -> JobStatus:
    """How the job stands after `messages`; it was submitted at `at` (now, if not given)."""
    board = board_of(time.monotonic() if at is None else at, deadline_s)
    for message in messages:
        board.fold(message)
    return board.job(JOB)
