"""The scheduler against a hostile world: effects late, failed, lost or done twice; nodes come and go; plug-ins fail.

The rules of the machine play the executor, the policy, users and plug-ins. After every step the scheduler's own
invariants are checked, and beside them what only the world knows: what the jobs *really* hold never exceeds a node's
capacity. A second scheduler, loaded from what the first one dumped at some moment, gives the same commands from then
on; and the board of statuses, which only reads messages, agrees with the scheduler about every job.
"""

import pickle
from collections.abc import Callable
from dataclasses import replace
from math import nan
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from punctual.core.cluster import Snapshot
from punctual.core.commands import Command, LaunchJob, RequestPlan, ResizeJob, SetTimer, StopJob, WarnUser
from punctual.core.control import Demand, Reading
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PauseRequested,
    PlanProposed,
    ProgressReported,
    ResumeRequested,
    SpecChanged,
    SteeringResumed,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.lifecycle import ended_by
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.speed import SeenRate, Shape
from punctual.core.status import StatusBoard

PERIODS = Periods(first_tick_s=1.0, retry_s=1.0, retry_max_s=4.0, answer_s=5.0, plan_s=5.0, learn_s=0.1, gather_s=0.5)
#: Ended jobs that are remembered: few, so that some are forgotten.
N_ENDED = 2


class Wandering:
    """A controller that wants another amount at every tick."""

    def init(self, spec: JobSpec) -> int:
        return 0

    def step(self, spec: JobSpec, state: int, reading: Reading) -> tuple[Demand, int]:
        cores = spec.floor.cores + (state * 0.37) % (spec.ceiling.cores - spec.floor.cores + 1e-9)
        reason = Reason("wander", "it wanders")
        return Demand(resources=Resources(cores=cores), next_tick_s=1.0, reason=reason), state + 1


class Failing(Wandering):
    """One that raises at its third tick."""

    def step(self, spec: JobSpec, state: int, reading: Reading) -> tuple[Demand, int]:
        if state == 2:
            raise ZeroDivisionError("by nothing")
        return super().step(spec, state, reading)


class Nonsense(Wandering):
    """One that does not answer with demands."""

    def step(self, spec: JobSpec, state: int, reading: Reading) -> Any:
        answers: list[Any] = [super().step(spec, state, reading), None, ("more", state)]
        return answers[min(state, 2)] if state != 1 else (replace(answers[0][0], next_tick_s=nan), state)


class FailsAtOnce(Wandering):
    def init(self, spec: JobSpec) -> int:
        raise KeyError(spec.id)


