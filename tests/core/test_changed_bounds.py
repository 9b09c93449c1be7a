"""What a user changes about a job while it works holds at once, and the job never has more or less than it may have."""

from dataclasses import replace

import pytest
from tests.core.desk import HERE, A, B, Desk, cores, none, only

from punctual import registry
from punctual.core.commands import Command, LaunchJob, ResizeJob, WarnUser
from punctual.core.events import JobSubmitted, PlanProposed, SpecChanged
from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.planning import fault_of_grant
from punctual.core.resources import Resources, total
from punctual.core.targets import refitted

WORKER = Resources(cores=0.5)
THERE = NodeId("there")


def change(desk: Desk, at: float = 10.0, **changes: object) -> list[Command]:
    return desk.tell(SpecChanged(at=at, spec=replace(desk.scheduler.job(A).spec, **changes)))  # type: ignore[arg-type]


def test_a_job_over_its_new_ceiling_is_brought_down_without_waiting_for_a_plan(desk: Desk) -> None:
    desk.run(A, 1.5)
    assert only(change(desk, ceiling=Resources(cores=1.0)), ResizeJob).grant == cores(1.0)


def test_a_job_under_its_new_floor_gets_it_where_there_is_room(desk: Desk) -> None:
    desk.run(A, 0.5)
    assert only(change(desk, floor=Resources(cores=1.5)), ResizeJob).grant == cores(1.5)


def test_where_there_is_no_room_for_its_new_floor_it_waits_and_takes_nothing_from_others(desk: Desk) -> None:
    desk.run(A, 0.5)
    desk.run(B, 1.0)
    assert only(change(desk, floor=Resources(cores=1.5)), ResizeJob).grant == {}
    assert desk.scheduler.job(B).planned == cores(1.0)


def test_what_a_job_wants_is_within_its_new_ceiling_also_before_its_next_tick(desk: Desk) -> None:
    desk.run(A, 1.0)
    desk.controller.wanted = 2.0
    desk.tick(A, at=5.0)
    assert desk.scheduler.job(A).demand == Resources(cores=2)
    change(desk, ceiling=Resources(cores=1.5))
    assert desk.scheduler.job(A).demand == Resources(cores=1.5)


def test_a_plan_that_was_made_before_the_change_is_dropped_without_a_warning(desk: Desk) -> None:
    desk.run(A, 1.0)
    revision = desk.scheduler.snapshot(9.0).revision
    desk.submit(B, at=9.0)  # asks for a plan
    assert desk.scheduler.snapshot(9.0).revision == revision + 1
    change(desk, ceiling=Resources(cores=1.5))
    commands = desk.plan({A: cores(2.0)}, at=11.0)
    assert none(commands, WarnUser)
    assert none(commands, ResizeJob)


def test_weight_and_deadline_alone_move_nothing(desk: Desk) -> None:
    desk.run(A, 1.0)
    assert none(change(desk, weight=3.0, deadline_s=50.0), ResizeJob)
    assert desk.scheduler.job(A).spec.weight == 3.0


def workers_of(least: int, most: int) -> JobSpec:
    return JobSpec(
        id=A, worker=WORKER, floor=WORKER * least, ceiling=WORKER * most, counts=tuple(range(least, most + 1))
    )


@pytest.mark.parametrize(
    ("had", "least", "most", "gets"),
    [
        ({HERE: 4}, 1, 2, {HERE: 2}),
        ({HERE: 2, THERE: 2}, 1, 3, {HERE: 2, THERE: 1}),
        ({HERE: 2, THERE: 2}, 1, 1, {HERE: 1}),
        ({HERE: 1}, 3, 4, {HERE: 3}),
        ({HERE: 1}, 5, 6, {}),
        ({HERE: 2, THERE: 1}, 5, 6, {HERE: 2, THERE: 3}),
        ({HERE: 2}, 1, 4, {HERE: 2}),
        ({}, 1, 4, {}),
    ],
)
def test_workers_leave_or_come_on_the_nodes_that_the_job_has(
    had: dict[NodeId, int], least: int, most: int, gets: dict[NodeId, int]
) -> None:
    target: Allocation = {node: WORKER * n for node, n in had.items()}
    room = {HERE: WORKER * 4, THERE: WORKER * 3}
    assert refitted(target, workers_of(least, most), room.__getitem__) == {node: WORKER * n for node, n in gets.items()}


@pytest.mark.parametrize("policy", registry.names("policies"))
@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 4)])
def test_every_policy_plans_for_the_new_bounds(policy: str, least: int, most: int) -> None:
    desk, chosen = Desk(), registry.load("policies", policy)()

    def done(commands: list[Command], at: float) -> None:
        for command in commands:
            assert not isinstance(command, WarnUser)
            if isinstance(command, LaunchJob):
                desk.started(command, at=at)
            elif isinstance(command, ResizeJob):
                desk.applied(command, at=at)
            if isinstance(command, LaunchJob | ResizeJob):
                record = desk.scheduler._jobs[command.job]
                assert not fault_of_grant(record, command.grant), "as it is declared now"

    def plan(at: float) -> None:
        desk.tell(replace(desk.joined, at=at))  # makes one due
        snapshot = desk.scheduler.snapshot(at)
        done(desk.tell(PlanProposed(at=at, plan=chosen.allocate(snapshot), revision=snapshot.revision)), at)

    spec = replace(workers_of(1, 4), work_steps=100, controller=None, preemptible=True)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    desk.tell(JobSubmitted(at=0.0, spec=replace(spec, id=B, ceiling=WORKER * 2, counts=(1, 2))))
    plan(0.0)
    bounds = workers_of(least, most)
    done(change(desk, floor=bounds.floor, ceiling=bounds.ceiling, counts=bounds.counts), 10.0)
    for at in (2000.0, 4000.0):  # in other rounds, for policies that decide by rounds
        plan(at)  # raises if the plan is not valid
        held = total(desk.scheduler.job(A).granted.values())
        assert not held or bounds.parts_of(held) is not None
    desk.scheduler.validate()
