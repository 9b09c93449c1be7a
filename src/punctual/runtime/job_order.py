"""In which order jobs are submitted that are to run one after the other."""

from collections.abc import Callable, Sequence

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.runtime.submission import Submission


def in_order(submissions: Sequence[Submission], known: Callable[[JobId], JobStatus | None]) -> list[Submission]:
    """The same jobs, each behind those that it is to run after, else as they came.

    Parameters
    ----------
    known
        How a job stands that was submitted before; None: there is none of that name.

    Raises
    ------
    InvalidSpec
        One is to run after a job that there is not, that has failed, or that is to run after it.
    """
    waiting = {submission.spec.id: submission for submission in submissions}
    for submission in submissions:
        for name in submission.spec.after:
            if name not in waiting:
                _check_known(submission.spec.id, name, known(name))
    ordered: list[Submission] = []
    while waiting:
        ready = [job for job in waiting.values() if not any(name in waiting for name in job.spec.after)]
        if not ready:
            raise InvalidSpec(
                "`after` must not lead back to the job",
                " and ".join(f"'{name}'" for name in waiting),
                f"job '{next(iter(waiting))}'",
                "Leave one of these dependencies out.",
                option="after",
            )
        ordered += ready
        for submission in ready:
            del waiting[submission.spec.id]
    return ordered


def _check_known(job: JobId, name: JobId, status: JobStatus | None) -> None:
    if status is None or status.state == "failed":
        raise InvalidSpec(
            "`after` must name jobs of the same host that have not failed",
            f"'{name}', " + ("which is none" if status is None else f"which has ended: {status.cause}"),
            f"job '{job}'",
            "See `punctual ps --all`; submit the other job first, or leave it out.",
            option="after",
        )
