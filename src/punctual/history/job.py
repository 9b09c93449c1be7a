"""History of one job: the one fold of its messages. Every figure of a job is a query of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from punctual.core import events
from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, WarnUser
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.job import Allocation, EndState, JobSpec
from punctual.core.lifecycle import about, end_state, folds_in
from punctual.core.loss import SeenLoss
from punctual.core.reason import NOTICES
from punctual.core.resources import same_amount, total
from punctual.history.decisions import gap_frac

#: Outcome of a job; *unfinished*: the record ends before the job does.
Outcome = Literal[EndState, "unfinished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Figures of one job, "so far" for one that is unfinished; `docs/reference/metrics.md` defines each.

    Instants in seconds; None: not yet, never, or unknown. `deadline_s` and `weight` are those in force at landing (or its
    end, or now). `steps_total` is the declared work before a report names it.
    """

    id: JobId
    status: Outcome
    submitted_at: float
    started_at: float | None
    landed_at: float | None
    ended_at: float | None
    deadline_s: float | None
    weight: float
    jct_s: float | None
    on_time: bool | None
    tardiness_s: float | None
    queued_s: float | None
    waiting_s: float
    device_s: float
    core_s: float
    n_resizes: int
    n_preemptions: int
    n_failures: int
    n_grants_failed: int
    steps_done: float
    steps_total: float | None
    work_lost_steps: float
    n_present: float

    @property
    def training_s(self) -> float | None:
        """First start to landing, with every pause between."""
        if self.landed_at is None or self.started_at is None:
            return None
        return self.landed_at - self.started_at

    @property
    def done_frac(self) -> float:
        """Share of its work that is done; 0 if unknown."""
        if self.landed_at is not None:
            return 1.0
        return min(1.0, self.steps_done / self.steps_total) if self.steps_total else 0.0


class GrantChange(NamedTuple):
    """A grant from instant `at` on; `asked_at`: the instant of the command that it answers, if it was the last one."""

    at: float
    granted: Allocation
    cores: float
    asked_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCourse:
    """Span of a phase, in seconds since submission; parts that were reported one by one make one span."""

    name: str
    from_s: float
    until_s: float


@dataclass(slots=True)
class TracedMessage:
    """A message of a decision trace, with what was known when it came.

    Attributes
    ----------
    repeats
        A command for the amount that the one before asked for: only its pacing line is new.
    """

    message: Message
    spec: JobSpec | None
    reading: events.ProgressReported | None
    gap_frac: float | None
    repeats: bool = False
    answer: events.GrantAnswer | None = None


