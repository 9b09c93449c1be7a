"""State of each job, folded from messages: all displays, the API and the reports show it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from punctual.core import events
from punctual.core.cluster import Node
from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, StopJob, WarnUser
from punctual.core.control import Forecast, PacingLine, PhaseProgress
from punctual.core.events import Message
from punctual.core.ids import JobId, NodeId
from punctual.core.job import ENDED, Allocation, JobSpec, JobState, shape_of
from punctual.core.ledger import LedgerEntry
from punctual.core.lifecycle import N_ENDED_REMEMBERED, about, after_answer, end_state, folds_in, found_again
from punctual.core.program import Program
from punctual.core.reason import NOTICES, Reason
from punctual.core.resources import Resources, total
from punctual.core.watch import lateness_text

#: Speed and usage are averages over at least this long: over one tick of 0.1 s a single step of 20 ms makes them jump.
WINDOW_S = 1.0

#: Codes of warnings that are given once and have no end.
_ONCE = {"duplicate-id", "node-noticed", *NOTICES}
#: Codes that say that what another code told is over.
OVER = {
    "feasible": "infeasible",
    "node-recovered": "slow-node",
    "node-answers": "silent-node",
    "lost-node": "silent-node",
    "steps-go-on": "stalled",
}
#: Codes of warnings that say what a budget does not pay for: another budget ends them.
_OF_BUDGET = ("budget-spent", "over-budget", "promise-lost")
#: Codes of warnings about the promise that a job does not have: another promise ends them; and of all about its deadline.
_UNPROMISED = ("not-promised", "promise-lost")
_OF_DEADLINE = ("deadline-passed", "promise-in-danger", *_UNPROMISED)
#: The code of a warning whose text goes with the forecast, and that says nothing of a job that has ended.
_LATE = "infeasible"


#: State of a job for people. *Stalled*: it runs, and makes no more steps.
ToldState = Literal[JobState, "stalled"]


#: Returns a job's forecast, and the steps that it is expected to take in all, which no message carries; None: not known.
Forecasts = Callable[[JobId], tuple[Forecast | None, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """Present state of one job; instants in seconds on the scheduler's clock.

    Attributes
    ----------
    n_attempts
        Number of launches; a repeated command counts once, and a launch that has to wait does not count.
    steps_done, steps_total
        As last reported; `steps_total` is the declared work until a report names it, None: never declared.
    unit_at
        Instant of its last step or part of a phase; None: none was reported yet.
    rate_sps
        Steps per second over the last second or more; 0 while it is not known.
    is_held_back
        Whether it waited for its pacing line while its speed was measured: it may use little and could go faster.
    granted
        Its grant, node by node.
    used_core_s, usage_cores
        CPU seconds its present process has used, and cores used over the last second or more.
    memory_bytes, peak_memory_bytes
        Memory that its processes hold, and the most that was seen; 0: not known.
    landed
        All declared work is done; `landed_at` says since when.
    forecast, forecast_at
        Its controller's forecast, in seconds since submission, and the instant of that; None: unknown, or no controller.
    steps_expected
        Steps until its goal, where they are not those declared; None: those declared.
    reason
        Why its grant last changed, or why it waits for room.
    cause, exit_code
        Why it ends or has ended, and the exit status of its process as far as there was one.
    warnings
        Present warnings: text by code.
    pause
        Its user's request to pause, until it is resumed or ends; None: not paused.
    line_from
        Start of the straight line to the deadline: (instant, share of the steps done then).
    """

    spec: JobSpec
    submitted_at: float
    program: Program | None = None
    state: JobState = "queued"
    n_attempts: int = 0
    started_at: float | None = None
    landed_at: float | None = None
    ended_at: float | None = None
    landed: bool = False
    steps_done: float = 0.0
    steps_total: float | None = None
    unit_at: float | None = None
    rate_sps: float = 0.0
    is_held_back: bool = False
    phases: tuple[PhaseProgress, ...] = ()
    granted: Allocation = field(default_factory=dict)
    used_core_s: float = 0.0
    usage_cores: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    forecast: Forecast | None = None
    forecast_at: float | None = None
    steps_expected: float | None = None
    reason: Reason | None = None
    cause: str = ""
    exit_code: int | None = None
    warnings: Mapping[str, str] = field(default_factory=dict)
    line_from: tuple[float, float] | None = None
    pause: events.PauseRequested | None = None

    @property
    def id(self) -> JobId:
        return self.spec.id

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def display_state(self) -> ToldState:
        """`state` as people read it: *paused* also for a job without a process that its user paused, or *stalled*."""
        if self.state == "running" and "stalled" in self.warnings:
            return "stalled"
        return "paused" if self.pause is not None and self.state in ("queued", "starting") else self.state

    @property
    def held(self) -> Resources:
        """Total grant of the job on all nodes."""
        return total(self.granted.values())

    @property
    def n_workers(self) -> int:
        """Number of its workers; 0 for a job without workers."""
        return n_workers_of(self.spec, self.granted)

    @property
    def done_frac(self) -> float | None:
        """Share of the declared or expected steps that is done; None before any were declared."""
        steps = self.steps_expected or self.steps_total
        return min(1.0, self.steps_done / steps) if steps else None

    @property
    def deadline_at(self) -> float | None:
        """Instant of the deadline; None without one."""
        return None if self.spec.deadline_s is None else self.submitted_at + self.spec.deadline_s

    def line_frac(self, at: float) -> float | None:
        """Return the target share of work at `at`: a straight line from the first step or last change of deadline."""
        if self.line_from is None or self.deadline_at is None:
            return None
        from_at, from_frac = self.line_from
        if self.deadline_at <= from_at:
            return 1.0
        passed_frac = min(1.0, max(0.0, (at - from_at) / (self.deadline_at - from_at)))
        return from_frac + (1.0 - from_frac) * passed_frac


def n_workers_of(spec: JobSpec, grant: Allocation) -> int:
    """Return the number of workers in `grant`; 0 for a job without workers."""
    return shape_of(spec, grant, {}).n_workers if spec.worker is not None and grant else 0


@dataclass(slots=True)
class _Entry:
    """A job's status, and the state needed to update it; `nodes`: those that have joined and are not lost.

    Messages are folded as long as the job has not ended.
    """

    status: JobStatus
    nodes: Mapping[NodeId, Node]
    account: LedgerEntry = field(default_factory=LedgerEntry)
    #: Number of the last command about it; answers with a lower one are about what another command has replaced.
    n_requests: int = 0
    #: The pacing line asked for last.
    line: PacingLine | None = None
    #: Start of the measurements of usage and speed: (instant, CPU seconds), (instant, steps, line).
    usage_from: tuple[float, float] | None = None
    rate_from: tuple[float, float, PacingLine | None] | None = None

    def set(self, **changes: Any) -> None:
        """Replace fields of the status."""
        self.status = replace(self.status, **changes)

    def drop_warnings(self, *codes: str) -> None:
        """Note that warnings are over."""
        warnings = self.status.warnings
        if not warnings.keys().isdisjoint(codes):
            self.set(warnings={code: text for code, text in warnings.items() if code not in codes})

    def measure_anew(self) -> None:
        """Discard the measurements, which are of another process or another time."""
        self.usage_from, self.rate_from = None, None
        self.set(rate_sps=0.0, usage_cores=0.0, is_held_back=False)

    def hold(self, request: int, granted: Allocation) -> Allocation:
        """Book the job's grant, and return its part on known nodes."""
        held = {node: amount for node, amount in granted.items() if amount and node in self.nodes}
        self.account.settle(request, held)
        self.set(granted=held)
        return held

    def lose(self, node: NodeId) -> None:
        """Drop what the job holds on a node; with all of it, its process is gone."""
        if self.account.lose(node):
            self.set(granted=self.account.granted)
            if not self.account.held and self.status.state != "queued":
                self.queue_again()

    def queue_again(self, **changes: Any) -> None:
        """Queue a job whose process is gone; measurements of the next process begin anew."""
        self.drop_warnings("stalled")
        self.account = LedgerEntry()
        self.n_requests += 1
        self.measure_anew()
        self.set(
            state="queued", granted={}, landed=False, landed_at=None, phases=(), memory_bytes=0, reason=None, **changes
        )

    def find_again(self, granted: Allocation | None, lost_at: float) -> None:
        """Measure the job again after a gap in the steering; `granted`: None if it has no process any more."""
        self.measure_anew()
        if granted is not None:
            self.set(state=found_again(self.status.state, self.hold(self.n_requests, granted)))
            if self.status.started_at is None:  # its start is not among the messages
                self.set(started_at=lost_at)
        elif self.status.state != "queued":
            self.queue_again()

    def _end(self, end: events.JobFinished | events.JobFailed | RejectJob, **changes: Any) -> None:
        self.measure_anew()
        self.drop_warnings(_LATE)
        self.account = LedgerEntry()
        self.set(state=end_state(end), ended_at=end.at, granted={}, pause=None, memory_bytes=0, **changes)

    def _fold_job_started(self, event: events.GrantAnswer) -> None:
        if event.request < self.n_requests:
            return
        before = self.status.state
        state = after_answer(before, event, self.hold(event.request, event.granted))
        if state == "paused":
            self.measure_anew()
        self.set(state=state)
        if not isinstance(event, events.GrantFailed):
            self.drop_warnings("waits-for-room")
        elif (before, state) == ("starting", "queued"):  # nothing was started
            self.set(reason=None, n_attempts=self.status.n_attempts - bool(event.short_of))
        if isinstance(event, events.JobStarted):
            self.drop_warnings("retried")
            self.set(started_at=event.at if self.status.started_at is None else self.status.started_at)

    _fold_grant_applied = _fold_grant_failed = _fold_job_started

    def _fold_progress_reported(self, event: events.ProgressReported) -> None:
        before = self.status
        # A process that was started again says at first nothing; one that counts knows how many there are, or no longer.
        steps_total = event.steps_total if event.steps_done else event.steps_total or before.steps_total
        landed_at = (before.landed_at if before.landed else event.unit_at) if event.landed else None
        self.set(
            steps_done=event.steps_done, steps_total=steps_total, unit_at=event.unit_at,
            landed=event.landed, landed_at=landed_at, used_core_s=event.used_core_s, memory_bytes=event.memory_bytes,
            peak_memory_bytes=max(before.peak_memory_bytes, event.memory_bytes),
        )  # fmt: skip
        if event.steps_total is not None or event.steps_done > 0:
            self.drop_warnings("no-progress")
        if event.steps_total is not None:
            self.drop_warnings("no-total")
        self._measure_usage(event)
        self._measure_rate(event)
        done_frac = self.status.done_frac
        if self.status.line_from is None and event.steps_done > 0 and done_frac is not None:
            self.set(line_from=(event.unit_at, done_frac))

    def _fold_phase_reported(self, event: events.PhaseReported) -> None:
        self.set(phases=event.phases)
        if all(phase.is_measured or not phase.units_planned for phase in event.phases):
            self.drop_warnings("unmeasured-phase")

    def _fold_loss_reported(self, _: events.LossReported) -> None:
        self.drop_warnings("no-loss")

    def _fold_spec_changed(self, event: events.SpecChanged) -> None:
        has_moved = event.spec.deadline_s != self.status.spec.deadline_s
        if has_moved:
            self.drop_warnings(*_OF_DEADLINE)
        if event.spec.deadline_s is None:
            self.drop_warnings(_LATE)
        if event.spec.budget_usd != self.status.spec.budget_usd:
            self.drop_warnings(*_OF_BUDGET)
        self.set(spec=event.spec)
        if self.status.line_from is not None and has_moved:
            self.set(line_from=(event.at, self.status.done_frac or 0.0))

    def _fold_pause_requested(self, event: events.PauseRequested) -> None:
        if self.status.state != "stopping":
            self.set(pause=event)

    def _fold_resume_requested(self, _: events.ResumeRequested) -> None:
        self.set(pause=None)

    def _fold_launch_job(self, command: LaunchJob) -> None:
        self.set(state="starting", n_attempts=self.status.n_attempts + (self.status.state == "queued"))
        self._fold_resize_job(command)

    def _fold_resize_job(self, command: LaunchJob | ResizeJob) -> None:
        self.n_requests = command.request
        self.line = command.pacing if isinstance(command, ResizeJob) else None
        self.account.ask(command.request, command.grant)
        self.set(reason=command.reason)

    def _fold_stop_job(self, command: StopJob) -> None:
        self.set(state="stopping", cause="" if command.restarts else command.cause)

    def _fold_job_finished(self, event: events.JobFinished) -> None:
        self._end(event, landed=True, landed_at=event.landed_at, exit_code=0)

    def _fold_job_failed(self, event: events.JobFailed) -> None:
        if event.request is not None and event.request < self.n_requests:
            return
        self.set(exit_code=event.exit_code)
        if event.retryable:
            spec = self.status.spec
            self.queue_again(spec=(spec.with_more_memory() if event.out_of_memory else None) or spec)
        else:
            self._end(event, cause=self.status.cause or event.cause)

    def _fold_reject_job(self, command: RejectJob) -> None:
        self._end(command, cause=command.reason.text, reason=command.reason)

    FOLDS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = folds_in(vars())

    def _measure_usage(self, event: events.ProgressReported) -> None:
        if self.usage_from is None:
            self.usage_from = (event.at, event.used_core_s)
            return
        from_at, from_core_s = self.usage_from
        if event.at - from_at >= WINDOW_S:
            self.set(usage_cores=max(0.0, event.used_core_s - from_core_s) / (event.at - from_at))
            self.usage_from = (event.at, event.used_core_s)

    def _measure_rate(self, event: events.ProgressReported) -> None:
        if self.rate_from is None or event.steps_done < self.rate_from[1]:
            self.rate_from = (event.unit_at, event.steps_done, self.line)
            return
        from_at, from_steps, line = self.rate_from
        over_s = event.unit_at - from_at
        if event.steps_done > from_steps and over_s >= WINDOW_S:
            if line is not None and self.line is not None and self.line.s_per_step > line.s_per_step:
                line = self.line  # it has more time by now: its deadline was moved, say
            # One that fell behind its line by half of the time did not wait for it.
            is_held_back = line is not None and _behind_s(self.status, line) <= 0.5 * over_s
            self.set(rate_sps=(event.steps_done - from_steps) / over_s, is_held_back=is_held_back)
            self.rate_from = (event.unit_at, event.steps_done, self.line)


