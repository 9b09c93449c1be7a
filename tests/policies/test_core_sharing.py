"""Jobs on shares of cores under our own policy: promises over time, what is left, and who never starves."""

from dataclasses import replace
from typing import Any

import pytest
from tests.policies.pictures import after, codes, cores, decide, fraction, job, reason

from punctual.core.cluster import Node, Snapshot
from punctual.core.control import CoreWork
from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst

TWO = {"a": Resources(2.0)}
WORKERS = (("dated", 500.0), ("undated", None))
#: Speeds and costs are what they are said to be; nothing is kept free.
SURE = PromisesFirst(risk_sigmas=0, background_frac=0)


def steered(
    name: str, core_s: float, deadline_s: float, *, std_core_s: float = 0.0, most: float = 2.0, **more: Any
) -> JobView:
    """A running job that has told what is left of it, and demands that over the time left."""
    demand = min(most, core_s / deadline_s)
    view = fraction(name, demand, ceiling=most, on="a", held=0.01, deadline_s=deadline_s, **more)
    work = CoreWork(core_s=core_s, std_core_s=std_core_s, usable_cores=most, due_s=deadline_s)
    return replace(view, work=work, started_at=-100.0)


def background(name: str, **more: Any) -> JobView:
    return replace(fraction(name, 2.0, ceiling=2.0, on="a", held=0.01, **more), started_at=-100.0)


def promised(plan: Plan) -> set[str]:
    return set(plan.promises or {})


def warned(plan: Plan) -> dict[str, str]:
    return {str(name): reason.code for name, reason in plan.warnings.items()}


def test_where_nothing_is_scarce_each_job_has_its_demand() -> None:
    jobs = [steered("near", 10.0, 10.0), steered("far", 50.0, 100.0)]
    plan = decide(SURE, jobs, TWO)
    assert cores(plan) == pytest.approx({"near": 1.0, "far": 0.5})
    assert promised(plan) == {"near", "far"}
    assert (plan.objective, plan.bound) == (2.0, 2.0)


def test_jobs_that_fit_only_one_after_the_other_are_planned_so() -> None:
    """Their constant demands, 1.98 and 0.99 cores, do not fit."""
    jobs = [steered("near", 99.0, 50.0), steered("far", 99.0, 100.0)]
    plan = decide(SURE, jobs, TWO)
    assert promised(plan) == {"near", "far"}
    assert cores(plan)["near"] == pytest.approx(1.98)
    assert codes(plan)["far"] == "planned"
    assert reason(plan, "far").text == (
        "it holds 0.02 cores, and its 99 core-s due in 1 min 40 s need 0.99: "
        "others are due first; it is planned to hold 1.97 in 50 s"
    )


def test_a_job_that_holds_enough_but_not_its_demand_is_told_so() -> None:
    """Its controller wants both cores for now; one is needed on the way to its deadline."""
    eager = replace(steered("eager", 90.0, 100.0), demand=Resources(2.0))
    plan = decide(SURE, [steered("urgent", 10.0, 10.0), eager], TWO)
    assert cores(plan) == pytest.approx({"urgent": 1.0, "eager": 1.0}, abs=0.02)
    assert "90 core-s due in 1 min 40 s need 0.9: others get the rest of its demand of 2" in reason(plan, "eager").text


def test_a_job_of_which_nothing_is_left_is_told_so_also_at_its_deadline() -> None:
    """A program works on after its last declared step."""
    first = decide(SURE, jobs := [steered("done", 10.0, 20.0), steered("far", 10.0, 200.0)], TWO)
    done = replace(
        jobs[0], demand=Resources(2.0), work=CoreWork(core_s=0.0, std_core_s=0.0, usable_cores=2.0, due_s=0.0)
    )
    plan = decide(SURE, after(first, [done, steered("far", 180.0, 180.0)]), TWO, at=20.0, carry=first.carry)
    assert reason(plan, "done").text.endswith(
        "cores, and no core time is known to be left of it: others get the rest of its demand of 2"
    )


