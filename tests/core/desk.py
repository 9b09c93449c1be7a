"""A scheduler to talk to in short words."""

from typing import Any, TypeVar

from punctual.core.commands import Command, LaunchJob, ResizeJob
from punctual.core.control import CoreWork, Demand, Forecast, PacingLine, Reading
from punctual.core.events import (
    Event,
    GrantApplied,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    PlanProposed,
    ProgressReported,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.plan import Plan
from punctual.core.protocols import Controller
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods, Scheduler

C = TypeVar("C")

HERE = NodeId("here")
A, B = JobId("a"), JobId("b")


def cores(amount: float) -> Allocation:
    return {HERE: Resources(cores=amount)}


class Scripted:
    """A controller that demands what the test says and remembers what it was shown."""

    def __init__(self) -> None:
        self.wanted = 1.0
        self.pacing: PacingLine | None = None
        self.forecast: Forecast | None = None
        self.work: CoreWork | None = None
        self.readings: list[Reading] = []

    def init(self, spec: JobSpec) -> None:
        return None

    def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
        self.readings.append(reading)
        reason = Reason("scripted", f"the script wants {self.wanted:g}")
        demand = Demand(
            resources=Resources(cores=self.wanted), next_tick_s=0.5, reason=reason, pacing=self.pacing,
            forecast=self.forecast, work=self.work,
        )  # fmt: skip
        return demand, None


class Desk:
    """A scheduler with one node of two cores, and the answers that a kind world gives."""

    def __init__(self, steered_by: Controller[Any] | None = None) -> None:
        self.controller = Scripted()
        self.scheduler = Scheduler({"scripted": steered_by or self.controller}, strict=True, periods=Periods())
        self.joined = NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2))
        self.tell(self.joined)

    def tell(self, event: Event) -> list[Command]:
        return self.scheduler.handle(event)

    def submit(
        self, id: JobId, *, at: float = 0.0, ceiling: float = 2.0, floor: float = 0.1, **declared: Any
    ) -> list[Command]:
        spec = JobSpec(
            id=id,
            ceiling=Resources(cores=ceiling),
            floor=Resources(cores=floor),
            controller="scripted",
            **{"deadline_s": 100.0, **declared},
        )
        return self.tell(JobSubmitted(at=at, spec=spec))

    def plan(
        self, grants: dict[JobId, Allocation], *, at: float = 0.0, promises: dict[JobId, float] | None = None
    ) -> list[Command]:
        revision = self.scheduler.snapshot(at).revision
        plan = Plan(revision=revision, grants=grants, promises=promises)
        return self.tell(PlanProposed(at=at, plan=plan, revision=revision))

    def started(self, launch: Command, *, at: float = 0.0) -> list[Command]:
        assert isinstance(launch, LaunchJob)
        return self.tell(JobStarted(at=at, job=launch.job, request=launch.request, granted=launch.grant))

    def applied(self, resize: Command, *, at: float = 0.0) -> list[Command]:
        assert isinstance(resize, ResizeJob)
        return self.tell(GrantApplied(at=at, job=resize.job, request=resize.request, granted=resize.grant))

    def tick(self, id: JobId, *, at: float) -> list[Command]:
        return self.tell(TimerFired(at=at, timer=Timer("tick", JobId(id))))

    def tick_plan(self, *, at: float) -> list[Command]:
        return self.tell(TimerFired(at=at, timer=Timer("plan")))

    def progress(self, id: JobId, *, at: float, steps: float, landed: bool = False) -> list[Command]:
        return self.tell(
            ProgressReported(
                at=at, job=id, steps_done=steps, steps_total=100, unit_at=at, used_core_s=at, landed=landed
            )
        )

    def run(self, id: JobId, amount: float, *, at: float = 0.0, **declared: Any) -> None:
        """Bring a job to running with `amount` cores."""
        self.submit(id, at=at, **declared)
        launch = only(self.plan({**self.granted(), id: cores(amount)}, at=at), LaunchJob)
        self.started(launch, at=at)

    def granted(self) -> dict[JobId, Allocation]:
        return {job.spec.id: job.granted for job in self.scheduler.snapshot(0.0).jobs if job.granted}


def only(commands: list[Command], kind: type[C]) -> C:
    """The one command of `kind`."""
    found = [command for command in commands if isinstance(command, kind)]
    assert len(found) == 1, commands
    return found[0]


def none(commands: list[Command], kind: type) -> bool:
    return not any(isinstance(command, kind) for command in commands)
