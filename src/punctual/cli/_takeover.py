"""Taking over a job whose command has died: its keeper leaves it to nobody else, and the journal tells the rest."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from punctual.cli._compose import HERE, scheduler_for
from punctual.cli._picture import Picture, picture_of
from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted, ProgressReported, SteeringResumed
from punctual.core.program import Program
from punctual.core.protocols import Message, Sink
from punctual.core.scheduler import Scheduler
from punctual.executors.local import LocalExecutor
from punctual.executors.local.context import OnOutput
from punctual.executors.local.executor import in_force
from punctual.executors.local.keeper_link import Kept, take_over, takeover_socket_of
from punctual.runtime import paths
from punctual.runtime.mailbox import MonotonicClock
from punctual.runtime.replay import replay
from punctual.store.sqlite import SqliteJournal
from punctual.wire import PageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A running job that this process alone may steer, as the journal has it.

    Attributes
    ----------
    launch, program
        The command that it was last launched by, and what it runs.
    latest
        What was last reported of its progress; None: nothing was.
    lost_at
        When the command that steered it was last heard of, monotonic seconds.
    """

    run: paths.Run
    kept: Kept
    scheduler: Scheduler
    picture: Picture
    launch: LaunchJob
    program: Program
    latest: ProgressReported | None
    lost_at: float


def orphan_of(run: paths.Run) -> Orphan:
    """Claim the job of `run`. As long as nothing is asked of it, it is as it was, and is again if this process ends.

    Raises
    ------
    InvalidSpec
        It has ended, or somebody else steers it.
    """
    kept = take_over(takeover_socket_of(run.runtime_dir, run.job))
    if kept is None:
        raise _not_to_be_had(run, "one that has just ended, or that another command has just taken over")
    paths.record_steering(run)
    with SqliteJournal(run.journal, read_only=True) as journal:
        memory = _Memory(picture_of(_submission(run, (message for _, message in journal.read_from(1)))))
        scheduler = replay(journal, lambda: scheduler_for(memory.picture.spec), listeners=[memory.take])
    if memory.launch is None or memory.picture.ended:
        raise _not_to_be_had(run, f"one that is {memory.picture.status}")
    if memory.launch.program is None:
        raise _not_to_be_had(run, "one whose journal does not say what it runs")
    demand = scheduler.demand(run.job)
    memory.picture.forecast = demand.forecast if demand else None
    return Orphan(
        run=run, kept=kept, scheduler=scheduler, picture=memory.picture, launch=memory.launch,
        program=memory.launch.program, latest=memory.latest, lost_at=memory.last_at,
    )  # fmt: skip


class _Memory:
    """What a command must know of the one before it, beside the scheduler's state."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.launch: LaunchJob | None = None
        self.latest: ProgressReported | None = None
        self.last_at = picture.submitted_at

    def take(self, message: Message) -> None:
        self.picture.fold(message)
        self.last_at = message.at
        if isinstance(message, LaunchJob):
            self.launch = message
        elif isinstance(message, ProgressReported):
            self.latest = message


def _submission(run: paths.Run, messages: Iterable[Message]) -> JobSubmitted:
    for message in messages:
        if isinstance(message, JobSubmitted):
            return message
    raise _not_to_be_had(run, "one whose journal does not say what it is")


def _not_to_be_had(run: paths.Run, got: str) -> InvalidSpec:
    return InvalidSpec(
        "only a running job that nobody steers can be taken over", got, f"job '{run.job}'",
        "See `punctual ps` for what runs, and whether it is steered.",
    )  # fmt: skip


class KeptJob:
    """The origin of a job that is taken over."""

    def __init__(self, orphan: Orphan, on_output: OnOutput) -> None:
        self._orphan = orphan
        self._goes_on = False
        self.picture, self.scheduler = orphan.picture, orphan.scheduler
        self.program = orphan.program
        self._on_output = on_output

    def places(self, ending: ExitStack) -> paths.Run:
        ending.callback(self._clear_away)
        return self._orphan.run

    def _clear_away(self) -> None:
        """The places are the job's as long as it runs, also if it could not be taken over."""
        if self._goes_on:
            paths.remove_live_places(self._orphan.run)

    def executor(self, places: paths.Run) -> LocalExecutor:
        return LocalExecutor(
            node=HERE, actuator=in_force(self._orphan.kept.request.actuator), runtime_dir=places.runtime_dir,
            clock=MonotonicClock(), output_of=lambda _: self._on_output,
        )  # fmt: skip

    def begin(self, executor: LocalExecutor, post: Sink) -> None:
        orphan, job = self._orphan, self.picture.spec.id
        try:
            held = executor.take_over(orphan.kept, orphan.launch, orphan.latest, post)
        except (OSError, PageError) as error:
            raise InvalidSpec(
                "the job's page and control groups must be there for this user", str(error), f"job '{job}'",
                "Take it over as the user who started it; it goes on meanwhile.",
            ) from error  # fmt: skip
        self._goes_on = True
        post(SteeringResumed(at=time.monotonic(), lost_at=orphan.lost_at, granted={job: held}))
