"""Commands caused by an event, in order; each is also noted in the story of its job."""

from math import inf

from punctual.core.commands import Command, SetTimer, WarnUser
from punctual.core.ids import NodeId, Timer, TimerKind
from punctual.core.reason import Reason
from punctual.core.scheduled_job import ScheduledJob


class Outbox:
    """Collects commands until they are taken."""

    def __init__(self) -> None:
        self._commands: list[Command] = []

    def take(self) -> list[Command]:
        """Return the commands since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def put(self, command: Command, job: ScheduledJob | None) -> None:
        """Add a command; `job`: the job it concerns, None for all jobs or none."""
        self._commands.append(command)
        if job is not None:
            job.tell(command)

    def warn(self, at: float, job: ScheduledJob | None, reason: Reason, node: NodeId | None = None) -> None:
        """Warn the user of `job`, or of all jobs; `node`: the node that the warning concerns."""
        self.put(WarnUser(at=at, job=None if job is None else job.spec.id, reason=reason, node=node), job)

    def set_timer(self, at: float, kind: TimerKind, job: ScheduledJob | None, after_s: float) -> None:
        """Set a timer of `job`, or of the whole cluster; no timer for an infinite time."""
        if after_s < inf:
            timer = Timer(kind) if job is None else Timer(kind, job.spec.id)
            self.put(SetTimer(at=at, timer=timer, fire_at=at + after_s), job)