@dataclass(slots=True)
class Curves:
    """Changes of a job over time; a history of one job among thousands has none.

    Readings, forecasts, losses and phases come as long as the job runs: see `thin`.
    """

    readings: list[events.ProgressReported] = field(default_factory=list)
    grants: list[GrantChange] = field(default_factory=list)
    #: Instants at which a process was lost; another one follows.
    losses_of_process: list[float] = field(default_factory=list)
    #: Whether a pacing line was in force, and since when.
    pacing: list[tuple[float, bool]] = field(default_factory=list)
    losses: list[tuple[float, SeenLoss]] = field(default_factory=list)
    #: Cores that its controller demanded, where they were another number than before, as far as commands tell.
    demands: list[tuple[float, float]] = field(default_factory=list)
    #: Expected landings in seconds since submission, with the instants at which a reason named them.
    forecasts: list[tuple[float, float]] = field(default_factory=list)
    #: The first warning of each code.
    warnings: dict[str, WarnUser] = field(default_factory=dict)
    #: Start of each straight line to a deadline, the last one in force: (instant, steps done then, `deadline_s`).
    line_starts: list[tuple[float, float, float | None]] = field(default_factory=list)
    #: Wall time of each phase as last reported, and what that tells of when they were under way.
    phase_wall_s: dict[str, float] = field(default_factory=dict)
    phases: list[PhaseCourse] = field(default_factory=list)
    #: Messages of the decision trace, and those of them without an answer, by request.
    trace: list[TracedMessage] = field(default_factory=list)
    unanswered: dict[int, TracedMessage] = field(default_factory=dict)
    #: The last command about the grant until it is answered, the cores it asked for, and the last plan's proven gap.
    asked: LaunchJob | ResizeJob | None = None
    asked_cores: float | None = None
    gap_frac: float | None = None

    def forecast(self, at: float, facts: Mapping[str, float]) -> None:
        """Note the landing that a reason names, if it does."""
        finish_s = facts.get("finish_s", facts.get("earliest_finish_s"))
        if finish_s is not None:
            self.forecasts.append((at, finish_s))

    def phase(self, since_submission_s: float, event: events.PhaseReported) -> None:
        """Note the spans of phases under way since the last report."""
        for phase in event.phases:
            took_s = phase.wall_s - self.phase_wall_s.get(phase.name, 0.0)
            self.phase_wall_s[phase.name] = phase.wall_s
            if took_s <= 0:  # nothing new, or another process
                continue
            until_s, last = since_submission_s, self.phases[-1] if self.phases else None
            goes_on = last is not None and last.name == phase.name and until_s - took_s - last.until_s < took_s
            from_s = last.from_s if last is not None and goes_on else max(0.0, until_s - took_s)
            self.phases[len(self.phases) - goes_on :] = [PhaseCourse(name=phase.name, from_s=from_s, until_s=until_s)]

    def thin(self, n_points: int, n_traced: int) -> None:
        """Forget parts of a long run, which would take ever more memory.

        Of readings, forecasts, losses and phases at most twice `n_points` are left, evenly, and usage is the mean of
        longer times. Of the trace the last `n_traced` messages are left, and of those before them as many again that are
        no repeats.
        """
        for points in (self.readings, self.forecasts, self.losses, self.phases):
            while len(points) > 2 * n_points:
                del points[1:-1:2]
        if len(self.trace) > 3 * n_traced:
            before = [traced for traced in self.trace[:-n_traced] if not traced.repeats]
            self.trace[:-n_traced] = before[-n_traced:]


