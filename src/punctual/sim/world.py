"""The simulated world: performs the scheduler's commands and answers with events, late, wrongly or not at all.

The world is an executor whose jobs are numbers. Like any executor it drops a command that is older than one it has
performed. It never answers at once: it enters future events into a queue, and `due` makes them happen.
"""

from collections.abc import Iterable
from math import floor, inf
from typing import Any, Literal

from punctual.core.answers import unknown_job
from punctual.core.cluster import Node
from punctual.core.commands import (
    AskMachines,
    JobCommand,
    LaunchJob,
    MachineCommand,
    ReleaseMachines,
    ResizeJob,
    StopJob,
)
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    NodeJoined,
    NodeLost,
    ProgressReported,
)
from punctual.core.fast_init import unchecked_constructor
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, shape_of
from punctual.core.protocols import Sink
from punctual.core.resources import Resources, total
from punctual.core.units import HOUR_S
from punctual.sim.event_queue import FACT, EventQueue
from punctual.sim.job import SimJob
from punctual.sim.market import Market, PoolCourse
from punctual.sim.physics import Physics
from punctual.sim.traces.draw import Draw, log_normal, stream

#: A job is *waiting* until it is launched and after it has failed, *starting* until its process runs, *paused* while it
#: holds nothing after that, *stalled* while a change of its grant costs it time, and otherwise *training*.
Phase = Literal["waiting", "starting", "training", "stalled", "paused"]


class TrueState:
    """A job's true state. Progress is a straight line from `since_at` on, so that nothing is computed in between.

    Instants of what is to happen are infinite while nothing is. There is one entry in the event queue for the earliest of
    them; `version` tells it from entries that a change has made void.
    """

    __slots__ = (
        "asked_launch", "change", "change_at", "checkpoint_s", "checkpoint_steps", "cores", "draws", "fail_at", "finish_at",
        "grant", "hazard_left", "hazard_per_s", "id", "job", "phase", "rate_sps", "report_at", "request",
        "resume_at", "since_at", "steps", "stop", "stop_at", "told_dead", "trained_s", "until_steps", "used_core_s", "version",
    )  # fmt: skip

    def __init__(self, job: SimJob, checkpoint_s: float) -> None:
        self.job = job
        self.id = job.spec.id
        self.checkpoint_s = checkpoint_s
        self.version = 0
        #: Highest number of a command performed.
        self.request = 0
        #: Made when first drawn from: most worlds draw nothing.
        self.draws: dict[str, Draw] | None = None
        self.checkpoint_steps = 0.0
        self.used_core_s = 0.0
        self.stop: StopJob | None = None
        self.stop_at = inf
        #: Whether the scheduler was told that there is no process any more.
        self.told_dead = True
        self.since_at = 0.0
        self.hazard_per_s = 0.0
        self._reset()

    def _reset(self) -> None:
        """Return to the last checkpoint, without a process."""
        self.phase: Phase = "waiting"
        self.grant: Allocation = {}
        #: Grant from `change_at` on; None: no change is under way.
        self.change: Allocation | None = None
        self.change_at = self.resume_at = self.report_at = self.finish_at = self.fail_at = inf
        self.asked_launch = False
        self.steps = self.checkpoint_steps
        #: Steps at which its speed changes next or its work ends, at `finish_at`.
        self.until_steps = self.job.work_steps
        self.rate_sps = self.cores = self.trained_s = 0.0
        #: Rest of a unit-exponential amount of hazard, at whose end the process fails; None: none drawn yet.
        self.hazard_left: float | None = None

    @property
    def holds(self) -> Allocation:
        """Amount that the nodes reserve for this job now."""
        return self.change or {} if self.phase == "starting" else self.grant

    def next_at(self) -> float:
        """Instant of its next event."""
        return min(self.finish_at, self.change_at, self.resume_at, self.fail_at, self.report_at, self.stop_at)

    def steps_at(self, at: float) -> float:
        """Return the steps done at `at`; bounded by the end of the line, because of rounding."""
        return min(self.until_steps, self.steps + self.rate_sps * (at - self.since_at))

    def used_core_s_at(self, at: float) -> float:
        """CPU seconds used, by all its processes so far."""
        return self.used_core_s + (self.cores * (at - self.since_at) if self.phase == "training" else 0.0)

    def train(self, at: float, rate_sps: float, until_steps: float, amount: Resources, hazard_per_s: float) -> None:
        """Train from `at` on, at this speed, until `until_steps` steps are done."""
        self.phase, self.since_at = "training", at
        self.rate_sps, self.cores, self.hazard_per_s = rate_sps, amount.cores, hazard_per_s
        self.until_steps = until_steps
        self.finish_at = at + (until_steps - self.steps) / rate_sps if rate_sps > 0 else inf
        if self.hazard_left is not None and hazard_per_s > 0:
            self.fail_at = at + self.hazard_left / hazard_per_s

    def rest(self, at: float) -> None:
        """Make no more progress from `at` on."""
        if self.phase != "training":
            return
        over_s = at - self.since_at
        self._save_checkpoints(over_s)
        self.steps = self.steps_at(at)
        self.used_core_s += self.cores * over_s
        self.trained_s += over_s
        if self.hazard_left is not None:
            self.hazard_left -= self.hazard_per_s * over_s
        self.since_at, self.rate_sps = at, 0.0
        self.finish_at = self.fail_at = inf
        self.phase = "stalled"

    def _save_checkpoints(self, over_s: float) -> None:
        """Remember how far the job was at the last checkpoint within the `over_s` seconds since `since_at`."""
        last_s = floor((self.trained_s + over_s) / self.checkpoint_s) * self.checkpoint_s
        if last_s > self.trained_s:
            self.checkpoint_steps = self.steps + self.rate_sps * (last_s - self.trained_s)

    def save(self) -> None:
        """Record a checkpoint now; the job rests meanwhile."""
        self.checkpoint_steps = self.steps

    def die(self, at: float) -> None:
        """End the processes; the next launch goes on from the last checkpoint."""
        self.rest(at)
        self._reset()


