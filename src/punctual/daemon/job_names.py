"""Assign job names: each stands for one job in the journal, the logs and all commands."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from punctual.core.ids import JobId
from punctual.core.job import ENDED
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import open_jobs
from punctual.request.submission import Submission


def names_in(run: RunFolder | None, submissions: Sequence[Submission]) -> list[Submission]:
    """Return the submissions under names that are free in `run`; None: in a run of their own.

    A job whose name belonged to an ended job of this run gets a number: ``train-2``. So does one whose generated name
    is used by any other job. A name that a user has chosen and that an open job has stays, to be refused.
    """
    states = {} if run is None else run.jobs()
    ended_names = {job for job, state in states.items() if state in ENDED}
    ended_names |= set() if run is None else run.removed_jobs()
    taken = {*states, *ended_names, *(known.job for known in open_jobs(but=run))}
    named: list[Submission] = []
    for submission in submissions:
        if (name := submission.spec.id) in (ended_names if submission.has_chosen_name else taken):
            spec = replace(submission.spec, id=_numbered(name, taken))
            submission = replace(submission, name=name, spec=spec)  # noqa: PLW2901
        named.append(submission)
        taken.add(submission.spec.id)
    renamed = {old.spec.id: new.spec.id for old, new in zip(submissions, named, strict=True)}
    return [_after_renamed(submission, renamed) for submission in named]


def _after_renamed(submission: Submission, renamed: Mapping[JobId, JobId]) -> Submission:
    """Return the job with its predecessors of the same request under their new names."""
    after = tuple(renamed.get(name, name) for name in submission.spec.after)
    return replace(submission, spec=replace(submission.spec, after=after))


def _numbered(name: JobId, taken: Collection[JobId]) -> JobId:
    number = 2
    # A name has at most 64 characters.
    while (numbered := JobId(f"{name[: 64 - len(str(number)) - 1]}-{number}")) in taken:
        number += 1
    return numbered