def test_a_deadline_that_does_not_fit_beside_promised_ones_is_told_and_the_job_has_what_is_left() -> None:
    first = steered("first", 115.0, 100.0)
    before = decide(SURE, [first], TWO)
    heavy = steered("heavy", 100.0, 90.0, weight=9.0, at=1.0)
    plan = decide(SURE, after(before, [first, heavy]), TWO, carry=before.carry)
    assert promised(plan) == {"first"}
    assert warned(plan) == {"heavy": "not-promised"}
    assert "100 core-s in 1 min 31 s do not fit beside what is promised" in plan.warnings[heavy.id].text
    assert cores(plan)["first"] == pytest.approx(1.15)
    assert cores(plan)["heavy"] == pytest.approx(0.85)
    assert not decide(SURE, after(plan, [first, heavy]), TWO, carry=plan.carry).warnings, "it was told already"
    moved = replace(heavy, spec=replace(heavy.spec, deadline_s=95.0))
    again = decide(SURE, after(plan, [first, moved]), TWO, carry=plan.carry)
    assert warned(again) == {"heavy": "not-promised"}, "its user asked for another deadline"


def test_a_promise_holds_while_the_job_is_stopped_to_be_started_elsewhere() -> None:
    job = replace(steered("job", 90.0, 100.0), promised_until_at=100.0, status="stopping", planned={})
    plan = decide(SURE, [job, steered("other", 10.0, 100.0)], TWO, at=1.0)
    assert (promised(plan), warned(plan)) == ({"job", "other"}, {})


def test_nothing_is_told_of_a_promise_when_the_deadline_is_there() -> None:
    first = steered("first", 115.0, 100.0)
    before = decide(SURE, [first], TWO)
    plan = decide(SURE, after(before, [first, steered("heavy", 1.0, 0.4)]), TWO, carry=before.carry)
    assert (promised(plan), warned(plan)) == ({"first"}, {})


def test_of_new_jobs_those_of_most_weight_are_promised() -> None:
    jobs = [steered("light", 150.0, 100.0), steered("heavy", 80.0, 90.0, weight=9.0)]
    plan = decide(SURE, jobs, TWO)
    assert promised(plan) == {"heavy"}
    assert (plan.objective, plan.bound) == (9.0, 9.0)


def test_jobs_that_exclude_each_other_are_not_promised_while_one_of_them_is_not_measured() -> None:
    unmeasured = replace(fraction("new", 2.0, ceiling=2.0, on="a", held=0.01, deadline_s=50.0), started_at=-1.0)
    jobs = [steered("light", 150.0, 100.0), steered("heavy", 80.0, 90.0), unmeasured]
    plan = decide(SURE, jobs, TWO)
    assert promised(plan) == set()
    assert not plan.warnings
    long_silent = replace(unmeasured, started_at=-11.0, granted_core_s=11.0)
    assert promised(decide(SURE, [*jobs[:2], long_silent], TWO)) != set()


def test_a_new_job_is_compared_with_others_that_came_with_it_before_it_is_promised_anything() -> None:
    unmeasured = replace(fraction("new", 2.0, ceiling=2.0, on="a", held=0.01, deadline_s=50.0), started_at=-1.0)
    assert promised(decide(SURE, [steered("first", 150.0, 100.0), unmeasured], TWO)) == set()
    assert promised(decide(SURE, [steered("old", 150.0, 160.0, at=-60.0), unmeasured], TWO)) == {"old"}


def test_jobs_that_start_together_are_compared_although_each_says_what_it_costs() -> None:
    """The first comes a second before one that weighs more; two seconds after its start it is promised its deadline."""
    light = replace(steered("light", 150.0, 100.0), started_at=0.5)
    alone = decide(SURE, [light], TWO, at=1.0)
    assert promised(alone) == set()
    assert alone.ask_again_at == pytest.approx(2.5)
    heavy = replace(steered("heavy", 80.0, 90.0, weight=9.0), started_at=1.5)
    both = decide(SURE, after(alone, [light, heavy]), TWO, at=1.6, carry=alone.carry)
    assert promised(both) == set()
    assert promised(decide(SURE, after(both, [light, heavy]), TWO, at=3.6, carry=both.carry)) == {"heavy"}
    assert promised(decide(SURE, [light], TWO, at=2.6)) == {"light"}


