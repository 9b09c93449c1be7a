"""Figures of one run, and its course over time, from the journal's messages.

Every amount counts until landing: a process that has its results and only leaves does not train, and has its
ceiling for that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from operator import itemgetter
from typing import TypeVar

from punctual.core.commands import RejectJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, Message, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import EndState
from punctual.core.lifecycle import about, end_state
from punctual.core.loss import SeenLoss
from punctual.core.resources import TOLERANCE
from punctual.core.status import n_workers_of
from punctual.history.job import Curves, GrantChange, JobHistory, PhaseCourse
from punctual.history.shortfall import Shortfall, integral, shortfall

T = TypeVar("T")

#: A point of a curve: seconds since submission, and a value.
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineSet:
    """A deadline in force from instant `at`, `deadline_s` after submission; None: no deadline."""

    at: float
    deadline_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """First warning with this text, at instant `at`; `facts` are its numbers, such as the forecast."""

    at: float
    code: str
    text: str
    facts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Figures of one run.

    Attributes
    ----------
    submitted_at, started_at, landed_at, ended_at
        Instants in seconds; None: not yet, or never.
    deadlines
        The one declared, then each change, in order.
    deadline_s
        The last one in force before landing, in seconds from submission.
    deviation_s, deviation_frac
        Landing minus deadline: negative is early; as a fraction of `deadline_s`.
    on_time
        Landed at or before the deadline. A run that failed, or was stopped because of its deadline, is not; None:
        undecided, no deadline, or a run that others stopped or that was turned away.
    worked_on_s
        Seconds for which the program worked on after its last declared step or phase, until its end. That is when
        it landed.
    steps_done, steps_total
        Last reported values.
    used_core_s, granted_core_s, ceiling_core_s
        CPU used, and the integrals of the granted cores and, from the start, of the job's ceiling; until landing.
    n_resizes
        Changes of the granted cores after the start and until landing; new pacing lines are not counted.
    warnings
        Each code once, when it was first told.
    unsteered_s
        Seconds for which no process steered the job, because the one that did had died.
    status, exit_code, cause
        End of the process; None and empty while it runs.
    argv, controller
        The command, and what turned readings into demand; empty: the journal does not hold it.
    loss
        The last that was reported; None: none was.
    shortfall
        Unused part of its grants; None: not worth a word.
    earliest_deadline_s
        Of a job that was turned away because its deadline cannot be guaranteed: the earliest that could be, in seconds from
        its submission; None: none could, or it was not.
    peak_memory_bytes
        The most memory that its processes were seen to hold; 0: not known.
    """

    job: JobId
    submitted_at: float
    started_at: float | None
    landed_at: float | None
    ended_at: float | None
    deadlines: tuple[DeadlineSet, ...]
    deadline_s: float | None
    deviation_s: float | None
    deviation_frac: float | None
    on_time: bool | None
    steps_done: float
    steps_total: float | None
    used_core_s: float
    granted_core_s: float
    ceiling_core_s: float
    n_resizes: int
    warnings: tuple[Warned, ...]
    unsteered_s: float
    status: EndState | None
    exit_code: int | None
    cause: str
    argv: tuple[str, ...] = ()
    controller: str = ""
    loss: SeenLoss | None = None
    shortfall: Shortfall | None = None
    worked_on_s: float = 0.0
    earliest_deadline_s: float | None = None
    peak_memory_bytes: int = 0

    def warned(self, code: str) -> Warned | None:
        """The first warning with this code."""
        return next((warning for warning in self.warnings if warning.code == code), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineLine:
    """A part of the straight line to the deadline: seconds since submission, and shares of the steps, at its two ends.

    It begins at the first step, and anew, from where the job is then, where the deadline is changed.
    """

    from_s: float
    from_frac: float
    until_s: float
    until_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """The course of one run; instants in seconds since submission.

    Attributes
    ----------
    progress
        Share of the declared steps that is done, 0 to 1.
    grant
        Cores held from that instant on.
    usage
        Cores used on average since the point before.
    demand
        Cores demanded by the controller from that instant on, as far as commands tell.
    deadlines
        Deadline in force from that instant on, in seconds since submission.
    forecasts
        Expected landing, in seconds since submission, wherever a reason named one.
    workers
        Workers held from that instant on; empty for a job that is not made of workers.
    losses
        Training losses, at the instants at which they were reported.
    resizes
        Seconds from the command to the answer, at each change of what is held that was asked for: what a start, or a
        change of the number of workers, took.
    phases
        Spans of phases.
    lines
        The straight line to each deadline, as long as that was in force.
    """

    progress: tuple[Point, ...]
    grant: tuple[Point, ...]
    usage: tuple[Point, ...]
    deadlines: tuple[Point, ...]
    forecasts: tuple[Point, ...]
    workers: tuple[Point, ...] = ()
    losses: tuple[Point, ...] = ()
    resizes: tuple[Point, ...] = ()
    phases: tuple[PhaseCourse, ...] = ()
    lines: tuple[DeadlineLine, ...] = ()
    demand: tuple[Point, ...] = ()


def summarize(messages: Iterable[Message], job: JobId) -> RunSummary:
    """The numbers of `job` so far; raises as `history_of` does."""
    return summary(history_of(messages, job))


def summarize_all(messages: Iterable[Message], jobs: Iterable[JobId]) -> dict[JobId, RunSummary]:
    """Summarise several jobs in one pass over the messages; raises as `history_of` does."""
    histories = {job: JobHistory(job) for job in jobs}
    for message in messages:
        job = about(message)
        for history in histories.values() if job is None else filter(None, [histories.get(job)]):
            history.take(message)
    return {job: summary(_submitted(history)) for job, history in histories.items()}


def history_of(messages: Iterable[Message], job: JobId) -> JobHistory:
    """Fold all messages that concern `job`.

    Raises
    ------
    InvalidSpec
        No message says that the job was submitted.
    """
    history = JobHistory(job)
    for message in messages:
        history.take(message)
    return _submitted(history)


def _submitted(history: JobHistory) -> JobHistory:
    if history.submission is None:
        where = f"job '{history.id}'"
        raise InvalidSpec("the journal must hold the job's submission", "none", where, "Name a job of this journal.")
    return history


def smooth_usage(usage: Sequence[Point], duration_s: float) -> tuple[Point, ...]:
    """Return `usage` of a run of `duration_s` as means that can be seen beside its grants: over ticks it shows single steps."""
    # Usage is drawn as means over at least so many seconds, and this share of the run.
    window_s = max(0.5, 0.01 * duration_s)
    smooth: list[Point] = []
    before_s = from_s = usage[0][0] if usage else 0.0
    core_s = 0.0
    for at_s, amount in usage[1:]:
        core_s += amount * (at_s - before_s)
        before_s = at_s
        if at_s - from_s >= window_s:
            smooth.append((at_s, core_s / (at_s - from_s)))
            from_s, core_s = at_s, 0.0
    return tuple(smooth)


def series(history: JobHistory) -> RunSeries:
    """Return the course so far of a job with curves."""
    since, curves = history.submitted_at, curves_of(history)
    changes, spec = _core_changes(curves.grants), history.spec
    has_workers = spec is not None and spec.worker is not None
    return RunSeries(
        progress=tuple((entry.at - since, _done_frac(entry, history)) for entry in curves.readings),
        grant=tuple((change.at - since, change.cores) for change in changes),
        usage=tuple(_usage(curves.readings, since)),
        deadlines=tuple(
            (entry.at - since, entry.deadline_s) for entry in _deadlines(history) if entry.deadline_s is not None
        ),
        forecasts=tuple((at - since, finish_s) for at, finish_s in curves.forecasts),
        workers=tuple(
            (change.at - since, float(n_workers_of(spec, change.granted)))
            for change in changes
            if spec is not None and has_workers
        ),
        losses=tuple((at - since, seen.loss) for at, seen in curves.losses),
        resizes=tuple(
            (change.at - since, max(0.0, change.at - change.asked_at))
            for change in changes
            if change.asked_at is not None
        ),
        phases=tuple(curves.phases),
        lines=tuple(_lines(history)),
        demand=tuple((at - since, cores) for at, cores in curves.demands),
    )


def summary(history: JobHistory) -> RunSummary:
    """Return the numbers of a job with curves so far; it must have been submitted."""
    curves, end, spec = curves_of(history), history.end, history.spec_at(inf)
    landed_at, last_at = history.landed_at, _last_at(history)
    grants = [(change.at, change.cores) for change in _core_changes(curves.grants)]
    deadlines = _deadlines(history)
    # A change after the landing does not concern the run.
    deadline_s = ([entry for entry in deadlines if entry.at <= last_at] or deadlines[:1])[-1].deadline_s
    deviation_s = None
    if landed_at is not None and deadline_s is not None:
        deviation_s = landed_at - history.submitted_at - deadline_s
    status = None if end is None else end_state(end)
    cause = end.cause if isinstance(end, JobFailed) else end.reason.text if isinstance(end, RejectJob) else ""
    is_due = end.is_due if isinstance(end, JobFailed) else isinstance(end, RejectJob) and end.reason.code == "due"
    program = history.submission.program if history.submission is not None else None
    return RunSummary(
        job=history.id,
        submitted_at=history.submitted_at,
        started_at=history.started_at,
        landed_at=landed_at,
        ended_at=end.at if end else None,
        deadlines=tuple(deadlines),
        deadline_s=deadline_s,
        deviation_s=deviation_s,
        deviation_frac=deviation_s / deadline_s if deviation_s is not None and deadline_s else None,
        on_time=_on_time(deviation_s, deadline_s, status, is_due=is_due),
        steps_done=history.steps_done,
        steps_total=history.steps_total,
        used_core_s=_used_core_s(history),
        granted_core_s=integral(grants, -inf, last_at),
        ceiling_core_s=integral(_ceilings(history, last_at), -inf, last_at),
        n_resizes=_n_resizes(grants, last_at),
        warnings=tuple(
            Warned(at=command.at, code=code, text=command.reason.text, facts=command.reason.facts)
            for code, command in curves.warnings.items()
        ),
        unsteered_s=history.unsteered_s,
        status=status,
        exit_code=0 if status == "finished" else None if status is None else history.exit_code,
        cause=cause,
        earliest_deadline_s=end.reason.facts.get("earliest_deadline_s") if isinstance(end, RejectJob) else None,
        argv=program.argv if program is not None else (),
        controller=spec.controller or "",
        loss=curves.losses[-1][1] if curves.losses else None,
        worked_on_s=_worked_on_s(history, landed_at),
        shortfall=shortfall(curves.readings, grants, curves.pacing, last_at),
        peak_memory_bytes=max((reading.memory_bytes for reading in curves.readings), default=0),
    )


def curves_of(history: JobHistory) -> Curves:
    """Return the curves of a history that has them."""
    assert history.curves is not None
    return history.curves


def _changes(values: Iterable[tuple[float, T]]) -> list[tuple[float, T]]:
    """Return the values that differ from the one before."""
    return [next(alike) for _, alike in groupby(values, key=itemgetter(1))]


def _deadlines(history: JobHistory) -> list[DeadlineSet]:
    declared = ((at, spec.deadline_s) for at, spec in history.specs)
    return [DeadlineSet(at=at, deadline_s=deadline_s) for at, deadline_s in _changes(declared)]


def _ceilings(history: JobHistory, last_at: float) -> list[Point]:
    started_at = last_at if history.started_at is None else history.started_at
    changes = _changes((at, spec.ceiling) for at, spec in history.specs)
    return [(max(at, started_at), ceiling.cores) for at, ceiling in changes]


def _core_changes(grants: Iterable[GrantChange]) -> list[GrantChange]:
    """Return the changes of the cores, by more than rounding."""
    changes: list[GrantChange] = []
    for grant in grants:
        if abs(grant.cores - (changes[-1].cores if changes else 0.0)) > TOLERANCE:
            changes.append(grant)
    return changes


def _last_at(history: JobHistory) -> float:
    """Instant until which amounts count: the landing, else the end, else the last message."""
    if history.landed_at is not None:
        return history.landed_at
    if history.end is not None:
        return history.end.at
    curves = curves_of(history)
    changed = [change.at for change in _core_changes(curves.grants)[-1:]]
    return max([history.submitted_at, *changed, *(reading.at for reading in curves.readings[-1:])])


def _on_time(
    deviation_s: float | None, deadline_s: float | None, status: EndState | None, *, is_due: bool
) -> bool | None:
    if deadline_s is None:
        return None
    if deviation_s is None:
        return False if status in ("finished", "failed") or is_due else None
    return deviation_s <= 0


def _worked_on_s(history: JobHistory, landed_at: float | None) -> float:
    if history.landing is None or landed_at is None:
        return 0.0
    return max(0.0, landed_at - history.landing.unit_at)


def _used_core_s(history: JobHistory) -> float:
    landing, landed_at = history.landing, history.landed_at
    if landing is None or landed_at is None:
        return history.lost_core_s + history.process_core_s
    readings = curves_of(history).readings
    after = [reading.used_core_s for reading in readings if landing.at < reading.at <= landed_at]
    return history.lost_core_s + (after[-1] if after else landing.used_core_s - landing.in_flight_core_s)


def _n_resizes(grants: Sequence[Point], until_at: float) -> int:
    """Return the number of changes between two amounts; starts and ends do not count."""
    return sum(1 for (_, before), (at, after) in pairwise(grants) if before and after and at < until_at)


def _done_frac(reading: ProgressReported, history: JobHistory) -> float:
    steps_total = reading.steps_total or history.steps_total
    return reading.steps_done / steps_total if steps_total else 0.0


def _lines(history: JobHistory) -> Iterable[DeadlineLine]:
    steps_total, starts = history.steps_total, curves_of(history).line_starts
    if not steps_total or not starts:
        return
    for (at, steps_done, deadline_s), (changed_at, _, _) in pairwise([*starts, (inf, 0.0, None)]):
        from_s, from_frac = at - history.submitted_at, min(1.0, steps_done / steps_total)
        if deadline_s is None or deadline_s <= from_s:
            continue
        until_s = min(deadline_s, changed_at - history.submitted_at)
        until_frac = 1.0 - (1.0 - from_frac) * (deadline_s - until_s) / (deadline_s - from_s)
        yield DeadlineLine(from_s=from_s, from_frac=from_frac, until_s=until_s, until_frac=until_frac)


def _usage(readings: Iterable[ProgressReported], since: float) -> Iterable[Point]:
    for before, after in pairwise(readings):
        # Readings that were taken at one instant, or of a process that was started again, give no rate.
        if after.at > before.at and after.used_core_s >= before.used_core_s:
            yield after.at - since, (after.used_core_s - before.used_core_s) / (after.at - before.at)
