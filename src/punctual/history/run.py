"""Figures of one run, and its course over time, from the journal's messages.

Every amount counts until landing: a process that has its results and only leaves does not train, and has its
ceiling for that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    LossReported,
    NodeLost,
    PhaseReported,
    ProgressReported,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.ids import JobId
from punctual.core.job import Allocation, EndState, JobSpec
from punctual.core.lifecycle import about, end_state
from punctual.core.loss import SeenLoss
from punctual.core.protocols import Message
from punctual.core.recent_messages import NOTICES
from punctual.core.resources import TOLERANCE, total
from punctual.core.status import n_workers_of
from punctual.history.shortfall import Shortfall, shortfall

#: Messages that may concern a job without naming it.
_ABOUT_ALL = (NodeLost, SteeringResumed, WarnUser)

#: A point of a curve: seconds since submission, and a value.
Point = tuple[float, float]

#: Usage is drawn as means over at least so many seconds, and this share of the run.
_WINDOW_S, _WINDOW_FRAC = 0.5, 0.01


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
        Landed at or before the deadline. A run that failed is not; None: undecided, no deadline, or a run that was stopped
        or turned away.
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
class PhaseCourse:
    """Span of a phase, in seconds since submission; parts that were reported one by one make one span."""

    name: str
    from_s: float
    until_s: float


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


def summarize(messages: Iterable[Message], job: JobId) -> RunSummary:
    """The numbers of `job` so far.

    Raises
    ------
    InvalidSpec
        No message says that the job was submitted.
    """
    return _summary(_read(messages, job))


def summarize_all(messages: Iterable[Message], jobs: Iterable[JobId]) -> dict[JobId, RunSummary]:
    """Summarise several jobs in one pass over the messages."""
    courses = {job: RunCourse(job) for job in jobs}
    for message in messages:
        job = about(message)
        if job in courses:
            courses[job].take(message)
        elif isinstance(message, _ABOUT_ALL) and job is None:
            for course in courses.values():
                course.take(message)
    return {job: _summary(_submitted(course)) for job, course in courses.items()}


def series(messages: Iterable[Message], job: JobId) -> RunSeries:
    """The course of `job` so far.

    Raises
    ------
    InvalidSpec
        No message says that the job was submitted.
    """
    return _read(messages, job).series()


def smooth_usage(usage: Sequence[Point], duration_s: float) -> tuple[Point, ...]:
    """Return `usage` of a run of `duration_s` as means that can be seen beside its grants: over ticks it shows single steps."""
    window_s = max(_WINDOW_S, _WINDOW_FRAC * duration_s)
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


@dataclass(slots=True)
class RunCourse:
    """State folded from the messages about one job: give it each message, in the order of the journal."""

    job: JobId
    submitted_at: float = 0.0
    spec: JobSpec | None = None
    started_at: float | None = None
    ended: JobFinished | JobFailed | RejectJob | None = None
    landing: ProgressReported | None = None
    #: Exit code of the process that failed last.
    exit_code: int | None = None
    #: CPU time of the processes that failed, and of the one after them up to its last reading.
    lost_core_s: float = 0.0
    process_core_s: float = 0.0
    deadlines: list[DeadlineSet] = field(default_factory=list)
    ceilings: list[Point] = field(default_factory=list)
    #: Start of each straight line to a deadline, the last one in force: (instant, steps done then, `deadline_s`).
    line_starts: list[tuple[float, float, float | None]] = field(default_factory=list)
    readings: list[ProgressReported] = field(default_factory=list)
    #: The job's grant, and its history: instants and cores.
    granted: Allocation = field(default_factory=dict)
    grants: list[Point] = field(default_factory=list)
    workers: list[tuple[float, int]] = field(default_factory=list)
    #: Whether a pacing line was in force, and since when.
    pacing: list[tuple[float, bool]] = field(default_factory=list)
    argv: tuple[str, ...] = ()
    losses: list[tuple[float, SeenLoss]] = field(default_factory=list)
    forecasts: list[Point] = field(default_factory=list)
    warnings: dict[str, Warned] = field(default_factory=dict)
    unsteered_s: float = 0.0
    #: Instant of each command without an answer; and the seconds that each change of the grant took.
    asked_at: dict[int, float] = field(default_factory=dict)
    resizes: list[Point] = field(default_factory=list)
    #: Wall time of each phase as last reported, and what that tells of when they were under way.
    phase_wall_s: dict[str, float] = field(default_factory=dict)
    phases: list[PhaseCourse] = field(default_factory=list)

    def take(self, message: Message) -> None:
        """Fold the next message; ignore those about other jobs."""
        match message:
            case JobSubmitted() | SpecChanged() if message.spec.id == self.job:
                if self.spec is None or isinstance(message, SpecChanged):  # a second job of the name is turned away
                    self._declare(message)
            case NodeLost():
                self._lose(message)
            case SteeringResumed():
                if self.spec is not None and self.ended is None:  # else it concerns only others of the journal
                    self._resume(message)
            case WarnUser() if message.job in (self.job, None):
                self._warn(message)
            case JobSubmitted() | SpecChanged() | WarnUser():
                pass
            case _ if getattr(message, "job", None) == self.job:
                self._take_own(message)

    def _take_own(self, message: Message) -> None:
        match message:
            case JobStarted() | GrantApplied() | GrantFailed():
                if isinstance(message, JobStarted) and self.started_at is None:
                    self.started_at = message.at
                self._hold(message.at, message.granted, self.asked_at.pop(message.request, None))
            case PhaseReported():
                self._phase(message)
            case ProgressReported():
                self._progress(message)
            case LaunchJob() | ResizeJob():
                self._forecast(message.at, message.reason.facts)
                self._pace(message.at, isinstance(message, ResizeJob) and message.pacing is not None)
                self.asked_at = {message.request: message.at}  # an answer to an earlier one says nothing any more
            case LossReported(at=at, losses=losses):
                self.losses += [(at, loss) for loss in losses]
            case JobFailed(retryable=True):
                self._lose_process(message.at)
                self.exit_code = message.exit_code
            case JobFinished() | JobFailed():
                self._end(message)
            case RejectJob() if self.ended is None:
                self._end(message)

    def _lose_process(self, at: float) -> None:
        """The next process may have to do again what this one had done."""
        self.landing = None
        self.lost_core_s, self.process_core_s = self.lost_core_s + self.process_core_s, 0.0
        self._hold(at, {})

    def _end(self, message: JobFinished | JobFailed | RejectJob) -> None:
        self.ended = message
        if isinstance(message, JobFailed):
            self.exit_code = message.exit_code
        self._hold(message.at, {})

    def _declare(self, event: JobSubmitted | SpecChanged) -> None:
        if isinstance(event, JobSubmitted):
            self.submitted_at = event.at
            self.argv = event.program.argv if event.program is not None else ()
        if self.spec is None or self.spec.deadline_s != event.spec.deadline_s:
            self.deadlines.append(DeadlineSet(at=event.at, deadline_s=event.spec.deadline_s))
            if self.line_starts and self.readings:
                self.line_starts.append((event.at, self.readings[-1].steps_done, event.spec.deadline_s))
        if self.spec is None or self.spec.ceiling != event.spec.ceiling:
            self.ceilings.append((event.at, event.spec.ceiling.cores))
        self.spec = event.spec

    def _lose(self, event: NodeLost) -> None:
        if event.node in self.granted:
            self._hold(event.at, {node: amount for node, amount in self.granted.items() if node != event.node})

    def _resume(self, event: SteeringResumed) -> None:
        self.unsteered_s += event.at - event.lost_at
        if self.job in event.granted:
            self._hold(event.lost_at, event.granted[self.job])
        else:
            self._lose_process(event.lost_at)

    def _phase(self, event: PhaseReported) -> None:
        for phase in event.phases:
            took_s = phase.wall_s - self.phase_wall_s.get(phase.name, 0.0)
            self.phase_wall_s[phase.name] = phase.wall_s
            if took_s <= 0:  # nothing new, or another process
                continue
            until_s = event.at - self.submitted_at
            last = self.phases[-1] if self.phases else None
            goes_on = last is not None and last.name == phase.name and until_s - took_s - last.until_s < took_s
            from_s = last.from_s if last is not None and goes_on else max(0.0, until_s - took_s)
            self.phases[len(self.phases) - goes_on :] = [PhaseCourse(name=phase.name, from_s=from_s, until_s=until_s)]

    def _hold(self, at: float, granted: Allocation, asked_at: float | None = None) -> None:
        self.granted = granted
        cores = total(granted.values()).cores
        before = self.grants[-1][1] if self.grants else 0.0
        if abs(cores - before) > TOLERANCE:
            self.grants.append((at, cores))
            if asked_at is not None:
                self.resizes.append((at, max(0.0, at - asked_at)))
            if self.spec is not None and self.spec.worker is not None:
                self.workers.append((at, n_workers_of(self.spec, granted)))

    def _pace(self, at: float, is_paced: bool) -> None:
        if not self.pacing or self.pacing[-1][1] != is_paced:  # there is a new line at almost every tick
            self.pacing.append((at, is_paced))

    def _progress(self, event: ProgressReported) -> None:
        self.readings.append(event)
        self.process_core_s = event.used_core_s
        if not self.line_starts and event.steps_done > 0 and self.deadlines:
            self.line_starts.append((event.unit_at, event.steps_done, self.deadlines[-1].deadline_s))
        # A job that lands and then goes on, with undeclared work, has not landed yet.
        self.landing = (self.landing or event) if event.landed else None

    def _warn(self, command: WarnUser) -> None:
        reason = command.reason
        if reason.code in NOTICES:
            return
        warned = Warned(at=command.at, code=reason.code, text=reason.text, facts=reason.facts)
        self.warnings.setdefault(reason.code, warned)
        self._forecast(command.at, reason.facts)

    def _forecast(self, at: float, facts: Mapping[str, float]) -> None:
        finish_s = facts.get("finish_s", facts.get("earliest_finish_s"))
        if finish_s is not None:
            self.forecasts.append((at, finish_s))

    def series(self) -> RunSeries:
        """The course so far."""
        since = self.submitted_at
        return RunSeries(
            progress=tuple((entry.at - since, _done_frac(entry, self)) for entry in self.readings),
            grant=tuple((at - since, cores) for at, cores in self.grants),
            usage=tuple(_usage(self)),
            deadlines=tuple(
                (entry.at - since, entry.deadline_s) for entry in self.deadlines if entry.deadline_s is not None
            ),
            forecasts=tuple((at - since, finish_s) for at, finish_s in self.forecasts),
            workers=tuple((at - since, float(count)) for at, count in self.workers),
            losses=tuple((at - since, seen.loss) for at, seen in self.losses),
            resizes=tuple((at - since, took_s) for at, took_s in self.resizes),
            phases=tuple(self.phases),
            lines=tuple(_lines(self)),
        )

    def thin(self, n_points: int) -> None:
        """Forget readings, forecasts, losses and phases in between, evenly: at most twice `n_points` of each are left.

        They come as long as the job runs, so a long run would take ever more memory. Usage is then the mean of longer times.
        """
        for points in (self.readings, self.forecasts, self.losses, self.phases):
            while len(points) > 2 * n_points:
                del points[1:-1:2]

    def landed_at(self) -> float | None:
        if isinstance(self.ended, JobFinished):
            return self.ended.landed_at
        return self.landing.unit_at if self.landing else None

    def last_at(self) -> float:
        """Instant until which amounts count: the landing, else the end, else the last message."""
        landed_at = self.landed_at()
        if landed_at is not None:
            return landed_at
        if self.ended is not None:
            return self.ended.at
        return max(
            [self.submitted_at, *(at for at, _ in self.grants[-1:]), *(entry.at for entry in self.readings[-1:])]
        )


def _read(messages: Iterable[Message], job: JobId) -> RunCourse:
    course = RunCourse(job)
    for message in messages:
        course.take(message)
    return _submitted(course)


def _submitted(course: RunCourse) -> RunCourse:
    """Return `course`; raise `InvalidSpec` if its job was not submitted."""
    job = course.job
    if course.spec is None:
        raise InvalidSpec(
            "the journal must hold the job's submission", "none", f"job '{job}'", "Name a job of this journal."
        )
    return course


def _summary(course: RunCourse) -> RunSummary:
    landed_at, deadline_s = course.landed_at(), _deadline_in_force(course)
    deviation_s = None
    if landed_at is not None and deadline_s is not None:
        deviation_s = landed_at - course.submitted_at - deadline_s
    status = None if course.ended is None else end_state(course.ended)
    last = course.readings[-1] if course.readings else None
    return RunSummary(
        job=course.job,
        submitted_at=course.submitted_at,
        started_at=course.started_at,
        landed_at=landed_at,
        ended_at=course.ended.at if course.ended else None,
        deadlines=tuple(course.deadlines),
        deadline_s=deadline_s,
        deviation_s=deviation_s,
        deviation_frac=deviation_s / deadline_s if deviation_s is not None and deadline_s else None,
        on_time=_on_time(deviation_s, deadline_s, status),
        steps_done=last.steps_done if last else 0.0,
        steps_total=_steps_total(course),
        used_core_s=_used_core_s(course),
        granted_core_s=_core_s(course.grants, course.last_at()),
        ceiling_core_s=_core_s(_ceilings(course), course.last_at()),
        n_resizes=_n_resizes(course),
        warnings=tuple(course.warnings.values()),
        unsteered_s=course.unsteered_s,
        status=status,
        exit_code=0 if status == "finished" else None if status is None else course.exit_code,
        cause=_cause(course.ended),
        earliest_deadline_s=_earliest_deadline_s(course.ended),
        argv=course.argv,
        controller=course.spec.controller if course.spec is not None and course.spec.controller else "",
        loss=course.losses[-1][1] if course.losses else None,
        worked_on_s=_worked_on_s(course, landed_at),
        shortfall=shortfall(course.readings, course.grants, course.pacing, course.last_at()),
        peak_memory_bytes=max((reading.memory_bytes for reading in course.readings), default=0),
    )


def _deadline_in_force(course: RunCourse) -> float | None:
    """Return the last deadline set before landing; a later change does not concern the run."""
    last_at = course.last_at()
    in_force = [entry for entry in course.deadlines if entry.at <= last_at] or course.deadlines[:1]
    return in_force[-1].deadline_s


def _on_time(deviation_s: float | None, deadline_s: float | None, status: EndState | None) -> bool | None:
    if deadline_s is None:
        return None
    if deviation_s is None:
        return False if status in ("finished", "failed") else None
    return deviation_s <= 0


def _cause(end: JobFinished | JobFailed | RejectJob | None) -> str:
    match end:
        case JobFailed(cause=cause):
            return cause
        case RejectJob(reason=reason):
            return reason.text
    return ""


def _earliest_deadline_s(end: JobFinished | JobFailed | RejectJob | None) -> float | None:
    return end.reason.facts.get("earliest_deadline_s") if isinstance(end, RejectJob) else None


def _steps_total(course: RunCourse) -> float | None:
    reported = [entry.steps_total for entry in course.readings if entry.steps_total is not None]
    declared = course.spec.work_steps if course.spec else None
    return reported[-1] if reported else declared


def _worked_on_s(course: RunCourse, landed_at: float | None) -> float:
    if course.landing is None or landed_at is None:
        return 0.0
    return max(0.0, landed_at - course.landing.unit_at)


def _used_core_s(course: RunCourse) -> float:
    landing, landed_at = course.landing, course.landed_at()
    if landing is None or landed_at is None:
        return course.lost_core_s + course.process_core_s
    after = [reading.used_core_s for reading in course.readings if landing.at < reading.at <= landed_at]
    return course.lost_core_s + (after[-1] if after else landing.used_core_s - landing.in_flight_core_s)


def _core_s(points: Sequence[Point], until_at: float) -> float:
    """The integral, up to an instant, of cores that are given with the instants from which on they hold."""
    held = [(min(at, until_at), cores) for at, cores in [*points, (until_at, 0.0)]]
    return sum((cores * (until - at) for (at, cores), (until, _) in pairwise(held)), 0.0)


def _ceilings(course: RunCourse) -> list[Point]:
    started_at = course.last_at() if course.started_at is None else course.started_at
    return [(max(at, started_at), cores) for at, cores in course.ceilings]


def _n_resizes(course: RunCourse) -> int:
    """Return the number of changes between two amounts; starts and ends do not count."""
    until = course.last_at()
    steps = [(before, after, at) for (_, before), (at, after) in pairwise(course.grants)]
    return sum(1 for before, after, at in steps if before and after and at < until)


def _done_frac(reading: ProgressReported, course: RunCourse) -> float:
    steps_total = reading.steps_total or _steps_total(course)
    return reading.steps_done / steps_total if steps_total else 0.0


def _lines(course: RunCourse) -> Iterable[DeadlineLine]:
    steps_total, starts = _steps_total(course), course.line_starts
    if not steps_total or not starts:
        return
    for (at, steps_done, deadline_s), (changed_at, _, _) in pairwise([*starts, (inf, 0.0, None)]):
        from_s, from_frac = at - course.submitted_at, min(1.0, steps_done / steps_total)
        if deadline_s is None or deadline_s <= from_s:
            continue
        until_s = min(deadline_s, changed_at - course.submitted_at)
        until_frac = 1.0 - (1.0 - from_frac) * (deadline_s - until_s) / (deadline_s - from_s)
        yield DeadlineLine(from_s=from_s, from_frac=from_frac, until_s=until_s, until_frac=until_frac)


def _usage(course: RunCourse) -> Iterable[Point]:
    for before, after in pairwise(course.readings):
        # Readings that were taken at one instant, or of a process that was started again, give no rate.
        if after.at > before.at and after.used_core_s >= before.used_core_s:
            rate = (after.used_core_s - before.used_core_s) / (after.at - before.at)
            yield after.at - course.submitted_at, rate
