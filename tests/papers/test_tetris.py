"""The policy `tetris`."""

import pytest
from tests.policies.pictures import cores, counts, decide, fraction, grant, held, job, reason

from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.papers.tetris.tetris import Tetris

CORE_HEAVY, GPU_HEAVY = Resources(cores=5.0, gpus=1), Resources(cores=1.0, gpus=4)


def test_the_job_that_suits_what_is_free_comes_first() -> None:
    jobs = [job("cores", 1, worker=CORE_HEAVY), job("gpus", 1, worker=GPU_HEAVY, at=1.0)]
    busy_1, busy_3 = (job("old", 1, worker=Resources(cores=n), on={"n": 1}) for n in (1.0, 3.0))
    node = {"n": Resources(cores=8.0, gpus=8)}
    # Alignments: (5/8)(7/8) + (1/8)(8/8) = 0.67 and (1/8)(7/8) + (4/8)(8/8) = 0.61.
    assert list(decide(Tetris(shortness=0.0), [busy_1, *jobs], node).grants) == ["cores", "gpus"]
    # (5/8)(5/8) + (1/8)(8/8) = 0.52 and (1/8)(5/8) + (4/8)(8/8) = 0.58; then four cores are left.
    assert list(decide(Tetris(shortness=0.0), [busy_3, *jobs], node).grants) == ["gpus"]


def test_the_node_is_chosen_by_alignment() -> None:
    jobs = [job("a", 1, worker=GPU_HEAVY)]
    nodes = {"cores": Resources(cores=8.0, gpus=4), "gpus": Resources(cores=2.0, gpus=8)}
    plan = decide(Tetris(), jobs, nodes)
    # (1/8)(8/8) + (4/4)(4/4) = 1.125 and (1/2)(2/2) + (4/8)(8/8) = 1.0.
    assert list(grant(plan, "a")) == ["cores"]


def test_short_jobs_are_preferred_as_much_as_is_said() -> None:
    jobs = [job("long", 4, steps=4000.0), job("short", 3, steps=3.0, at=1.0)]
    assert counts(decide(Tetris(shortness=0.0), jobs, {"n": 4}), jobs) == {"long": 4}
    assert counts(decide(Tetris(shortness=1.0), jobs, {"n": 4}), jobs) == {"short": 3}


def test_unknown_jobs_count_as_the_longest() -> None:
    jobs = [job("unknown", 4), job("long", 4, steps=4000.0, at=1.0), job("short", 4, steps=4.0, at=2.0)]
    assert counts(decide(Tetris(), jobs, {"n": 4}), jobs) == {"short": 4}


def test_several_nodes_where_one_is_not_enough() -> None:
    jobs = [job("a", 6)]
    assert held(decide(Tetris(), jobs, {"m": 4, "n": 4}), jobs) == {"a": {"m": 4, "n": 2}}


def test_nobody_is_paused_and_the_first_that_waits_is_told() -> None:
    jobs = [job("old", 4, on={"n": 4}, preemptible=True), job("new", 1, at=1.0)]
    plan = decide(Tetris(), jobs, {"n": 4})
    assert plan.grants == {}
    assert reason(plan, "new").code == "waits"


def test_a_job_without_workers_gets_its_demand() -> None:
    assert cores(decide(Tetris(), [fraction("a", 1.5)], {"n": Resources(cores=4.0)})) == {"a": 1.5}


def test_refuses_a_weight_below_zero() -> None:
    with pytest.raises(InvalidSpec, match="shortness"):
        Tetris(shortness=-1.0)
