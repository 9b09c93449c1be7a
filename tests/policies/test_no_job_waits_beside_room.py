"""Whatever frees room, and whatever policy plans: a job that would be given it does not wait for longer than a second.

A policy may leave room on purpose. So it is asked again about each picture that has stayed as it is for longer than a second.
If it now gives a waiting job something, and takes nothing from another, the kernel should have asked it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.pieces import PERFECT

from punctual import registry
from punctual.core.cluster import Node, Snapshot
from punctual.core.commands import Command, RequestPlan
from punctual.core.control import CoreWork, Demand, Reading
from punctual.core.events import (
    Event,
    NodeJoined,
    NodeLost,
    PauseRequested,
    PlanProposed,
    ResumeRequested,
    SpecChanged,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total
from punctual.core.scheduler import Scheduler
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation

#: A job may wait so long beside room that it would be given; and what sums of instants add to that.
SOON_S = 1.0 + 1e-6


@dataclass(frozen=True)
class Changing:
    """A controller that wants the next of the parts of its job's ceiling at each tick."""

    parts: Mapping[JobId, Sequence[float]]

    def init(self, spec: JobSpec) -> int:
        return 0

    def step(self, spec: JobSpec, state: int, reading: Reading) -> tuple[Demand, int]:
        parts = self.parts[spec.id]
        part = parts[min(state, len(parts) - 1)]
        wanted = Resources(cores=max(spec.floor.cores, part * spec.ceiling.cores))
        if spec.worker is not None:
            counts = spec.worker_counts()
            wanted = spec.worker * counts[round(part * (len(counts) - 1))]
        reason, work = Reason("part", "another part"), work_left(spec, reading, part)
        return Demand(resources=wanted, next_tick_s=40.0, reason=reason, work=work), state + 1


def work_left(spec: JobSpec, reading: Reading, part: float) -> CoreWork | None:
    """The work of a job on a share of cores, found to be more or less from tick to tick."""
    if spec.worker is not None or spec.deadline_s is None or spec.work_steps is None:
        return None
    core_s = (1.0 + part) * max(1.0, spec.work_steps - reading.elapsed_s / 2)
    due_s, slack_s = 0.95 * spec.deadline_s, 0.05 * spec.deadline_s
    return CoreWork(
        core_s=core_s, std_core_s=0.05 * core_s, usable_cores=spec.ceiling.cores, due_s=due_s, slack_s=slack_s
    )


@dataclass(frozen=True)
class World:
    jobs: list[SimJob]
    nodes: list[Node]
    events: list[Event]
    parts: Mapping[JobId, Sequence[float]]
    solver_s: float


#: The parts of its ceiling that a job wants one after the other.
PARTS = ([1.0, 0.0], [1.0, 0.3, 0.0], [1.0, 0.0, 0.3], [0.0])


@st.composite
def specs(draw: st.DrawFn, name: str, *, is_elastic: bool) -> JobSpec:
    """Jobs that are steered or not; if it `is_elastic` it is, and is made of workers."""
    spec = JobSpec(
        id=JobId(name),
        ceiling=Resources(cores=draw(st.sampled_from([1.0, 2.0]))),
        floor=Resources(cores=draw(st.sampled_from([0.1, 0.5, 1.0]))),
        deadline_s=draw(st.sampled_from([None, 60.0, 400.0, 3000.0])),
        controller="changing" if is_elastic else draw(st.sampled_from([None, None, "changing"])),
        preemptible=draw(st.booleans()),
        work_steps=draw(st.sampled_from([50.0, 200.0])),
        startup_s=draw(st.sampled_from([0.0, 2.0])),
    )
    if not is_elastic:
        return spec
    worker = Resources(cores=draw(st.sampled_from([0.5, 1.0])))
    counts = draw(st.sampled_from([(1, 2), (1, 2, 3, 4)]))
    return replace(spec, worker=worker, counts=counts, floor=worker * counts[0], ceiling=worker * counts[-1])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    sizes = draw(st.sampled_from([[2.0], [1.0, 1.0], [3.0], [1.0, 2.0]]))
    nodes = [Node(NodeId(f"node-{i}"), Resources(cores=size)) for i, size in enumerate(sizes)]
    at, jobs = 0.0, list[SimJob]()
    for i in range(draw(st.integers(2, 4))):
        at += draw(st.sampled_from([3.0, 0.0, 50.0]))
        spec = draw(specs(f"job-{i}", is_elastic=i == 0 or draw(st.integers(0, 3)) == 0))
        jobs.append(SimJob(at, spec, PERFECT, spec.work_steps or 100.0))
    parts = {job.spec.id: draw(st.sampled_from(PARTS)) for job in jobs}
    chosen = draw(st.lists(st.sampled_from(jobs), max_size=2))
    events = [event for job in chosen for event in draw(changes_of_jobs(job))]
    events += draw(changes_of_nodes(nodes[-1]))
    return World(jobs, nodes, events, parts, solver_s=draw(st.sampled_from([0.0, 2.0])))