def test_what_a_job_holds_in_any_case_is_free_for_others_when_it_is_due() -> None:
    """Both together take all that there is, but for a tenth of what one of them holds in any case."""
    jobs = [steered("near", 99.45, 50.0), steered("far", 100.45, 100.0)]
    assert promised(decide(SURE, jobs, TWO)) == {"near", "far"}
    assert len(promised(decide(SURE, [*jobs, steered("hopeless", 999.0, 99.0)], TWO))) == 1


def test_a_promise_is_kept_as_long_as_it_may_be_kept_and_its_loss_is_told() -> None:
    promise = decide(SURE, [steered("job", 100.0, 100.0, most=1.02)], TWO)
    doubtful = steered("job", 102.5, 100.0, std_core_s=2.0, most=1.02)
    assert promised(decide(PromisesFirst(), after(promise, [doubtful]), TWO)) == {"job"}
    hopeless = steered("job", 120.0, 100.0, most=1.02)
    plan = decide(PromisesFirst(), after(promise, [hopeless]), TWO)
    assert promised(plan) == set()
    assert warned(plan) == {"job": "promise-lost"}


def test_a_promise_is_kept_while_a_job_that_is_being_stopped_still_holds_its_cores() -> None:
    """What it holds is free when its process has ended; what is promised needs all but a tenth of a core."""
    kept = steered("kept", 190.0, 100.0)
    promise = decide(SURE, [kept], TWO)
    stopping = replace(background("stopped"), status="stopping")
    stopping = replace(stopping, granted={NodeId("a"): Resources(0.5)}, planned={NodeId("a"): Resources(0.5)})
    plan = decide(SURE, after(promise, [kept, stopping]), TWO, carry=promise.carry)
    assert promised(plan) == {"kept"}
    assert not plan.warnings
    assert cores(plan)["kept"] == pytest.approx(1.5)


def test_a_promise_outlives_a_process_of_which_nothing_is_known_yet() -> None:
    """A job that was started again keeps its promise, and comes before those without one, until it tells what is left."""
    jobs = [steered("job", 90.0, 100.0), background("free", floor=0.1)]
    promise = decide(SURE, jobs, TWO)
    started_again = [replace(jobs[0], work=None), jobs[1]]
    plan = decide(SURE, after(promise, started_again), TWO)
    assert promised(plan) == {"job"}
    assert cores(plan)["job"] == pytest.approx(0.9)
    assert promised(decide(SURE, after(plan, jobs), TWO)) == {"job"}
    assert promised(decide(SURE, after(promise, started_again), TWO, at=102.0)) == set(), "it is late"
    assert promised(decide(SURE, started_again, TWO)) == set()


def test_a_promise_to_a_job_that_waits_for_room_holds() -> None:
    view = steered("job", 50.0, 100.0)
    waiting = after(decide(SURE, [view], TWO), [replace(view, granted={}, planned={}, status="queued")])
    assert promised(decide(SURE, waiting, {})) == {"job"}
    assert promised(decide(SURE, waiting, {}, at=100.0)) == set(), "it is late"


def test_another_deadline_needs_another_promise() -> None:
    promise = decide(SURE, [steered("job", 100.0, 100.0)], TWO)
    plan = decide(SURE, after(promise, [steered("job", 100.0, 20.0)]), TWO)
    assert promised(plan) == set()
    assert warned(plan) == {"job": "not-promised"}


def test_a_promise_is_for_a_deadline_or_a_later_one() -> None:
    """Beside a job that is not measured yet nothing new is promised."""
    promise = decide(SURE, [steered("job", 50.0, 100.0)], TWO)
    later = steered("job", 50.0, 120.0)
    plan = decide(SURE, after(promise, [later, new("other", 60.0)]), TWO, at=1.0)
    assert (plan.promises or {})[later.id] == 120.0
    assert not plan.warnings


