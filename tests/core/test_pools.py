"""Pools of machines in the kernel: asked for, refused, noticed, released; and their table after a restart."""

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from punctual.core.codec import decode, encode, kind_of
from punctual.core.commands import (
    AskMachines,
    Command,
    RejectJob,
    ReleaseMachines,
    RequestPlan,
    ResizeJob,
    SetTimer,
    StopJob,
)
from punctual.core.control import Demand, PacingLine, Reading
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    MachinesAsked,
    MachinesRefused,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PauseRequested,
    PlanProposed,
    PolicyChanged,
    PoolOffered,
    ProgressReported,
    SteeringResumed,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import Allocation, JobSpec
from punctual.core.plan import Plan
from punctual.core.pools import HeldMachines, Lack, PoolSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler

GPU = Resources(gpus=1)
JOB = JobId("a")
SPOT = PoolSpec(name="spot", capacity=GPU, market="spot", most=4, startup_s=60.0)
FIRST, SECOND = NodeId("spot-0"), NodeId("spot-1")


class Desk:
    """A scheduler with one elastic job and a pool."""

    def __init__(self, controllers: Mapping[str, Any] | None = None, controller: str | None = None) -> None:
        self.scheduler = Scheduler(controllers or {})
        self.commands: list[Command] = []
        self.tell(PoolOffered(at=0.0, pool=SPOT, price_usd_h=1.0, obtainable=3))
        spec = JobSpec(
            id=JOB, ceiling=GPU * 4, floor=GPU, worker=GPU, controller=controller, deadline_s=1000.0, preemptible=True
        )
        self.tell(JobSubmitted(at=0.0, spec=spec))

    def tell(self, event: Event) -> list[Command]:
        commands = self.scheduler.handle(decode(kind_of(event), encode(event)))  # type: ignore[arg-type]
        self.scheduler.validate()
        self.commands += commands
        return commands

    def plan(self, at: float, grants: dict[NodeId, int], n_machines: int) -> list[Command]:
        revision = max(each.revision for each in self.commands if isinstance(each, RequestPlan))
        allocation: Allocation = {node: GPU * n for node, n in grants.items()}
        plan = Plan(revision=revision, grants={JOB: allocation}, machines={"spot": n_machines})
        return self.tell(PlanProposed(at=at, plan=plan, revision=revision))

    def propose(self, at: float, machines: dict[str, int], reasons: dict[JobId, Reason]) -> list[Command]:
        self.tell(PoolOffered(at=at, pool=SPOT, price_usd_h=at, obtainable=3))
        revision = max(each.revision for each in self.commands if isinstance(each, RequestPlan))
        plan = Plan(revision=revision, grants={}, reasons=reasons, machines=machines, keeps_others=True)
        return self.tell(PlanProposed(at=at, plan=plan, revision=revision))

    def join(self, at: float, *nodes: NodeId) -> None:
        for node in nodes:
            self.tell(NodeJoined(at=at, node=node, capacity=GPU))

    def running_on_two(self) -> None:
        self.plan(0.0, {}, 2)
        self.tell(MachinesAsked(at=0.0, pool="spot", nodes=(FIRST, SECOND)))
        self.join(60.0, FIRST, SECOND)
        self.plan(60.0, {FIRST: 1, SECOND: 1}, 2)
        self.tell(JobStarted(at=61.0, job=JOB, request=1, granted={FIRST: GPU, SECOND: GPU}))


def of(commands: list[Command], kind: type) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def test_a_plan_is_asked_for_before_any_node_is_there() -> None:
    assert of(Desk().commands, RequestPlan)


def test_machines_are_asked_for_once() -> None:
    desk = Desk()
    (asked,) = of(desk.plan(0.0, {}, 2), AskMachines)
    assert (asked.pool, asked.n_machines) == ("spot", 2)
    assert not of(desk.tell(PoolOffered(at=1.0, pool=SPOT, price_usd_h=1.0, obtainable=4)), AskMachines)
    desk.tell(MachinesAsked(at=2.0, pool="spot", nodes=(FIRST, SECOND)))
    (pool,) = desk.scheduler.snapshot(2.0).pools
    assert (pool.n_starting, pool.there, pool.obtainable) == (2, (), 4)


