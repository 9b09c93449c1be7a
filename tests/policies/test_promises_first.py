"""Promises, worth, waiting and places of our own policy, by tables."""

from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import pytest
from tests.policies.pictures import Table, after, codes, counts, decide, gpus, held, job, linear

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources, total
from punctual.core.speed import RateCurve, Shape
from punctual.policies.promises_first import PromisesFirst

#: Rates of 1, 2 and 4 workers: more are faster, but less than in proportion.
BENDING = Table(((1, 1.0), (2, 1.6), (4, 2.4)))


def elastic(name: str, steps: float, **spec: object) -> JobView:
    speed = spec.pop("speed", BENDING)
    return job(name, (1, 2, 4), steps=steps, speed=speed, preemptible=True, **spec)  # type: ignore[arg-type]


HALF = Resources(gpus=0.5)
#: Every device may be promised; and speeds are taken as they are declared.
ALL = PromisesFirst(promised_frac=1.0)
SURE = PromisesFirst(promised_frac=1.0, risk_sigmas=0)


def promised(plan: Plan) -> set[str]:
    return set(plan.promises or {})


def warned(plan: Plan) -> dict[str, str]:
    return {str(name): reason.code for name, reason in plan.warnings.items()}


def test_a_deadline_that_can_be_kept_is_promised_and_one_that_cannot_is_not() -> None:
    jobs = [elastic("can", 200.0, deadline_s=100.0), elastic("cannot", 300.0, deadline_s=100.0)]
    plan = decide(ALL, jobs, {"a": 8})
    assert promised(plan) == {"can"}
    assert counts(plan, jobs)["cannot"] > 0


def test_promises_count_the_parts_of_gpus_that_workers_have() -> None:
    """Of two GPUs four workers of a half take all, and nothing is left for a worker of a whole one."""
    halves = [job(f"half-{i}", steps=90.0, deadline_s=100.0, preemptible=True, worker=HALF) for i in range(5)]
    whole = job("whole", steps=90.0, deadline_s=100.0, preemptible=True)
    assert promised(decide(SURE, halves, {"a": 2})) == {"half-0", "half-1", "half-2", "half-3"}
    assert promised(decide(SURE, [*halves[:4], whole], {"a": 2})) == {"half-0", "half-1", "half-2", "half-3"}
    running = [replace(view, granted={NodeId("a"): HALF}, status="running") for view in halves[:4]]
    assert "whole" not in promised(decide(SURE, [*running, whole], {"a": 2}))


@pytest.mark.parametrize("worker", [Resources(gpus=1, memory_bytes=60), Resources(gpus=1, cores=60.0)])
def test_promises_count_what_workers_take_beside_gpus(worker: Resources) -> None:
    """There are GPUs for four of them, and memory or cores for one."""
    node = Resources(cores=100.0, gpus=4, memory_bytes=100)
    jobs = [job(f"job-{i}", steps=90.0, deadline_s=100.0, preemptible=True, worker=worker) for i in range(2)]
    light = job("light", (1, 2), steps=110.0, deadline_s=100.0, preemptible=True)
    plan = decide(SURE, [*jobs, light], {"a": node})
    assert promised(plan) == {"job-0"}
    assert set(counts(plan, [*jobs, light])) == {"job-0", "light"}, "what is not promised is used all the same"


def test_a_promise_is_kept_when_a_job_of_more_worth_comes() -> None:
    """Tight: the promised job needs all four devices until its deadline."""
    tight = elastic("tight", 235.0, deadline_s=100.0)
    first = decide(SURE, [tight], {"a": 4})
    assert promised(first) == {"tight"}
    running = elastic("tight", 235.0, deadline_s=100.0, on={"a": 4})
    jobs = after(first, [running, elastic("short", 1.0, at=1.0, weight=100.0)])
    plan = decide(SURE, jobs, {"a": 4}, carry=first.carry)
    assert counts(plan, jobs) == {"tight": 4}


