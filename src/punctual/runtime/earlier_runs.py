"""What an earlier run of a program tells of the next."""

from collections.abc import Sequence

from punctual.core.errors import InvalidSpec
from punctual.core.status import JobStatus, StatusBoard
from punctual.runtime.runs import KnownJob, find_job, known_jobs, messages_of


def core_s_of(name: str) -> float:
    """Core-seconds that an earlier job took.

    Raises
    ------
    InvalidSpec
        There is no such job, or it has not finished.
    """
    earlier = find_job(name, known_jobs())
    told = _status(earlier)
    if told is None or told.state != "finished" or told.used_core_s <= 0:
        raise InvalidSpec(
            "`--like` must name a job that has finished",
            "one that has not" if told is None else f"one that is {told.state}",
            f"job '{earlier.title}'",
            "Say the core time yourself (`--work 30m`).",
            option="like",
        )
    return told.used_core_s


def core_s_of_same_program(argv: Sequence[str]) -> float | None:
    """Core-seconds that the last job of the same command line took that has finished; None: there is none."""
    same = [
        (str(facts.get("submitted_wall", "")), job)
        for job in known_jobs()
        if job.steering == "ended" and (facts := job.run.end_facts(job.job)).get("argv") == list(argv)
    ]
    statuses = (_status(job) for _, job in sorted(same, key=lambda pair: pair[0], reverse=True))
    last = next((status for status in statuses if status is not None and status.state == "finished"), None)
    return last.used_core_s if last is not None and last.used_core_s > 0 else None


def _status(job: KnownJob) -> JobStatus | None:
    """How the job stood when it ended, from its journal."""
    board = StatusBoard()
    for message in messages_of(job.run, [job.job]):
        board.fold(message)
    return board.job(job.job) if board.knows(job.job) else None