@dataclass(slots=True)
class JobHistory:
    """History of the job `id`: give it each message, in the order of the journal.

    Its fields say how the job stands; `record` gives its figures, `punctual.history.run` the summary and the curves,
    `punctual.history.decision_trace` the reasons of its grants, `punctual.sim.recorded` its work.

    Attributes
    ----------
    curves
        None: a history of bounded size, without everything over time.
    KINDS
        Kinds of messages that say something of a job.

    Notes
    -----
    *What a job holds* is what the answers say (`JobStarted`, `GrantApplied`, `GrantFailed`), never what was asked for;
    a lost node takes what lay there. An answer about a process that is gone, or with a lower request number than one
    before it, changes nothing.

    *When a job ends.* See `punctual.core.lifecycle.ended_by`: a failure that may be retried ends nothing, and the job
    waits until it is launched again, or a `RejectJob` follows. A name that is submitted again after that begins anew.
    """

    id: JobId
    curves: Curves | None = field(default_factory=Curves)
    submission: events.JobSubmitted | None = None
    #: Declarations, and the instants from which on they hold; the first is that of the submission.
    specs: list[tuple[float, JobSpec]] = field(default_factory=list)
    started_at: float | None = None
    #: First report of a landing that still holds.
    landing: events.ProgressReported | None = None
    end: events.JobFinished | events.JobFailed | RejectJob | None = None
    #: Exit code of the process that failed last.
    exit_code: int | None = None
    #: Whether it has a process: from a start to a failure. Answers about one that is gone change nothing.
    alive: bool = False
    #: Whether its process went with its node: its failure is counted already.
    lost: bool = False
    #: Number of the last answer; a late one has a lower number.
    request: int = 0
    granted: Allocation = field(default_factory=dict)
    devices: float = 0
    cores: float = 0.0
    #: Integrals of the grant, and time without one, up to `accrued_at`: the last change of the grant.
    accrued_at: float = 0.0
    device_s: float = 0.0
    core_s: float = 0.0
    waiting_s: float = 0.0
    n_resizes: int = 0
    n_preemptions: int = 0
    n_failures: int = 0
    n_grants_failed: int = 0
    #: Last reading, steps that it or an earlier one declared, and steps that had to be done again.
    reading: events.ProgressReported | None = None
    steps_declared: float | None = None
    work_lost_steps: float = 0.0
    #: CPU time of the processes that were lost, and of the present one up to its last reading.
    lost_core_s: float = 0.0
    process_core_s: float = 0.0
    unsteered_s: float = 0.0

    def take(self, message: Message, now: float | None = None) -> None:
        """Fold the next message; ignore those about other jobs.

        Parameters
        ----------
        now
            Instant up to which amounts are integrated: not before the message's. None: that of the message.
        """
        if type(message) in self.KINDS and about(message) in (self.id, None):
            self.fold(message, message.at if now is None else now)

    def fold(self, message: Message, now: float) -> None:
        """Fold a message of one of `KINDS` that may concern the job; see `take`."""
        self._FOLDS[type(message)](self, message, now)

    @property
    def submitted_at(self) -> float:
        return self.submission.at if self.submission is not None else 0.0

    @property
    def spec(self) -> JobSpec | None:
        """Declaration in force; None before the submission."""
        return self.specs[-1][1] if self.specs else None

    @property
    def is_open(self) -> bool:
        """Whether the job was submitted and has not ended."""
        return self.submission is not None and self.end is None

    @property
    def landed_at(self) -> float | None:
        """Instant of the landing; None: it has not landed."""
        if isinstance(self.end, events.JobFinished):
            return self.end.landed_at
        return self.landing.unit_at if self.landing is not None else None

    @property
    def steps_done(self) -> float:
        """Steps done, as last reported."""
        return self.reading.steps_done if self.reading is not None else 0.0

    @property
    def steps_total(self) -> float | None:
        """Steps in total, as last reported, else as declared; None: unknown."""
        if self.steps_declared is not None or self.spec is None:
            return self.steps_declared
        return self.spec.work_steps

    def spec_at(self, at: float) -> JobSpec:
        """Return the declaration in force at an instant: the last one until then, else the first."""
        for since_at, spec in reversed(self.specs):
            if since_at <= at:
                return spec
        return self.specs[0][1]

    # Folds.

    def _fold_job_submitted(self, event: events.JobSubmitted, now: float) -> None:
        if self.is_open:
            return  # a second job of the name is turned away
        if self.submission is not None:
            JobHistory.__init__(self, self.id, self.curves and Curves())
        self.submission, self.accrued_at = event, now
        self.specs.append((event.at, event.spec))
        self._trace(event)

    def _fold_spec_changed(self, event: events.SpecChanged, _: float) -> None:
        if self.submission is None:
            return
        self._trace(event)
        curves, before = self.curves, self.specs[-1][1]
        self.specs.append((event.at, event.spec))
        if curves is not None and curves.line_starts and before.deadline_s != event.spec.deadline_s:
            curves.line_starts.append((event.at, self.steps_done, event.spec.deadline_s))

    def _fold_job_started(self, event: events.JobStarted, now: float) -> None:
        if self.is_open and event.request >= self.request:
            self.started_at = event.at if self.started_at is None else self.started_at
            self.alive, self.lost = True, False
        self._fold_grant_applied(event, now)

    def _fold_grant_failed(self, event: events.GrantFailed, now: float) -> None:
        self.n_grants_failed += self.submission is not None
        self._fold_grant_applied(event, now)

    def _fold_grant_applied(self, event: events.GrantAnswer, now: float) -> None:
        curves, asked_at = self.curves, None
        if curves is not None:
            traced = curves.unanswered.pop(event.request, None)
            if traced is not None:
                traced.answer = event
            if curves.asked is not None and curves.asked.request == event.request:
                asked_at, curves.asked = curves.asked.at, None
        if self.alive and event.request >= self.request:
            self.request = event.request
            held = bool(self.granted)
            self._hold(event.at, now, event.granted, asked_at)
            self.n_preemptions += held and not self.granted

    def _fold_resize_job(self, command: LaunchJob | ResizeJob, _: float) -> None:
        curves = self.curves
        if curves is None:
            return
        cores, before = total(command.grant.values()).cores, curves.asked_cores
        self._trace(command, repeats=cores == before)
        curves.unanswered[command.request] = curves.trace[-1]
        curves.forecast(command.at, command.reason.facts)
        if isinstance(command, ResizeJob):
            demand_cores = command.reason.facts.get("demand_cores", cores)
            if not curves.demands or curves.demands[-1][1] != demand_cores:
                curves.demands.append((command.at, demand_cores))
        is_paced = isinstance(command, ResizeJob) and command.pacing is not None
        if not curves.pacing or curves.pacing[-1][1] != is_paced:  # there is a new line at almost every tick
            curves.pacing.append((command.at, is_paced))
        curves.asked, curves.asked_cores = command, cores

    _fold_launch_job = _fold_resize_job

    def _fold_progress_reported(self, event: events.ProgressReported, _: float) -> None:
        before = self.reading
        if self.submission is None or self.end is not None:
            return
        if before is not None and event.steps_done < before.steps_done:
            self.work_lost_steps += before.steps_done - event.steps_done
        self.reading = event
        if event.steps_total is not None:
            self.steps_declared = event.steps_total
        self.process_core_s = event.used_core_s
        # A job that lands and then goes on, with undeclared work, has not landed yet.
        self.landing = (self.landing or event) if event.landed else None
        if (curves := self.curves) is not None:
            curves.readings.append(event)
            if not curves.line_starts and event.steps_done > 0:
                curves.line_starts.append((event.unit_at, event.steps_done, self.specs[-1][1].deadline_s))

    def _fold_phase_reported(self, event: events.PhaseReported, _: float) -> None:
        if self.curves is not None:
            self.curves.phase(event.at - self.submitted_at, event)

    def _fold_loss_reported(self, event: events.LossReported, _: float) -> None:
        if self.curves is not None:
            self.curves.losses += [(event.at, loss) for loss in event.losses]

    def _fold_job_finished(self, event: events.JobFinished, now: float) -> None:
        self._trace(event)
        self._end(event, now)

    def _fold_job_failed(self, event: events.JobFailed, now: float) -> None:
        if event.request is not None and not (self.alive and event.request >= self.request):
            return  # an answer about a process that is gone, or that another command has replaced
        self._trace(event)
        if not self.is_open:
            return
        self.n_failures += not (self.lost or (event.is_stopped and event.retryable))
        self.exit_code = event.exit_code
        if event.retryable:
            self._lose_process(event.at, now)
        else:
            self._end(event, now)

    def _fold_reject_job(self, command: RejectJob, now: float) -> None:
        self._trace(command)
        self._end(command, now)

    def _fold_node_lost(self, event: events.NodeLost, now: float) -> None:
        if event.node not in self.granted:
            return
        self._hold(event.at, now, {node: amount for node, amount in self.granted.items() if node != event.node})
        if not self.granted:
            self.n_failures += 1
            self._lose_process(event.at, now)
            self.lost = True

    def _fold_steering_resumed(self, event: events.SteeringResumed, now: float) -> None:
        """Record the grant after a gap in the steering; a job that the event does not name has no process."""
        if not self.is_open:
            return
        self._trace(event)
        self.unsteered_s += event.at - event.lost_at
        if self.id in event.granted:
            self.alive, self.lost = True, False
            if self.started_at is None:  # its start is not among the messages
                self.started_at = event.lost_at
            self._hold(event.lost_at, now, event.granted[self.id])
        elif self.alive:
            self._lose_process(event.lost_at, now)

    def _fold_plan_proposed(self, event: events.PlanProposed, _: float) -> None:
        if self.curves is not None and self.is_open:
            self.curves.gap_frac = None if event.plan is None else gap_frac(event.plan)

    def _fold_warn_user(self, command: WarnUser, _: float) -> None:
        curves, reason = self.curves, command.reason
        if curves is None:
            return
        if self.is_open or command.job is not None:
            self._trace(command)
        if reason.code not in NOTICES:
            curves.warnings.setdefault(reason.code, command)
            curves.forecast(command.at, reason.facts)

    def _fold_policy_changed(self, event: events.PolicyChanged, _: float) -> None:
        if self.is_open:
            self._trace(event)

    def _fold_pause_requested(self, message: Message, _: float) -> None:
        self._trace(message)

    _fold_resume_requested = _fold_stop_requested = _fold_stop_job = _fold_pause_requested

    _FOLDS: ClassVar[Mapping[type, Callable[[Any, Any, float], None]]] = folds_in(vars())
    KINDS: ClassVar[frozenset[type]] = frozenset(_FOLDS)

    # Consequences.

    def _trace(self, message: Message, *, repeats: bool = False) -> None:
        if (curves := self.curves) is not None:
            curves.trace.append(TracedMessage(message, self.spec, self.reading, curves.gap_frac, repeats))

    def _end(self, end: events.JobFinished | events.JobFailed | RejectJob, now: float) -> None:
        if self.is_open:
            self._hold(end.at, now, {})
            self._accrue(now)
            self.end, self.alive = end, False

    def _lose_process(self, at: float, now: float) -> None:
        """Record the loss of a process: answers about it no longer count, and the next one may do its work again."""
        self._hold(at, now, {})
        self.alive, self.landing = False, None
        self.request += 1
        self.lost_core_s, self.process_core_s = self.lost_core_s + self.process_core_s, 0.0
        if self.curves is not None:
            self.curves.losses_of_process.append(at)
            self.curves.asked_cores = None  # a launch repeats nothing

    def _hold(self, at: float, now: float, granted: Allocation, asked_at: float | None = None) -> None:
        """Record that the job holds `granted` from `at` on."""
        granted = {node: amount for node, amount in granted.items() if amount}
        if granted == self.granted:
            return
        self._accrue(now)
        if self.granted and granted and differs(self.granted, granted):
            self.n_resizes += 1
        self.granted = granted
        self.devices = sum([amount.gpus for amount in granted.values()])
        self.cores = sum([amount.cores for amount in granted.values()], 0.0)
        if self.curves is not None:
            self.curves.grants.append(GrantChange(at, granted, self.cores, asked_at))

    def _accrue(self, now: float) -> None:
        self.waiting_s, self.device_s, self.core_s = self._amounts(now)
        self.accrued_at = now

    def _amounts(self, now: float) -> tuple[float, float, float]:
        """Return the seconds without anything, the device-seconds and the core-seconds up to `now` or the end."""
        by_s = 0.0 if self.end is not None else now - self.accrued_at
        if not self.granted:
            return self.waiting_s + by_s, self.device_s, self.core_s
        return self.waiting_s, self.device_s + self.devices * by_s, self.core_s + self.cores * by_s

    # Figures of one job among many.

    def record(self, now: float, n_present: float = 1.0) -> JobRecord:
        """Return the job's figures at instant `now`; `n_present`: jobs in the system on average over its life.

        The job must have been submitted.
        """
        landed_at, ended_at = self.landed_at, None if self.end is None else self.end.at
        spec = self.spec_at(landed_at if landed_at is not None else now if ended_at is None else ended_at)
        waiting_s, device_s, core_s = self._amounts(now)
        jct_s = None if landed_at is None else landed_at - self.submitted_at
        late_s = None if jct_s is None or spec.deadline_s is None else jct_s - spec.deadline_s
        status: Outcome = "unfinished" if self.end is None else end_state(self.end) or "failed"
        on_time = None if late_s is None else late_s <= 0
        if late_s is None and spec.deadline_s is not None and status != "stopped":
            # It is undecided as long as it may still land in time.
            on_time = None if self.end is None and now - self.submitted_at <= spec.deadline_s else False
        return JobRecord(
            id=self.id,
            status=status,
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            landed_at=landed_at,
            ended_at=ended_at,
            deadline_s=spec.deadline_s,
            weight=spec.weight,
            jct_s=jct_s,
            on_time=on_time,
            tardiness_s=None if late_s is None else max(0.0, late_s),
            queued_s=None if self.started_at is None else self.started_at - self.submitted_at,
            waiting_s=waiting_s,
            device_s=device_s,
            core_s=core_s,
            n_resizes=self.n_resizes,
            n_preemptions=self.n_preemptions,
            n_failures=self.n_failures,
            n_grants_failed=self.n_grants_failed,
            steps_done=self.steps_done,
            steps_total=self.steps_total,
            work_lost_steps=self.work_lost_steps,
            n_present=n_present,
        )


def differs(before: Allocation, after: Allocation) -> bool:
    """Whether the two lie on other nodes, or differ by more than rounding."""
    if before.keys() != after.keys():
        return True
    return not all(same_amount(amount, after[node]) for node, amount in before.items())