def test_a_promised_job_of_which_the_plan_rises_later_says_so() -> None:
    """With two workers it would end 12.5 s after its deadline."""
    jobs = [elastic("tight", 180.0, deadline_s=100.0), *(elastic(f"rival-{i}", 50.0, weight=100.0) for i in range(3))]
    plan = decide(SURE, jobs, {"a": 4})
    assert (promised(plan), counts(plan, jobs)["tight"]) == ({"tight"}, 2)
    reason = plan.reasons[jobs[0].spec.id]
    assert reason.text == "starts with 2 workers; promised deadline in 1 min 40 s, rises to 4 in 50 s"
    assert (reason.facts["n_workers_later"], reason.facts["rises_s"]) == (4.0, pytest.approx(50.0, abs=0.1))
    assert "slack_s" not in reason.facts


def test_a_promised_job_that_is_to_keep_what_it_has_says_when_it_will_end() -> None:
    one = elastic("steady", 150.0, deadline_s=100.0)
    plan = decide(SURE, [one, *(elastic(f"rival-{i}", 50.0, weight=100.0) for i in range(3))], {"a": 4})
    assert plan.reasons[one.spec.id].text == "starts with 2 workers; promised deadline 6.2 s behind its end"


def test_a_promise_outlives_a_process_that_has_not_said_yet_how_long_it_is() -> None:
    """A training that was started again says its steps when it has loaded its data."""
    known = elastic("job", 200.0, deadline_s=100.0)
    promise = decide(SURE, [known], {"a": 4})
    unknown = replace(known, spec=replace(known.spec, work_steps=None))
    plan = decide(SURE, after(promise, [unknown]), {"a": 4}, at=10.0)
    assert promised(plan) == {"job"}
    tight = elastic("job", 230.0, deadline_s=100.0)  # as a new promise it would not fit any more
    assert promised(decide(SURE, after(plan, [tight]), {"a": 4}, at=20.0)) == {"job"}
    assert promised(decide(SURE, after(promise, [unknown]), {"a": 4}, at=100.0)) == set(), "it is late"
    assert promised(decide(SURE, [unknown], {"a": 4})) == set()


def test_a_promise_holds_while_no_node_can_hold_the_job_and_its_user_is_told_once() -> None:
    waiting = replace(elastic("job", 200.0, deadline_s=100.0), promised_until_at=100.0)
    lost = decide(SURE, [waiting], {"cpu": Resources(4.0)})
    assert promised(lost) == {"job"}
    assert warned(lost) == {"job": "promise-in-danger"}
    again = decide(SURE, after(lost, [waiting]), {"cpu": Resources(4.0)}, at=10.0, carry=lost.carry)
    assert (promised(again), warned(again)) == ({"job"}, {})
    moved = replace(waiting, spec=replace(waiting.spec, deadline_s=150.0))
    told = decide(SURE, after(lost, [moved]), {"cpu": Resources(4.0)}, at=10.0, carry=lost.carry)
    assert warned(told) == {"job": "promise-in-danger"}, "of another deadline it was not told"
    back = decide(SURE, after(again, [waiting]), {"a": 4}, at=12.0, carry=again.carry)
    assert (promised(back), warned(back)) == ({"job"}, {})
    assert promised(decide(SURE, [waiting], {"cpu": Resources(4.0)}, at=100.0)) == set(), "it is late"


@pytest.mark.parametrize("on", [{"a": 2}, None])
def test_a_promise_holds_while_the_job_is_stopped_to_be_moved_whatever_it_held(on: dict[str, int] | None) -> None:
    """One that is paused, or has just been launched, holds nothing by then."""
    leaves = replace(elastic("job", 200.0, deadline_s=100.0, on=on), promised_until_at=100.0, status="stopping")
    assert promised(decide(SURE, [replace(leaves, planned={})], {"a": 4})) == {"job"}


def test_an_earlier_deadline_needs_another_promise_and_a_later_one_does_not() -> None:
    """It needs 50 s at its fastest."""
    view = replace(elastic("job", 120.0, deadline_s=20.0), promised_until_at=100.0)
    plan = decide(SURE, [view], {"a": 4})
    assert promised(plan) == set()
    assert warned(plan) == {"job": "not-promised"}
    assert warned(decide(SURE, [view], {"cpu": Resources(4.0)})) == {"job": "not-promised"}, "no node can hold it now"
    assert promised(decide(SURE, [replace(view, spec=replace(view.spec, deadline_s=60.0))], {"a": 4})) == {"job"}
    late = replace(view, spec=replace(view.spec, deadline_s=200.0), promised_until_at=150.0)
    assert promised(decide(PromisesFirst(promised_frac=0.0), [late], {"a": 4})) == {"job"}
    unknown = replace(view, spec=replace(view.spec, work_steps=None))
    assert promised(decide(SURE, [unknown], {"a": 4})) == set()


