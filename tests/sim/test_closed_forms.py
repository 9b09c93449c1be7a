"""Against what is known without simulating."""

from collections.abc import Iterator
from math import factorial
from random import Random
from statistics import mean

from tests.sim.pieces import Fifo, nodes, of, play, sim_job

from punctual.core.events import JobFinished, JobStarted, JobSubmitted
from punctual.sim.job import SimJob


def poisson_jobs(n: int, load: float, seed: int, *, exponential: bool) -> Iterator[SimJob]:
    """Poisson arrivals of jobs with a mean of one second on one device."""
    random, at = Random(seed), 0.0
    for i in range(n):
        at += random.expovariate(load)
        yield sim_job(f"job-{i}", at, steps=random.expovariate(1.0) if exponential else 1.0)


def waits_s(seed: int, load: float, *, exponential: bool, n_devices: int = 1) -> float:
    """Mean wait of a queue, without its first tenth, in which it fills up."""
    n = 3000
    jobs = poisson_jobs(n, load * n_devices, seed, exponential=exponential)
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


def test_the_wait_in_a_queue_with_exponential_work() -> None:
    load = 0.6
    samples = [waits_s(seed, load, exponential=True) for seed in range(8)]
    assert within_bounds(load / (1 - load), samples)  # M/M/1
    assert not within_bounds(1.25 * load / (1 - load), samples)


def test_the_wait_for_one_of_several_devices() -> None:
    load, n_devices = 0.7, 4
    samples = [waits_s(seed, load, exponential=True, n_devices=n_devices) for seed in range(8)]
    assert within_bounds(erlang_c_wait_s(load, n_devices), samples)
    assert not within_bounds(1.4 * erlang_c_wait_s(load, n_devices), samples)


def erlang_c_wait_s(load: float, n_devices: int) -> float:
    """Mean wait in an M/M/c queue whose jobs take a second: Erlang's second formula over the idle capacity."""
    offered = load * n_devices
    all_busy = offered**n_devices / factorial(n_devices) / (1 - load)
    p_wait = all_busy / (sum(offered**i / factorial(i) for i in range(n_devices)) + all_busy)
    return p_wait / (n_devices - offered)


def test_the_wait_in_a_queue_with_equal_work_is_half_of_that() -> None:
    load = 0.6
    samples = [waits_s(seed, load, exponential=False) for seed in range(8)]
    assert within_bounds(load / (2 * (1 - load)), samples)  # M/D/1


def test_one_device_under_fifo_against_the_recursion() -> None:
    """Lindley: a job starts when it is there and the one before it is gone."""
    jobs = list(poisson_jobs(500, 0.9, 3, exponential=True))
    journal = play(jobs, nodes(1, 1), Fifo())
    free_at = 0.0
    for job, finished in zip(jobs, of(journal, JobFinished), strict=True):
        free_at = max(free_at, job.submitted_at) + job.work_steps
        assert finished.job == job.spec.id
        assert abs(finished.at - free_at) < 1e-6
