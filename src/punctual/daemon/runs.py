"""Runs of the user on this machine, their jobs, and whether any process steers them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Literal

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.job import ENDED, JobState
from punctual.daemon.paths import runtime_root, state_root
from punctual.daemon.run_folder import RunFolder
from punctual.journal.boot import clock_shift
from punctual.journal.sqlite import About
from punctual.request.deadlines import Now

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: An error names at most so many jobs; a user may have hundreds.
_N_NAMED = 8

#: *steered*: the host that has the job is there. *unsteered*: it was killed, and the job runs on. *interrupted*: neither
#: is there, and the job had not ended. *elsewhere*: another machine has it. *ended*: there is nothing left to steer.
Steering = Literal["steered", "unsteered", "interrupted", "elsewhere", "ended"]


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job in the folder of its run.

    * `title`: its id; with a number if a later run has taken the name of its run. Of all jobs, as `known_jobs` has
      them, each has a title by which it is found.
    * `name`: name that it was given; several jobs may have it, one after the other.
    * `ended_at`: wall time of its end, in seconds since 1970; None: not known.
    * `pause`: by whom it was paused and why, in words; None: by no user.
    """

    run: RunFolder
    job: JobId
    title: str
    steering: Steering
    name: str = ""
    ended_at: float | None = None
    pause: str | None = None


def known_runs() -> list[RunFolder]:
    """Return all runs that have left a journal, by name, and those with jobs that run and whose folder was removed."""
    runtime, state = runtime_root(), state_root()  # once for all: each look checks whose the folders are
    runs = _runs_in(state, runtime, state)
    return runs + [run for run in _runs_in(runtime, runtime, state) if run not in runs and run.supervised_jobs()]


def known_jobs() -> list[KnownJob]:
    """Return all jobs of all runs, by run and in order of submission."""
    return with_own_titles([job for run in known_runs() for job in jobs_of(run)])


def with_own_titles(jobs: Sequence[KnownJob]) -> list[KnownJob]:
    """Return all jobs, with a number in the title of each whose name means another one, as `find_job` has it."""
    same: dict[str, list[KnownJob]] = {}
    for job in jobs:
        for text in {job.title, job.name}:
            same.setdefault(text, []).append(job)
    meant = {text: _last(alike) for text, alike in same.items() if len(alike) > 1}
    titled: list[KnownJob] = []
    for job in jobs:
        title = job.title
        if meant.get(title, job) is not job:
            title = next(name for n in count(1) if (name := f"{job.title}-{n}") not in same)
            same[title] = []
        titled.append(replace(job, title=title))
    return titled


def open_jobs(*, but: RunFolder | None = None) -> list[KnownJob]:
    """Return the jobs not known to have ended, of all runs or of all `but` one."""
    runs = [run for run in known_runs() if run != but and run.open_jobs()]
    return [job for run in runs for job in jobs_of(run) if job.steering != "ended"]


def jobs_of(run: RunFolder) -> list[KnownJob]:
    """Return the jobs of a run in order of submission."""
    numbered = re.fullmatch(rf"{re.escape(str(run.record().get('name', run.name)))}(\.\d+)", run.name)
    suffix = numbered[1] if numbered else ""
    rows, is_live = run.rows(), run.is_live()  # once for all: there may be hundreds of jobs
    if not rows and not is_live:
        only = JobId(
            run.name
        )  # nothing is known of its jobs: what is left of them is told, and removed, under this name
        return [KnownJob(run, only, only, "ended")]
    return [
        KnownJob(
            run,
            row.id,
            f"{row.id}{suffix}" if row.id != run.name else row.id,
            _steering(run, row.id, row.state, is_live=is_live),
            row.name,
            row.ended_at,
            row.pause,
        )
        for row in rows
    ]


def live_folders() -> list[RunFolder]:
    """Return all runs that have something in the runtime folder, live or not, by name."""
    runtime = runtime_root()
    return _runs_in(runtime, runtime, state_root())


def find_job(text: str | None, among: Iterable[KnownJob]) -> KnownJob:
    """Find the job named `text`, or the only one whose name begins so; None: the only one there is.

    Of several jobs that were given this name, the one that has not ended, or else the last.

    Raises `InvalidSpec`: there is no such job, or more than one.
    """
    jobs = list(among)
    exact = _last([job for job in jobs if text in (job.title, job.name)])
    matching = [exact] if exact is not None else [job for job in jobs if job.title.startswith(text or "")]
    if len(matching) == 1:
        return matching[0]
    raise _ambiguous(text, matching, jobs)