def test_a_promised_job_that_was_started_again_goes_on_where_it_was_until_it_says_where_that_is() -> None:
    """Nine tenths were done; the whole does not fit any more. It is to say so soon, although there would be time."""
    begun = replace(
        elastic("job", 230.0, deadline_s=100.0), promised_until_at=100.0, started_at=0.0, steps_before=207.0
    )
    rivals = [elastic(f"rival-{i}", 1e4, on={"a": 1}, weight=100.0) for i in range(3)]
    plan = decide(SURE, [begun, *rivals], {"a": 4}, at=20.0)
    assert (promised(plan), warned(plan)) == ({"job"}, {})
    found = counts(plan, [begun, *rivals])
    assert found.pop("job") > 0
    assert sum(found.values()) >= 2, "the others have to leave it little"
    crowd = [elastic(f"rival-{i}", 1e4, on={"a": 1}, weight=1e3) for i in range(4)]
    at_end = [replace(begun, steps_before=230.0), *crowd]
    assert counts(decide(SURE, at_end, {"a": 4}, at=20.0), at_end)["job"] > 0, "it has still to say that it is done"
    anew = replace(begun, steps_before=0.0, done_steps=1.0)
    assert warned(decide(SURE, [anew, *rivals], {"a": 4}, at=20.0)) == {"job": "promise-in-danger"}
    assert promised(decide(SURE, [replace(begun, promised_until_at=None)], {"a": 4}, at=20.0)) == set()


@dataclass(frozen=True)
class Nonsense(Table):
    """A model that answers with what is no speed."""

    def rate_sps(self, state: Any, shape: Shape) -> float:
        return float(state)

    def std_sps(self, state: Any, shape: Shape) -> float:
        return nan


@pytest.mark.parametrize("rate_sps", [nan, inf, -inf, -1.0, 5e-324])
@pytest.mark.parametrize("name", registry.names("policies"))
def test_a_model_that_answers_nonsense_costs_no_job_the_plan(name: str, rate_sps: float) -> None:
    broken = replace(elastic("broken", 80.0, deadline_s=400.0, at=1.0), curve=RateCurve(Nonsense(()), rate_sps))
    jobs = [elastic("sound", 80.0, deadline_s=400.0), broken]
    assert counts(decide(registry.load("policies", name)(), jobs, {"a": 4}), jobs), "a plan, by which a job runs"


def test_without_promises_worth_decides() -> None:
    jobs = [elastic("tight", 235.0, deadline_s=100.0, on={"a": 4}), elastic("short", 1.0, at=1.0, weight=100.0)]
    assert counts(decide(PromisesFirst(admission="none"), jobs, {"a": 4}), jobs)["short"] > 0


def test_the_second_of_two_that_exclude_each_other_is_declined_if_wished() -> None:
    jobs = [elastic("one", 235.0, deadline_s=100.0), elastic("two", 235.0, deadline_s=100.0)]
    plan = decide(PromisesFirst(admission="decline", risk_sigmas=0), jobs, {"a": 4})
    assert promised(plan) == {"one"}
    assert set(plan.declines) == {"two"}
    assert not decide(PromisesFirst(risk_sigmas=0), jobs, {"a": 4}).declines


def test_what_cannot_be_done_at_full_speed_is_not_promised() -> None:
    assert promised(decide(ALL, [elastic("just", 239.0, deadline_s=100.0)], {"a": 4})) == {"just"}
    assert promised(decide(ALL, [elastic("late", 241.0, deadline_s=100.0)], {"a": 4})) == set()


def test_a_part_of_the_devices_is_not_promised() -> None:
    """Each of the jobs needs one of five devices all the time."""
    jobs = [elastic(name, 98.0, deadline_s=100.0) for name in "abcd"]
    assert promised(decide(PromisesFirst(), jobs, {"a": 5})) == {"a"}
    assert promised(decide(PromisesFirst(promised_frac=0.4), jobs, {"a": 5})) == {"a", "b"}
    assert promised(decide(PromisesFirst(promised_frac=0.6), jobs, {"a": 5})) == {"a", "b", "c"}
    assert promised(decide(PromisesFirst(admission="decline"), jobs, {"a": 5})) == {"a", "b", "c", "d"}


