"""The policy `greedy`."""

from math import inf

from tests.policies.pictures import Table, codes, cores, counts, decide, fraction, gpus, held, job

from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.papers.elastic_mip.greedy import Greedy

ANY = tuple(range(1, 9))
#: Twice as fast with twice as many, and hardly faster with more.
KNEE = Table(((1, 1.0), (2, 2.0), (3, 2.1), (4, 2.2), (5, 2.3), (6, 2.4), (7, 2.5), (8, 2.6)))


def test_jobs_start_with_the_least_in_order_and_spare_devices_go_where_they_help() -> None:
    jobs = [job("knee", ANY, steps=100.0, speed=KNEE), job("line", ANY, steps=100.0, at=1.0)]
    assert counts(decide(Greedy(), jobs, {"n": 8}), jobs) == {"knee": 2, "line": 6}


def test_gains_by_hand() -> None:
    """From 1 and 1: a gains 600 − 300, then b 400 − 200, then a 300 − 200, then a 50, then b 66.7: b before a."""
    jobs = [job("a", ANY, steps=600.0), job("b", ANY, steps=400.0)]
    order = [counts(decide(Greedy(), jobs, {"n": n}), jobs) for n in range(2, 7)]
    assert order == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 2}, {"a": 3, "b": 3}]


def test_a_new_job_takes_from_the_one_that_loses_least() -> None:
    jobs = [
        job("knee", ANY, steps=100.0, speed=KNEE, on={"n": 4}), job("line", ANY, steps=100.0, on={"n": 4}),
        job("new", (2, 4), steps=100.0, at=1.0),
    ]  # fmt: skip
    plan = decide(Greedy(), jobs, {"n": 8})
    assert counts(plan, jobs) == {"knee": 2, "line": 4, "new": 2}
    assert codes(plan) == {"knee": "shrinks", "new": "starts"}


def test_nobody_goes_below_the_least_and_nobody_gives_in_vain() -> None:
    jobs = [job("a", (3, 4), on={"n": 4}), job("b", (3, 4), on={"n": 4}), job("new", 3, at=1.0), job("last", 1, at=2.0)]
    plan = decide(Greedy(), jobs, {"n": 8})
    assert counts(plan, jobs) == {"a": 4, "b": 4}
    assert codes(plan) == {"new": "waits"}


def test_the_queue_is_served_in_order() -> None:
    jobs = [job("first", 8), job("small", 1, at=1.0), job("old", 4, on={"n": 4})]
    assert counts(decide(Greedy(), jobs, {"n": 8}), jobs) == {"old": 4}


def test_a_resize_has_to_pay() -> None:
    # From 2 to 4 workers: 100 s instead of 200 s.
    cheap = [job("a", (2, 4), steps=400.0, on={"n": 2}, resize_cost_s=90.0)]
    dear = [job("a", (2, 4), steps=400.0, on={"n": 2}, resize_cost_s=110.0)]
    assert counts(decide(Greedy(), cheap, {"n": 4}), cheap) == {"a": 4}
    assert decide(Greedy(), dear, {"n": 4}).grants == {}


def test_what_is_more_than_useful_stays_free() -> None:
    slower = Table(((1, 1.0), (2, 0.9)))
    jobs = [job("a", (1, 2), steps=100.0, speed=slower)]
    assert counts(decide(Greedy(), jobs, {"n": 8}), jobs) == {"a": 1}


def test_unknown_jobs_gain_last_and_lose_first() -> None:
    jobs = [job("unknown", ANY), job("known", ANY, steps=1.0, at=1.0)]
    assert counts(decide(Greedy(), jobs, {"n": 9}), jobs) == {"known": 8, "unknown": 1}
    running = [job("unknown", ANY, on={"n": 2}), job("known", ANY, steps=1.0, on={"n": 6}), job("new", 1, at=1.0)]
    assert counts(decide(Greedy(), running, {"n": 8}), running) == {"unknown": 1, "known": 6, "new": 1}


def test_a_speed_known_only_now_is_taken_as_proportional() -> None:
    now_only = job("a", ANY, steps=100.0, speed=Table(((2, 2.0),)), on={"n": 2})
    assert now_only.curve is not None
    assert now_only.curve.std_sps(Shape(n_workers=4)) == inf
    jobs = [now_only, job("b", ANY, steps=100.0, on={"n": 2})]
    assert counts(decide(Greedy(), jobs, {"n": 8}), jobs) == {"a": 4, "b": 4}


def test_what_stays_is_not_named() -> None:
    jobs = [job("a", ANY, steps=100.0, on={"n": 4}), job("b", ANY, steps=100.0, on={"n": 4})]
    assert decide(Greedy(), jobs, {"n": 8}).grants == {}


def test_jobs_without_workers_get_their_demand_in_their_turn() -> None:
    jobs = [fraction("a", 3.0), fraction("b", 3.0, at=1.0), fraction("c", 1.0, floor=1.0, at=2.0)]
    assert cores(decide(Greedy(), jobs, {"n": Resources(cores=4.0)})) == {"a": 3.0, "b": 1.0}


def test_a_free_device_of_a_slower_kind_is_taken_before_room_is_made_on_the_fastest() -> None:
    jobs = [job("old", (1, 2), steps=100.0, on={"a": 2}), job("new", 1, steps=100.0, at=1.0)]
    nodes = {"a": gpus(2, device="A"), "b": gpus(2, device="B")}
    assert held(decide(Greedy(), jobs, nodes), jobs) == {"old": {"a": 2}, "new": {"b": 1}}