def test_a_job_without_a_deadline_keeps_a_share_and_gets_what_is_left() -> None:
    policy = PromisesFirst(risk_sigmas=0, background_frac=0.1)
    alone = decide(policy, [background("free"), steered("dated", 50.0, 100.0)], TWO)
    assert cores(alone) == pytest.approx({"dated": 0.5, "free": 1.5})
    crowded = [background("free"), steered("b", 90.0, 100.0), steered("c", 80.0, 100.0), steered("d", 50.0, 100.0)]
    plan = decide(policy, crowded, TWO)
    assert len(promised(plan)) == 2
    assert cores(plan)["free"] >= 0.19


def test_jobs_without_a_deadline_share_by_weight() -> None:
    plan = decide(SURE, [background("light"), background("heavy", weight=3.0)], TWO)
    assert cores(plan) == pytest.approx({"light": 0.505, "heavy": 1.495})


def test_a_job_works_ahead_of_what_workers_will_take() -> None:
    """Jobs of workers have reserved all but a tenth of a core from 50 s on."""
    view = steered("job", 60.0, 100.0)
    carry = decide(SURE, [view], TWO).carry
    assert isinstance(carry, dict)
    carry["cores"]["workers"] = {"": [[0.0, 0.0], [50.0, 1.9], [200.0, 0.0]]}
    plan = decide(SURE, [view], TWO, carry=carry)
    assert cores(plan)["job"] > 1.0
    assert codes(plan)["job"] == "works-ahead"
    assert plan.ask_again_at == pytest.approx(50.0)


def test_spans_of_promised_workers_that_begin_at_the_same_instant_count_once() -> None:
    """Instants on the scheduler's clock are coarser than the seconds from which they are made."""
    view = steered("job", 60.0, 100.0)
    carry = decide(SURE, [view], TWO).carry
    assert isinstance(carry, dict)
    carry["cores"]["workers"] = {"": [[0.0, 0.0], [50.0, 0.5], [50.0, 1.9], [200.0, 0.0]]}
    assert cores(decide(SURE, [view], TWO, carry=carry))["job"] > 1.0


def test_workers_are_promised_nothing_of_what_is_planned_for_shares() -> None:
    """The share needs both cores in the second half of the time, and little now."""
    core = Resources(1.0)
    worker = job("workers", 1, steps=90.0, worker=core, deadline_s=100.0)
    free = decide(PromisesFirst(promised_frac=1.0, risk_sigmas=0), [worker], TWO)
    assert promised(free) == {"workers"}
    near, far = steered("near", 60.0, 40.0), steered("far", 110.0, 100.0)
    plan = decide(PromisesFirst(promised_frac=1.0, risk_sigmas=0), [near, far, worker], TWO)
    assert promised(plan) == {"near", "far"}


def test_waiting_workers_find_the_room_that_their_smallest_number_needs() -> None:
    greedy = background("free", at=-1.0)
    core = Resources(1.0)
    small, large = job("small", (1, 2), steps=50.0, worker=core), job("large", 4, steps=50.0, worker=core)
    plan = decide(SURE, [greedy, small, large], TWO)
    assert cores(plan) == pytest.approx({"free": 1.0, "small": 1.0})


def test_what_waiting_workers_do_not_find_on_one_node_is_left_to_them_on_the_next() -> None:
    nodes = {"a": Resources(2.0), "b": Resources(2.0)}
    free = [background("first"), replace(background("second"), granted={NodeId("b"): Resources(0.01)})]
    free[1] = replace(free[1], planned=free[1].granted)
    workers = [job(name, 1, steps=50.0, worker=Resources(1.5), deadline_s=deadline_s) for name, deadline_s in WORKERS]
    held = cores(decide(SURE, [*free, *workers], nodes))
    assert held["second"] == pytest.approx(0.99), "1.99 of 3 cores are left to them on the first node"