@st.composite
def changes_of_jobs(draw: st.DrawFn, job: SimJob) -> list[Event]:
    """Something that a user does, and takes back later."""
    spec, at = job.spec, job.submitted_at + draw(st.floats(1.0, 100.0))
    later_at = at + draw(st.floats(5.0, 200.0))
    smaller = replace(spec, counts=spec.counts[:1], ceiling=spec.floor or spec.ceiling)
    changed = draw(st.sampled_from([None, smaller, replace(spec, deadline_s=None), replace(spec, deadline_s=2000.0)]))
    if changed is not None:
        return [SpecChanged(at=at, spec=changed), SpecChanged(at=later_at, spec=spec)]
    return [PauseRequested(at=at, job=spec.id, by="anna"), ResumeRequested(at=later_at, job=spec.id)]


@st.composite
def changes_of_nodes(draw: st.DrawFn, node: Node) -> list[Event]:
    """A node that goes and comes back, that grows, or neither."""
    at = draw(st.floats(1.0, 100.0))
    back = NodeJoined(at=at + draw(st.floats(5.0, 200.0)), node=node.id, capacity=node.capacity)
    larger = NodeJoined(at=at, node=node.id, capacity=node.capacity * 2)
    return draw(st.sampled_from([[], [NodeLost(at=at, node=node.id), back], [larger]]))


class Watched(Scheduler):
    """Finds the jobs that wait although their policy would give them something.

    Attributes
    ----------
    overlooked
        Job, since when, and until when.
    """

    def __init__(self, policy: Policy, controller: Changing) -> None:
        super().__init__({"changing": controller})
        self.overlooked: list[tuple[JobId, float, float]] = []
        self._policy = policy
        self._at = 0.0
        self._is_planning = False

    def handle(self, event: Event) -> list[Command]:
        if event.at > self._at + SOON_S and not self._is_planning:
            self.overlooked += [(job, self._at, event.at) for job in self._forgotten(self.snapshot(self._at))]
        commands = super().handle(event)
        self._at = event.at
        self._is_planning &= not isinstance(event, PlanProposed)
        self._is_planning |= any(isinstance(command, RequestPlan) for command in commands)
        return commands

    def _forgotten(self, snapshot: Snapshot) -> list[JobId]:
        if not snapshot.waiting or not any(snapshot.free.values()):
            return []
        plan = self._policy.allocate(snapshot)
        if any(takes_from(plan, view) for view in snapshot.holding):
            return []
        return [view.id for view in snapshot.waiting if plan.grants.get(view.id)]


def takes_from(plan: Plan, view: JobView) -> bool:
    left = plan.grants.get(view.id, view.planned)
    return not total(view.planned.values()).fits_in(total(left.values()))


@pytest.mark.parametrize("name", registry.names("policies"))
@settings(max_examples=examples(40), derandomize=True)  # a case that is drawn one day must not stop the work of another
@given(world=worlds())
def test_no_job_waits_beside_room_that_its_policy_would_give_it(name: str, world: World) -> None:
    make, controller = registry.load("policies", name), Changing(world.parts)
    scheduler = Watched(make(), controller)
    Simulation(
        world.jobs, world.nodes, make(), events=world.events, scheduler=scheduler,
        physics=Physics(report_s=60.0, solver_s=world.solver_s), end_at=800.0,
    ).run()  # fmt: skip
    assert not scheduler.overlooked
