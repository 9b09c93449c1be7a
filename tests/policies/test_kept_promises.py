"""A promise is kept whatever comes later: also where restarts cost time, deadlines are tight, and there is too much to do."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.examples import examples
from tests.policies.pictures import GPU, Table, after, decide, held, job, picture
from tests.policies.tight_deadlines import Outcome, elastic_job, outcome, tight_jobs, wishes
from tests.sim.pieces import nodes

from punctual.core.cluster import Node
from punctual.core.events import Event, NodeJoined, NodeLost, NodeNoticed
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.policies._packing import Move, Packing
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._promised_shares import Hold, PromiseRequest, as_carried, shares_carried
from punctual.policies.promises_first import PromisesFirst
from punctual.solvers.timeline import ChangeCosts, Levels, Timeline

#: Nodes, and devices on each.
CLUSTERS = [(1, 32), (4, 8)]


def assert_kept(found: Outcome) -> None:
    assert not found.late_s
    assert not found.short
    assert not found.warned_at, "nothing was in danger"


def test_a_promise_is_kept_where_others_leave_in_the_same_plan() -> None:
    """The last job needs eight devices from the moment at which the plan pauses another one for it."""
    jobs = [
        elastic_job("j0", 254.857, {1: 1.0, 2: 1.6193, 4: 2.62213, 8: 4.24602}, 558.215, 639.896, 17.5),
        elastic_job("j1", 285.492, {2: 1.88713, 4: 3.3752, 8: 5.52826, 16: 8.02464}, 14786.965, 3242.714, 55.271),
        elastic_job(
            "j2", 355.151, {1: 1.0, 2: 1.90051, 4: 3.36085, 8: 5.22164, 16: 6.81304}, 8185.902, 5371.431, 45.57
        ),
        elastic_job("j3", 739.627, {1: 1.0, 2: 1.90499, 4: 3.47939, 8: 5.92974}, 7804.059, 1907.842, 28.45),
    ]
    found = outcome(PromisesFirst(admission="decline"), jobs, 1, 16)
    assert set(found.promised) == {"j0", "j1", "j2", "j3"}
    assert_kept(found)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", CLUSTERS)
@pytest.mark.parametrize("parameters", [{"admission": "decline"}, {"promised_frac": 1.0, "work": "early"}, {}])
def test_no_promise_is_broken(parameters: dict[str, object], shape: tuple[int, int], seed: int) -> None:
    found = outcome(PromisesFirst(**parameters), tight_jobs(seed, 24, n_gpus=32), *shape)  # type: ignore[arg-type]
    assert_kept(found)
    assert len(found.promised) > 5


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("parameters", [{"admission": "decline"}, {"promised_frac": 1.0, "work": "early"}, {}])
def test_promises_to_others_are_kept_whatever_users_ask_for_their_own_jobs(
    parameters: dict[str, object], seed: int
) -> None:
    jobs = tight_jobs(seed, 24, n_gpus=32)
    restless = Random(seed).sample(jobs, 8)
    policy = PromisesFirst(**parameters)  # type: ignore[arg-type]
    found = outcome(policy, jobs, *CLUSTERS[seed % 2], events=wishes(seed, restless))
    others = {job.spec.id for job in jobs} - {job.spec.id for job in restless}
    assert not others & found.late_s.keys()
    assert not others & found.short.keys()
    assert not others & found.warned_at.keys(), "nothing was in danger"
    assert len(others & found.promised.keys()) > 3


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("shape", CLUSTERS)
@pytest.mark.parametrize("parameters", [{"admission": "decline"}, {"promised_frac": 1.0}, {}])
def test_no_promise_is_broken_where_jobs_may_not_be_paused(
    parameters: dict[str, object], shape: tuple[int, int], seed: int
) -> None:
    """Every third job, or all: they are not started where a promised job is to have their devices later."""
    every = (3, 1)[seed % 2]
    jobs = [
        replace(job, spec=replace(job.spec, preemptible=i % every > 0))
        for i, job in enumerate(tight_jobs(seed, 40, n_gpus=32, load=4.0))
    ]
    found = outcome(PromisesFirst(**parameters), jobs, *shape)  # type: ignore[arg-type]
    assert_kept(found)
    assert found.promised


@pytest.mark.parametrize(
    ("seed", "every", "parameters", "shape"),
    [
        (4, 3, {"admission": "decline"}, (1, 32)),
        (9, 1, {"promised_frac": 1.0}, (2, 16)),
        (12, 1, {"promised_frac": 1.0}, (1, 32)),
        (25, 1, {"admission": "decline"}, (2, 16)),
    ],
)
def test_no_promise_is_broken_where_jobs_that_start_or_may_not_be_paused_keep_what_they_hold(
    seed: int, every: int, parameters: dict[str, object], shape: tuple[int, int]
) -> None:
    """Until it has started a job gives nothing up, and one that may not be paused not its least until it ends."""
    jobs = [
        replace(job, spec=replace(job.spec, preemptible=i % every > 0))
        for i, job in enumerate(tight_jobs(seed, 40, n_gpus=32, load=4.0, slack=(1.05, 4.0), split_frac=0.8))
    ]
    assert_kept(outcome(PromisesFirst(**parameters), jobs, *shape))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(examples(12)))
@pytest.mark.parametrize("parameters", [{"admission": "decline"}, {"promised_frac": 1.0}, {}])
def test_no_promise_is_broken_where_jobs_are_slower_on_several_nodes(parameters: dict[str, object], seed: int) -> None:
    jobs = tight_jobs(seed, 40, n_gpus=32, load=4.0, split_frac=0.7)
    assert_kept(outcome(PromisesFirst(**parameters), jobs, 8, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(1, 32), (2, 16), (3, 7)])
def test_no_promise_is_broken_by_nodes_that_join(shape: tuple[int, int], seed: int) -> None:
    """On more nodes a job may lie on more of them, where it is slower, and may be moved: no promise counted on that."""
    random, (n_nodes, n_gpus) = Random(seed), shape
    jobs = [
        replace(job, spec=replace(job.spec, resize_cost_s=0.5 * job.spec.resize_cost_s))
        for job in tight_jobs(seed, 25, n_gpus=n_nodes * n_gpus, load=4.0, split_frac=0.8)
    ]
    joins = [
        NodeJoined(at=random.uniform(0.0, jobs[-1].submitted_at), node=NodeId(f"z-{i}"), capacity=GPU * n_gpus)
        for i in range(3)
    ]
    assert_kept(outcome(PromisesFirst(promised_frac=1.0), jobs, *shape, events=joins))


def taken_away(random: Random, there: Sequence[Node], until_at: float) -> Iterator[Event]:
    """Half of the nodes are lost, some with a notice, and come back later."""
    for node in there:
        if random.random() < 0.5:
            continue
        at = random.uniform(0.0, until_at)
        ends_at = at + random.choice([0.0, 10.0, 1000.0])
        if random.random() < 0.7:
            yield NodeNoticed(at=at, node=node.id, ends_at=ends_at)
        yield NodeLost(at=ends_at, node=node.id)
        yield NodeJoined(at=ends_at + random.choice([1.0, 3000.0]), node=node.id, capacity=node.capacity)


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("shape", [(1, 32), (2, 16), (16, 2)])
def test_a_promise_that_a_lost_node_breaks_is_told_to_be_in_danger_before(shape: tuple[int, int], seed: int) -> None:
    """Also while there is no node at all, and where a job is stopped to be moved; no plan gives what none can have."""
    random, (n_nodes, n_gpus) = Random(seed), shape
    jobs = [
        replace(job, spec=replace(job.spec, preemptible=seed % 2 > 0))
        for job in tight_jobs(seed, 25, n_gpus=n_nodes * n_gpus, load=2.0)
    ]
    events = [*taken_away(random, nodes(n_nodes, n_gpus), jobs[-1].submitted_at + 3000.0)]
    found = outcome(PromisesFirst(promised_frac=1.0), jobs, *shape, events=events)
    due_at = found.promised
    assert not [job for job in found.late_s if not found.warned_at.get(job, due_at[job]) < due_at[job]]


def test_a_job_that_is_paused_before_it_worked_is_not_taken_to_have_worked() -> None:
    """Until the pause is in force it still holds four devices, with which it has not begun."""
    speed = Table(((1, 1.0), (2, 1.9), (4, 3.6)))
    view = job(
        "paused", (1, 2, 4), steps=80.0, speed=speed, preemptible=True, on={"a": 4}, startup_s=60.0, resize_cost_s=60.0,
        deadline_s=400.0,
    )  # fmt: skip
    urgent = job("urgent", 4, steps=72.0, preemptible=True, at=30.0, deadline_s=19.0)
    policy = PromisesFirst(promised_frac=1.0)
    first = decide(policy, [replace(view, granted={}, planned={}, status="queued")], {"a": 4})
    running = replace(view, promised_until_at=400.0, started_at=0.0)
    second = decide(policy, [running, urgent], {"a": 4}, at=30.0, carry=first.carry)
    assert held(second, [running, urgent]) == {"urgent": {"a": 4}}
    assert isinstance(second.carry, dict)
    assert second.carry["stalls"]["paused"] == [0.0, 60.0], "it has not worked with them yet"


@pytest.mark.parametrize("left_s", [0.003, 2.0, 30.0])
def test_nothing_is_promised_within_the_cost_of_a_change(left_s: float) -> None:
    speed = Table(((1, 1.0), (2, 1.9)))
    view = job(
        "nearly",
        (1, 2),
        steps=0.5 * left_s,
        speed=speed,
        preemptible=True,
        on={"a": 1},
        startup_s=30.0,
        deadline_s=left_s,
    )
    assert not decide(PromisesFirst(promised_frac=1.0), [view], {"a": 2}).promises


def request(work: float, until_s: float, **changes: float) -> PromiseRequest:
    return PromiseRequest(
        id=JobId("job"), submitted_at=0.0, pool=("", True), levels=Levels.of([1, 2, 4], [1.0, 1.6, 2.4]), work=work,
        until_s=until_s, changes=ChangeCosts(**changes),
    )  # fmt: skip


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("work", [50.0, 100.0, 119.0, 150.0])
def test_a_share_pays_for_the_changes_that_it_contains(work: float, late: bool) -> None:
    one, timeline = request(work, 120.0, start_s=10.0, change_s=5.0), Timeline.of(4).split([20.0, 40.0, 120.0])
    share = one.cheapest(timeline, late=late, with_reserve=False)
    assert share is not None
    assert one.is_done_with(share)
    with_reserve = one.cheapest(timeline, late=late, with_reserve=True)
    assert with_reserve is not None
    assert one.bears_a_change(with_reserve)


def test_the_same_devices_are_not_enough_where_changes_cost_time() -> None:
    timeline, free = Timeline.of(4).split([20.0, 40.0, 120.0]), request(119.0, 120.0)
    share = free.cheapest(timeline, late=True, with_reserve=False)
    assert share is not None
    assert free.is_done_with(share)
    assert not request(119.0, 120.0, start_s=10.0).is_done_with(share)


def test_what_its_changes_leave_no_time_for_is_not_promised() -> None:
    timeline = Timeline.of(4).split([100.0])
    assert request(235.0, 100.0).cheapest(timeline, late=True, with_reserve=True) is not None
    assert request(235.0, 100.0, start_s=3.0).cheapest(timeline, late=True, with_reserve=False) is None


def test_what_a_starting_job_holds_is_free_for_itself_only() -> None:
    timeline = Timeline.of(0).split([10.0, 100.0])
    one = replace(request(0.0, 100.0, holds=4.0), hold=Hold(4, starting_s=10.0))
    assert one.room(timeline).free.tolist() == [4.0, 0.0, 0.0]
    share = one.cheapest(one.room(timeline), late=True, with_reserve=False)
    assert share is not None
    assert share.amounts.tolist() == [4.0, 0.0][: len(share.amounts)]


def test_a_plan_goes_on_as_it_was_carried() -> None:
    timeline, one = Timeline.of(4).split([20.0, 40.0, 120.0]), request(150.0, 120.0, start_s=10.0, change_s=5.0)
    share = one.cheapest(timeline, late=True, with_reserve=False)
    assert share is not None
    carried = shares_carried({JobId("job"): as_carried(("", True), share, 1000.0, 3)}, 1000.0)
    assert carried[JobId("job")].n_nodes == 3
    again = one.planned(timeline, carried[JobId("job")], 120.0)
    assert again is not None
    assert again.work(one.levels, one.changes) == share.work(one.levels, one.changes)
    assert one.planned(timeline.less(3), carried[JobId("job")], 120.0) is None


def move(view: JobView, n: int, n_before: int, *, n_least: int = 0, stays: bool = True) -> Move:
    return Move(
        view=view, worker=GPU, n_before=n_before, kind_before="", n=n, kind="", fallbacks=(), n_least=n_least,
        stays=stays, reason=Reason("test", "because of a test"),
    )  # fmt: skip


def packed(
    jobs: Sequence[JobView], on: dict[str, int | Resources | tuple[Resources, str]], *moves: Move
) -> PlanBuilder:
    """The plan in which these jobs are moved on nodes of so many devices."""
    builder = PromisesFirst()._builder(picture(jobs, on))
    Packing(builder, moves).run()
    return builder


def test_a_job_that_stays_takes_the_room_of_one_that_leaves_in_the_same_plan() -> None:
    jobs = [job("grows", (4, 8), preemptible=True, on={"a": 4}), job("leaves", 4, preemptible=True, on={"a": 4})]
    builder = packed(jobs, {"a": 8}, move(jobs[0], 8, 4), move(jobs[1], 0, 4))
    assert builder.held(jobs[0]) == {"a": GPU * 8}


def test_others_are_moved_for_what_a_promise_needs() -> None:
    jobs = [job("grows", (4, 8), preemptible=True, on={"a": 4}), job("moves", 4, preemptible=True, on={"a": 4})]
    builder = packed(jobs, {"a": 8, "b": 4}, move(jobs[0], 8, 4, n_least=8), move(jobs[1], 4, 4, stays=False))
    assert builder.held(jobs[0]) == {"a": GPU * 8}
    assert builder.held(jobs[1]) == {"b": GPU * 4}


def test_a_job_that_may_not_be_paused_keeps_its_planned_place_while_others_pass() -> None:
    """Its node is gone, and its place on another one is not free yet."""
    jobs = [
        replace(job("stays", 1, on={"a": 1}), granted={NodeId("gone"): GPU}),
        job("leaves", 1, preemptible=True, on={"a": 1}),
        job("comes", (1, 2), preemptible=True, on={"b": 1}),
    ]
    goes = [move(view, n, 1, stays=False) for view, n in zip(jobs[1:], (1, 2), strict=True)]
    builder = packed(jobs, {"a": 3, "b": 1}, move(jobs[0], 1, 1), *goes)
    assert builder.held(jobs[0]) == {"a": GPU}
    assert builder.held(jobs[2]) == {"a": GPU * 2}


def test_the_user_is_told_once_that_a_promise_is_in_danger() -> None:
    """Three of four devices are gone."""
    policy, speed = PromisesFirst(promised_frac=1.0, risk_sigmas=0), Table(((1, 1.0), (2, 1.6), (4, 2.4)))

    def view(n: int) -> JobView:
        on = {"a": n} if n else None
        return job("tight", (1, 2, 4), steps=235.0, speed=speed, preemptible=True, deadline_s=100.0, on=on)

    first = decide(policy, [view(0)], {"a": 4})
    assert set(first.promises or {}) == {"tight"}
    plan = decide(policy, after(first, [view(1)]), {"a": 1}, at=1.0, carry=first.carry)
    assert {id: reason.code for id, reason in plan.warnings.items()} == {"tight": "promise-in-danger"}
    assert "58%" in plan.warnings[JobId("tight")].text
    assert set(plan.promises or {}) == {"tight"}, "it still gets all there is"
    assert not decide(policy, after(plan, [view(1)]), {"a": 1}, at=2.0, carry=plan.carry).warnings


def test_a_promise_in_danger_is_looked_at_again_soon() -> None:
    """A job that may not be paused holds what it needs."""
    speed = Table(((2, 2.0), (4, 4.0)))
    jobs = [
        job("tight", (2, 4), steps=380.0, speed=speed, preemptible=True, deadline_s=100.0),
        job("busy", (2, 4), steps=1e5, on={"a": 4}, at=1.0),
    ]
    policy = PromisesFirst(promised_frac=1.0, risk_sigmas=0)
    first = decide(policy, jobs[:1], {"a": 4})
    plan = decide(policy, after(first, jobs), {"a": 4}, at=2.0, carry=first.carry)
    assert held(plan, jobs)["tight"] == {"a": 2}
    assert set(plan.warnings) == {"tight"}
    assert plan.ask_again_at == 3.0