class Counting:
    """A model of the speeds it saw, which fails at the third or says that a speed is none."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def init(self, spec: JobSpec) -> tuple[SeenRate, ...]:
        return ()

    def update(self, state: tuple[SeenRate, ...], seen: SeenRate) -> tuple[SeenRate, ...]:
        if self.fails and len(state) == 2:
            raise RuntimeError("too much to remember")
        return (*state[-5:], seen)

    def rate_sps(self, state: tuple[SeenRate, ...], shape: Shape) -> float:
        return nan if len(state) == 5 else sum(seen.rate_sps for seen in state)

    def std_sps(self, state: tuple[SeenRate, ...], shape: Shape) -> float:
        return 0.0


CONTROLLERS = {
    "wandering": Wandering(), "failing": Failing(), "nonsense": Nonsense(), "fails-at-once": FailsAtOnce(),
}  # fmt: skip
MODELS = {"counting": Counting(fails=False), "failing": Counting(fails=True)}


def new_scheduler() -> Scheduler:
    return Scheduler(CONTROLLERS, models=MODELS, periods=PERIODS, n_ended=N_ENDED)


def share(snapshot: Snapshot, shares: list[float]) -> Plan:
    """A valid plan: jobs in order, each its floor if that fits, then a drawn share of what its node has left."""
    free = {node.id: node.capacity for node in snapshot.nodes}
    homes: dict[JobId, NodeId] = {}
    grants: dict[JobId, Allocation] = {}
    running = [job for job in snapshot.jobs if job.status != "queued"]
    for job in [*running, *(job for job in snapshot.jobs if job.status == "queued")]:
        candidates = list(job.granted) or [node for node in free if job.spec.floor.fits_in(free[node])]
        candidates = [node for node in candidates if node in free and job.spec.floor.fits_in(free[node])]
        if candidates:
            homes[job.spec.id] = candidates[0]
            grants[job.spec.id] = {candidates[0]: job.spec.floor}
            free[candidates[0]] = free[candidates[0]] - job.spec.floor
    for i, job in enumerate(snapshot.jobs):
        home = homes.get(job.spec.id)
        if home is None:
            continue
        room = min(free[home].cores, job.spec.ceiling.cores - job.spec.floor.cores)
        extra = Resources(cores=room * shares[i % len(shares)])
        grants[job.spec.id][home] = grants[job.spec.id][home] + extra
        free[home] = free[home] - extra
    return Plan(revision=snapshot.revision, grants=grants)


def only_changes(plan: Plan, snapshot: Snapshot) -> Plan:
    """The same plan, said as the difference to the last one."""
    grants = {job.id: plan.grants.get(job.id, {}) for job in snapshot.jobs}
    changed = {job.id: grants[job.id] for job in snapshot.jobs if grants[job.id] != job.planned}
    return replace(plan, grants=changed, keeps_others=True)


def without_integrals(snapshot: Snapshot) -> Snapshot:
    """What was added up in another order, or up to another instant, differs by roundings."""

    def plain(jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
        return tuple(replace(job, accrued_at=0, granted_core_s=0) for job in jobs)

    return replace(snapshot, holding=plain(snapshot.holding), waiting=plain(snapshot.waiting))


class Hostile(RuleBasedStateMachine):
    """Each rule is one thing that can happen; commands wait in `undone` until a rule performs, fails or loses them."""

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.scheduler = new_scheduler()
        self.twin: Scheduler | None = None
        self.board = StatusBoard(n_ended=N_ENDED)
        self.undone: list[Command] = []
        self.answers: list[Callable[[float], Event]] = []
        self.plans: list[tuple[Plan, Plan]] = []
        self.speaks_in_changes = False
        self.real: dict[JobId, Allocation] = {}
        self.newest: dict[JobId, int] = {}
        self.capacity: dict[NodeId, Resources] = {}
        self.noticed: set[NodeId] = set()
        #: Those whose jobs may work on for as long as anybody looks.
        self.noticed_for_long = set[NodeId]()
        self.timers: dict[Timer, float] = {}
        self.shares = [0.5]
        self.n_jobs = 0
        self.live: set[JobId] = set()
        self.last_plan = Plan(revision=0, grants={})
        self.tell(NodeJoined(at=0.0, node=NodeId("a"), capacity=Resources(cores=4)))
        self.capacity[NodeId("a")] = Resources(cores=4)

    def tell(self, event: Event) -> None:
        commands = self.scheduler.handle(event)
        assert self.twin is None or self.twin.handle(event) == commands
        for message in (event, *commands):
            self.board.fold(message)
            ended = ended_by(message)
            if ended is not None:
                self.live.discard(ended)
        for command in commands:
            assert self.noticed.isdisjoint(getattr(command, "grant", ())), "nothing is placed on a node that is leaving"
            if isinstance(command, SetTimer):
                self.timers[command.timer] = command.fire_at
            elif isinstance(command, RequestPlan):
                self.request_plan(command)
            elif isinstance(command, WarnUser):
                assert command.reason.code != "plan-refused", command.reason
            else:
                self.undone.append(command)

    def request_plan(self, command: RequestPlan) -> None:
        snapshot = self.scheduler.snapshot(self.now)
        assert snapshot.revision == command.revision
        assert self.twin is None or without_integrals(self.twin.snapshot(self.now)) == without_integrals(snapshot)
        plan = share(snapshot, self.shares)
        self.plans.append((plan, only_changes(plan, snapshot) if self.speaks_in_changes else plan))

    @rule(
        cores=st.integers(1, 4),
        floor=st.sampled_from([0.05, 0.5, 1.0]),
        controller=st.sampled_from(["wandering", "wandering", *CONTROLLERS, "unheard-of"]),
        model=st.sampled_from([None, None, *MODELS, "unheard-of"]),
        n_retries=st.sampled_from([None, 0, 1]),
    )
    def submit(self, cores: int, floor: float, controller: str, model: str | None, n_retries: int | None) -> None:
        self.n_jobs += 1
        job = JobId(f"job-{self.n_jobs}")
        spec = JobSpec(
            id=job,
            ceiling=Resources(cores=cores),
            floor=Resources(cores=floor),
            deadline_s=60.0,
            controller=controller,
            model=model,
            preemptible=True,
            n_retries=n_retries,
        )
        self.live.add(job)
        self.tell(JobSubmitted(at=self.now, spec=spec))
        assert (job in self.live) == ("unheard-of" not in (controller, model))

    @precondition(lambda self: self.board.jobs())
    @rule(data=st.data())
    def submit_a_name_again(self, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from(self.board.jobs()))
        self.tell(JobSubmitted(at=self.now, spec=replace(before.spec, deadline_s=1.0)))
        assert self.board.job(before.id) == before

    @rule(data=st.data())
    def nobody_is_told_about(self, data: st.DataObject) -> None:
        """Messages about jobs that are unknown, or have ended."""
        names = [f"job-{n}" for n in range(self.n_jobs + 2) if f"job-{n}" not in self.live]
        job = JobId(data.draw(st.sampled_from(names)))
        spec = JobSpec(id=job, ceiling=Resources(cores=1))
        events: list[Event] = [
            JobStarted(at=self.now, job=job, request=9, granted={NodeId("a"): Resources(cores=1)}),
            GrantApplied(at=self.now, job=job, request=9, granted={NodeId("a"): Resources(cores=1)}),
            GrantFailed(at=self.now, job=job, request=9, granted={}, cause="unknown"),
            ProgressReported(at=self.now, job=job, steps_done=1, steps_total=2, unit_at=self.now, used_core_s=0.0),
            JobFinished(at=self.now, job=job, landed_at=self.now),
            JobFailed(at=self.now, job=job, cause="unknown", retryable=True),
            StopRequested(at=self.now, job=job, cause="the user asked"),
            SpecChanged(at=self.now, spec=spec),
            PauseRequested(at=self.now, job=job),
            ResumeRequested(at=self.now, job=job),
            TimerFired(at=self.now, timer=Timer("tick", job)),
            TimerFired(at=self.now, timer=Timer("retry", job)),
            NodeLost(at=self.now, node=NodeId("nowhere")),
        ]
        self.tell(data.draw(st.sampled_from(events)))

    @rule()
    def another_scheduler_is_loaded(self) -> None:
        """... and takes the lead; the one it was loaded from has to say the same from now on."""
        loaded = new_scheduler()
        loaded.load(pickle.loads(pickle.dumps(self.scheduler.dump())))
        self.scheduler, self.twin = loaded, self.scheduler

    @rule()
    def board_is_loaded(self) -> None:
        loaded = StatusBoard(n_ended=N_ENDED)
        loaded.load(pickle.loads(pickle.dumps(self.board.dump())))
        self.board = loaded

    @rule(shares=st.lists(st.floats(0, 1), min_size=1, max_size=4), in_changes=st.booleans())
    def policy_changes_its_mind(self, shares: list[float], in_changes: bool) -> None:
        """... and is asked again: a node that repeats its capacity makes a new plan due."""
        self.shares, self.speaks_in_changes = shares, in_changes
        self.tell(NodeJoined(at=self.now, node=NodeId("a"), capacity=self.capacity[NodeId("a")]))

    @precondition(lambda self: self.plans)
    @rule()
    def plan_arrives(self) -> None:
        self.last_plan, plan = self.plans.pop(0)
        self.tell(PlanProposed(at=self.now, plan=plan, revision=plan.revision))

    @precondition(lambda self: self.plans)
    @rule()
    def plan_is_lost(self) -> None:
        self.plans.pop(0)

    @precondition(lambda self: self.undone)
    @rule(data=st.data(), fate=st.sampled_from(["done", "done", "failed", "short", "lost", "twice"]))
    def effect(self, data: st.DataObject, fate: str) -> None:
        """The executor gets to any of the waiting commands: effects are late and out of order between jobs."""
        command = data.draw(st.sampled_from(self.undone))
        self.undone.remove(command)
        if fate == "lost" or not isinstance(command, LaunchJob | ResizeJob | StopJob):
            return
        if fate == "twice":
            self.undone.append(command)
        self.perform(command, failed=fate in ("failed", "short"), short_of="a descriptor" if fate == "short" else "")

    def perform(self, command: LaunchJob | ResizeJob | StopJob, *, failed: bool, short_of: str = "") -> None:
        job = command.job
        if job not in self.live:
            return
        if isinstance(command, StopJob):
            if failed:
                return
            if not command.moves:
                self.leave(job, JobFailed(at=self.now, job=job, cause="stopped"))
                return
            if job in self.real:
                self.process_ends(job)
            # Otherwise its launch was refused: the stop of a job without a process is answered too.
            self.tell(JobFailed(at=self.now, job=job, cause="it moves", retryable=True, is_stopped=True))
            return
        if command.request < self.newest.get(job, 0):  # the fence that executors promise
            return
        self.newest[job] = command.request
        failed = failed or (isinstance(command, ResizeJob) and job not in self.real)  # there is no process to resize
        if not failed and all(node in self.capacity for node in command.grant):
            self.real[job] = dict(command.grant)
        granted, request = dict(self.real.get(job, {})), command.request
        started = isinstance(command, LaunchJob) and bool(granted)
        if started:
            self.answers.append(lambda at: JobStarted(at=at, job=job, request=request, granted=granted))
        elif failed:
            self.answers.append(
                lambda at: GrantFailed(
                    at=at, job=job, request=request, granted=granted, cause="refused", short_of=short_of
                )
            )
        else:
            self.answers.append(lambda at: GrantApplied(at=at, job=job, request=request, granted=granted))

    @precondition(lambda self: self.answers)
    @rule(lost=st.sampled_from([False, False, False, True]), data=st.data())
    def answer_arrives(self, lost: bool, data: st.DataObject) -> None:
        answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if not lost:
            self.tell(answer(self.now))

    @rule(step_s=st.sampled_from([0.1, 1.0, 6.0]))
    def time_passes(self, step_s: float) -> None:
        self.now += step_s
        due = sorted(timer for timer, at in self.timers.items() if at <= self.now)
        for timer in due:
            self.timers.pop(timer, None)
            self.tell(TimerFired(at=self.now, timer=timer))

    @rule()
    def all_goes_well_for_once(self) -> None:
        """Without this the machine hardly ever gets as far as two running jobs that change places."""
        self.settle()

    @precondition(lambda self: self.real)
    @rule(data=st.data(), steps=st.integers(0, 100))
    def progress(self, data: st.DataObject, steps: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.real)))
        self.tell(
            ProgressReported(at=self.now, job=job, steps_done=steps, steps_total=100, unit_at=self.now, used_core_s=1.0)
        )

    @precondition(lambda self: self.real)
    @rule(data=st.data(), retryable=st.booleans(), well=st.booleans(), code=st.sampled_from([None, 1, 1, -9]))
    def job_ends(self, data: st.DataObject, retryable: bool, well: bool, code: int | None) -> None:
        job = data.draw(st.sampled_from(sorted(self.real)))
        if well:
            self.leave(job, JobFinished(at=self.now, job=job, landed_at=self.now))
        else:
            self.process_ends(job)
            self.tell(JobFailed(at=self.now, job=job, cause="crashed", exit_code=code, retryable=retryable))

    def process_ends(self, job: JobId) -> None:
        """No command that is on its way brings it back: an executor performs those about one job in their order."""
        self.real.pop(job)
        self.undone = [command for command in self.undone if getattr(command, "job", None) != job]

    @rule(data=st.data())
    def steering_is_lost_and_resumed(self, data: st.DataObject) -> None:
        """Whoever brought events and performed commands dies with all it had not done, and another one takes over."""
        for lost in (self.undone, self.answers, self.plans, self.timers):
            lost.clear()
        gone = data.draw(st.sets(st.sampled_from(sorted(self.real)))) if self.real else set()
        for job in gone:
            self.process_ends(job)
        held = {job: dict(held) for job, held in self.real.items()}
        self.tell(SteeringResumed(at=self.now, lost_at=self.now, granted=held))
        for job in [job for job in self.real if job not in self.live]:  # it had been asked to stop, say
            self.real.pop(job)

    def leave(self, job: JobId, event: Event) -> None:
        self.real.pop(job, None)
        self.tell(event)
        assert job not in self.live

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def user_stops(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.live)))
        self.tell(StopRequested(at=self.now, job=job, cause="the user asked"))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), deadline_s=st.floats(1, 1000))
    def user_changes_deadline(self, data: st.DataObject, deadline_s: float) -> None:
        job = data.draw(st.sampled_from(sorted(self.live)))
        spec = self.scheduler.job(job).spec
        self.tell(SpecChanged(at=self.now, spec=replace(spec, deadline_s=deadline_s)))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), floor=st.sampled_from([0.05, 0.5, 1.0]), cores=st.integers(1, 4), weight=st.floats(0.1, 9))
    def user_changes_bounds(self, data: st.DataObject, floor: float, cores: int, weight: float) -> None:
        job = data.draw(st.sampled_from(sorted(self.live)))
        before, least, most = self.scheduler.job(job).spec, Resources(cores=floor), Resources(cores=cores)
        spec = replace(before, weight=weight, floor=least, ceiling=most)
        self.tell(SpecChanged(at=self.now, spec=spec, by="anna"))
        held = total(self.scheduler.job(job).planned.values())
        assert not held or (spec.floor.fits_in(held) and held.fits_in(spec.ceiling))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def user_pauses(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.live)))
        self.tell(PauseRequested(at=self.now, job=JobId(job), by="anna"))

    @precondition(lambda self: self.paused())
    @rule(data=st.data())
    def user_resumes(self, data: st.DataObject) -> None:
        self.tell(ResumeRequested(at=self.now, job=data.draw(st.sampled_from(self.paused()))))

    def paused(self) -> list[JobId]:
        """The jobs that their user has paused."""
        return [status.id for status in self.board.jobs() if status.pause is not None]

    @rule(node=st.sampled_from(["b", "c"]), cores=st.integers(1, 4))
    def node_joins(self, node: str, cores: int) -> None:
        if NodeId(node) not in self.capacity:
            self.capacity[NodeId(node)] = Resources(cores=cores)
            self.tell(NodeJoined(at=self.now, node=NodeId(node), capacity=Resources(cores=cores)))

    @rule(node=st.sampled_from(["b", "c"]))
    def node_dies(self, node: str) -> None:
        if self.capacity.pop(NodeId(node), None) is None:
            return
        self.noticed.discard(NodeId(node))
        for job, held in list(self.real.items()):
            self.real[job] = {other: amount for other, amount in held.items() if other != node}
            if held and not self.real[job]:
                self.process_ends(job)
        self.tell(NodeLost(at=self.now, node=NodeId(node)))

    @precondition(lambda self: self.capacity)
    @rule(data=st.data(), left_s=st.sampled_from([0.0, 30.0, 1e9]))
    def node_is_noticed(self, data: st.DataObject, left_s: float) -> None:
        node = data.draw(st.sampled_from(sorted(self.capacity)))
        self.noticed.add(node)
        (self.noticed_for_long.add if left_s > 1e6 else self.noticed_for_long.discard)(node)
        self.tell(NodeNoticed(at=self.now, node=node, ends_at=self.now + left_s))

    @precondition(lambda self: self.noticed)
    @rule(data=st.data())
    def notice_is_withdrawn(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.noticed)))
        self.noticed.discard(node)
        self.tell(NodeNoticed(at=self.now, node=node, ends_at=None))

    @invariant()
    def state_is_consistent(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.validate()

    @invariant()
    def picture_is_up_to_date(self) -> None:
        """What was kept up from event to event is what one would find by looking at everything."""
        if not hasattr(self, "scheduler"):
            return
        snapshot = self.scheduler.snapshot(self.now)
        assert {job.id for job in snapshot.jobs} == self.live - set(self.paused())
        for job in snapshot.jobs:
            assert replace(job, accrued_at=0, granted_core_s=0) == replace(
                self.scheduler.job(job.id), accrued_at=0, granted_core_s=0
            )
        again = Snapshot.of(self.now, snapshot.nodes, (replace(job, granted={}) for job in snapshot.jobs))
        if self.twin is not None:
            self.twin.validate()
        for node, amount in again.free.items():  # sums of fractions, added up in another order
            assert amount.fits_in(snapshot.free[node])
            assert snapshot.free[node].fits_in(amount)
        assert all(job.planned or job.granted for job in snapshot.holding)
        assert not any(job.planned or job.granted for job in snapshot.waiting)
        assert list(snapshot.waiting) == sorted(snapshot.waiting, key=lambda job: int(job.id.removeprefix("job-")))

    @invariant()
    def messages_tell_how_every_job_stands(self) -> None:
        for status in self.board.jobs() if hasattr(self, "board") else ():
            view = self.scheduler.job(status.id)
            assert (status.state, status.granted) == (view.status, view.granted), status.id
            assert status.spec == view.spec

    @invariant()
    def nothing_is_to_be_held_by_what_its_user_has_paused(self) -> None:
        for job in self.paused() if hasattr(self, "board") else ():
            view = self.scheduler.job(job)
            assert view.planned == {}
            assert self.scheduler.promised_until_at(job) is None

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        for node, capacity in getattr(self, "capacity", {}).items():
            used = total(held.get(node, NOTHING) for held in self.real.values())
            assert used.fits_in(capacity), f"{used} really in use on {node}, which has {capacity}"

    def teardown(self) -> None:
        """From here on the world is kind: what was planned is reached, and every job comes to its end."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(20):
            self.settle()
            self.time_passes(1.0)
        self.settle()
        for node in sorted(self.noticed):
            is_left = not any(node in held for held in self.real.values())
            assert is_left or node in self.noticed_for_long, f"jobs have not left {node}"
            self.tell(NodeNoticed(at=self.now, node=node, ends_at=None))
        self.noticed.clear()
        for _ in range(20):
            self.settle()
            self.time_passes(1.0)
        self.settle()
        self.planned_is_in_force()
        for job in self.paused():
            assert not self.real.get(job)
            self.tell(ResumeRequested(at=self.now, job=job))
        for _ in range(200):
            for job in sorted(self.real):
                if self.scheduler.job(job).status == "running":
                    self.leave(job, JobFinished(at=self.now, job=job, landed_at=self.now))
            self.settle()
            self.time_passes(1.0)
        assert not self.live, f"jobs that never ended: {sorted(self.live)}"

    def settle(self) -> None:
        while self.plans or self.undone or self.answers:
            if self.plans:
                self.plan_arrives()
            elif self.undone:
                command = self.undone.pop(0)
                if isinstance(command, LaunchJob | ResizeJob | StopJob):
                    self.perform(command, failed=False)
            else:
                self.tell(self.answers.pop(0)(self.now))

    def planned_is_in_force(self) -> None:
        for job in self.live:
            planned = self.last_plan.grants.get(job, {})
            assert self.real.get(job, {}) == planned, f"{job} holds {self.real.get(job)} instead of {planned}"
            assert self.scheduler.job(job).granted == planned


TestHostileWorld = Hostile.TestCase
TestHostileWorld.settings = settings(max_examples=examples(250), stateful_step_count=50)