def test_waiting_workers_on_gpus_find_their_cores() -> None:
    """Also they need cores; of one for which no GPU is free nothing is left to others."""
    greedy, node = background("free", at=-1.0), {"a": Resources(4.0, gpus=1)}
    greedy = replace(greedy, spec=replace(greedy.spec, ceiling=Resources(4.0)), demand=Resources(4.0))
    first, second = (job(name, 1, steps=50.0, worker=Resources(1.5, gpus=1)) for name in ("first", "second"))
    plan = decide(SURE, [greedy, first, second], node)
    assert cores(plan) == pytest.approx({"free": 2.5, "first": 1.5})


def test_promises_outlive_a_change_of_the_nodes() -> None:
    view = steered("job", 50.0, 100.0)
    before = decide(SURE, [view], TWO)
    newcomer = steered("newcomer", 70.0, 100.0, weight=9.0)
    assert promised(decide(SURE, after(before, [view, newcomer]), {"a": Resources(1.0)}, carry=before.carry)) == {"job"}


def test_a_waiting_job_goes_where_demands_leave_most() -> None:
    nodes = [Node(NodeId(name), Resources(2.0)) for name in ("a", "b")]
    busy, new = steered("busy", 150.0, 100.0), fraction("new", 2.0, ceiling=2.0, deadline_s=50.0)
    plan = SURE.allocate(Snapshot.of(0.0, nodes, [busy, new]))
    assert set(plan.grants[new.id]) == {NodeId("b")}


def test_jobs_are_not_promised_anything_if_nothing_is() -> None:
    plan = decide(PromisesFirst(admission="none"), [steered("job", 50.0, 100.0)], TWO)
    assert promised(plan) == set()
    assert not plan.warnings


def test_a_share_for_the_background_is_a_share() -> None:
    with pytest.raises(InvalidSpec, match="background_frac"):
        PromisesFirst(background_frac=1.0)


def new(name: str, deadline_s: float, **more: Any) -> JobView:
    """A job that has begun and could use a core, and has not told how much work it has."""
    return replace(fraction(name, 1.0, ceiling=1.0, on="a", held=0.01, deadline_s=deadline_s, **more), started_at=0.0)


def test_jobs_of_which_nothing_is_known_tell_in_order_of_their_deadlines() -> None:
    jobs = [new("far", 75.0), new("near", 36.0), new("middle", 60.0)]
    assert cores(decide(SURE, jobs, TWO)) == pytest.approx({"near": 1.0, "middle": 0.99})  # "far" keeps its 0.01


def test_a_promised_job_keeps_what_it_needs_beside_those_of_which_nothing_is_known() -> None:
    kept = replace(steered("kept", 30.0, 60.0, most=1.0), promised_until_at=60.0)
    jobs = [kept, new("near", 20.0), new("middle", 30.0), new("far", 80.0)]
    assert cores(decide(SURE, jobs, TWO)) == pytest.approx({"kept": 0.5, "near": 1.0, "middle": 0.49})


@pytest.mark.parametrize("left_s", [0.9, 0.1, -0.01])
def test_a_job_that_lands_has_what_it_demands_before_all_others(left_s: float) -> None:
    """Its controller wants all that it can use for its last steps; another job starts, and a third one is promised more."""
    lands = replace(
        steered("lands", 0.05, 50.0), demand=Resources(2.0), submitted_at=left_s - 50.0, promised_until_at=left_s
    )
    starts = fraction("starts", 2.0, ceiling=2.0, on="a", held=0.01, deadline_s=60.0)
    far = steered("far", 60.0, 40.0)
    plan = decide(SURE, [lands, replace(starts, started_at=-1.0), far], TWO)
    assert cores(plan)["lands"] > 1.95


def test_waiting_workers_find_room_before_jobs_of_which_nothing_is_known() -> None:
    workers = job("workers", (1, 2), steps=50.0, worker=Resources(0.5))
    plan = decide(SURE, [new("first", 50.0), new("second", 60.0), workers], TWO)
    assert cores(plan) == pytest.approx({"first": 1.0, "second": 0.5, "workers": 0.5})