def test_what_was_promised_is_kept_with_all_there_is() -> None:
    """Half of the devices are gone, and what is left of them is more than may be promised anew."""
    policy = PromisesFirst(promised_frac=0.4)
    one = elastic("one", 98.0, deadline_s=100.0)
    first = decide(policy, [one, elastic("two", 98.0, deadline_s=100.0)], {"a": 5})
    assert promised(first) == {"one", "two"}
    jobs = [elastic(name, 98.0, deadline_s=100.0, on={"a": 1}) for name in ("one", "two")]
    rivals = [elastic(f"rival-{i}", 1.0, at=1.0, weight=100.0) for i in range(3)]
    plan = decide(policy, after(first, [*jobs, *rivals]), {"a": 2}, carry=first.carry)
    assert {name: n for name, n in counts(plan, [*jobs, *rivals]).items() if n} == {"one": 1, "two": 1}


def test_it_asks_again_when_the_plan_wants_more() -> None:
    """The patient job starts when the urgent one is through."""
    jobs = [
        job("urgent", 4, steps=400.0, preemptible=True, deadline_s=101.0, weight=10.0),
        job("patient", 4, steps=400.0, preemptible=True, deadline_s=250.0),
    ]
    plan = decide(SURE, jobs, {"a": 4})
    assert promised(plan) == {"urgent", "patient"}
    assert counts(plan, jobs) == {"urgent": 4}
    assert plan.ask_again_at is not None
    assert 1.0 <= plan.ask_again_at <= 150.0


def test_short_jobs_are_worth_more() -> None:
    jobs = [
        job("long", 4, steps=40_000.0, preemptible=True, on={"a": 4}),
        job("short", 4, steps=400.0, preemptible=True, at=1.0),
    ]
    plan = decide(PromisesFirst(), jobs, {"a": 4})
    assert counts(plan, jobs) == {"short": 4}
    assert codes(plan) == {"long": "paused", "short": "starts"}


def test_a_change_that_costs_more_than_it_gains_is_not_made() -> None:
    jobs = [job("long", 4, steps=4_000.0, preemptible=True, on={"a": 4}, startup_s=300.0)]
    jobs.append(job("short", 4, steps=3_000.0, preemptible=True, at=1.0, startup_s=300.0))
    assert counts(decide(PromisesFirst(), jobs, {"a": 4}), jobs) == {"long": 4}


def test_of_jobs_without_a_known_end_the_least_served_goes_first() -> None:
    old, young = job("old", 4, preemptible=True, on={"a": 4}), job("young", 4, preemptible=True, at=1.0)
    jobs = [replace(old, granted_gpu_s=1e6), young]
    assert counts(decide(PromisesFirst(), jobs, {"a": 4}, at=10.0), jobs) == {"young": 4}


def test_a_job_that_waited_too_long_is_served() -> None:
    busy = job("busy", 4, steps=1e5, preemptible=True, on={"a": 4}, weight=1e6, at=9.0)
    waiting = job("waiting", 4, steps=400.0, preemptible=True)
    parameters = PromisesFirst(max_wait_s=50.0)
    assert counts(decide(parameters, [waiting, busy], {"a": 4}, at=100.0), [waiting, busy]) == {"busy": 4}
    late = decide(parameters, [waiting, busy], {"a": 4}, at=5000.0)
    assert isinstance(late.carry, dict)
    assert set(late.carry["overdue"]) == {"waiting"}


def test_a_large_job_gets_a_node_of_its_own_and_small_ones_make_way() -> None:
    small = [job(f"small-{i}", 1, steps=1e5, preemptible=True, on={node: 1}) for i, node in enumerate("ab")]
    jobs = [*small, job("large", 4, steps=1e5, preemptible=True)]
    found = held(decide(PromisesFirst(), jobs, {"a": 4, "b": 4}), jobs)
    assert len(found["large"]) == 1
    assert {sum(on.values()) for name, on in found.items() if name != "large"} == {1}


