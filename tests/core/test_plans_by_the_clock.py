"""How soon one plan may follow another because it says so or frees room, and for no other reason."""

import itertools
from collections.abc import Callable

from tests.core.desk import HERE, A, B, Desk, cores, only

from punctual.core.commands import Command, RequestPlan, SetTimer
from punctual.core.events import NodeJoined, PlanProposed, TimerFired
from punctual.core.ids import JobId, Timer
from punctual.core.job import Allocation
from punctual.core.plan import Plan
from punctual.core.planning import Planning
from punctual.core.resources import Resources

#: What the plan of an instant gives, and when it wants another one.
Answer = Callable[[float], tuple[dict[JobId, Allocation], float | None]]


def instants(desk: Desk, answer: Answer, *, until_at: float, at: float = 0.0) -> list[float]:
    """When plans are asked for if nothing happens but that `answer` is given to each request: at most 10,000 times."""
    requests: list[float] = []
    due = at
    commands = desk.tell(NodeJoined(at=at, node=HERE, capacity=Resources(cores=2)))
    while len(requests) < 10_000:
        for request in (command for command in commands if isinstance(command, RequestPlan)):
            requests.append(due)
            grants, again_at = answer(due)
            plan = Plan(revision=request.revision, grants=grants, keeps_others=True, ask_again_at=again_at)
            commands = desk.tell(PlanProposed(at=due, plan=plan, revision=request.revision))
        next_at = next_plan_at(commands)
        if next_at is None or next_at > until_at:
            break
        due = next_at
        commands = desk.tell(TimerFired(at=due, timer=Timer("plan")))
    return requests


def gaps(instants: list[float]) -> list[float]:
    return [later - sooner for sooner, later in itertools.pairwise(instants)]


def desk_with_a_job() -> Desk:
    desk = Desk()
    desk.run(A, 1.0)
    return desk


def test_time_goes_on_between_plans_however_soon_another_one_is_wanted() -> None:
    turns = iter(range(10_000))
    flapping = instants(desk_with_a_job(), lambda at: ({A: cores(1.0 + next(turns) % 2 / 2)}, at), until_at=10.0)
    assert len(flapping) <= 102
    assert min(gaps(flapping)) > 0.09


def test_plans_that_change_nothing_are_asked_for_ever_less_often() -> None:
    found = instants(desk_with_a_job(), lambda at: ({}, at + 0.1), until_at=86_400.0)
    assert found[:3] == [0.0, 0.1, 0.2], "the first may be a matter of rounding"
    assert min(gaps(found)[3:]) > 0.99
    assert max(gaps(found)) <= 60.001
    assert len(found) < 2_200


def test_a_plan_that_is_wanted_rarely_comes_when_it_is_wanted() -> None:
    assert set(gaps(instants(desk_with_a_job(), lambda at: ({}, at + 60.0), until_at=86_400.0))) == {60.0}


def test_an_instant_that_is_known_only_when_it_is_near_is_not_put_off() -> None:
    """Each plan names one nearer to the end of a long silence: a promise is kept late, by a job that is a little faster."""
    end_at = 10_000.0
    found = instants(desk_with_a_job(), lambda at: ({}, at + max(1.0, 0.7 * (end_at - at))), until_at=end_at + 60.0)
    assert found[1] == 7_000.0
    assert [at for at in found if end_at <= at < end_at + 2.0]
    assert Planning(n_idle=2).ask_again_s(6_000.0, 6_005.0) == 5.0


def test_a_change_of_the_plan_and_news_begin_anew() -> None:
    def changes_at_100(at: float) -> tuple[dict[JobId, Allocation], float]:
        return {A: cores(1.5 if at >= 100.0 else 1.0)}, at + 0.25

    desk = desk_with_a_job()
    after_change = [gap for at, gap in _with_gaps(instants(desk, changes_at_100, until_at=200.0)) if at >= 100.0]
    assert after_change[:2] == [0.25, 0.25]
    assert min(after_change[2:]) >= 1.0
    assert gaps(instants(desk, lambda at: ({}, at + 0.25), at=300.0, until_at=310.0))[:2] == [0.25, 0.25]


def desk_where_b_waits(floor: float = 0.5) -> Desk:
    """A has all of the node."""
    desk = Desk()
    desk.run(A, 2.0)
    desk.submit(B, floor=floor)
    desk.plan({A: cores(2.0)})
    return desk


def next_plan_at(commands: list[Command]) -> float | None:
    """When the clock asks for another plan; None: it does not."""
    timers = [command for command in commands if isinstance(command, SetTimer) and command.timer == Timer("plan")]
    return timers[-1].fire_at if timers else None


def test_a_plan_that_frees_room_for_a_job_that_waits_is_followed_by_another_within_a_second() -> None:
    desk = desk_where_b_waits()
    soon_at = next_plan_at(desk.plan({A: cores(1.0)}, at=5.0))
    assert soon_at is not None
    assert 5.0 < soon_at <= 6.0
    only(desk.tick_plan(at=soon_at), RequestPlan)
    assert next_plan_at(desk.plan({A: cores(1.0)}, at=soon_at)) is None, (
        "it has seen the room, and leaves it on purpose"
    )


def test_a_promise_that_is_withdrawn_frees_room() -> None:
    desk = desk_where_b_waits()
    desk.tell(NodeJoined(at=1.0, node=HERE, capacity=Resources(cores=3)))
    assert next_plan_at(desk.plan({A: cores(2.0)}, at=1.0, promises={A: 100.0})) is None
    assert next_plan_at(desk.plan({A: cores(2.0)}, at=1.0, promises={})) is not None


def test_room_that_nobody_could_have_asks_for_nothing() -> None:
    assert next_plan_at(desk_where_b_waits(floor=1.5).plan({A: cores(1.0)})) is None
    assert next_plan_at(desk_with_a_job().plan({A: cores(0.5)})) is None


def test_a_policy_that_starts_one_job_with_each_plan_is_not_kept_waiting() -> None:
    desk = desk_where_b_waits(floor=0.1)
    waiting = [JobId(f"waits-{i}") for i in range(6)]
    for job in waiting:
        desk.submit(job, floor=0.1)
        desk.plan({A: cores(2.0)})
    turns = itertools.count(1)

    def starts_one_more(_: float) -> tuple[dict[JobId, Allocation], None]:
        n = min(next(turns), len(waiting))
        return {A: cores(2.0 - 0.25 * n), **{job: cores(0.1) for job in waiting[:n]}}, None

    found = instants(desk, starts_one_more, until_at=1_000.0)
    assert len(found) > len(waiting)
    assert max(gaps(found)) <= 1.0


def test_a_policy_that_frees_ever_more_and_gives_it_to_nobody_is_asked_ever_less_often() -> None:
    turns = iter(range(2, 100_000))
    found = instants(desk_where_b_waits(), lambda at: ({A: cores(1.0 + 1.0 / next(turns))}, None), until_at=86_400.0)
    assert len(found) > 10
    assert min(gaps(found)[3:]) > 0.99
    assert len(found) < 2_200


def _with_gaps(found: list[float]) -> list[tuple[float, float]]:
    return list(zip(found, gaps(found), strict=False))
