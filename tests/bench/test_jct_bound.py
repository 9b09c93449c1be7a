"""The bound on mean completion times: below what any policy reaches, and not far below where the least is known."""

from heapq import heappop, heappush
from random import Random

import pytest
from _allocator_cells import Setting, jobs_of, nodes, run, verdict
from _jct_bound import jct_bound_s

from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.sim.job import SimJob
from punctual.sim.speed_laws import AllReduceTruth

_GPU = Resources(gpus=1)


def _linear(name: str, device_s: float, at: float = 0.0) -> SimJob:
    """Work for one device for so long, and for n devices for an n-th of it."""
    spec = JobSpec(
        id=JobId(name),
        worker=_GPU,
        counts=(1, 2, 4, 8),
        floor=_GPU,
        ceiling=_GPU * 8,
        work_steps=device_s,
        startup_s=0.0,
    )
    return SimJob(at, spec, AllReduceTruth(step_s=1.0, communication_frac=0.0), device_s)


@pytest.mark.parametrize(
    ("jobs", "least_s"),
    [
        ([_linear("alone", 800.0)], 100.0),
        ([_linear("a", 800.0), _linear("b", 800.0)], 150.0),
        ([_linear("short", 80.0), _linear("long", 800.0)], 60.0),
        ([_linear("first", 800.0), _linear("later", 80.0, at=50.0)], 60.0),
    ],
)
def test_is_near_the_least_where_that_is_known(jobs: list[SimJob], least_s: float) -> None:
    assert 0.9 * least_s < jct_bound_s(jobs, 8) <= least_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_is_near_the_least_of_drawn_jobs_whose_speed_ups_are_linear(seed: int) -> None:
    random, at, drawn = Random(seed), 0.0, []
    for _ in range(20):
        drawn.append((at, random.lognormvariate(6.0, 1.2)))
        at += random.expovariate(1 / 100.0)
    jobs = [_linear(str(i), device_s, at) for i, (at, device_s) in enumerate(drawn)]
    least_s = _least_s(drawn, 8)
    assert 0.75 * least_s < jct_bound_s(jobs, 8) <= least_s * (1 + 1e-9)


def _least_s(drawn: list[tuple[float, float]], n_devices: int) -> float:
    """Mean completion time where all devices work for the job with the least left: nothing is shorter with linear speed-ups."""
    now, total_s = 0.0, 0.0
    left: list[tuple[float, float]] = []
    coming = [*drawn, (float("inf"), 0.0)]
    while left or len(coming) > 1:
        if not left:
            now = coming[0][0]
        while coming[0][0] <= now:
            at, device_s = coming.pop(0)
            heappush(left, (device_s / n_devices, at))
        rest_s, at = heappop(left)
        until = min(now + rest_s, coming[0][0])
        if until < now + rest_s:
            heappush(left, (now + rest_s - until, at))
        else:
            total_s += until - at
        now = until
    return total_s / len(drawn)


@pytest.mark.parametrize("load", [0.8, 1.5])
def test_is_below_what_policies_reach_and_above_all_jobs_alone(load: float) -> None:
    jobs = jobs_of(Setting("modelarts-like", load, 30.0, 0.0, 3), None, 60)
    bound_s = jct_bound_s(jobs, 64, n_rounds=40)
    for policy in ("promises-first", "greedy"):
        assert bound_s <= run(policy, jobs, nodes(8, 8))["jct_mean_s"]
    fastest = (max(job.truth.rate_sps(Shape(n_workers=n)) for n in job.spec.worker_counts()) for job in jobs)
    alone_s = [job.spec.startup_s + job.work_steps / rate for job, rate in zip(jobs, fastest, strict=True)]
    assert bound_s > 0.999 * sum(alone_s) / len(jobs)


def test_enough_is_15_percent_above_the_bound_or_as_near_as_any_policy_that_declines_nobody() -> None:
    def cell(jct_s: float, n_rejected: int = 0) -> dict[str, float]:
        return {"jct_mean_s": jct_s, "waiting_mean_s": 0.0, "n_deadlines_met": 5, "n_rejected": n_rejected}

    bound = {"n": 5, "jct_s": 100.0}
    assert verdict({"ours": cell(114.0), "other": cell(101.0)}, "ours", bound)["jct"]
    assert not verdict({"ours": cell(120.0), "other": cell(119.0)}, "ours", bound)["jct"]
    assert verdict({"ours": cell(120.0), "declines": cell(119.0, 1)}, "ours", bound)["jct"]
    assert verdict({"ours": cell(120.0), "other": cell(119.0)}, "ours", {"n": 5})["jct"] is None