def test_an_order_without_an_answer_is_repeated() -> None:
    desk = Desk()
    desk.plan(0.0, {}, 2)
    assert of(desk.tell(PoolOffered(at=700.0, pool=SPOT, price_usd_h=1.0, obtainable=3)), AskMachines)


def test_refused_machines_are_no_longer_obtainable_until_the_pool_says_otherwise() -> None:
    desk = Desk()
    desk.plan(0.0, {}, 2)
    desk.tell(MachinesAsked(at=0.0, pool="spot", nodes=(FIRST,)))
    assert not of(desk.tell(MachinesRefused(at=0.0, pool="spot", n_machines=1)), AskMachines)
    assert desk.scheduler.snapshot(0.0).pools[0].obtainable == 1
    (again,) = of(desk.tell(PoolOffered(at=9.0, pool=SPOT, price_usd_h=1.0, obtainable=3)), AskMachines)
    assert again.n_machines == 1


def test_machines_that_are_not_there_are_told_with_the_cause_until_one_joins() -> None:
    desk = Desk()
    assert desk.scheduler.lacks() == ()
    desk.plan(1.0, {}, 2)
    assert desk.scheduler.lacks() == (Lack(SPOT, 2, 0, 1.0),)
    desk.tell(MachinesRefused(at=2.0, pool="spot", n_machines=2, cause="no quota", again_at=60.0))
    refused = Lack(SPOT, 0, 2, 1.0, "no quota", 60.0)
    assert desk.scheduler.lacks() == (refused,)
    restored = Scheduler({})
    restored.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    assert restored.lacks() == (refused,)
    desk.tell(MachinesRefused(at=3.0, pool="spot", n_machines=0, cause="no answer"))
    assert desk.scheduler.lacks() == (Lack(SPOT, 0, 2, 1.0, "no answer"),)
    desk.tell(PoolOffered(at=61.0, pool=SPOT, price_usd_h=1.0, obtainable=1))
    desk.tell(MachinesAsked(at=62.0, pool="spot", nodes=(FIRST,)))
    assert [(lack.n_starting, lack.since_at) for lack in desk.scheduler.lacks()] == [(1, 1.0)]
    desk.tell(NodeJoined(at=90.0, node=FIRST, capacity=GPU))
    assert desk.scheduler.lacks() == (Lack(SPOT, 0, 0, 61.0),), "no more can be had"


def test_a_job_leaves_a_node_that_has_had_notice() -> None:
    desk = Desk()
    desk.running_on_two()
    commands = desk.tell(NodeNoticed(at=70.0, node=SECOND, ends_at=190.0))
    (resize,) = of(commands, ResizeJob)
    assert resize.grant == {FIRST: GPU}
    snapshot = desk.scheduler.snapshot(70.0)
    assert [node.id for node in snapshot.nodes] == [FIRST]
    assert snapshot.pools[0].there == (FIRST,)
    desk.tell(GrantApplied(at=71.0, job=JOB, request=2, granted={FIRST: GPU}))
    assert not of(desk.tell(NodeLost(at=190.0, node=SECOND)), ResizeJob)
    assert desk.scheduler.job(JOB).status == "running"


def test_a_job_that_cannot_be_elsewhere_saves_and_waits_before_its_node_ends() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.tell(NodeNoticed(at=70.0, node=FIRST, ends_at=190.0))
    desk.tell(GrantApplied(at=71.0, job=JOB, request=2, granted={SECOND: GPU}))
    assert not of(desk.tell(NodeNoticed(at=72.0, node=SECOND, ends_at=192.0)), StopJob)
    (stop,) = of(desk.tell(TimerFired(at=122.0, timer=Timer("leave", JOB))), StopJob)
    assert stop.moves
    desk.tell(JobFailed(at=73.0, job=JOB, cause=stop.cause, retryable=True, is_stopped=True))
    assert desk.scheduler.job(JOB).status == "queued"


