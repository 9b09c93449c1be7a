"""How soon one plan may follow another because it says so, and for no other reason."""

import itertools
from collections.abc import Callable

from tests.core.desk import HERE, A, Desk, cores

from punctual.core.commands import RequestPlan, SetTimer
from punctual.core.events import NodeJoined, PlanProposed, TimerFired
from punctual.core.ids import JobId
from punctual.core.job import Allocation
from punctual.core.plan import Plan
from punctual.core.planning import Planning
from punctual.core.resources import Resources
from punctual.core.timer import Timer

#: What the plan of an instant gives, and when it wants another one.
Answer = Callable[[float], tuple[dict[JobId, Allocation], float]]


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
        timers = [command for command in commands if isinstance(command, SetTimer) and command.timer == Timer("plan")]
        due = timers[-1].fire_at
        if due > until_at:
            break
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


def _with_gaps(found: list[float]) -> list[tuple[float, float]]:
    return list(zip(found, gaps(found), strict=False))
