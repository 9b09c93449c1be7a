"""Workloads in which promises are hard to keep: deadlines soon after the least time, costly restarts, too many jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from tests.sim.pieces import GPU, nodes, of
from tests.sim.test_random_worlds import Auditor

from punctual.core.commands import RejectJob, WarnUser
from punctual.core.events import (
    Event,
    JobFinished,
    PauseRequested,
    PlanProposed,
    ResumeRequested,
    SpecChanged,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.protocols import Policy
from punctual.core.resources import total
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import MeasuredTruth

#: Largest numbers of workers that jobs are drawn with, and shortest and longest time that they take with what they ask for.
_MOST_WORKERS = (2, 4, 8, 16)
_SHORTEST_S, _LONGEST_S = 300.0, 7200.0
#: Speeds are declared for so many nodes.
_MOST_NODES = 8
#: Jobs that change places may be paused for a second.
_MOMENT_S = 2.0


def tight_jobs(
    seed: int,
    n_jobs: int = 60,
    *,
    n_gpus: int = 64,
    load: float = 3.0,
    slack: tuple[float, float] = (1.05, 2.5),
    restart_s: tuple[float, float] = (10.0, 60.0),
    split_frac: float = 1.0,
) -> list[SimJob]:
    """Jobs that may be resized and paused, with speeds that are known exactly.

    Parameters
    ----------
    load
        Device-seconds that the jobs ask for, over those that there are until the last of them comes.
    slack
        Bounds of the deadline as a multiple of the time that a job takes with the devices it asks for.
    restart_s
        Bounds of what a start or a change costs.
    split_frac
        By this factor each further node makes a job slower.
    """
    random = Random(seed)
    drawn = [_drawn(random, slack, restart_s) for _ in range(n_jobs)]
    gap_s = sum(device_s for *_, device_s in drawn) / n_jobs / (load * n_gpus)
    at, jobs = 0.0, []
    for i, (rates, work_steps, deadline_s, cost_s, _) in enumerate(drawn):
        at += random.expovariate(1.0 / gap_s)
        jobs.append(elastic_job(f"job-{i:02}", at, rates, work_steps, deadline_s, cost_s, split_frac))
    return jobs


def _drawn(
    random: Random, slack: tuple[float, float], restart_s: tuple[float, float]
) -> tuple[dict[int, float], float, float, float, float]:
    """Rates by number of workers, steps, deadline, cost of a restart, and device-seconds asked for."""
    power, most = random.uniform(0.6, 0.95), random.choice(_MOST_WORKERS)
    rates = {n: n**power for n in (1, 2, 4, 8, 16) if n <= most}
    asked = random.choice([n for n in rates if 4 * n >= most])
    duration_s = _SHORTEST_S * (_LONGEST_S / _SHORTEST_S) ** random.random()
    cost_s = random.uniform(*restart_s)
    deadline_s = cost_s + random.uniform(*slack) * duration_s
    return rates, rates[asked] * duration_s, deadline_s, cost_s, asked * duration_s


def elastic_job(
    name: str,
    at: float,
    rates: dict[int, float],
    work_steps: float,
    deadline_s: float,
    cost_s: float,
    split_frac: float = 1.0,
) -> SimJob:
    """A job with these rates by number of workers, of which each start and each change costs the same time."""
    measured = {
        (n, n_nodes): rate * split_frac ** (n_nodes - 1)
        for n, rate in rates.items()
        for n_nodes in range(1, min(n, _MOST_NODES) + 1)
    }
    profile = tuple(
        SeenRate(shape=Shape(n_workers=n, n_nodes=n_nodes), rate_sps=rate) for (n, n_nodes), rate in measured.items()
    )
    spec = JobSpec(
        id=JobId(name), worker=GPU, counts=tuple(rates), floor=GPU * min(rates), ceiling=GPU * max(rates), work_steps=work_steps,
        deadline_s=deadline_s, startup_s=cost_s, resize_cost_s=cost_s, preemptible=True, controller=None,
        model="tabulated", profile=profile,
    )  # fmt: skip
    return SimJob(at, spec, MeasuredTruth(measured), work_steps)


def wishes(seed: int, jobs: Sequence[SimJob]) -> list[Event]:
    """What the users of these jobs ask for while these work: pauses that end, other weights and deadlines, stops."""
    random, events = Random(seed), list[Event]()
    for job in jobs:
        spec, life_s = job.spec, job.spec.deadline_s or 0.0
        for _ in range(random.randint(1, 3)):
            at = job.submitted_at + random.uniform(0.0, 0.9) * life_s
            kind = random.choice(["pause", "pause", "weight", "deadline", "deadline", "stop"])
            if kind == "pause":
                events.append(PauseRequested(at=at, job=spec.id))
                events.append(ResumeRequested(at=at + random.uniform(1.0, 0.5 * life_s), job=spec.id))
            elif kind == "stop":
                events.append(StopRequested(at=at, job=spec.id, cause="enough"))
            else:
                weight = random.choice([0.1, 1.0, 10.0]) if kind == "weight" else spec.weight
                due_s = random.uniform(0.8, 2.0) * life_s if kind == "deadline" else spec.deadline_s
                events.append(SpecChanged(at=at, spec=replace(spec, weight=weight, deadline_s=due_s)))
    return events


@dataclass
class Outcome:
    """What became of the promises of one simulation.

    Attributes
    ----------
    promised
        What was promised last to each job that ever had a promise.
    late_s
        By how much each broken promise was missed.
    warned_at
        When each job was first warned of its promise.
    short
        Jobs that plans gave less than they reserved for them, for more than a moment: the instants since when.
    n_met
        Jobs that were done by their deadlines.
    jct_mean_s
        Of all that finished; 0 if none did.
    """

    promised: dict[JobId, float] = field(default_factory=dict)
    late_s: dict[JobId, float] = field(default_factory=dict)
    warned_at: dict[JobId, float] = field(default_factory=dict)
    short: dict[JobId, float] = field(default_factory=dict)
    n_met: int = 0
    n_declined: int = 0
    n_plans: int = 0
    jct_mean_s: float = 0.0


def outcome(
    policy: Policy,
    jobs: list[SimJob],
    n_nodes: int,
    n_gpus: int,
    physics: Physics | None = None,
    events: Sequence[Event] = (),
) -> Outcome:
    """Plays the jobs on nodes of so many devices; checks after each message that nothing is held twice.

    `events`: what users ask for meanwhile.
    """
    auditor, result = Auditor(), Outcome()
    auditor.simulation = Simulation(
        jobs, nodes(n_nodes, n_gpus), policy, models={"tabulated": Tabulated()}, physics=physics,
        listeners=[auditor.add], events=events,
    )  # fmt: skip
    auditor.simulation.run()
    held, since_at = dict[JobId, int](), dict[JobId, float]()
    for proposed in of(auditor.journal, PlanProposed):
        plan = proposed.plan
        held |= {job: int(total(grant.values()).gpus) for job, grant in plan.grants.items()}
        result.promised |= plan.promises or {}
        shares = plan.carry.get("shares", {})
        short = [job for job in shares if held.get(job, 0) < shares[job]["steps"][0][1]]
        since_at = {job: since_at.get(job, proposed.at) for job in short}
        result.short |= {job: at for job, at in since_at.items() if proposed.at - at > _MOMENT_S}
        result.n_plans += 1
    for warning in of(auditor.journal, WarnUser):
        if warning.job is not None and warning.reason.code.startswith("promise"):
            result.warned_at.setdefault(warning.job, warning.at)
    ends = {event.job: event.at for event in of(auditor.journal, JobFinished)}
    begins = {job.spec.id: job.submitted_at for job in jobs}
    for job, until_at in result.promised.items():
        if ends.get(job, until_at) > until_at:  # who was stopped is not late
            result.late_s[job] = ends[job] - until_at
    result.n_met = sum(ends.get(job.spec.id, inf) <= job.submitted_at + (job.spec.deadline_s or inf) for job in jobs)
    result.n_declined = len(of(auditor.journal, RejectJob))
    result.jct_mean_s = sum(at - begins[job] for job, at in ends.items()) / max(1, len(ends))
    return result
