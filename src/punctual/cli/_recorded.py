"""Live journals as traces of `punctual simulate`: their names, a period of them, and what is said of their jobs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.units import span
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import KnownJob, find_job, known_jobs, known_runs
from punctual.journal.boot import clock_shift
from punctual.journal.sqlite import About, SqliteJournal
from punctual.request.deadlines import Now, past_at
from punctual.sim.recording import is_journal
from punctual.sim.result import Result

#: Most jobs that are named with the reason why they are estimated or left out; `--json` has all.
_N_NAMED = 3


def journal_named(trace: str) -> tuple[str, dict[str, float]]:
    """Return the journal that `trace` names: a run, a job of it, or a run's folder; another trace as it is.

    Of a job, with the scenario's keys for the jobs that its daemon had between its start and its last job's end.

    Raises `InvalidSpec`: it is a folder without a journal.
    """
    path = Path(trace)
    if path.is_dir():
        journal = RunFolder(path.absolute().name, path, path).journal
        if not journal.is_file():
            raise InvalidSpec(
                "a trace must be a file, or the folder of a run",
                f"a folder without `{journal.name}`",
                f"'{trace}'",
                "Name a run of `punctual ps --all`, its folder, or a copy of its `journal.db`.",
            )
        return str(journal), {}
    if path.exists() or len(path.parts) > 1 or ":" in trace:
        return trace, {}
    for run in known_runs():
        if run.name == trace:
            return str(run.journal), {}
    jobs = known_jobs()
    if not any(trace in (job.title, job.name) for job in jobs):
        return trace, {}
    job = find_job(trace, jobs)
    return str(job.run.journal), _period_of(job)


def _period_of(job: KnownJob) -> dict[str, float]:
    submissions = About(kinds=("JobSubmitted",))
    with job.run.read_journal() as journal:
        first, last = journal.period_of(job.job)
        begun_at, *edges_at = (
            next((message.at for _, message in journal.read_from(sequence, submissions)), None)
            for sequence in (1, first, min(last + 1, 2**63 - 1))
        )
    keys = zip(("trace.start_s", "trace.end_s"), edges_at, strict=True)
    return {key: at - (begun_at or 0.0) for key, at in keys if at is not None and at != begun_at}


def period_keys(trace: str | None, from_: str | None, until: str | None) -> dict[str, float]:
    """Return the scenario's keys for the jobs submitted since `from_` and before `until`, times of the past.

    Raises `InvalidSpec`: a time cannot be read, they are in the wrong order, or `trace` is no live journal with jobs
    before `until`.
    """
    if from_ is None and until is None:
        return {}
    if trace is None or not is_journal(Path(trace)):
        raise InvalidSpec(
            "`--from` and `--until` must go with a live journal",
            "no trace" if trace is None else f"'{trace}'",
            "`punctual simulate`",
            "Name a run by `--trace`; of other traces `--set trace.start_s=3600` leaves jobs out.",
        )
    now = Now.read()
    with SqliteJournal(Path(trace), read_only=True) as journal:
        first = next((event for _, event in journal.read_from(1, About(kinds=("JobSubmitted",)))), None)
        begun_at = (0.0 if first is None else first.at) + clock_shift(journal.clock)
    start_s = None if from_ is None else max(0.0, past_at(from_, now) - begun_at)
    end_s = None if until is None else past_at(until, now) - begun_at
    if end_s is not None and end_s <= (start_s or 0.0):
        raise InvalidSpec(
            "`--until` must be after `--from` and the first submission",
            f"{until}",
            "`punctual simulate`",
            "Give a later time, or add a date.",
        )
    keys = {"trace.start_s": start_s, "trace.end_s": end_s}
    return {key: seconds for key, seconds in keys.items() if seconds is not None}


def recorded_fields(result: Result) -> dict[str, Any]:
    """Encode how well recorded jobs are simulated, as plain fields; empty for another trace."""
    load, agreement = result.load, result.faithfulness
    if load is None:
        return {}
    return {
        "faithfulness": agreement and asdict(agreement),
        "estimated": load.estimated,
        "left_out": load.left_out,
        "n_outside": load.n_outside,
        "unsteered_s": load.unsteered_s,
    }


def recorded_lines(result: Result) -> list[str]:
    """Describe how well recorded jobs are simulated; empty for another trace."""
    load, agreement = result.load, result.faithfulness
    if load is None:
        return []
    lines = []
    if agreement is not None and agreement.shift_s is not None:
        lines.append(
            f"Of {agreement.n_landed:,} jobs that landed, half land within {span(agreement.shift_s)} of "
            f"their live landing when the same policy is replayed; of {agreement.n_with_deadline:,} with a deadline, "
            f"{agreement.n_same:,} keep or miss it as they did. Smaller differences between policies say nothing."
        )
    lines += _named("Estimated", load.estimated)
    lines += _named("Left out", load.left_out)
    if load.n_outside:
        lines.append(
            f"Not played: {load.n_outside:,} jobs submitted at other times, whatever they took of the machine."
        )
    if load.unsteered_s:
        lines.append(f"Nobody steered for {span(load.unsteered_s)}; the replay steers all the time.")
    if load.policy_changes:
        names = ", ".join(dict.fromkeys(change.policy for change in load.policy_changes))
        lines.append(f"The policy was changed while jobs ran ({names}); 'replayed' changes it at the same instants.")
    return lines


def _named(heading: str, jobs: Mapping[JobId, str]) -> list[str]:
    if not jobs:
        return []
    told = "; ".join(f"{job} ({why})" for job, why in list(jobs.items())[:_N_NAMED])
    more = f"; and {len(jobs) - _N_NAMED:,} more" if len(jobs) > _N_NAMED else ""
    return [f"{heading}: {len(jobs):,} of the jobs: {told}{more}."]
