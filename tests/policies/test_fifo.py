"""The policy `fifo`."""

import pytest
from tests.policies.pictures import codes, cores, counts, decide, fraction, held, job, reason

from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.policies.fifo import Fifo


def test_starts_the_longest_prefix_that_fits() -> None:
    jobs = [job("a", 4), job("b", 3, at=1.0), job("c", 2, at=2.0), job("d", 1, at=3.0)]
    plan = decide(Fifo(), jobs, {"n": 8})
    assert counts(plan, jobs) == {"a": 4, "b": 3}
    assert plan.keeps_others
    assert codes(plan) == {"a": "starts", "b": "starts", "c": "waits"}
    assert reason(plan, "c").text == "waits for 2 GPUs: 1 are free"


def test_what_runs_stays_and_is_not_named() -> None:
    jobs = [job("old", 4, on={"n": 4}), job("a", 4, at=1.0)]
    plan = decide(Fifo(), jobs, {"n": 8})
    assert set(plan.grants) == {"a"}
    assert counts(plan, jobs) == {"old": 4, "a": 4}


def test_says_once_why_the_first_job_waits() -> None:
    jobs = [job("old", 8, on={"n": 8}), job("a", 4, at=1.0)]
    first = decide(Fifo(), jobs, {"n": 8})
    assert codes(first) == {"a": "waits"}
    assert decide(Fifo(), jobs, {"n": 8}, carry=first.carry).reasons == {}


def test_sizes() -> None:
    jobs = [job("a", (1, 2, 4))]
    assert counts(decide(Fifo(), jobs, {"n": 8}), jobs) == {"a": 4}
    assert counts(decide(Fifo(size="smallest"), jobs, {"n": 8}), jobs) == {"a": 1}
    assert counts(decide(Fifo(), jobs, {"n": 3}), jobs) == {"a": 2}  # four of them could never start


def test_a_job_that_no_node_could_hold_is_passed_over() -> None:
    jobs = [job("huge", 9), job("a", 2, at=1.0)]
    plan = decide(Fifo(), jobs, {"n": 8})
    assert counts(plan, jobs) == {"a": 2}
    assert reason(plan, "huge").code == "never-fits"


def test_a_job_without_workers_gets_its_demand_and_follows_it() -> None:
    nodes = {"n": Resources(cores=4.0)}
    assert cores(decide(Fifo(), [fraction("a", 1.5)], nodes)) == {"a": 1.5}
    running = [fraction("a", 3.0, on="n", held=1.0), fraction("b", 0.25, on="n", held=2.0, at=1.0)]
    assert cores(decide(Fifo(), running, nodes)) == {"a": 3.0, "b": 0.25}


def test_demands_are_followed_only_where_there_are_controllers() -> None:
    jobs = [fraction("a", 3.0, on="n", held=1.0, controller=None)]
    first = decide(Fifo(), jobs, {"n": Resources(cores=4.0)})
    assert first.grants == {}
    assert isinstance(first.carry, dict)
    assert not first.carry["watch"]


def test_a_lost_node_moves_what_cannot_be_paused() -> None:
    jobs = [
        job("keep", 2, on={"gone": 1, "n": 1}),
        job("may", 4, on={"n": 4}, at=1.0, preemptible=True),
        job("other", 2, on={"n": 2}, at=2.0),
    ]
    plan = decide(Fifo(), jobs, {"n": 7})
    assert counts(plan, jobs) == {"keep": 2, "other": 2}
    assert codes(plan)["keep"] == "moved"
    assert codes(plan)["may"] in {"paused", "waits"}


def test_a_smaller_node_that_cannot_hold_its_jobs_is_infeasible() -> None:
    jobs = [job("a", 2, on={"n": 2}), job("b", 2, on={"n": 2}, at=1.0)]
    assert decide(Fifo(), jobs, {"n": 3}).status == "infeasible"


def backfilled(*jobs: object, nodes: int = 8) -> dict[str, int]:
    views = list(jobs)
    return counts(decide(Fifo(backfill=True), views, {"n": nodes}), views)  # type: ignore[arg-type]


def test_a_short_job_passes_one_that_waits_for_longer() -> None:
    # The first job can start after 50 s, when 8 are free.
    running, first = job("old", 5, steps=250.0, on={"n": 5}), job("first", 8, at=1.0)
    assert "short" in backfilled(running, first, job("short", 2, steps=90.0, at=2.0))
    assert "long" not in backfilled(running, first, job("long", 2, steps=110.0, at=2.0))


def test_a_long_job_passes_on_what_the_first_one_will_not_need() -> None:
    running, first = job("old", 5, steps=250.0, on={"n": 5}), job("first", 6, at=1.0)
    two = job("two", 2, steps=1e6, at=2.0)
    assert "two" in backfilled(running, first, two)
    assert "third" not in backfilled(running, first, two, job("third", 1, steps=1e6, at=3.0))


def test_without_backfilling_nobody_passes() -> None:
    jobs = [job("old", 5, steps=250.0, on={"n": 5}), job("first", 8, at=1.0), job("short", 2, steps=1.0, at=2.0)]
    assert counts(decide(Fifo(), jobs, {"n": 8}), jobs) == {"old": 5}


def test_a_job_stays_on_one_kind_of_device() -> None:
    jobs = [job("a", 6)]
    nodes = {"a": (Resources(gpus=4), "K80"), "b": (Resources(gpus=4), "V100")}
    assert reason(decide(Fifo(), jobs, nodes), "a").code == "never-fits"
    nodes["c"] = (Resources(gpus=4), "V100")
    assert set(held(decide(Fifo(), jobs, nodes), jobs)["a"]) == {"b", "c"}


def test_refuses_another_size() -> None:
    with pytest.raises(InvalidSpec, match="size"):
        Fifo(size="medium")  # type: ignore[arg-type]
