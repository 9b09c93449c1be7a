"""Against what is known without simulating."""

from collections.abc import Iterator
from heapq import heappop, heappush
from math import factorial
from random import Random
from statistics import mean

import pytest
from tests.sim.pieces import Fifo, nodes, of, play, sim_job

from punctual.core.events import JobFinished, JobStarted, JobSubmitted
from punctual.sim.job import SimJob


def poisson_jobs(n: int, load: float, seed: int, *, exponential: bool) -> Iterator[SimJob]:
    """Poisson arrivals of jobs with a mean of one second on one device."""
    random, at = Random(seed), 0.0
    for i in range(n):
        at += random.expovariate(load)
        yield sim_job(f"job-{i}", at, steps=random.expovariate(1.0) if exponential else 1.0)


def waits_s(seed: int, load: float, n_devices: int) -> float:
    """Mean wait of a queue, without its first tenth, in which it fills up."""
    n = 2000
    jobs = poisson_jobs(n, load * n_devices, seed, exponential=True)
    journal = play(jobs, nodes(1, n_devices), Fifo())
    submitted_at = {message.spec.id: message.at for message in of(journal, JobSubmitted)}
    waits = [message.at - submitted_at[message.job] for message in of(journal, JobStarted)]
    assert len(waits) == n
    return mean(waits[n // 10 :])


def within_bounds(expected: float, samples: list[float]) -> bool:
    """Whether `expected` is within four standard errors of the samples' mean."""
    centre = mean(samples)
    variance = sum((one - centre) ** 2 for one in samples) / (len(samples) - 1)
    return abs(centre - expected) < 4 * (variance / len(samples)) ** 0.5


def test_the_wait_for_one_of_several_devices() -> None:
    load, n_devices = 0.7, 4
    samples = [waits_s(seed, load, n_devices) for seed in range(8)]
    assert within_bounds(erlang_c_wait_s(load, n_devices), samples)
    assert not within_bounds(1.5 * erlang_c_wait_s(load, n_devices), samples)


def erlang_c_wait_s(load: float, n_devices: int) -> float:
    """Mean wait in an M/M/c queue whose jobs take a second: Erlang's second formula over the idle capacity."""
    offered = load * n_devices
    all_busy = offered**n_devices / factorial(n_devices) / (1 - load)
    p_wait = all_busy / (sum(offered**i / factorial(i) for i in range(n_devices)) + all_busy)
    return p_wait / (n_devices - offered)


@pytest.mark.parametrize("exponential", [True, False])
@pytest.mark.parametrize("n_devices", [1, 4])
def test_fifo_against_the_recursion(n_devices: int, exponential: bool) -> None:
    """Lindley, Kiefer and Wolfowitz: a job starts when it is there and the first device is free again."""
    jobs = list(poisson_jobs(500, 0.9 * n_devices, 3, exponential=exponential))
    journal = play(jobs, nodes(1, n_devices), Fifo())
    free_at = [0.0] * n_devices
    ends_at = {}
    for job in jobs:
        ends_at[job.spec.id] = max(heappop(free_at), job.submitted_at) + job.work_steps
        heappush(free_at, ends_at[job.spec.id])
    finished_at = {message.job: message.at for message in of(journal, JobFinished)}
    assert finished_at == pytest.approx(ends_at, abs=1e-6)
