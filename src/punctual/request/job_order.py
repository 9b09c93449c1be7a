"""Order of submission of jobs that run one after the other."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.status import JobStatus


class _Specified(Protocol):
    """A job that is to be submitted, live or in a simulation."""

    @property
    def spec(self) -> JobSpec: ...


J = TypeVar("J", bound=_Specified)


def in_order(jobs: Sequence[J], known: Callable[[JobId], JobStatus | None]) -> list[J]:
    """Return the jobs, each behind its predecessors, otherwise in the given order.

    `known`: returns the status of a job that was submitted before; None: there is none of that name.

    Raises `InvalidSpec`: a predecessor is unknown, has ended without finishing, or is to run after its successor.
    """
    waiting, ordered = list(jobs), list[J]()
    names = {job.spec.id for job in jobs}
    for job in jobs:
        for name in job.spec.after:
            if name not in names:
                _check_known(job.spec.id, name, known(name))
    while waiting:
        ready = [job for job in waiting if names.isdisjoint(job.spec.after)]
        if not ready:
            raise InvalidSpec(
                "`after` must not lead back to the job",
                " and ".join(f"'{job.spec.id}'" for job in waiting),
                f"job '{waiting[0].spec.id}'",
                "Leave one of these dependencies out.",
                option="after",
            )
        ordered += ready
        waiting = [job for job in waiting if not names.isdisjoint(job.spec.after)]
        names = {job.spec.id for job in waiting}
    return ordered


def _check_known(job: JobId, name: JobId, status: JobStatus | None) -> None:
    if status is None or (status.ended and status.state != "finished"):
        raise InvalidSpec(
            "`after` must name jobs submitted with it, or jobs of the same host that go on or have finished",
            f"'{name}', "
            + ("which is none" if status is None else f"which has ended: {status.state} ({status.cause})"),
            f"job '{job}'",
            "Correct the name (`punctual ps --all` has those of the host), submit the other job first, or leave it out.",
            option="after",
        )