def test_a_promise_outlives_an_estimate_that_is_a_little_too_high_early_in_a_run() -> None:
    """It needs 52 core-s of 50; it has done nearly none, or nine tenths, of its work."""
    early = replace(steered("early", 52.0, 50.0, most=1.0), promised_until_at=50.0, granted_core_s=1.0)
    assert promised(decide(SURE, [early], TWO)) == {"early"}
    assert promised(decide(SURE, [replace(early, granted_core_s=500.0)], TWO)) == set()


@pytest.mark.parametrize("at", [49.9, 60.0])
def test_a_job_that_has_landed_keeps_its_promise_and_takes_nothing_that_others_need(at: float) -> None:
    """Whatever was declared of its work, and however long its process takes to end."""
    landed = replace(steered("landed", 0.0, 50.0), promised_until_at=50.0, demand=Resources(2.0))
    landed = replace(landed, work=None, landed=True)
    far = steered("far", 79.0, 100.0)
    plan = decide(SURE, [landed, replace(far, demand=Resources(1.9))], TWO, at=at)
    assert not plan.warnings
    assert promised(plan) == {"landed", "far"}
    assert cores(plan)["far"] == pytest.approx(79.0 / (100.0 - at), abs=0.05)


def test_what_promised_jobs_go_without_is_not_given_to_others() -> None:
    """The promised one holds a core and uses 0.8 of it: others in the machine have the rest."""
    kept = steered("kept", 50.0, 50.0, most=1.0)
    kept = replace(kept, promised_until_at=50.0, granted={NodeId("a"): Resources(1.0)})
    others = [steered("hopeless", 300.0, 50.0), kept]
    assert cores(decide(SURE, others, TWO))["hopeless"] == pytest.approx(1.0)
    assert kept.work is not None
    short = replace(kept, work=replace(kept.work, delivered_frac=0.8))
    assert cores(decide(SURE, [others[0], short], TWO))["hopeless"] == pytest.approx(0.8, abs=0.01)


def test_a_new_promise_leaves_those_before_it_their_margins() -> None:
    kept = replace(steered("kept", 90.0, 60.0, std_core_s=10.0), promised_until_at=60.0, granted_core_s=1e3)
    newcomer = replace(steered("newcomer", 50.0, 80.0, std_core_s=2.0), granted_core_s=1e3)
    policy = PromisesFirst(risk_sigmas=1, background_frac=0)
    assert promised(decide(policy, [kept, newcomer], TWO)) == {"kept", "newcomer"}
    fuller = steered("newcomer", 62.0, 80.0, std_core_s=2.0)
    assert promised(decide(policy, [kept, fuller], TWO)) == {"kept"}


def test_a_promise_that_is_kept_in_hope_leaves_others_their_plans() -> None:
    """A little less work than expected would do for the first; its promise is kept, and the second is due before the third."""
    hope = replace(steered("hope", 10.4, 10.0, most=1.0), promised_until_at=10.0, granted_core_s=10.0)
    far = replace(steered("far", 40.0, 100.0, most=1.0), promised_until_at=100.0, demand=Resources(1.0))
    plan = decide(SURE, [hope, far, steered("soon", 18.0, 20.0, most=1.0)], TWO)
    assert promised(plan) == {"hope", "far"}
    assert cores(plan)["hope"] == pytest.approx(1.0)
    assert cores(plan)["soon"] == pytest.approx(0.9)


def test_a_job_is_told_nothing_while_promises_wait_for_one_that_is_measured() -> None:
    """Its cost may be less than its first steps say."""
    policy = PromisesFirst(risk_sigmas=1, background_frac=0)
    tight = steered("tight", 90.0, 100.0, most=1.0)
    unmeasured = replace(new("new", 50.0), started_at=-1.0)
    assert not decide(policy, [tight, unmeasured], TWO).warnings
    silent = replace(unmeasured, started_at=-11.0, granted_core_s=11.0)
    assert warned(decide(policy, [tight, silent], TWO)) == {"tight": "not-promised"}
