"""The same windows in the simulated world, with the policy as a plug-in: the scheduler, its plans, nodes that come and go."""

from collections.abc import Mapping, Sequence

from _market_windows import Task, Zone

from punctual.core.bill import Bill
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.pools import SEEN_S, PoolSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated
from punctual.history.cluster import ClusterHistory
from punctual.policies.least_cost import LeastCost
from punctual.sim.job import SimJob
from punctual.sim.market import PoolCourse
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import MeasuredTruth

MACHINE = Resources(cores=1.0, gpus=1)
#: Long enough to leave a machine between two steps.
_NOTICE_S = 1.0


def simulated(
    zone: Zone,
    tasks: Sequence[Task],
    i: int,
    most: int,
    starts_s: Sequence[float] = (),
    *,
    policy: LeastCost | None = None,
    margin_frac: float = 0.0,
    notice_s: float = _NOTICE_S,
    startups_s: Mapping[str, Sequence[float]] | None = None,
    physics: Physics | None = None,
) -> tuple[float, int]:
    """Return the bill of jobs that begin at tick `i` or so many seconds later, and the number of them that are late.

    `startups_s`: what machines of a pool (`spot`, `stays`) really take to start, in order of asking.
    """
    bill, record = Bill(), ClusterHistory()
    first_at = i * zone.tick_s
    jobs = [
        _job(f"job-{k:02}", task, first_at + (starts_s[k] if starts_s else 0.0), margin_frac)
        for k, task in enumerate(tasks)
    ]
    Simulation(
        sorted(jobs, key=lambda job: job.submitted_at), (), policy or LeastCost(look_s=zone.tick_s), models={"tabulated": Tabulated()},
        pools=_pools(zone, first_at, most, tasks[0].startup_s, notice_s, startups_s or {}), listeners=(bill.add, record.add), physics=physics,
    ).run()  # fmt: skip
    bill.close()
    return bill.total_usd, sum(not job.on_time for job in record.jobs())


def _job(name: str, task: Task, at: float, margin_frac: float) -> SimJob:
    numbers = tuple(n for n in range(1, len(task.speeds)) if task.speeds[n] > 0)
    profile = tuple(
        SeenRate(shape=Shape(n_workers=n, cores=float(n), device="GPU", n_nodes=n), rate_sps=task.speeds[n])
        for n in numbers
    )
    spec = JobSpec(
        id=JobId(name), worker=MACHINE, counts=numbers, floor=MACHINE * numbers[0], ceiling=MACHINE * numbers[-1],
        work_steps=task.work, deadline_s=task.deadline_s, controller=None, preemptible=True, model="tabulated", profile=profile,
        margin_frac=margin_frac,
    )  # fmt: skip
    return SimJob(at, spec, MeasuredTruth({(n, n): task.speeds[n] for n in numbers}), task.work)


def _pools(
    zone: Zone, first_at: float, most: int, startup_s: float, notice_s: float, startups_s: Mapping[str, Sequence[float]]
) -> list[PoolCourse]:
    spot = PoolSpec(
        name="spot", capacity=MACHINE, device="GPU", market="spot", most=most, startup_s=startup_s, notice_s=notice_s
    )
    stays = PoolSpec(name="stays", capacity=MACHINE, device="GPU", most=most, startup_s=startup_s)
    course, before = list[tuple[float, float, int]](), -1
    first = max(0, round((first_at - SEEN_S) / zone.tick_s))
    for j, n in enumerate(zone.counts[first:], first):
        if n != before:
            course.append((j * zone.tick_s, zone.spot_usd_h, n))
        before = n
    return [
        PoolCourse(spot, course, startups_s.get("spot", ())),
        PoolCourse(stays, [(course[0][0], zone.certain_usd_h, most)], startups_s.get("stays", ())),
    ]
