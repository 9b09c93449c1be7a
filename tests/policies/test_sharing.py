"""The policies that share: `max-min` and `dominant-share`, and where what they decide is put."""

import pytest
from tests.policies.pictures import codes, cores, counts, decide, fraction, gpus, held, job, reason

from punctual.core.protocols import Policy
from punctual.core.resources import Resources
from punctual.papers.fair_shares.dominant_share import DominantShare
from punctual.papers.fair_shares.max_min import MaxMin

BOTH = pytest.mark.parametrize("policy", [MaxMin(), DominantShare()])
ANY = tuple(range(1, 17))


@BOTH
def test_equal_jobs_get_equal_shares(policy: Policy) -> None:
    jobs = [job("a", ANY), job("b", ANY, at=1.0), job("c", ANY, at=2.0)]
    assert counts(decide(policy, jobs, {"n": 8}), jobs) == {"a": 3, "b": 3, "c": 2}


@BOTH
def test_what_a_small_job_leaves_goes_to_the_others(policy: Policy) -> None:
    jobs = [job("small", (1, 2)), job("a", ANY), job("b", ANY)]
    assert counts(decide(policy, jobs, {"n": 10}), jobs) == {"small": 2, "a": 4, "b": 4}


@BOTH
def test_weights(policy: Policy) -> None:
    jobs = [job("a", ANY, weight=3.0), job("b", ANY)]
    assert counts(decide(policy, jobs, {"n": 8}), jobs) == {"a": 6, "b": 2}


@BOTH
def test_a_new_job_makes_room_for_itself_down_to_the_least(policy: Policy) -> None:
    jobs = [job("old", (2, 4, 8), on={"n": 8}), job("new", (2, 4, 8), at=1.0)]
    plan = decide(policy, jobs, {"n": 8})
    assert counts(plan, jobs) == {"old": 4, "new": 4}
    assert codes(plan) == {"old": "shrinks", "new": "starts"}


@BOTH
def test_the_least_of_those_before_comes_first(policy: Policy) -> None:
    jobs = [job("a", 6), job("b", 4, at=1.0), job("c", 2, at=2.0)]
    plan = decide(policy, jobs, {"n": 8})
    assert counts(plan, jobs) == {"a": 6, "c": 2}
    assert reason(plan, "b").code == "waits"


@BOTH
def test_a_share_that_stays_keeps_its_nodes(policy: Policy) -> None:
    jobs = [job("a", ANY, on={"m": 1, "n": 3}), job("b", ANY, on={"m": 3, "n": 1})]
    assert decide(policy, jobs, {"m": 4, "n": 4}).grants == {}


def test_who_shrinks_leaves_the_nodes_with_the_fewest_of_its_workers() -> None:
    jobs = [job("a", ANY, on={"m": 2, "n": 4}), job("b", 3, at=1.0)]
    assert held(decide(MaxMin(), jobs, {"m": 2, "n": 4}), jobs) == {"a": {"n": 3}, "b": {"m": 2, "n": 1}}


def test_who_grows_moves_to_one_node_if_it_can() -> None:
    jobs = [job("a", (2, 4), on={"k": 1, "m": 1})]
    assert held(decide(MaxMin(), jobs, {"k": 2, "m": 2, "n": 4}), jobs) == {"a": {"n": 4}}


def test_a_count_without_nodes_is_reduced() -> None:
    # Twelve GPUs in all, but workers of three fit only twice on eight and once on four.
    jobs = [job("a", ANY, worker=Resources(gpus=3))]
    assert counts(decide(MaxMin(), jobs, {"m": 8, "n": 4}), jobs) == {"a": 9}


def test_what_growing_gains_is_said() -> None:
    jobs = [job("a", (2, 4), steps=2640.0, on={"n": 2})]
    plan = decide(MaxMin(), jobs, {"n": 4})
    assert reason(plan, "a").text == "2 -> 4 workers: finishes 11 min earlier"
    assert reason(plan, "a").facts["sooner_s"] == 660.0
    unknown = [job("a", (2, 4), on={"n": 2})]
    assert "not known" in reason(decide(MaxMin(), unknown, {"n": 4}), "a").text


def test_a_controller_gets_no_more_than_it_demands() -> None:
    jobs = [job("a", ANY, controller="decor-pi", demand=Resources(gpus=3)), job("b", ANY)]
    assert counts(decide(MaxMin(), jobs, {"n": 8}), jobs) == {"a": 3, "b": 5}


def test_kinds_of_devices_are_not_mixed() -> None:
    jobs = [job("a", ANY)]
    nodes = {"a": gpus(3, device="K80"), "b": gpus(2, device="V100")}
    assert held(decide(MaxMin(), jobs, nodes), jobs) == {"a": {"a": 3}}


def test_the_example_of_the_source() -> None:
    """Nine cores and eighteen gigabytes; [ghodsi2011] give three tasks to one user and two to the other."""
    a, b = Resources(cores=1.0, memory_bytes=4), Resources(cores=3.0, memory_bytes=1)
    jobs = [job("a", ANY, worker=a), job("b", ANY, worker=b)]
    plan = decide(DominantShare(), jobs, {"n": Resources(cores=9.0, memory_bytes=18)})
    assert plan.grants == {"a": {"n": a * 3}, "b": {"n": b * 2}}


def test_max_min_looks_at_devices_where_there_are_some() -> None:
    heavy, light = Resources(cores=4.0, gpus=1), Resources(cores=1.0, gpus=1)
    jobs = [job("heavy", ANY, worker=heavy), job("light", ANY, worker=light)]
    nodes = {"n": Resources(cores=32.0, gpus=8)}
    assert counts(decide(MaxMin(), jobs, nodes), jobs) == {"heavy": 4, "light": 4}
    assert counts(decide(DominantShare(), jobs, nodes), jobs) == {"heavy": 4, "light": 4}
    scarce = {"n": Resources(cores=16.0, gpus=8)}
    assert counts(decide(DominantShare(), jobs, scarce), jobs) == {"heavy": 3, "light": 4}


@BOTH
def test_jobs_without_workers_share_their_node(policy: Policy) -> None:
    jobs = [fraction("a", 4.0, on="n"), fraction("b", 4.0, on="n"), fraction("c", 0.5, on="n")]
    shares = cores(decide(policy, jobs, {"n": Resources(cores=4.0)}))
    assert shares == pytest.approx({"a": 1.75, "b": 1.75}, abs=4.0 / 16)  # "c" has its demand already
    assert sum(shares.values()) <= 3.5


@BOTH
def test_no_job_is_paused(policy: Policy) -> None:
    jobs = [job("old", 8, on={"n": 8}, preemptible=True), job("new", 1, at=1.0)]
    plan = decide(policy, jobs, {"n": 8})
    assert counts(plan, jobs) == {"old": 8}
    assert reason(plan, "new").text == "waits for 1 GPUs: 0 are free"
