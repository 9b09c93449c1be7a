"""How many jobs run at once, who comes first where no more may, and memory that others hold."""

from dataclasses import replace
from typing import Any

import pytest
from tests.policies.pictures import fraction, reason
from tests.policies.test_core_sharing import SURE, background, steered

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import NodeId
from punctual.core.job import JobView, declared_work
from punctual.core.plan import Plan
from punctual.core.quoting import quote
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst
from punctual.testing.snapshots import occupied

GIB = 1 << 30
A = NodeId("a")


def decide(jobs: list[JobView], n_at_once: int = 2, memory_gib: int = 8, policy: PromisesFirst = SURE) -> Plan:
    """On one node of two cores where so many jobs may run at once."""
    node = Node(A, Resources(2.0, memory_bytes=memory_gib * GIB), jobs_at_once=n_at_once)
    snapshot = Snapshot.of(0.0, [node], jobs)
    taken = sum(occupied(job, job.planned).get(A, Resources()).memory_bytes for job in jobs)
    free = replace(snapshot.free[A], memory_bytes=max(0, node.capacity.memory_bytes - taken))
    return policy.allocate(replace(snapshot, free={A: free}))


def waiting(name: str, **more: Any) -> JobView:
    return fraction(name, 2.0, floor=0.05, ceiling=2.0, **more)


def running(plan: Plan, jobs: list[JobView]) -> set[str]:
    """The jobs that hold something once the plan is in force."""
    return {str(job.id) for job in jobs if plan.grants.get(job.id, job.planned)}


def pausable(view: JobView) -> JobView:
    return replace(view, spec=replace(view.spec, preemptible=True))


def test_no_more_jobs_run_at_once_than_may() -> None:
    jobs = [waiting(f"job-{i}", at=-i) for i in range(40)]
    assert running(decide(jobs, 8), jobs) == {f"job-{i}" for i in range(32, 40)}, "those that were submitted first"
    assert len(running(decide(jobs, 100), jobs)) == 40


def test_of_those_that_wait_the_one_that_is_due_first_comes_first() -> None:
    jobs = [
        waiting("overdue", at=-20.0, deadline_s=10.0),
        waiting("late", at=-2.0, deadline_s=900.0),
        waiting("soon", at=-1.0, deadline_s=60.0),
    ]
    assert running(decide(jobs, 1), jobs) == {"soon"}
    assert running(decide(jobs, 2), jobs) == {"late", "soon"}


def test_jobs_with_deadlines_leave_a_place_to_one_that_has_none() -> None:
    """Or it would never get on where others come one after the other."""
    dated = [waiting(f"dated-{i}", deadline_s=60.0 + i) for i in range(9)]
    undated = [waiting(f"undated-{i}", at=i) for i in range(3)]
    jobs = [*dated, *undated]
    assert running(decide(jobs, 4), jobs) == {"dated-0", "dated-1", "dated-2", "undated-0"}
    assert running(decide(jobs, 1), jobs) == {"dated-0"}
    going = [*dated, pausable(background("going")), pausable(background("going-too", at=1.0))]
    assert running(decide(going, 2), going) == {"dated-0", "going"}


def test_a_job_that_is_due_sooner_takes_the_place_of_one_that_is_promised_nothing() -> None:
    jobs = [pausable(background("first")), pausable(background("last", at=1.0)), waiting("due", deadline_s=60.0)]
    plan = decide(jobs)
    assert running(plan, jobs) == {"first", "due"}
    assert reason(plan, "last").text == "paused: no more jobs may run at once, and 'due' is due sooner"


@pytest.mark.parametrize("protected", ["unpausable", "promised", "due sooner", "starting"])
def test_others_keep_their_places(protected: str) -> None:
    view = pausable(steered("there", 10.0, 600.0))
    view = {
        "unpausable": background("there"),
        "promised": replace(view, promised_until_at=600.0),
        "due sooner": pausable(steered("there", 10.0, 30.0)),
        "starting": replace(pausable(background("there")), status="starting"),
    }[protected]
    jobs = [view, waiting("due", deadline_s=60.0)]
    assert running(decide(jobs, 1), jobs) == {"there"}


def test_the_only_place_goes_to_the_job_that_is_due() -> None:
    jobs = [pausable(background("there")), waiting("due", deadline_s=60.0)]
    assert running(decide(jobs, 1), jobs) == {"due"}


def test_a_paused_job_goes_on_when_there_is_a_place_and_before_those_that_came_later() -> None:
    paused = replace(pausable(waiting("paused", at=-5.0)), status="paused", started_at=-4.0, resident={A: GIB})
    jobs = [paused, waiting("new", at=-1.0)]
    assert running(decide(jobs, 1), jobs) == {"paused"}