def test_a_machine_that_stays_after_all_is_there_again() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.tell(NodeNoticed(at=70.0, node=SECOND, ends_at=190.0))
    desk.tell(NodeNoticed(at=71.0, node=SECOND, ends_at=None))
    assert desk.scheduler.snapshot(71.0).pools[0].there == (FIRST, SECOND)


def test_a_plan_for_a_node_that_is_taken_away_is_not_used() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.tell(NodeNoticed(at=70.0, node=SECOND, ends_at=190.0))
    desk.tell(GrantApplied(at=71.0, job=JOB, request=2, granted={FIRST: GPU}))
    assert not of(desk.plan(72.0, {FIRST: 1, SECOND: 1}, 2), ResizeJob)


def test_machines_are_released_when_no_job_holds_anything_on_them() -> None:
    desk = Desk()
    desk.running_on_two()
    commands = desk.plan(80.0, {FIRST: 1}, 1)
    assert of(commands, ResizeJob)
    assert not of(commands, ReleaseMachines)
    (release,) = of(desk.tell(GrantApplied(at=81.0, job=JOB, request=2, granted={FIRST: GPU})), ReleaseMachines)
    assert release.nodes == (SECOND,)


def test_all_machines_are_released_after_the_last_job() -> None:
    desk = Desk()
    desk.running_on_two()
    (release,) = of(desk.tell(JobFinished(at=90.0, job=JOB, landed_at=90.0)), ReleaseMachines)
    assert set(release.nodes) == {FIRST, SECOND}


def test_a_machine_in_use_after_its_notice_is_given_back_once_it_is_unused_and_not_asked_about_until_then() -> None:
    desk = Desk()
    desk.running_on_two()
    told = [
        *desk.tell(NodeNoticed(at=100.0, node=FIRST, ends_at=130.0)),
        *desk.tell(NodeNoticed(at=100.0, node=SECOND, ends_at=200.0)),
    ]
    fires_at = [each.fire_at for each in told if isinstance(each, SetTimer) and each.timer.kind == "machines"]
    assert fires_at == pytest.approx([190.0, 190.0], abs=0.01)
    told = desk.tell(TimerFired(at=fires_at[-1], timer=Timer("machines")))
    (timer,) = [each for each in told if isinstance(each, SetTimer) and each.timer.kind == "machines"]
    assert timer.fire_at == pytest.approx(260.0, abs=0.01)
    assert not of(told, ReleaseMachines)
    ended = desk.tell(JobFinished(at=230.0, job=JOB, landed_at=230.0))
    assert FIRST in [node for each in of(ended, ReleaseMachines) for node in each.nodes]


@pytest.mark.parametrize("machines", [{"spots": 1}, {"spot": 5}, {"spot": -1}])
def test_a_plan_for_machines_that_cannot_be_is_refused(machines: dict[str, int]) -> None:
    desk = Desk()
    revision = max(each.revision for each in desk.commands if isinstance(each, RequestPlan))
    plan = Plan(revision=revision, grants={}, machines=machines)
    assert not of(desk.tell(PlanProposed(at=1.0, plan=plan, revision=revision)), AskMachines)


def test_pools_survive_a_restart() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.tell(NodeNoticed(at=70.0, node=SECOND, ends_at=190.0))
    again = Scheduler({})
    again.load(desk.scheduler.dump())
    assert again.snapshot(71.0).pools == desk.scheduler.snapshot(71.0).pools
    assert again.snapshot(71.0).nodes == desk.scheduler.snapshot(71.0).nodes


def test_the_snapshot_tells_what_each_job_has_cost_also_after_a_restart() -> None:
    desk = Desk()
    desk.running_on_two()
    began_at = next(event.at for event in desk.commands if isinstance(event, AskMachines))
    at = began_at + 1800.0
    spent_usd = desk.scheduler.snapshot(at).spent_usd[JOB]
    assert spent_usd == pytest.approx(2 * 0.5), "two machines for half an hour, from the order on"
    again = Scheduler({})
    again.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    assert again.snapshot(at).spent_usd == {JOB: spent_usd}
    desk.tell(PoolOffered(at=at, pool=SPOT, price_usd_h=3.0, obtainable=3))
    assert desk.scheduler.snapshot(at + 600.0).spent_usd[JOB] == pytest.approx(1.0 + 2 * 0.5)
    assert again.snapshot(at + 600.0).spent_usd[JOB] == pytest.approx(1.0 + 2 / 6)
    desk.tell(JobFinished(at=at + 600.0, job=JOB, landed_at=at + 600.0))
    assert desk.scheduler.snapshot(at + 900.0).spent_usd == {}


