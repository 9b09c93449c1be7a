"""The reference to which CPU time is compared: a fixed piece of work that looks like ours, measured beside it.

The same code takes up to three times as long on one machine as on another of its kind, and as long again beside a busy neighbour.
So a target in seconds says more about the machine than about the code. Targets are *turns of the reference* instead. A turn
makes a small value, files it by name and in a queue, and now and then sums up a small array, as a scheduler does for an
event; it takes two to ten microseconds.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TypeVar

import numpy as np

T = TypeVar("T")
N_TURNS = 2_000
N_JOBS = 64

TURNS = "{:,.0f} turns".format


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    at: float
    name: str
    held: dict[str, float] = field(default_factory=dict)
    n_events: int = 0


def turn_s(n_repetitions: int = 5) -> float:
    """CPU seconds of a turn in this process, now: the median of some repetitions."""
    _work()  # what is done once is no part of it
    return statistics.median(timed_s(_work)[0] for _ in range(n_repetitions)) / N_TURNS


def in_turns(**cpu_s: float) -> dict[str, float]:
    """CPU seconds in turns of the reference, which is measured now; and ``turn_us``, what a turn takes."""
    each_s = turn_s()
    return {**{name: seconds / each_s for name, seconds in cpu_s.items()}, "turn_us": each_s * 1e6}


def timed_s(call: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds of a call, which other work on the machine does not add to, and what it returns."""
    begun_s = time.process_time()
    answer = call()
    return time.process_time() - begun_s, answer


def _work() -> float:
    jobs = {f"job-{i}": _Job(at=float(i), name=f"job-{i}") for i in range(N_JOBS)}
    queue = [(job.at, i, job.name) for i, job in enumerate(jobs.values())]
    rates, total = np.linspace(1.0, 2.0, 16), 0.0
    for i in range(N_TURNS):
        at, _, name = heappop(queue)
        job = jobs[name]
        held = {**job.held, f"node-{i % 4}": float(i % 8)}
        jobs[name] = job = replace(job, at=at, held=held, n_events=job.n_events + 1)
        if i % 4 == 0:
            total += float((rates * job.n_events).sum())
        if i % 16 == 0:
            total += sum(sorted(each.at for each in jobs.values())[:4])
        heappush(queue, (at + N_JOBS + i % 3, N_JOBS + i, name))
    return total