def open_job(text: str | None) -> KnownJob:
    """Find an open job as `find_job` does; the full name of an ended job is not taken as a prefix of others.

    Raises `InvalidSpec`: there is no such job, there is more than one, or it has ended.
    """
    jobs = open_jobs()
    if text is not None and not any(text in (job.title, job.name) for job in jobs):
        for job in known_jobs():
            if text in (job.title, job.name):
                raise InvalidSpec(
                    "the job must be one that has not ended",
                    f"'{text}', which has ended",
                    "the jobs of this user",
                    f"See how it ended: `punctual show {text}`.",
                )
    return find_job(text, jobs)


def has_finished(name: JobId) -> bool:
    """Whether the last job of that name has ended with success."""
    last = _last([job for job in known_jobs() if name in (job.title, job.name)])
    return last is not None and last.steering == "ended" and last.run.jobs().get(last.job) == "finished"


def _last(same: Sequence[KnownJob]) -> KnownJob | None:
    """Return of jobs of one name, in order of submission, the one that has not ended, or else the last; None: there is none."""
    open_ones = [job for job in same if job.steering != "ended"]
    # Within a run their order says which is the last: this machine's clock may have been set back meanwhile.
    last_of_runs = {job.run.name: job for job in open_ones or same}.values()
    return max(reversed(last_of_runs), key=lambda job: job.ended_at or _written_at(job), default=None)


def _steering(run: RunFolder, job: JobId, state: JobState, *, is_live: bool) -> Steering:
    if state in ENDED:
        return "ended"
    if is_live:
        return "steered"
    if run.supervisor_pid(job) is not None:
        return "unsteered"
    end = run.end_record(job)
    if end is not None and (end.get("ended") == 0 or state == "stopping"):
        return "ended"
    return "interrupted" if run.machine() is None else "elsewhere"


def _ambiguous(text: str | None, matching: list[KnownJob], jobs: list[KnownJob]) -> InvalidSpec:
    must, where = "the name must be that of exactly one job, or its beginning", "the jobs of this user"
    said = "no name" if text is None else f"'{text}'"
    untold = "".join(f" Not all are known: {error}" for error in islice(unreadable(), 1))
    if not jobs:
        return InvalidSpec(must, f"{said}, and there are none", where, f"Start one with `punctual run`.{untold}")
    known = [job.title for job in reversed(matching or jobs)]  # most likely a late one is meant
    more = f" and {len(known) - _N_NAMED} more" if len(known) > _N_NAMED else ""
    got = f"{said}, which fits {len(matching)} of {len(jobs)}"
    return InvalidSpec(must, got, where, f"Name one of: {', '.join(known[:_N_NAMED])}{more}.{untold}")


def unreadable() -> Iterator[InvalidSpec]:
    """Yield for each run the jobs of which cannot be told why that is so."""
    for run in known_runs():
        try:
            run.records.rows()
        except InvalidSpec as error:
            yield error


def _runs_in(root: Path, runtime: Path, state: Path) -> list[RunFolder]:
    """Return the runs of the folders in `root`, which is one of the other two."""
    names = sorted(folder.name for folder in root.iterdir() if _NAME.fullmatch(folder.name) and folder.is_dir())
    return [RunFolder(name, runtime / name, state / name) for name in names]


def now_of(run: RunFolder) -> Now:
    """Present instant in the time of the run's journal; raises `InvalidSpec` if it cannot be read."""
    with run.read_journal() as journal:
        return Now.read(clock_shift(journal.clock))


def messages_of(run: RunFolder, jobs: Sequence[JobId] = (), *, with_others: bool = False) -> list[Message]:
    """Return the messages that may concern one of `jobs`, of the state that had the first; oldest first.

    Without jobs, all messages of the present state. `with_others`: all of that state, also those about other jobs.
    """
    with run.read_journal() as journal:
        if not jobs:
            return [message for _, message in journal.read_from(journal.begun_after + 1)]
        first, last = journal.period_of(jobs[0])
        read = journal.read_from(first, About(until=last)) if with_others else journal.read_of(jobs, first)
        return [message for number, message in read if number <= last]


def job_to_tell_of(text: str | None) -> KnownJob:
    """Find the job that `text` names or begins, ended or not; None: the only steered one, or else the last one.

    Raises `InvalidSpec`: there is no such job, or more than one.
    """
    jobs = known_jobs()
    if text is not None:
        return find_job(text, jobs)
    steered = [job for job in jobs if job.steering == "steered"]
    return find_job(None, steered or sorted(jobs, key=_written_at)[-1:])


def _written_at(job: KnownJob) -> float:
    """Wall time at which the journal of the job's run was last written; 0: it has none."""
    file = job.run.journal
    return file.stat().st_mtime if file.exists() else 0.0