def test_a_job_that_is_to_have_nothing_saves_and_ends_before_its_machines_are_given_back() -> None:
    """Paused there, it would be lost with them."""
    for leaving in ("plan", "pause"):
        desk = Desk()
        desk.running_on_two()
        commands = desk.plan(70.0, {}, 0) if leaving == "plan" else desk.tell(PauseRequested(at=70.0, job=JOB))
        (stop,) = of(commands, StopJob)
        assert stop.restarts
        assert stop.moves
        assert not of(commands, ReleaseMachines), "it saves on them"
        commands = desk.tell(
            JobFailed(at=75.0, job=JOB, cause=stop.cause, retryable=True, is_stopped=True, has_saved=True)
        )
        if leaving == "plan":
            (release,) = of(commands, ReleaseMachines)
            assert set(release.nodes) == {FIRST, SECOND}
        assert desk.scheduler.job(JOB).status == "queued"
        assert not of(desk.commands, ResizeJob)


def test_jobs_for_which_no_machine_is_bought_are_known_with_the_reason_until_a_plan_buys_one() -> None:
    desk = Desk()
    for at, code in ((1.0, "too-dear"), (2.0, "budget-spent"), (3.0, "waits")):
        desk.propose(at, {}, {JOB: Reason(code, "so it is")})
        assert desk.scheduler.unbought() == ({} if code == "waits" else {JOB: Reason(code, "so it is")})
    desk.propose(4.0, {}, {JOB: Reason("too-dear", "so it is")})
    again = Scheduler({})
    again.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    assert set(again.unbought()) == {JOB}
    desk.tell(PolicyChanged(at=5.0, policy="fifo", parameters={}, before="least-cost"))
    assert not desk.scheduler.unbought()


def test_a_machine_without_a_job_counts_for_the_budgets_of_all_once_it_has_ended() -> None:
    desk = Desk()
    desk.plan(1.0, {}, 1)
    desk.tell(MachinesAsked(at=1.0, pool="spot", nodes=(FIRST,)))
    assert desk.scheduler.snapshot(1801.0).spent_usd == {JOB: 0.0}
    desk.tell(NodeLost(at=1801.0, node=FIRST))
    assert desk.scheduler.snapshot(1801.0).spent_usd[JOB] == pytest.approx(0.5)


def test_a_job_that_is_turned_away_at_once_has_no_part_in_machines_without_a_job() -> None:
    desk = Desk()
    too_large = JobSpec(id=JobId("b"), ceiling=GPU * 99, floor=GPU * 99)
    assert of(desk.tell(JobSubmitted(at=0.5, spec=too_large)), RejectJob)
    desk.plan(1.0, {}, 1)
    desk.tell(MachinesAsked(at=1.0, pool="spot", nodes=(FIRST,)))
    desk.tell(NodeLost(at=1801.0, node=FIRST))
    assert desk.scheduler.snapshot(1801.0).spent_usd == {JOB: pytest.approx(0.5)}


def test_machines_are_known_after_a_restart_with_those_that_have_had_notice_and_numbers_that_were_used() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.tell(NodeNoticed(at=70.0, node=FIRST, ends_at=100.0))
    desk.tell(MachinesAsked(at=70.0, pool="spot", nodes=(NodeId("spot-7"),)))
    desk.tell(NodeLost(at=80.0, node=NodeId("spot-7")))
    after = Scheduler({})
    after.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    assert after.machines() == {"spot": HeldMachines((FIRST, SECOND), 8, SPOT, 1.0)}
    after.handle(NodeNoticed(at=90.0, node=FIRST, ends_at=None))
    (pool,) = after.snapshot(90.0).pools
    assert set(pool.there) == {FIRST, SECOND}