def test_while_a_job_waits_for_a_place_the_others_use_all_there_is() -> None:
    """They would otherwise end at their deadlines, and those that wait after theirs."""
    jobs = [steered("a", 10.0, 100.0), steered("b", 20.0, 100.0)]
    at_ease = decide(jobs)
    assert sum(at_ease.grants[job.id][A].cores for job in jobs) < 0.5
    hurried = decide([*jobs, waiting("c", deadline_s=100.0)])
    assert sum(hurried.grants[job.id][A].cores for job in jobs) == pytest.approx(2.0)
    full = [replace(job, resident={A: 4 * GIB}) for job in jobs]
    hurried = decide([*full, waiting("c", deadline_s=100.0)], n_at_once=8)
    assert sum(hurried.grants[job.id][A].cores for job in jobs) == pytest.approx(2.0), (
        "so they do if it waits for memory"
    )


def test_a_job_that_is_to_run_only_with_a_promise_does_not_wait_for_a_place() -> None:
    """It is told at once whether it has the promise; and if so, its deadline is not missed for want of a place."""
    jobs = [steered("a", 10.0, 100.0), steered("b", 20.0, 100.0)]
    guaranteed = waiting("sure", deadline_s=100.0, guarantee=True, work_core_s=20.0)
    guaranteed = replace(guaranteed, work=declared_work(guaranteed.spec, 0.0))
    plan = decide([*jobs, guaranteed])
    assert guaranteed.id in (plan.promises or {})
    assert plan.grants[guaranteed.id]


def test_a_job_that_has_just_got_its_promise_counts_among_those_that_run() -> None:
    guaranteed = waiting("sure", deadline_s=100.0, guarantee=True, work_core_s=20.0)
    guaranteed = replace(guaranteed, work=declared_work(guaranteed.spec, 0.0))
    jobs = [steered("a", 10.0, 100.0), guaranteed, waiting("other", deadline_s=300.0)]
    assert running(decide(jobs, 2), jobs) == {"a", "sure"}


def test_nobody_is_paused_for_a_job_that_can_not_run_then() -> None:
    promised = replace(steered("promised", 199.0, 100.0), promised_until_at=100.0)
    jobs = [promised, pausable(steered("last", 10.0, 600.0)), waiting("due", deadline_s=60.0)]
    assert running(decide(jobs, 2), jobs) == {"promised", "last"}


def test_a_quote_tells_what_can_be_promised_although_no_more_may_run() -> None:
    jobs = [steered("a", 10.0, 100.0), steered("b", 20.0, 100.0)]
    node = Node(A, Resources(2.0), jobs_at_once=2)
    new = waiting("new", deadline_s=100.0, work_core_s=20.0)
    new = replace(new, work=declared_work(new.spec, 0.0))
    told = quote(SURE, Snapshot.of(0.0, [node], jobs), new)
    assert told.can_be_promised
    assert told.earliest_at == pytest.approx(10.0, abs=2.0)
    soon = replace(new, spec=replace(new.spec, deadline_s=5.0))
    soon = replace(soon, work=declared_work(soon.spec, 0.0))
    assert not quote(SURE, Snapshot.of(0.0, [node], jobs), soon).can_be_promised


# Memory.


def test_a_job_waits_until_the_memory_that_it_asks_for_is_free() -> None:
    there = background("there")
    there = replace(there, resident={A: 5 * GIB})
    asking = waiting("asking")
    asking = replace(asking, spec=asking.spec.with_memory(4 * GIB), demand=Resources(2.0))
    jobs = [there, asking]
    assert running(decide(jobs, memory_gib=8), jobs) == {"there"}
    plan = decide(jobs, memory_gib=9)
    assert running(plan, jobs) == {"there", "asking"}
    assert plan.grants[asking.id][A].memory_bytes == 4 * GIB


def test_a_job_of_which_nothing_is_known_counts_with_an_equal_part_of_the_memory() -> None:
    """8 GiB for four jobs."""
    there, unknown = replace(background("there"), resident={A: 7 * GIB}), waiting("unknown")
    assert running(decide([there, unknown], 4), [there, unknown]) == {"there"}
    small = replace(unknown, expected_memory_bytes=GIB)
    assert running(decide([there, small], 4), [there, small]) == {"there", "unknown"}
    several = [waiting(f"job-{i}", at=i) for i in range(4)]
    assert len(running(decide(several, 4), several)) == 4
    there = replace(there, resident={A: 3 * GIB})
    assert len(running(decide([there, *several], 5, memory_gib=10), [there, *several])) == 4, "each 2 GiB beside 3"


def test_a_paused_job_keeps_its_memory_and_goes_on_in_it() -> None:
    paused = replace(waiting("paused"), status="paused", started_at=-9.0, resident={A: 6 * GIB})
    asking = waiting("asking")
    asking = replace(asking, spec=asking.spec.with_memory(4 * GIB), demand=Resources(2.0))
    jobs = [asking, paused]
    assert running(decide(jobs, memory_gib=8), jobs) == {"paused"}


def test_what_is_paused_in_a_plan_makes_no_room_in_memory_for_another() -> None:
    there = pausable(replace(background("there"), resident={A: 6 * GIB}))
    due = waiting("due", deadline_s=60.0)
    due = replace(due, spec=due.spec.with_memory(4 * GIB), demand=Resources(2.0))
    jobs = [there, due]
    assert running(decide(jobs, 1, memory_gib=8), jobs) == {"there"}
    assert running(decide(jobs, 1, memory_gib=10), jobs) == {"due"}