def test_jobs_that_would_begin_anew_elsewhere_keep_their_nodes() -> None:
    """They are launched once: they have no checkpoint from which they could go on."""
    small = [
        job(f"small-{i}", 1, steps=1e5, preemptible=True, on={node: 1}, n_retries=0) for i, node in enumerate("ab")
    ]
    jobs = [*small, job("large", 4, steps=1e5, preemptible=True)]
    found = held(decide(PromisesFirst(), jobs, {"a": 4, "b": 4}), jobs)
    assert (found["small-0"], found["small-1"]) == ({"a": 1}, {"b": 1})
    assert sum(found["large"].values()) == 4


def test_a_job_that_would_begin_anew_elsewhere_grows_beside_what_it_has() -> None:
    """The other one may not be paused, and lies where it would find all in one piece if it left."""
    grows = job("grows", (2, 4), steps=1e5, speed=linear(), preemptible=True, on={"a": 2}, n_retries=0)
    jobs = [grows, job("fixed", 2, steps=1e5, on={"a": 2})]
    assert held(decide(PromisesFirst(), jobs, {"a": 4, "b": 4}), jobs)["grows"] == {"a": 2, "b": 2}


def test_jobs_that_may_not_be_paused_stay_where_they_are() -> None:
    fixed = [job(f"fixed-{i}", 1, steps=1e5, on={node: 1}) for i, node in enumerate("ab")]
    jobs = [*fixed, job("large", 4, steps=1e5, preemptible=True)]
    found = held(decide(PromisesFirst(), jobs, {"a": 4, "b": 4}), jobs)
    assert {name: found[name] for name in ("fixed-0", "fixed-1")} == {"fixed-0": {"a": 1}, "fixed-1": {"b": 1}}
    assert len(found["large"]) == 2


def test_every_plan_has_a_bound() -> None:
    jobs = [elastic(f"job-{i}", 100.0 * (i + 1)) for i in range(6)]
    plan = decide(PromisesFirst(), jobs, {"a": 4, "b": 3})
    assert plan.bound is not None
    assert plan.objective is not None
    assert plan.objective <= plan.bound <= plan.objective * 1.01


def test_each_job_goes_to_the_kind_that_suits_it() -> None:
    fast = Table(((1, 4.0),), device="V100")
    jobs = [job("picky", 1, steps=100.0, speed=fast), job("any", 1, steps=100.0, speed=linear())]
    found = held(decide(PromisesFirst(), jobs, {"k": gpus(1, device="K80"), "v": gpus(1, device="V100")}), jobs)
    assert found == {"picky": {"v": 1}, "any": {"k": 1}}


@pytest.mark.parametrize("spec", [{}, {"preemptible": True, "n_retries": 0}, {"deadline_s": 2e5}])
def test_a_job_that_is_bound_to_its_nodes_stays_on_its_kind(spec: dict[str, object]) -> None:
    """It could run on the other kind, which another job cannot; also a promise counts on the kind where it is."""
    fixed = job("fixed", 1, steps=1e5, on={"k": 1}, **spec)  # type: ignore[arg-type]
    picky = job("picky", 1, steps=100.0, speed=Table(((1, 4.0),), device="K80"))
    nodes = {"k": gpus(1, device="K80"), "v": gpus(1, device="V100")}
    jobs = [replace(fixed, promised_until_at=fixed.deadline_at), picky]
    plan = decide(SURE, jobs, nodes)
    assert held(plan, jobs).get("fixed", {"k": 1}) == {"k": 1}
    assert spec.get("preemptible") or "fixed" in held(plan, jobs)
    assert promised(plan) == ({"fixed"} if "deadline_s" in spec else set())
    assert not plan.warnings


def test_a_job_with_servers_is_given_whole_numbers_of_both() -> None:
    worker, server = Resources(1.0), Resources(0.1009)
    view = job("ps", (1, 2), worker=worker, preemptible=True)
    spec = replace(view.spec, server=server, ceiling=(worker + server) * 2)
    view = replace(view, spec=spec, demand=spec.ceiling)
    plan = decide(PromisesFirst(), [view], {"a": Resources(4.0)})
    assert spec.parts_of(total(plan.grants[spec.id].values())) is not None


@pytest.mark.parametrize(
    "wrong", [{"admission": "maybe"}, {"risk_sigmas": -1.0}, {"amortisation_s": float("nan")}, {"promised_frac": 1.5}]
)
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec, match="promises-first"):
        PromisesFirst(**wrong)  # type: ignore[arg-type]