_NEVER_STARTED = "the process did not start"
_NOT_RESIZED = "the allocation could not be changed"
_CRASHED = "the process failed"
_NODE_GONE = "a node it ran on is gone"

_job_started, _grant_applied, _progress_reported = (
    unchecked_constructor(JobStarted),
    unchecked_constructor(GrantApplied),
    unchecked_constructor(ProgressReported),
)


class _NodeState:
    """A node, there or not."""

    __slots__ = ("draw", "is_up", "node", "version")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_up = False
        self.version = 0
        self.draw: Draw | None = None


class World:
    """The jobs and nodes as they really are.

    Every draw comes from a stream of its own, named by the seed, the job or node, and what it decides; so the fate of
    one job does not depend on what others do, nor on the order of events. Without noise and failures nothing is drawn.

    Parameters
    ----------
    queue
        Queue of future events, with priority `FACT`.
    pools
        Machines that can be asked for, over time.
    """

    def __init__(
        self, queue: EventQueue, physics: Physics | None = None, seed: int = 0, pools: Iterable[PoolCourse] = ()
    ) -> None:
        self._queue = queue
        self._physics = physics or Physics()
        self._seed = seed
        self._states: dict[JobId, TrueState] = {}
        self._ended: set[JobId] = set()
        self._machines: dict[NodeId, _NodeState] = {}
        self._devices: dict[NodeId, str] = {}
        #: Losses of nodes in a row by which a process died that had saved nothing new, or at which no job trained.
        self._n_vain = 0
        self.market = Market(pools, queue, self.join, self.lose)

    def submit(self, job: SimJob) -> None:
        """Know a job, so that it can be launched."""
        self._states[job.spec.id] = TrueState(job, self._physics.checkpoint_s)
        self._n_vain = 0

    def adopt(self, job: SimJob, at: float, steps: float, used_core_s: float, grant: Allocation | None) -> None:
        """Add a job that has done `steps` steps; `grant`: what its process holds, None: it has no process.

        The nodes must have joined.
        """
        state = TrueState(job, self._physics.checkpoint_s)
        self._states[state.id] = state
        state.steps = state.checkpoint_steps = steps
        state.used_core_s, state.since_at = used_core_s, at
        if grant is not None:
            state.told_dead, state.grant = False, grant
            self._stall(state, at, 0.0)
            self._enter(state)

    def perform(self, command: JobCommand | MachineCommand, sink: Sink) -> None:
        """Accept a command, which takes effect later; `due` returns the answers."""
        if isinstance(command, AskMachines | ReleaseMachines):
            self.market.perform(command, sink)
            return
        state = self._states.get(command.job)
        if state is None:
            self._answer_unknown(command, sink)
            return
        match command:
            case LaunchJob():
                self._launch(state, command)
            case ResizeJob():
                self._resize(state, command)
            case StopJob():
                state.stop_at, state.stop = command.at, command
        self._enter(state)

    def _answer_unknown(self, command: JobCommand, sink: Sink) -> None:
        """A job that has ended was answered by its end, which may be on its way still."""
        if command.job not in self._ended and not isinstance(command, LaunchJob):
            sink(unknown_job(command))

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        """Report how far a job is, if it has a process."""
        for event in self._report(job, at):
            sink(event)

    def due(self, at: float, subject: Any, version: int) -> list[Event]:
        """Return the events of an entry of the queue; none if it is out of date."""
        if isinstance(subject, TrueState):
            return self._advance(subject, at) if subject.version == version else []
        if isinstance(subject, _NodeState):
            if subject.version != version or self._is_stuck(subject):
                return []
            return self.lose(at, subject.node.id) if subject.is_up else self.join(at, subject.node)
        events: list[Event] = subject(at)  # an entry of the market
        return events

    def _is_stuck(self, machine: "_NodeState") -> bool:
        """Whether nodes may come and go for ever without any job going on: it fits nowhere, or they are lost too soon."""
        # After so many losses in vain no job would ever end.
        return (self._n_vain > 10_000 and not machine.is_up) or (
            self._queue.has_only(FACT)
            and all(machine.is_up for machine in self._machines.values())
            and all(state.next_at() == inf for state in self._states.values())
        )

    # Nodes.

    def join(self, at: float, node: Node) -> list[Event]:
        """Add `node`, or bring it back."""
        machine = self._machines.setdefault(node.id, _NodeState(node))
        machine.node, machine.is_up = node, True
        self._devices[node.id] = node.device
        self._enter_next(machine, at, self._physics.node_mtbf_s)
        return [
            NodeJoined(at=at, node=node.id, capacity=node.capacity, device=node.device, jobs_at_once=node.jobs_at_once)
        ]

    def lose(self, at: float, node: NodeId) -> list[Event]:
        """`node` is gone, and with it every process of a job that had a part there."""
        machine = self._machines.get(node)
        if machine is None:  # of a recorded market, one that was given up before it joined
            return [NodeLost(at=at, node=node)]
        machine.is_up = False
        if self._physics.node_mtbf_s < inf:
            self._enter_next(machine, at, self._physics.node_repair_s)
        hit = [
            state for state in self._states.values() if node in state.grant or (state.change and node in state.change)
        ]
        self._n_vain += bool(self._states) and all(state.phase != "training" for state in self._states.values())
        reports = [event for state in hit for event in self._report(state.id, at)]
        failed = [event for state in hit for event in self._killed(state, at, node)]
        return [*reports, NodeLost(at=at, node=node), *failed]

    def _killed(self, state: TrueState, at: float, node: NodeId) -> list[Event]:
        """End the job's processes after the loss of a node; only parts on other nodes can report it."""
        saved_steps = state.checkpoint_steps
        state.told_dead = any(other != node for other in (*state.grant, *(state.change or ())))
        state.die(at)
        self._n_vain = self._n_vain + 1 if state.checkpoint_steps == saved_steps else 0
        self._enter(state)
        return [_failed(state, at, _NODE_GONE)] if state.told_dead else []

    def _enter_next(self, machine: _NodeState, at: float, mean_s: float) -> None:
        machine.version += 1
        if mean_s == inf:
            return
        if machine.draw is None:
            machine.draw = stream(self._seed, "node", machine.node.id)
        self._queue.enter(at + machine.draw.exponential(mean_s), FACT, machine, machine.version)

    # Commands.

    def _launch(self, state: TrueState, command: LaunchJob) -> None:
        if command.request < state.request:
            return
        state.request, state.asked_launch = command.request, True
        changed = state.phase == "starting" and state.change != command.grant
        if state.phase in ("waiting", "paused") or changed:
            state.phase, state.told_dead = "starting", False
            state.change, state.change_at = command.grant, command.at + self._startup_s(state)
        elif state.phase != "starting":  # it runs: say so
            state.change, state.change_at = state.grant, command.at

    def _resize(self, state: TrueState, command: ResizeJob) -> None:
        if command.request < state.request:
            return
        state.request = command.request
        if state.phase == "starting":
            state.change = command.grant or state.change
            return
        if (state.phase == "waiting" and state.told_dead) or (command.grant == state.change and not state.asked_launch):
            return
        state.asked_launch = False
        unchanged = command.grant == state.grant
        state.change = command.grant
        state.change_at = command.at + (0.0 if unchanged else self._physics.resize_s)

    def _startup_s(self, state: TrueState) -> float:
        startup_s = self._physics.startup_s
        return state.job.spec.startup_s if startup_s is None else startup_s

    def _enter(self, state: TrueState) -> None:
        state.version += 1
        next_at = state.next_at()
        if next_at < inf:
            self._queue.enter(next_at, FACT, state, state.version)

    # Events of a job, in this order at one instant: an end precedes all that was under way.

    def _advance(self, state: TrueState, at: float) -> list[Event]:
        if state.finish_at <= at:
            if state.until_steps >= state.job.work_steps:
                return self._finish(state, at)
            self._begin_phase(state, at)
        if state.stop_at <= at:
            return self._stopped(state, at)
        if state.fail_at <= at:
            events = self._crash(state, at, _CRASHED)
        else:
            events = self._change(state, at) if state.change_at <= at else []
            if state.resume_at <= at:
                events += self._go_on(state, at)
            if state.report_at <= at:
                events += self._routine(state, at)
        self._enter(state)
        return events

    def _finish(self, state: TrueState, at: float) -> list[Event]:
        state.rest(at)
        state.steps, self._n_vain = state.job.work_steps, 0
        self._forget(state)
        return [self._progress(state, at), JobFinished(at=at, job=state.id, landed_at=at)]

    def _forget(self, state: TrueState) -> None:
        del self._states[state.id]
        self._ended.add(state.id)

    def _begin_phase(self, state: TrueState, at: float) -> None:
        """Begin the next phase of the job's speed."""
        state.rest(at)
        state.steps = state.until_steps
        self._train(state, at)

    def _stopped(self, state: TrueState, at: float) -> list[Event]:
        reports, stop, state.stop_at = self._report(state.id, at), state.stop, inf
        assert stop is not None
        if not stop.restarts:
            self._forget(state)
            return [*reports, JobFailed(at=at, job=state.id, cause=stop.cause, is_stopped=True, is_due=stop.is_due)]
        state.rest(at)
        state.save()
        state.die(at)
        state.told_dead = True
        how = {"retryable": True, "is_stopped": stop.moves, "has_saved": True}
        return [*reports, JobFailed(at=at, job=state.id, cause=stop.cause, **how)]

    def _crash(self, state: TrueState, at: float, cause: str) -> list[Event]:
        reports = self._report(state.id, at)
        state.die(at)
        state.told_dead = True
        return [*reports, _failed(state, at, cause)]

    def _change(self, state: TrueState, at: float) -> list[Event]:
        change, state.change, state.change_at = state.change, None, inf
        if change is None:
            return []
        if state.phase == "waiting":  # told to change what a lost node took with it
            return self._crash(state, at, _NODE_GONE)
        if state.phase == "starting":
            return self._start(state, at, change)
        if change == state.grant:
            return self._answer(state, at)
        return self._apply(state, at, change)

    def _start(self, state: TrueState, at: float, grant: Allocation) -> list[Event]:
        if self._happens(state, "launch", self._physics.failed_launch_frac):
            state.die(at)
            return self._answer(state, at, _NEVER_STARTED)
        state.grant, state.since_at = grant, at
        if self._physics.failures_per_device_h:
            state.hazard_left = self._stream(state, "failure").exponential(1.0)
        self._train(state, at)
        # Report the start: a speed is the difference of two reports.
        begins = [self._progress(state, at)] if state.steps or state.job.spec.model is not None else []
        return [*self._answer(state, at), *begins]

    def _apply(self, state: TrueState, at: float, grant: Allocation) -> list[Event]:
        progress = self._progress(state, at)
        if self._happens(state, "resize", self._physics.failed_resize_frac):
            return [progress, *self._answer(state, at, _NOT_RESIZED)]
        restarts = state.job.restarts or state.grant.keys().isdisjoint(grant)
        state.rest(at)
        if restarts:
            state.save()
        state.grant = grant
        self._stall(state, at, self._startup_s(state) if restarts else state.job.spec.resize_cost_s)
        return [progress, *self._answer(state, at)]

    def _stall(self, state: TrueState, at: float, stall_s: float) -> None:
        """Lose training time to a change; overlapping losses count once."""
        if not state.grant:
            state.phase, state.resume_at, state.report_at = "paused", inf, inf
            return
        under_way_at = state.resume_at if state.resume_at < inf else at
        state.phase, state.resume_at = "stalled", max(under_way_at, at + stall_s)
        if state.resume_at <= at:
            state.resume_at = inf
            self._train(state, at)

    def _go_on(self, state: TrueState, at: float) -> list[Event]:
        """End the stall, and report: time without progress does not show the speed."""
        state.resume_at = inf
        self._train(state, at)
        return [self._progress(state, at)]

    def _routine(self, state: TrueState, at: float) -> list[Event]:
        state.report_at = at + (self._physics.report_s or inf)
        return self._report(state.id, at)

    def _train(self, state: TrueState, at: float) -> None:
        shape = shape_of(state.job.spec, state.grant, self._devices)
        amount = total(state.grant.values())
        truth, until_steps = state.job.speed_at(state.steps)
        placed_sps = getattr(truth, "placed_sps", None)  # of a law that depends on the place
        true_sps = truth.rate_sps(shape) if placed_sps is None else placed_sps(state.grant)
        rate_sps = true_sps * self._noise(state)
        if self._physics.report_s is not None and state.report_at == inf:
            state.report_at = at + self._physics.report_s
        failures_per_s = self._physics.failures_per_device_h / HOUR_S
        state.train(at, rate_sps, until_steps, amount, failures_per_s * (amount.gpus or amount.cores))

    # Answers.

    def _answer(self, state: TrueState, at: float, failure: str = "") -> list[Event]:
        """Return the answer with the job's present grant; empty if the answer gets lost."""
        if self._happens(state, "answer", self._physics.lost_answer_frac):
            return []
        if failure:
            return [GrantFailed(at=at, job=state.id, request=state.request, granted=state.grant, cause=failure)]
        if state.asked_launch:
            return [
                _job_started(
                    at=at, job=state.id, request=state.request, granted=state.grant, can_pace=False, can_cap=True
                )
            ]
        return [_grant_applied(at=at, job=state.id, request=state.request, granted=state.grant)]

    def _progress(self, state: TrueState, at: float) -> ProgressReported:
        steps, declared = state.steps_at(at), state.job.spec.work_steps or state.job.declared_steps
        return _progress_reported(
            at=at,
            job=state.id,
            steps_done=steps,
            # A loop that does more steps than it declared goes on declaring.
            steps_total=declared if declared is None or declared >= steps else steps,
            unit_at=at if state.phase == "training" else state.since_at,
            used_core_s=state.used_core_s_at(at),
            in_flight_core_s=0.0,
            landed=steps >= state.job.work_steps,
            is_read=False,
            busy_s=0.0,
            device_s=0.0,
            active_s=0.0,
            memory_bytes=0,
        )

    def _report(self, job: JobId, at: float) -> list[Event]:
        state = self._states.get(job)
        if state is None or state.phase in ("waiting", "starting"):
            return []
        return [self._progress(state, at)]

    # Chance.

    def _happens(self, state: TrueState, kind: str, frac: float) -> bool:
        return frac > 0 and self._stream(state, kind).chance(frac)

    def _noise(self, state: TrueState) -> float:
        sigma = self._physics.rate_sigma
        return log_normal(self._stream(state, "rate"), sigma, -0.5 * sigma * sigma) if sigma else 1.0

    def _stream(self, state: TrueState, kind: str) -> Draw:
        if state.draws is None:
            state.draws = {}
        if kind not in state.draws:
            state.draws[kind] = stream(self._seed, kind, state.id)
        return state.draws[kind]


def _failed(state: TrueState, at: float, cause: str) -> JobFailed:
    return JobFailed(at=at, job=state.id, cause=cause, retryable=True)  # no exit code: the hardware failed
