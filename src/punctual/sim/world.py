"""What really happens: performs the scheduler's commands and answers with events, late, wrongly or not at all.

The world is an executor whose jobs are numbers. Like any executor it drops a command that is older than one it has
performed. It never answers at once: what is to happen is entered into an event queue, and `due` makes it happen.
"""

from math import inf

from punctual.core.answers import unknown_job
from punctual.core.cluster import Node
from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob
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
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, shape_of
from punctual.core.protocols import Sink
from punctual.core.resources import total
from punctual.sim.chance import log_normal, stream
from punctual.sim.event_queue import FACT, EventQueue
from punctual.sim.job import SimJob
from punctual.sim.life import Life
from punctual.sim.physics import Physics
from punctual.sim.truth import PlacedServed
from punctual.traces.draw import Draw

_HOUR_S = 3600.0
_NEVER_STARTED = "the process did not start"
_NOT_RESIZED = "the allocation could not be changed"
_CRASHED = "the process failed"
_NODE_GONE = "a node it ran on is gone"


class _Machine:
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
        Where what is to happen is entered, with priority `FACT`.
    """

    def __init__(self, queue: EventQueue, physics: Physics | None = None, seed: int = 0) -> None:
        self._queue = queue
        self._physics = physics or Physics()
        self._seed = seed
        self._lives: dict[JobId, Life] = {}
        self._ended: set[JobId] = set()
        self._machines: dict[NodeId, _Machine] = {}
        self._devices: dict[NodeId, str] = {}

    def submit(self, job: SimJob) -> None:
        """Know a job, so that it can be launched."""
        self._lives[job.spec.id] = Life(job, self._physics.checkpoint_s)

    def adopt(self, job: SimJob, at: float, steps: float, used_core_s: float, grant: Allocation | None) -> None:
        """Know a job that has done so many steps until now; `grant`: what its process holds, None: it has none.

        The nodes must have joined.
        """
        life = Life(job, self._physics.checkpoint_s)
        self._lives[life.id] = life
        life.steps = life.checkpoint_steps = steps
        life.used_core_s, life.since_at = used_core_s, at
        if grant is not None:
            life.told_dead, life.grant = False, grant
            self._stall(life, at, 0.0)
            self._enter(life)

    def perform(self, command: JobCommand, sink: Sink) -> None:
        """Have an effect later; the answers come from `due`."""
        life = self._lives.get(command.job)
        if life is None:
            self._answer_unknown(command, sink)
            return
        match command:
            case LaunchJob():
                self._launch(life, command)
            case ResizeJob():
                self._resize(life, command)
            case StopJob():
                life.stop_at, life.stop_cause = command.at, command.cause
        self._enter(life)

    def _answer_unknown(self, command: JobCommand, sink: Sink) -> None:
        """A job that has ended was answered by its end, which may be on its way still."""
        if command.job not in self._ended and not isinstance(command, LaunchJob):
            sink(unknown_job(command))

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        """Report how far a job is, if it has a process."""
        for event in self._report(job, at):
            sink(event)

    def due(self, at: float, subject: object, version: int) -> list[Event]:
        """What happens to an entry of the queue; nothing if it is out of date."""
        if isinstance(subject, Life):
            return self._advance(subject, at) if subject.version == version else []
        assert isinstance(subject, _Machine)
        if subject.version != version or self._is_stuck():
            return []
        return self.lose(at, subject.node.id) if subject.is_up else self.join(at, subject.node)

    def _is_stuck(self) -> bool:
        """Whether nodes may come and go for ever without any job going on: a job that fits nowhere, say."""
        return (
            self._queue.has_only(FACT)
            and all(machine.is_up for machine in self._machines.values())
            and all(life.next_at() == inf for life in self._lives.values())
        )

    # Nodes.

    def join(self, at: float, node: Node) -> list[Event]:
        """`node` is there."""
        machine = self._machines.setdefault(node.id, _Machine(node))
        machine.node, machine.is_up = node, True
        self._devices[node.id] = node.device
        self._enter_next(machine, at, self._physics.node_mtbf_s)
        return [NodeJoined(at=at, node=node.id, capacity=node.capacity, device=node.device)]

    def lose(self, at: float, node: NodeId) -> list[Event]:
        """`node` is gone, and with it every process of a job that had a part there."""
        machine = self._machines[node]
        machine.is_up = False
        if self._physics.node_mtbf_s < inf:
            self._enter_next(machine, at, self._physics.node_repair_s)
        hit = [life for life in self._lives.values() if node in life.grant or (life.change and node in life.change)]
        reports = [event for life in hit for event in self._report(life.id, at)]
        failed = [event for life in hit for event in self._killed(life, at, node)]
        return [*reports, NodeLost(at=at, node=node), *failed]

    def _killed(self, life: Life, at: float, node: NodeId) -> list[Event]:
        """Ends the job's processes. Only one that had a part elsewhere must say so: the others went with the node."""
        life.told_dead = any(other != node for other in (*life.grant, *(life.change or ())))
        life.die(at)
        self._enter(life)
        return [_failed(life, at, _NODE_GONE)] if life.told_dead else []

    def _enter_next(self, machine: _Machine, at: float, mean_s: float) -> None:
        machine.version += 1
        if mean_s == inf:
            return
        if machine.draw is None:
            machine.draw = stream(self._seed, "node", machine.node.id)
        self._queue.enter(at + machine.draw.exponential(mean_s), FACT, machine, machine.version)

    # Commands.

    def _launch(self, life: Life, command: LaunchJob) -> None:
        if command.request < life.request:
            return
        life.request, life.asked_launch = command.request, True
        changed = life.phase == "starting" and life.change != command.grant
        if life.phase in ("waiting", "paused") or changed:
            life.phase, life.told_dead = "starting", False
            life.change, life.change_at = command.grant, command.at + self._startup_s(life)
        elif life.phase != "starting":  # it runs: say so
            life.change, life.change_at = life.grant, command.at

    def _resize(self, life: Life, command: ResizeJob) -> None:
        if command.request < life.request:
            return
        life.request = command.request
        if life.phase == "starting":
            life.change = command.grant or life.change
            return
        if (life.phase == "waiting" and life.told_dead) or (command.grant == life.change and not life.asked_launch):
            return
        life.asked_launch = False
        unchanged = command.grant == life.grant
        life.change = command.grant
        life.change_at = command.at + (0.0 if unchanged else self._physics.resize_s)

    def _startup_s(self, life: Life) -> float:
        startup_s = self._physics.startup_s
        return life.job.spec.startup_s if startup_s is None else startup_s

    def _enter(self, life: Life) -> None:
        life.version += 1
        next_at = life.next_at()
        if next_at < inf:
            self._queue.enter(next_at, FACT, life, life.version)

    # What happens to a job, in this order at one instant: an end comes before whatever else was under way.

    def _advance(self, life: Life, at: float) -> list[Event]:
        if life.finish_at <= at:
            if life.until_steps >= life.job.work_steps:
                return self._finish(life, at)
            self._begin_phase(life, at)
        if life.stop_at <= at:
            return self._stopped(life, at)
        if life.fail_at <= at:
            events = self._crash(life, at, _CRASHED)
        else:
            events = self._change(life, at) if life.change_at <= at else []
            if life.resume_at <= at:
                events += self._go_on(life, at)
            if life.report_at <= at:
                events += self._routine(life, at)
        self._enter(life)
        return events

    def _finish(self, life: Life, at: float) -> list[Event]:
        life.rest(at)
        life.steps = life.job.work_steps
        self._forget(life)
        return [self._progress(life, at), JobFinished(at=at, job=life.id, landed_at=at)]

    def _forget(self, life: Life) -> None:
        del self._lives[life.id]
        self._ended.add(life.id)

    def _begin_phase(self, life: Life, at: float) -> None:
        """The job is as fast as it was, and from here on as fast as it will be."""
        life.rest(at)
        life.steps = life.until_steps
        self._train(life, at)

    def _stopped(self, life: Life, at: float) -> list[Event]:
        reports = self._report(life.id, at)
        self._forget(life)
        return [*reports, JobFailed(at=at, job=life.id, cause=f"stopped: {life.stop_cause}")]

    def _crash(self, life: Life, at: float, cause: str) -> list[Event]:
        reports = self._report(life.id, at)
        life.die(at)
        life.told_dead = True
        return [*reports, _failed(life, at, cause)]

    def _change(self, life: Life, at: float) -> list[Event]:
        change, life.change, life.change_at = life.change, None, inf
        if change is None:
            return []
        if life.phase == "waiting":  # told to change what a lost node took with it
            return self._crash(life, at, _NODE_GONE)
        if life.phase == "starting":
            return self._start(life, at, change)
        if change == life.grant:
            return self._answer(life, at)
        return self._apply(life, at, change)

    def _start(self, life: Life, at: float, grant: Allocation) -> list[Event]:
        if self._happens(life, "launch", self._physics.failed_launch_frac):
            life.die(at)
            return self._answer(life, at, _NEVER_STARTED)
        life.grant, life.since_at = grant, at
        if self._physics.failures_per_device_h:
            life.hazard_left = self._stream(life, "failure").exponential(1.0)
        self._train(life, at)
        # Where it begins: a speed is the difference of two reports.
        begins = [self._progress(life, at)] if life.steps or life.job.spec.model is not None else []
        return [*self._answer(life, at), *begins]

    def _apply(self, life: Life, at: float, grant: Allocation) -> list[Event]:
        progress = self._progress(life, at)
        if self._happens(life, "resize", self._physics.failed_resize_frac):
            return [progress, *self._answer(life, at, _NOT_RESIZED)]
        restarts = life.job.restarts or life.grant.keys().isdisjoint(grant)
        life.rest(at)
        if restarts:
            life.save()
        life.grant = grant
        self._stall(life, at, self._startup_s(life) if restarts else life.job.spec.resize_cost_s)
        return [progress, *self._answer(life, at)]

    def _stall(self, life: Life, at: float, stall_s: float) -> None:
        """Lose training time to a change; one that is still being lost is not lost twice."""
        if not life.grant:
            life.phase, life.resume_at, life.report_at = "paused", inf, inf
            return
        under_way_at = life.resume_at if life.resume_at < inf else at
        life.phase, life.resume_at = "stalled", max(under_way_at, at + stall_s)
        if life.resume_at <= at:
            life.resume_at = inf
            self._train(life, at)

    def _go_on(self, life: Life, at: float) -> list[Event]:
        """The stall is over. That is reported, because the time without progress says nothing about the speed."""
        life.resume_at = inf
        self._train(life, at)
        return [self._progress(life, at)]

    def _routine(self, life: Life, at: float) -> list[Event]:
        life.report_at = at + (self._physics.report_s or inf)
        return self._report(life.id, at)

    def _train(self, life: Life, at: float) -> None:
        shape = shape_of(life.job.spec, life.grant, self._devices)
        amount = total(life.grant.values())
        truth, until_steps = life.job.speed_at(life.steps)
        true_sps = truth.placed_sps(life.grant) if isinstance(truth, PlacedServed) else truth.rate_sps(shape)
        rate_sps = true_sps * self._noise(life)
        if self._physics.report_s is not None and life.report_at == inf:
            life.report_at = at + self._physics.report_s
        failures_per_s = self._physics.failures_per_device_h / _HOUR_S
        life.train(at, rate_sps, until_steps, amount, failures_per_s * (amount.gpus or amount.cores))

    # Answers.

    def _answer(self, life: Life, at: float, failure: str = "") -> list[Event]:
        """Says what the job holds now; empty if the answer gets lost."""
        if self._happens(life, "answer", self._physics.lost_answer_frac):
            return []
        if failure:
            return [GrantFailed(at=at, job=life.id, request=life.request, granted=life.grant, cause=failure)]
        if life.asked_launch:
            return [JobStarted(at=at, job=life.id, request=life.request, granted=life.grant)]
        return [GrantApplied(at=at, job=life.id, request=life.request, granted=life.grant)]

    def _progress(self, life: Life, at: float) -> ProgressReported:
        steps, declared = life.steps_at(at), life.job.spec.work_steps or life.job.told_steps
        return ProgressReported(
            at=at,
            job=life.id,
            steps_done=steps,
            # A loop that does more steps than it declared goes on declaring.
            steps_total=declared if declared is None or declared >= steps else steps,
            unit_at=at if life.phase == "training" else life.since_at,
            used_core_s=life.used_core_s_at(at),
            landed=steps >= life.job.work_steps,
        )

    def _report(self, job: JobId, at: float) -> list[Event]:
        life = self._lives.get(job)
        if life is None or life.phase in ("waiting", "starting"):
            return []
        return [self._progress(life, at)]

    # Chance.

    def _happens(self, life: Life, kind: str, frac: float) -> bool:
        return frac > 0 and self._stream(life, kind).chance(frac)

    def _noise(self, life: Life) -> float:
        sigma = self._physics.rate_sigma
        return log_normal(self._stream(life, "rate"), sigma, -0.5 * sigma * sigma) if sigma else 1.0

    def _stream(self, life: Life, kind: str) -> Draw:
        if life.draws is None:
            life.draws = {}
        if kind not in life.draws:
            life.draws[kind] = stream(self._seed, kind, life.id)
        return life.draws[kind]


def _failed(life: Life, at: float, cause: str) -> JobFailed:
    return JobFailed(at=at, job=life.id, cause=cause, retryable=True)  # no exit code: the hardware failed
