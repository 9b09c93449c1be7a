"""CPU sets of jobs: bounds with which all can have their most at once, and plans within them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import N_EXAMPLES
from tests.policies.pictures import decide, fraction, job, picture

from punctual.core.cluster import Snapshot
from punctual.core.events import Event, PlanProposed
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.quoting import QuoteRequest
from punctual.core.resources import Resources
from punctual.daemon.cpu_sets import Bound, ConfinedPlanner, CpuSets, bounds_within
from punctual.daemon.planner import InlinePlanner
from punctual.policies.promises_first import PromisesFirst

FOUR: dict[str, int | Resources | tuple[Resources, str]] = {"here": Resources(4)}


def bounded(sets: Mapping[str, set[int]], *views: JobView) -> dict[str, Bound]:
    bounds = bounds_within(picture(views, FOUR), {JobId(name): frozenset(cpus) for name, cpus in sets.items()})
    return {bound.view.id: bound for bound in bounds}


def cores(bounds: Mapping[str, Bound]) -> dict[str, float]:
    return {name: bound.cores for name, bound in bounds.items()}


def test_two_jobs_on_one_cpu_share_it_and_a_job_on_two_leaves_it_to_them() -> None:
    on_one = [fraction(name, 1.0, floor=0.05, ceiling=1.0, on="here") for name in "ab"]
    sets = {"a": {0}, "b": {0}}
    assert cores(bounded(sets, *on_one)) == pytest.approx({"a": 0.5, "b": 0.5})
    beside = fraction("c", 2.0, floor=0.05, ceiling=2.0, on="here")
    bounds = bounded({**sets, "c": {0, 1}}, *on_one, beside)
    assert cores(bounds)["a"] + cores(bounds)["b"] <= 1.0
    assert cores(bounds)["c"] >= 1.0
    assert sum(cores(bounds).values()) == pytest.approx(2.0)


def test_sets_with_nothing_in_common_bound_each_other_in_nothing() -> None:
    views = [fraction(name, 2.0, ceiling=2.0, on="here") for name in "ab"]
    bounds = bounded({"a": {0, 1}, "b": {2, 3}}, *views)
    assert not any(bound.binds for bound in bounds.values())
    assert [bounds[view.id].bounded() for view in views] == views


def test_a_promised_job_keeps_what_it_demands() -> None:
    promised = replace(fraction("a", 0.8, floor=0.05, ceiling=1.0, on="here"), promised_until_at=100.0)
    other = fraction("b", 1.0, floor=0.05, ceiling=1.0, at=1.0)
    bounds = bounded({"a": {0}, "b": {0}}, promised, other)
    assert bounds["a"].cores >= 0.8
    assert 0.05 <= bounds["b"].cores <= 0.2


def test_a_job_waits_while_its_cpus_have_no_room_for_its_least() -> None:
    promised = replace(fraction("a", 1.0, floor=0.05, ceiling=1.0, on="here"), promised_until_at=100.0)
    other = fraction("b", 1.0, floor=0.05, ceiling=1.0, at=1.0)
    bounds = bounded({"a": {0}, "b": {0}}, promised, other)
    assert bounds["b"].waits
    assert bounds["a"].cores == pytest.approx(1.0)
    assert "waits: it may use CPU 0 only" in str(bounds["b"].reason())


def test_workers_have_all_of_their_cores_or_wait() -> None:
    running = job("a", (1, 2), worker=Resources(1), on={"here": 1})
    waiting = job("b", (1, 2), worker=Resources(1), at=1.0)
    bounds = bounded({"a": {0, 1}, "b": {1, 2}}, running, waiting)
    assert bounds["a"].bounded() is running
    assert bounds["b"].waits


def test_who_asks_for_more_than_its_cpus_may_have_all_of_them() -> None:
    workers = job("a", (1, 2, 3, 4), worker=Resources(1))
    wide = fraction("a", 3.0, floor=3.0, ceiling=4.0)
    for view in (workers, wide):
        bound = bounded({"a": {0, 1}}, view)["a"]
        assert not bound.waits
        assert bound.cores == pytest.approx(2.0)


@settings(max_examples=N_EXAMPLES, deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 4), min_size=1), st.floats(0.01, 5.0), st.booleans(), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_whatever_the_sets_have_in_common_no_cpus_are_given_twice(
    told: list[tuple[set[int], float, bool, bool]],
) -> None:
    sets = {f"job-{i}": cpus for i, (cpus, *_) in enumerate(told)}
    views = []
    for i, (cpus, most, runs, has_promise) in enumerate(told):
        on = "here" if runs else None
        view = fraction(f"job-{i}", most, floor=0.01, ceiling=min(most, len(cpus)), at=float(i), on=on, held=0.01)
        views.append(replace(view, promised_until_at=1e3 if has_promise else None))
    bounds = bounded(sets, *views)
    distinct = {frozenset(cpus) for cpus in sets.values()}
    for some in chain.from_iterable(combinations(distinct, n) for n in range(1, len(distinct) + 1)):
        union = frozenset().union(*some)
        assert sum(bounds[name].cores for name, cpus in sets.items() if cpus <= union) <= len(union) + 1e-6
    assert all(bound.cores <= bound.most_cores + 1e-9 for bound in bounds.values())
    single = [
        bound
        for name, bound in bounds.items()
        if not any(sets[name] & cpus for other, cpus in sets.items() if other != name)
    ]
    assert not any(bound.binds for bound in single), "nobody shares its CPUs"


def planned(sets: CpuSets, snapshot: Snapshot) -> Plan:
    events: list[Event] = []
    ConfinedPlanner(InlinePlanner(PromisesFirst()), sets).request(snapshot, events.append)
    (event,) = events
    assert isinstance(event, PlanProposed)
    assert event.plan is not None
    return event.plan


def test_a_plan_keeps_to_the_bounds_and_says_so() -> None:
    sets = CpuSets(range(2))
    for name in "ab":
        sets.add(JobId(name), [0])
    sets.add(JobId("c"), ())
    views = [
        *(fraction(name, 1.0, floor=0.05, ceiling=1.0, on="here", held=0.1) for name in "ab"),
        fraction("c", 2.0, floor=0.05, ceiling=2.0, on="here", held=0.1),
    ]
    plan = planned(sets, picture(views, {"here": Resources(2)}))
    given = {str(name): sum(amount.cores for amount in grant.values()) for name, grant in plan.grants.items()}
    assert given["a"] + given["b"] <= 1.0 + 1e-6
    assert given["c"] >= 1.0 - 1e-6
    assert plan.reasons[JobId("a")].code == "cpu-set"
    assert "it may use CPU 0 only" in str(plan.reasons[JobId("a")])
    sets.remove(JobId("b"))
    alone = planned(sets, picture([views[0], views[2]], {"here": Resources(2)}))
    assert "cpu-set" not in {reason.code for reason in alone.reasons.values()}


def test_no_deadline_is_promised_that_the_cpus_of_a_job_do_not_allow() -> None:
    """Alone on its CPU each could be promised its deadline, and the machine has room for both: together they have one CPU."""
    from tests.policies.test_core_sharing import steered

    views = [steered(name, 80.0, 100.0, most=1.0) for name in "ab"]
    free = decide(PromisesFirst(), views, {"a": Resources(4)})
    assert set(free.promises or {}) == {"a", "b"}
    sets = CpuSets(range(4))
    for name in "ab":
        sets.add(JobId(name), [0])
    plan = planned(sets, picture(views, {"a": Resources(4)}))
    assert set(plan.promises or {}) == set()


def test_who_runs_only_with_a_promise_is_turned_away_where_its_cpus_have_no_room() -> None:
    promised = replace(fraction("a", 1.0, floor=0.05, ceiling=1.0, on="here"), promised_until_at=100.0)
    guaranteed = fraction("b", 1.0, floor=0.05, ceiling=1.0, at=1.0, deadline_s=100.0, guarantee=True)
    sets = CpuSets(range(4))
    for name in "ab":
        sets.add(JobId(name), [0])
    plan = planned(sets, picture([promised, guaranteed], {"here": Resources(4)}))
    assert "it may use CPU 0 only" in str(plan.declines[JobId("b")])


def test_a_quote_counts_the_cpus_of_the_job() -> None:
    from tests.policies.test_core_sharing import steered

    sets = CpuSets(range(4))
    views = [steered(name, 80.0, 100.0, most=1.0) for name in "ab"]
    planner = ConfinedPlanner(InlinePlanner(PromisesFirst()), sets)
    request = QuoteRequest(snapshot=picture(views, {"a": Resources(4)}), view=views[1])
    assert planner.quote(request, 5.0).can_be_promised
    for name in "ab":
        sets.add(JobId(name), [0])
    assert not planner.quote(request, 5.0).can_be_promised


def test_there_are_more_cpus_once_a_job_has_others_and_never_fewer() -> None:
    sets = CpuSets([0])
    sets.add(JobId("a"), [1, 2])
    assert sets.all == {0, 1, 2}
    sets.remove(JobId("a"))
    assert sets.all == {0, 1, 2}
