"""Commands of the scheduler, named in the imperative. Executors and hosts answer each with an event.

`request` numbers grow within a job. An executor drops a command whose number is below one it has already performed
for that job: that is what makes a late command harmless.
"""

from dataclasses import dataclass, field
from typing import Any

from punctual.core.control import PacingLine
from punctual.core.events import Message
from punctual.core.fast_init import fast_init
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.program import Program
from punctual.core.reason import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Message):
    """Something that the scheduler wants to be done."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob(Command):
    """Start `program` with `grant`. Answered by `JobStarted`, or by `GrantFailed` when it could not be started.

    Said again for a job that runs, it is answered by `JobStarted` and changes nothing. The times of the job's pacing
    lines count from `submitted_at`.
    """

    job: JobId
    request: int
    spec: JobSpec
    grant: Allocation
    reason: Reason
    program: Program | None = None
    submitted_at: float = 0.0


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeJob(Command):
    """Make the job hold `grant` and keep to `pacing`. Answered by `GrantApplied` or `GrantFailed`.

    An empty grant pauses the job, and the next one that is not empty resumes it; nothing of its progress is lost.
    """

    job: JobId
    request: int
    grant: Allocation
    reason: Reason
    pacing: PacingLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob(Command):
    """End the job, after a checkpoint if it can make one. Answered by `JobFinished` or `JobFailed`.

    `restarts`: it is to be launched again, so its end is a failure that may be retried. `moves`: as `restarts`, but on another
    node, and its end is no failure. `interrupts`: as Ctrl-C does it in a terminal: a program that catches that ends when it likes.
    `is_due`: because of its deadline.
    """

    job: JobId
    cause: str
    restarts: bool = False
    interrupts: bool = False
    moves: bool = False
    is_due: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan(Command):
    """Ask the policy for a plan of snapshot `revision`. Answered by `PlanProposed`.

    The snapshot itself is not in the message: whoever performs it asks the scheduler for it at once, so that the
    journal keeps facts and not copies of the state.
    """

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsePolicy(Command):
    """Make plans with this policy from now on. The next `PlanProposed` confirms it, or says why it failed."""

    policy: str
    parameters: dict[str, Any] = field(default_factory=dict)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer(Command):
    """Send `TimerFired` with `timer` at instant `fire_at`; replaces an earlier setting of the same timer. In no journal."""

    timer: Timer
    fire_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectJob(Command):
    """End a job that did not run to its end: it cannot run here, is turned away, or is not launched again."""

    job: JobId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnUser(Command):
    """Tell a user what needs attention, or that an earlier warning is over (`reason.code` says which).

    `job` None: it concerns all jobs. `node`: what it is about, where that is a node.
    """

    job: JobId | None
    reason: Reason
    node: NodeId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMachines(Command):
    """Start `n_machines` more of a pool. Answered by `MachinesAsked`, `MachinesRefused` or both."""

    pool: str
    n_machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseMachines(Command):
    """End machines of a pool, on which no job holds anything. Answered by `NodeLost` for each."""

    pool: str
    nodes: tuple[NodeId, ...]


#: Commands that an executor performs.
JobCommand = LaunchJob | ResizeJob | StopJob
#: Commands that a provider of machines performs; nobody says them unless a pool was offered.
MachineCommand = AskMachines | ReleaseMachines
