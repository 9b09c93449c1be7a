"""Against a second, plain implementation of two policies on a published trace: the same start and end of every job."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from math import inf

import pytest
from tests.sim.traces.published import DATA, folder

from punctual import registry
from punctual.core.cluster import Node
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import Resources
from punctual.history.cluster import ClusterHistory
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.rigid import Rigid
from punctual.sim.simulation import Simulation
from punctual.sim.traces import TraceJob, read
from punctual.sim.traces.order import normalized

N_JOBS = 2500
#: One large node, so that the place of a job plays no part; small enough that jobs wait, and a few never fit.
N_DEVICES = 200


@dataclass
class Job:
    """What the reference knows of a job. All times are whole seconds, so that sums are exact."""

    id: JobId
    at: float
    n: int
    left_s: float
    since_at: float = inf
    started_at: float | None = None

    @property
    def ends_at(self) -> float:
        return self.since_at + self.left_s

    def rank(self, at: float) -> tuple[float, float, str]:
        """Remaining time, then seniority."""
        return (self.left_s - max(0.0, at - self.since_at), self.at, self.id)


class Pool:
    """The devices. A round of decisions comes after the first event of an instant, and one after all the others."""

    def __init__(self, n_devices: int, decide: Callable[["Pool", float], None]) -> None:
        self.free, self.decide = n_devices, decide
        self.waiting: list[Job] = []
        self.running: list[Job] = []

    def play(self, jobs: Iterable[Job]) -> None:
        coming = list(jobs)[::-1]
        while coming or self.running:
            at = min([job.ends_at for job in self.running] + [coming[-1].at if coming else inf])
            ending = [job for job in self.running if job.ends_at == at]
            arriving = []
            while coming and coming[-1].at == at:
                arriving.append(coming.pop())
            events = [(self.end, job) for job in ending] + [(self.waiting.append, job) for job in arriving]
            for some in (events[:1], events[1:]):
                for happen, job in some:
                    happen(job)
                self.decide(self, at)

    def start(self, job: Job, at: float) -> None:
        self.waiting.remove(job)
        self.running.append(job)
        self.free -= job.n
        job.since_at, job.started_at = at, at if job.started_at is None else job.started_at

    def pause(self, job: Job, at: float) -> None:
        self.end(job)
        self.waiting.append(job)
        job.left_s, job.since_at = job.ends_at - at, inf

    def end(self, job: Job) -> None:
        self.running.remove(job)
        self.free += job.n


def fifo(pool: Pool, at: float) -> None:
    while pool.waiting and pool.waiting[0].n <= pool.free:
        pool.start(pool.waiting[0], at)


def shortest_remaining(pool: Pool, at: float) -> None:
    if not pool.waiting:
        return
    queue = [(job.rank(at), job) for job in pool.waiting]
    heapify(queue)
    running = sorted((job.rank(at), job) for job in pool.running)
    while queue:
        rank, job = heappop(queue)
        n_last = 0
        freed = pool.free
        while freed < job.n and n_last < len(running) and running[-1 - n_last][0][0] > rank[0]:
            freed += running[-1 - n_last][1].n
            n_last += 1
        if freed >= job.n:
            for _ in range(n_last):
                paused = running.pop()
                pool.pause(paused[1], at)
                heappush(queue, paused)
            pool.start(job, at)


@cache
def first_jobs() -> list[TraceJob]:
    return normalized(read(DATA / "philly_2017/philly_jobs_pollux.csv"))[:N_JOBS]


@pytest.mark.parametrize(("policy", "decide"), [("fifo", fifo), ("shortest-remaining", shortest_remaining)])
def test_every_job_of_a_published_trace_starts_and_ends_as_in_the_reference(
    policy: str, decide: Callable[[Pool, float], None]
) -> None:
    folder()
    traces = first_jobs()
    record = ClusterHistory()
    Simulation(
        sim_jobs(traces, Rigid()),
        [Node(NodeId("pool"), Resources(gpus=N_DEVICES))],
        registry.load("policies", policy)(),
        models={"tabulated": registry.load("models", "tabulated")()},
        listeners=(record.add,),
    ).run()
    found = {job.id: (job.started_at, job.landed_at) for job in record.jobs() if job.status == "finished"}
    jobs = [Job(JobId(one.id), one.submitted_at, int(one.n_gpus or 0), one.duration_s or 0.0) for one in traces]
    fitting = [job for job in jobs if job.n <= N_DEVICES]
    n_at_once = sum(found[job.id] == (job.at, job.at + job.left_s) for job in fitting)
    assert len(fitting) > 0.9 * N_JOBS
    assert n_at_once < len(fitting) - 100  # jobs wait or are paused, or nothing would be tested
    Pool(N_DEVICES, decide).play(fitting)
    assert found == {job.id: (job.started_at, job.ends_at) for job in fitting}
