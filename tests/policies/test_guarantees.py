"""Jobs that run only with a promise: what is accepted is kept, and what is refused is told what would be accepted."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

import pytest
from tests.core.desk import Scripted
from tests.examples import examples

from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, SetTimer, WarnUser
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    PlanProposed,
    ProgressReported,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.protocols import Policy
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated
from punctual.policies.promises_first import PromisesFirst
from punctual.policies.proportional import Proportional

HERE = NodeId("here")


@dataclass(slots=True)
class World:
    """A scheduler with one node, a policy that answers at once, and jobs that start and are resized at once."""

    policy: Policy
    capacity: Resources
    at: float = 0.0
    plan_at: float = inf
    rejected: dict[str, RejectJob] = field(default_factory=dict)
    launched: set[str] = field(default_factory=set)
    warned: list[str] = field(default_factory=list)
    #: Of jobs made of workers: steps done, workers held, since when, and from when on it works with them.
    done_steps: dict[str, float] = field(default_factory=dict)
    holds: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    scheduler: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler({"scripted": Scripted()}, models={"tabulated": Tabulated()}, strict=True)
        self.tell(NodeJoined(at=0.0, node=HERE, capacity=self.capacity))

    def tell(self, event: Event) -> None:
        for command in self.scheduler.handle(event):
            self._perform(command)

    def _perform(self, command: Command) -> None:
        match command:
            case RequestPlan():
                snapshot = self.scheduler.snapshot(command.at)
                plan = self.policy.allocate(snapshot)
                self.tell(PlanProposed(at=command.at, plan=plan, revision=snapshot.revision))
            case LaunchJob(request=request, job=job, grant=grant):
                self.launched.add(job)
                self._change(job, grant)
                self.tell(JobStarted(at=self.at, job=job, request=request, granted=grant, can_pace=False, can_cap=True))
            case ResizeJob(request=request, job=job, grant=grant):
                self._change(job, grant)
                self.tell(GrantApplied(at=self.at, job=job, request=request, granted=grant))
            case RejectJob(job=job):
                self.rejected[job] = command
            case SetTimer(timer=Timer(kind="plan"), fire_at=fire_at):
                self.plan_at = fire_at
            case WarnUser(reason=reason):
                self.warned.append(reason.code)

    def _change(self, job: JobId, grant: Allocation) -> None:
        spec = self.scheduler.job(job).spec
        if spec.worker is not None:
            cost_s = spec.resize_cost_s if self.holds.get(job, (0, 0.0, 0.0))[0] else spec.startup_s
            amount = sum(amount.cores for amount in grant.values())
            self.holds[job] = round(amount / spec.worker.cores), self.at, self.at + cost_s

    def _work(self, over_s: float) -> None:
        """Let jobs of workers do their steps, and say so."""
        self.at += over_s
        for job, (n_workers, since_at, ready_at) in self.holds.items():
            view = self.scheduler.job(JobId(job))
            if n_workers and view.status == "running" and view.curve is not None:
                rate_sps = view.curve.rate_sps(Shape(n_workers=n_workers, cores=0.5 * n_workers))
                worked_s = min(over_s, max(0.0, self.at - ready_at))
                done = self.done_steps[job] = self.done_steps.get(job, 0.0) + rate_sps * worked_s
                unit_at = self.at if self.at >= ready_at else since_at
                report = ProgressReported(
                    at=self.at, job=view.id, steps_done=done, steps_total=None, unit_at=unit_at, used_core_s=0.0
                )
                self.tell(report)

    def submit(self, spec: JobSpec) -> bool:
        """Whether the job is accepted."""
        self.tell(JobSubmitted(at=self.at, spec=spec))
        return spec.id not in self.rejected

    def pass_time(self, until_at: float) -> None:
        """Let jobs end at their deadlines, have plans made often, and jobs report when they begin to work."""
        while self.at < until_at:
            snapshot = self.scheduler.snapshot(self.at)
            ends = sorted((view.deadline_at or 0.0, view.id) for view in (*snapshot.holding, *snapshot.waiting))
            begins_at = [ready_at for _, _, ready_at in self.holds.values()]
            soonest_at = min(
                [until_at, self.plan_at, *(at for at in (*begins_at, *(at for at, _ in ends)) if at > self.at)]
            )
            self._work(soonest_at - self.at)
            for at, job in ends:
                if at <= self.at:
                    self.tell(JobFinished(at=self.at, job=job, landed_at=self.at))
            if self.at >= self.plan_at:
                self.plan_at = inf
                self.tell(TimerFired(at=self.at, timer=Timer("plan")))


def on_cores(name: str, random: Random) -> JobSpec:
    most = random.choice((0.5, 1.0, 2.0, 4.0))
    work_core_s = random.uniform(100.0, 6000.0)
    return JobSpec(
        id=JobId(name), ceiling=Resources(most), floor=Resources(0.02), controller="scripted", work_core_s=work_core_s,
        deadline_s=work_core_s / most * random.uniform(0.7, 2.5), guarantee=True, preemptible=True,
    )  # fmt: skip


def of_workers(name: str, random: Random) -> JobSpec:
    counts, speed = (1, 2, 4), random.uniform(0.6, 1.0)
    profile = tuple(SeenRate(shape=Shape(n_workers=n, cores=0.5 * n), rate_sps=n**speed) for n in counts)
    steps = random.uniform(400.0, 12000.0)
    return JobSpec(
        id=JobId(name), worker=Resources(0.5), counts=counts, floor=Resources(0.5), ceiling=Resources(2.0),
        work_steps=steps, deadline_s=steps / 4**speed * random.uniform(0.7, 2.5), controller=None, model="tabulated",
        profile=profile, preemptible=True, guarantee=True,
    )  # fmt: skip


def of_workers_that_start_slowly(name: str, random: Random) -> JobSpec:
    spec, startup_s, resize_cost_s = of_workers(name, random), random.uniform(5.0, 40.0), random.uniform(2.0, 20.0)
    return replace(spec, startup_s=startup_s, resize_cost_s=resize_cost_s)


@pytest.mark.parametrize("drawn", [on_cores, of_workers, of_workers_that_start_slowly])
def test_what_is_refused_is_accepted_with_the_deadline_that_the_refusal_names(
    drawn: Callable[[str, Random], JobSpec],
) -> None:
    """Where promised jobs need all there is to the last, no deadline is named; that is rare."""
    n_named, n_unnamed, n_accepted = 0, 0, 0
    for seed in range(4):
        random, world = Random(seed), World(PromisesFirst(promised_frac=1.0, max_wait_s=0.0), Resources(4.0))
        for i in range(14):
            spec = drawn(f"job-{i}", random)
            if world.submit(spec):
                n_accepted += 1
            elif (named_s := world.rejected[spec.id].reason.facts.get("earliest_deadline_s")) is None:
                n_unnamed += 1
            else:
                n_named += 1
                assert named_s > (spec.deadline_s or 0.0)
                again = replace(spec, id=JobId(f"{spec.id}-again"), deadline_s=named_s)
                assert world.submit(again), world.rejected[again.id].reason.text
                assert world.scheduler.promised_until_at(again.id) == pytest.approx(world.at + named_s)
            world.pass_time(world.at + random.expovariate(1 / 60.0))
        assert not {"promise-lost", "promise-in-danger", "not-promised"} & set(world.warned)
    assert n_named >= 8
    assert n_accepted >= 4
    assert n_unnamed <= n_named / 5


@pytest.mark.parametrize("drawn", [on_cores, of_workers])
def test_the_deadline_that_is_named_is_not_much_later_than_one_that_is_refused(
    drawn: Callable[[str, Random], JobSpec],
) -> None:
    random, world = Random(5), World(PromisesFirst(promised_frac=1.0, max_wait_s=0.0), Resources(4.0))
    n_compared = 0
    for i in range(16):
        spec = drawn(f"job-{i}", random)
        if world.submit(spec):
            continue
        named_s = world.rejected[spec.id].reason.facts["earliest_deadline_s"]
        n_compared += not world.submit(replace(spec, id=JobId(f"{spec.id}-sooner"), deadline_s=0.9 * named_s))
    assert n_compared >= 2


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("drawn", [on_cores, of_workers])
def test_no_promise_is_lost_to_the_least_that_later_jobs_hold(
    drawn: Callable[[str, Random], JobSpec], seed: int
) -> None:
    """They ask for no promise, with or without deadlines, and hold up to a quarter of the machine whenever they run."""
    random, world = Random(seed), World(PromisesFirst(promised_frac=1.0, max_wait_s=0.0), Resources(4.0))
    n_promised, n_waited = 0, 0
    for i in range(24):
        if random.random() < 0.5:
            n_promised += world.submit(drawn(f"job-{i}", random))
        else:
            floor, deadline_s = random.uniform(0.05, 1.0), random.choice((None, random.uniform(100.0, 3000.0)))
            spec = replace(on_cores(f"job-{i}", random), guarantee=False, deadline_s=deadline_s, ceiling=Resources(4.0))
            world.submit(replace(spec, floor=Resources(floor)))
            n_waited += spec.id not in world.launched
        world.pass_time(world.at + random.expovariate(1 / 60.0))
    assert not {"promise-lost", "promise-in-danger"} & set(world.warned)
    assert n_promised >= 3
    assert n_waited > 0


def test_a_promise_outlives_a_process_that_fails_when_nearly_all_is_done() -> None:
    """As a whole it would not fit any more; it goes on where it was."""
    world = World(PromisesFirst(promised_frac=1.0), Resources(2.0))
    spec = replace(
        of_workers("fails", Random(1)), counts=(1,), ceiling=Resources(0.5), work_steps=1000.0, deadline_s=1100.0
    )
    assert world.submit(spec)
    world.pass_time(900.0)
    assert world.scheduler.job(spec.id).done_steps == pytest.approx(900.0)
    world.tell(JobFailed(at=world.at, job=spec.id, cause="a signal", retryable=True))
    assert world.scheduler.job(spec.id).done_steps == 0
    assert world.scheduler.promised_until_at(spec.id) == 1100.0
    assert "promise-in-danger" not in world.warned


def test_a_job_that_is_refused_never_runs() -> None:
    world = World(PromisesFirst(promised_frac=1.0), Resources(1.0))
    spec = on_cores("late", Random(1))
    assert not world.submit(replace(spec, work_core_s=100.0, deadline_s=10.0))
    assert not world.launched


def test_without_knowing_its_work_nothing_is_guaranteed() -> None:
    world = World(PromisesFirst(), Resources(1.0))
    assert not world.submit(replace(on_cores("unknown", Random(1)), work_core_s=None))
    assert "--work" in world.rejected["unknown"].reason.text


def test_a_guaranteed_job_waits_as_long_as_a_policy_plans_that_promises_nothing() -> None:
    """As the one does that plans while another one starts."""
    world = World(Proportional(), Resources(4.0))
    assert world.submit(replace(on_cores("first", Random(1)), work_core_s=10.0, deadline_s=100.0))
    assert not world.launched
    world.policy = PromisesFirst(promised_frac=1.0)
    world.tell(NodeJoined(at=1.0, node=NodeId("more"), capacity=Resources(1.0)))
    assert world.launched == {"first"}


def test_a_job_that_asks_for_no_guarantee_runs_as_before() -> None:
    world = World(PromisesFirst(), Resources(1.0))
    assert world.submit(replace(on_cores("late", Random(1)), work_core_s=100.0, deadline_s=10.0, guarantee=False))
    assert world.launched == {"late"}