def test_policies_see_the_start_up_that_machines_really_take_where_it_is_longer_than_was_said() -> None:
    desk = Desk()
    desk.running_on_two()
    assert desk.scheduler.snapshot(61.0).pools[0].spec == replace(SPOT, startup_s=61.0)
    for request, (node, took_s) in enumerate([(NodeId("spot-2"), 90.0), (NodeId("spot-3"), 900.0)], 2):
        desk.tell(MachinesAsked(at=100.0, pool="spot", nodes=(node,)))
        desk.join(150.0, node)
        # Nobody wants it for 10 s.
        desk.plan(160.0, {node: 1}, 4)
        desk.tell(GrantApplied(at=110.0 + took_s, job=JOB, request=request, granted={node: GPU}))
    desk.tell(MachinesAsked(at=100.0, pool="spot", nodes=(NodeId("spot-4"),)))
    restored = Scheduler({})
    restored.load(pickle.loads(pickle.dumps(desk.scheduler.dump())))
    for scheduler in (desk.scheduler, restored):
        (pool,) = scheduler.snapshot(2000.0).pools
        assert pool.spec == replace(SPOT, startup_s=(61.0 + 90.0) / 2), "the median of the last five"
        assert scheduler.machines()["spot"].spec == SPOT


def test_a_release_that_was_lost_with_the_host_is_asked_for_again() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.plan(70.0, {FIRST: 1}, 1)
    (resize,) = of(desk.commands, ResizeJob)[-1:]
    desk.tell(GrantApplied(at=71.0, job=JOB, request=resize.request, granted={FIRST: GPU}))
    assert of(desk.commands, ReleaseMachines)[-1].nodes == (SECOND,)
    n_before = len(desk.commands)
    desk.tell(SteeringResumed(at=90.0, lost_at=80.0, granted={JOB: {FIRST: GPU}}))
    assert [each.nodes for each in of(desk.commands[n_before:], ReleaseMachines)] == [(SECOND,)]


@pytest.mark.parametrize(("price_usd_h", "is_paced"), [(1.0, False), (0.0, True)])
def test_a_job_is_not_slowed_down_on_machines_that_are_paid_for(price_usd_h: float, is_paced: bool) -> None:
    class Pacer:
        """Demands one worker, and a slow one."""

        def init(self, spec: JobSpec) -> None: ...

        def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
            line = PacingLine(end_s=900.0, end_work=9.0, s_per_step=5.0)
            return Demand(resources=GPU, next_tick_s=1.0, reason=Reason("slow", "it has time"), pacing=line), None

    desk = Desk({"pacer": Pacer()}, "pacer")
    desk.tell(PoolOffered(at=0.0, pool=SPOT, price_usd_h=price_usd_h, obtainable=3))
    desk.running_on_two()
    desk.tell(ProgressReported(at=62.0, job=JOB, steps_done=1.0, steps_total=9.0, unit_at=62.0, used_core_s=0.0))
    desk.tell(TimerFired(at=63.0, timer=Timer("tick", JOB)))
    resizes = of(desk.commands, ResizeJob)
    assert any(each.pacing is not None for each in resizes) == is_paced


def test_a_machine_that_is_still_there_after_its_notice_is_given_back_once_nobody_uses_it() -> None:
    desk = Desk()
    desk.running_on_two()
    desk.tell(NodeNoticed(at=100.0, node=SECOND, ends_at=160.0))
    desk.plan(100.0, {FIRST: 1}, 1)
    (resize,) = [each for each in desk.commands if isinstance(each, ResizeJob)][-1:]
    desk.tell(GrantApplied(at=101.0, job=JOB, request=resize.request, granted={FIRST: GPU}))
    assert not of(desk.tell(PoolOffered(at=170.0, pool=SPOT, price_usd_h=1.0, obtainable=2)), ReleaseMachines)
    commands = desk.tell(PoolOffered(at=230.0, pool=SPOT, price_usd_h=1.0, obtainable=3))
    assert not of(commands, AskMachines)
    (released,) = of(commands, ReleaseMachines)
    assert released.nodes == (SECOND,)
    assert not of(desk.tell(PoolOffered(at=240.0, pool=SPOT, price_usd_h=1.0, obtainable=2)), ReleaseMachines)
