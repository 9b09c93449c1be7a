"""Events: facts, in the past tense. The scheduler's state is their fold; `at` is an instant in seconds."""

from dataclasses import dataclass, field
from typing import Any

from punctual.core.control import PhaseProgress
from punctual.core.fast_init import fast_init
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.loss import SeenLoss
from punctual.core.plan import Plan
from punctual.core.pools import PoolSpec
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An entry of the journal, which holds events and commands in their order; `at`: its instant."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Message):
    """A fact that the scheduler is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOfJob(Event):
    """A fact about one job."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantAnswer(EventOfJob):
    """Answer to command number `request` about a job's grant: the job holds `granted`."""

    request: int
    granted: Allocation


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(Event):
    """A user wants this job to run. `program`: its program; None: the executor knows it, as in a simulation.

    `by`: who; empty: the owner, at the terminal.
    """

    spec: JobSpec
    program: Program | None = None
    by: str = ""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(GrantAnswer):
    """The job runs and holds `granted`; answers `LaunchJob` number `request`.

    `can_pace`, `can_cap`: what the executor can do to the job, see `punctual.core.control.Reading`.
    """

    can_pace: bool = False
    can_cap: bool = True


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported(EventOfJob):
    """The latest count of a running job.

    Attributes
    ----------
    unit_at
        Instant at which the last unit was completed.
    used_core_s, in_flight_core_s
        CPU seconds used up to `at` by the processes of the job since it was launched last; the part of them spent since `unit_at`.
    busy_s, device_s
        Seconds up to `unit_at` in which its training process did not wait for Punctual, and in which its device computed for
        it, since that process was started; 0: it does not tell, or has no device.
    active_s
        Seconds up to `at` in which the main thread of its training process computed or waited for a processor: the rest of
        the time it waited for something else. 0: not known.
    steps_total
        Declared by the training process; None: not yet.
    landed
        Every declared step and phase is done.
    is_read
        The count comes from the output of a program that knows nothing of it, and so keeps to no line.
    memory_bytes
        Memory that the processes of the job held lately, without the cache of files; 0: not known.
    """

    steps_done: float
    steps_total: float | None
    unit_at: float
    used_core_s: float
    in_flight_core_s: float = 0.0
    landed: bool = False
    is_read: bool = False
    busy_s: float = 0.0
    device_s: float = 0.0
    active_s: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReported(EventOfJob):
    """The job's phases, as last reported; `phases` replaces the earlier report."""

    phases: tuple[PhaseProgress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReported(EventOfJob):
    """Losses of a job that trains to a goal since the last report, in order of steps."""

    losses: tuple[SeenLoss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWarned(EventOfJob):
    """The executor warns the user of a job, once for each code of `reason`."""

    reason: Reason


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinished(EventOfJob):
    """The job's process ended by itself with success. `landed_at`: when its last declared phase ended."""

    landed_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(EventOfJob):
    """The job's process ended otherwise, could not be started, or was stopped.

    Attributes
    ----------
    exit_code
        Exit code of the program, if the program failed.
    retryable
        Whether it makes sense to launch it again. If so the job has not ended: it is launched again, or a `RejectJob`
        follows that says why not.
    request
        Number of the command that this answers, because the job had no process for it; None: it answers none.
    is_lost
        The process is gone through no fault of its program, which may be retried: the job is launched again however often it
        has failed.
    is_stopped
        It ended because it was asked to; `cause` says why it was asked. Retryable: to be launched elsewhere, which is no failure.
    is_due
        It was asked to because of its deadline.
    has_saved
        It made a checkpoint before it ended: another process goes on from there.
    out_of_memory
        It needed more memory than it had asked for; retryable: it is launched again if it is to have more then.
    """

    cause: str
    exit_code: int | None = None
    retryable: bool = False
    request: int | None = None
    is_lost: bool = False
    is_stopped: bool = False
    is_due: bool = False
    has_saved: bool = False
    out_of_memory: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class GrantApplied(GrantAnswer):
    """The job now holds `granted`, as read back; answers `ResizeJob` number `request`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFailed(GrantAnswer):
    """Command number `request` had no effect; the job holds `granted`.

    `short_of`: what the node lacks until other programs end or make room, as ``a descriptor``; empty: the cause is another one.
    """

    cause: str
    short_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(Event):
    """A node offers `capacity`; a repeated event changes its capacity.

    `device`: the kind of its devices. `jobs_at_once`: see `punctual.core.cluster.Node`.
    """

    node: NodeId
    capacity: Resources
    device: str = ""
    jobs_at_once: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node is gone, and with it the grants on it."""

    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWarned(Event):
    """The executor warns the users of all jobs on a node, each time."""

    node: NodeId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNoticed(Event):
    """A node is taken away at `ends_at`: its jobs leave it before, and nothing new is placed there.

    `ends_at` None: the notice is withdrawn, and the node stays. `by`: the user who drains the node; empty: the owner, at the
    terminal, or the cluster.
    """

    node: NodeId
    ends_at: float | None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOffered(Event):
    """A pool of machines can be used, or its price or count has changed.

    Attributes
    ----------
    price_usd_h
        Price of a machine-hour from now on.
    obtainable
        Machines that can be had, those included that are there or start.
    """

    pool: PoolSpec
    price_usd_h: float
    obtainable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesAsked(Event):
    """The provider starts machines of a pool and bills them from now on; each joins as a node."""

    pool: str
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesRefused(Event):
    """Machines of a pool cannot be had now: no more than those that are there or start.

    Attributes
    ----------
    n_machines
        Machines that were asked for and do not come; 0: none was asked for, and an order would be in vain.
    cause
        Why, in words for the user; empty: not known.
    again_at
        Instant at which they can be asked for again; None: as soon as the pool offers more.
    """

    pool: str
    n_machines: int
    cause: str = ""
    again_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChanged(Event):
    """A user changed a job's declaration (its deadline, say). `by`: who; empty: the owner, at the terminal."""

    spec: JobSpec
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(EventOfJob):
    """A user wants the job to end. `by`: who; empty: the owner, at the terminal, or the host itself.

    `interrupts`: as Ctrl-C does it in a terminal, which its program may catch.
    """

    cause: str
    by: str = ""
    interrupts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested(EventOfJob):
    """A user wants the job to hold nothing until `ResumeRequested`; its deadline goes on counting.

    `cause`: why, as that user says; empty: nothing was said. `by`: who; empty: the owner, at the terminal.
    """

    cause: str = ""
    by: str = ""

    def text(self) -> str:
        """Return a text that says who paused the job, and why."""
        return f"paused {by_user(self.by)}{': ' * bool(self.cause)}{self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested(EventOfJob):
    """A user wants a job that was paused to go on. `by`: who; empty: the owner, at the terminal."""

    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged(Event):
    """A user wants another policy to share the cluster.

    Attributes
    ----------
    policy, parameters
        Registered name, and its parameters as plain values.
    before
        Name of the one before. Its promises stand if it is the same policy with other parameters.
    by
        Who; empty: the owner, at the terminal.
    """

    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)
    before: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringResumed(Event):
    """Another process steers from now on; the one before it ended without notice.

    Attributes
    ----------
    lost_at
        Last sign of life of the earlier process. Answers to its requests are lost, and so are its timers.
    granted
        Grant found of each job that still has a process; assumed to hold since `lost_at`. The
        process of a job that is missing here is gone.
    """

    lost_at: float
    granted: dict[JobId, Allocation]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProposed(Event):
    """A policy answered `RequestPlan` number `revision`.

    With a `cause` it has failed, and that is why; `plan` is then that of the policy to fall back on, or None.
    """

    plan: Plan | None
    revision: int
    cause: str = ""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Event):
    """The instant that `SetTimer` named has come. `late_s`: seconds since then."""

    timer: Timer
    late_s: float = 0.0


def by_user(name: str) -> str:
    """Return a text that names the user behind a request; an empty name is the owner, at the terminal."""
    return f"by {name or 'the user'}"
