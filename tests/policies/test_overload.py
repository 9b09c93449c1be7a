"""Where there is far more to do than can be done, what is nearly lost is not chased."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.pictures import Table, counts, decide, job
from tests.policies.tight_deadlines import outcome, tight_jobs

from punctual import registry
from punctual.policies.promises_first import PromisesFirst, reachable_together
from punctual.sim.job import SimJob

N_GPUS = 16
JOBS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=7)


def fits(jobs: list[tuple[int, int]]) -> bool:
    """Whether one machine, a job at a time, is done with all in time."""
    load = np.cumsum([work for work, _ in sorted(jobs, key=lambda each: each[1])])
    return bool(np.all(load <= sorted(due for _, due in jobs)))


@given(jobs=JOBS)
def test_as_many_deadlines_are_chosen_as_half_of_the_devices_can_meet_together(jobs: list[tuple[int, int]]) -> None:
    work, dues = np.array(jobs, dtype=float).T
    chosen = reachable_together(work, dues, np.ones(len(jobs)), 2.0, always=np.zeros(len(jobs), dtype=bool))
    most = next(
        n for n in range(len(jobs), -1, -1) if any(fits(list(some)) for some in combinations(jobs, n)) or n == 0
    )
    assert chosen.sum() == max(most, 1), "the only one is never given up"
    assert chosen.sum() == 1 or fits([each for each, is_chosen in zip(jobs, chosen, strict=True) if is_chosen])


def test_promised_deadlines_are_never_left_out() -> None:
    always = np.array([True, False, False])
    chosen = reachable_together(np.array([9.0, 2.0, 3.0]), np.full(3, 10.0), np.ones(3), 2.0, always=always)
    assert chosen.tolist() == [True, False, False]


def test_a_large_job_that_shuts_out_others_is_not_urgent() -> None:
    """It could just be on time, with all devices and no others: the small ones would be late for it."""
    speed = Table(((1, 1.0), (2, 1.9), (4, 3.6)))
    large = job("large", (1, 2, 4), steps=12_000.0, speed=speed, preemptible=True, deadline_s=3600.0)
    small = [
        job(f"small-{i}", (1, 2, 4), steps=1500.0, speed=speed, preemptible=True, deadline_s=3000.0, at=1.0)
        for i in range(4)
    ]
    jobs = [large, *small]
    assert "large" not in counts(decide(PromisesFirst(admission="none"), jobs, {"a": 4}), jobs)


def met_and_jct(policy: str, jobs: list[SimJob]) -> tuple[int, float]:
    found = outcome(registry.load("policies", policy)(), jobs, 1, N_GPUS)
    return found.n_met, found.jct_mean_s


@pytest.mark.parametrize("seed", range(3))
def test_in_an_overload_neither_the_shortest_nor_the_earliest_first_is_better(seed: int) -> None:
    jobs = tight_jobs(seed, 80, n_gpus=N_GPUS, load=10.0, slack=(1.5, 4.0))
    n_met, jct_mean_s = met_and_jct("promises-first", jobs)
    for other in ("shortest-remaining", "earliest-deadline"):
        n_others_met, others_jct_mean_s = met_and_jct(other, jobs)
        assert n_met > n_others_met
        assert jct_mean_s < others_jct_mean_s
