"""What an earlier run of a program tells of the next."""

from dataclasses import replace

from punctual.core.errors import InvalidSpec
from punctual.core.status import JobStatus, StatusBoard
from punctual.runtime.runs import KnownJob, known_jobs, messages_of
from punctual.runtime.submission import Submission


def work_of_earlier_run(submission: Submission, earlier: KnownJob | None) -> Submission:
    """The job with the core time that an earlier one took; as it is if there is none.

    Parameters
    ----------
    earlier
        None: the last job of the same command line that has finished.

    Raises
    ------
    InvalidSpec
        `earlier` has not finished.
    """
    told = _last_of(submission) if earlier is None else _status(earlier)
    if earlier is not None and (told is None or told.state != "finished"):
        raise InvalidSpec(
            "`--like` must name a job that has finished",
            "one that has not",
            f"job '{earlier.title}'",
            "Say the core time yourself (`--work 30m`).",
        )
    if told is None or told.used_core_s <= 0:
        return submission
    return replace(submission, spec=replace(submission.spec, work_core_s=told.used_core_s))


def _last_of(submission: Submission) -> JobStatus | None:
    argv = list(submission.program.argv)
    same = [
        (str(facts.get("submitted_wall", "")), job)
        for job in known_jobs()
        if job.steering == "ended" and (facts := job.run.end_facts(job.job)).get("argv") == argv
    ]
    statuses = (_status(job) for _, job in sorted(same, key=lambda pair: pair[0], reverse=True))
    return next((status for status in statuses if status is not None and status.state == "finished"), None)


def _status(job: KnownJob) -> JobStatus | None:
    """How the job stood when it ended, from its journal."""
    board = StatusBoard()
    for message in messages_of(job.run, [job.job]):
        board.fold(message)
    return board.job(job.job) if board.knows(job.job) else None