def _behind_s(status: JobStatus, line: PacingLine) -> float:
    """Seconds by which the last unit ended later than the line allowed; negative: earlier."""
    done = line.work_done(status.steps_done, status.phases)
    return (status.unit_at or 0.0) - status.submitted_at - line.allows_s(done)


class StatusBoard:
    """Present state of all jobs: give it each message, in the order of the journal, and query any job.

    Questions may come from any thread: a `JobStatus` never changes, and one that was handed out stays as it was.

    Parameters
    ----------
    forecasts
        Called at each tick: `forecast` of the scheduler that has handled the messages, say. None: no forecasts.
    n_ended
        Number of ended jobs that are remembered, the last ones.
    """

    def __init__(self, forecasts: Forecasts | None = None, *, n_ended: int = N_ENDED_REMEMBERED) -> None:
        self._forecasts = forecasts
        self._n_ended = n_ended
        self._entries: dict[JobId, _Entry] = {}
        self._ended: dict[JobId, None] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._warnings: dict[str, str] = {}
        #: The policy that a user has chosen, and what it is made with; None: that with which the history began.
        self.policy: tuple[str, Mapping[str, Any]] | None = None

    def fold(self, message: Message) -> None:
        """Fold the next message; one about a job that is unknown or has ended changes nothing."""
        if (fold := self._FOLDS.get(type(message))) is not None:
            fold(self, message)
        elif (fold := _Entry.FOLDS.get(type(message))) is not None and (entry := self._live(about(message))):
            fold(entry, message)
            if entry.status.ended:
                self._remember(entry.status.id)

    def job(self, id: JobId) -> JobStatus:
        """Return a job's status; raise `KeyError` for a job that is unknown or not remembered."""
        return self._entries[id].status

    def knows(self, id: JobId) -> bool:
        """Whether a job was submitted and is remembered."""
        return id in self._entries

    def jobs(self) -> tuple[JobStatus, ...]:
        """Return all remembered jobs, in order of submission."""
        return tuple(entry.status for entry in list(self._entries.values()))

    @property
    def all_ended(self) -> bool:
        """Whether all submitted jobs have ended; costs the same for any number of them."""
        return len(self._ended) == len(self._entries)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes, in order of their ids."""
        return tuple(sorted(self._nodes.values(), key=lambda node: node.id))

    @property
    def warnings(self) -> Mapping[str, str]:
        """Return the warnings that concern all jobs: text by code."""
        return dict(self._warnings)

    def dump(self) -> object:
        """Return the state; serialise it before the next `fold` changes it."""
        return (self._entries, self._ended, self._nodes, self._warnings, self.policy)

    def load(self, state: object) -> None:
        """Continue from a state of `dump`; the board must be new."""
        self._entries, self._ended, self._nodes, self._warnings, self.policy = state  # type: ignore[misc]

    def _fold_job_submitted(self, event: events.JobSubmitted) -> None:
        id = event.spec.id
        if id not in self._entries:
            status = JobStatus(
                spec=event.spec, submitted_at=event.at, program=event.program, steps_total=event.spec.work_steps
            )
            self._entries[id] = _Entry(status, self._nodes)

    def _fold_node_joined(self, event: events.NodeJoined) -> None:
        node, known = Node(event.node, event.capacity, event.device), self._nodes.get(event.node)
        slowness, ends_at = (1.0, None) if known is None else (known.slowness, known.ends_at)
        self._nodes[node.id] = replace(node, slowness=slowness, jobs_at_once=event.jobs_at_once, ends_at=ends_at)

    def _fold_node_noticed(self, event: events.NodeNoticed) -> None:
        if (node := self._nodes.get(event.node)) is not None:
            self._nodes[node.id] = replace(node, ends_at=event.ends_at)

    def _fold_node_lost(self, event: events.NodeLost) -> None:
        self._nodes.pop(event.node, None)
        for entry in self._all_live():
            entry.lose(event.node)

    def _fold_steering_resumed(self, event: events.SteeringResumed) -> None:
        for entry in self._all_live():
            entry.find_again(event.granted.get(entry.status.id), event.lost_at)

    def _fold_policy_changed(self, event: events.PolicyChanged) -> None:
        self.policy = event.policy, event.parameters

    def _fold_plan_proposed(self, event: events.PlanProposed) -> None:
        if event.plan is not None:
            for code in ("plan-refused", "plan-lost", *(() if event.cause else ("plan-fallback",))):
                self._warnings.pop(code, None)
            for entry in filter(None, map(self._live, event.plan.promises or ())):
                entry.drop_warnings(*_UNPROMISED)

    def _fold_timer_fired(self, event: events.TimerFired) -> None:
        """Read the job's new forecast after a tick."""
        entry = self._live(event.timer.job) if event.timer.kind == "tick" else None
        if entry is None or self._forecasts is None:
            return
        status = entry.status
        forecast, steps = self._forecasts(status.id)
        expected = steps if status.spec.goal is not None and steps != status.steps_total else None
        deadline_s = status.spec.deadline_s
        entry.set(forecast=forecast, forecast_at=event.at, steps_expected=expected)
        if forecast is not None and not forecast.feasible and deadline_s is not None and _LATE in status.warnings:
            entry.set(warnings={**status.warnings, _LATE: lateness_text(forecast, deadline_s)})

    def _fold_warn_user(self, command: WarnUser) -> None:
        code, text = command.reason.code, command.reason.text
        if code in _ONCE:
            return
        if command.node in self._nodes and "slowness" in command.reason.facts:
            node = self._nodes[command.node]
            self._nodes[node.id] = replace(node, slowness=command.reason.facts["slowness"])
        if command.job is None:
            self._warnings[code] = text
        elif (entry := self._entries.get(command.job)) is None:
            return
        elif code == "waits":
            entry.set(reason=command.reason)
        elif code in OVER:
            entry.drop_warnings(OVER[code])
        else:
            entry.set(warnings={**entry.status.warnings, code: text})

    _FOLDS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = folds_in(vars())

    def _remember(self, ended: JobId) -> None:
        """Note that a job has ended, and forget the oldest of many."""
        self._ended[ended] = None
        if len(self._ended) > self._n_ended:
            forgotten = next(iter(self._ended))
            del self._ended[forgotten], self._entries[forgotten]

    def _live(self, job: JobId | None) -> _Entry | None:
        """Return the entry of a job that has not ended; None otherwise."""
        entry = None if job is None else self._entries.get(job)
        return None if entry is None or entry.status.ended else entry

    def _all_live(self) -> list[_Entry]:
        return [entry for entry in self._entries.values() if not entry.status.ended]
