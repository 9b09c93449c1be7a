"""Hundreds of small worlds in which everything goes wrong: nothing is ever taken twice, and every job ends."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tests.examples import examples
from tests.sim.pieces import PERFECT, Restless, nodes, of, sim_job

from punctual.core.cluster import Node
from punctual.core.commands import RejectJob
from punctual.core.events import (
    Event,
    JobFailed,
    JobFinished,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeLost,
    ProgressReported,
)
from punctual.core.ids import NodeId
from punctual.core.resources import NOTHING, Resources
from punctual.core.scheduler import Periods
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation


def some_physics(random: Random) -> Physics:
    def sometimes(amount: float, otherwise: float = 0.0) -> float:
        return amount if random.random() < 0.5 else otherwise

    return Physics(
        startup_s=sometimes(random.uniform(0, 30)),
        resize_s=sometimes(random.uniform(0, 40)),
        report_s=sometimes(20.0) or None,
        solver_s=sometimes(random.uniform(0, 10)),
        rate_sigma=sometimes(0.3),
        failures_per_device_h=sometimes(5.0),
        checkpoint_s=random.choice([5.0, 60.0, 1800.0]),
        node_mtbf_s=sometimes(random.uniform(200, 2000), float("inf")),
        node_repair_s=random.uniform(10, 300),
        failed_launch_frac=sometimes(0.2),
        failed_resize_frac=sometimes(0.3),
        lost_answer_frac=sometimes(0.2),
    )


def some_jobs(random: Random) -> list[SimJob]:
    at, jobs = 0.0, []
    for i in range(random.randint(1, 10)):
        at += random.choice([0.0, random.expovariate(0.05)])
        counts = random.choice([(1,), (2,), (1, 2, 4), (2, 3)])
        jobs.append(
            sim_job(
                f"job-{i}",
                at,
                counts=counts,
                steps=random.uniform(1, 400),
                truth=PERFECT,
                restarts=random.random() < 0.3,
                resize_cost_s=random.choice([0.0, 3.0]),
                startup_s=2.0,
            )
        )
    return jobs


class Auditor:
    """Checks after each event that what is really taken fits on the nodes that are really there."""

    def __init__(self) -> None:
        self.capacity: dict[NodeId, Resources] = {}
        self.journal: list[Message] = []
        self.simulation: Simulation | None = None

    def add(self, message: Message) -> None:
        self.journal.append(message)
        if not isinstance(message, Event):  # the commands that follow from an event change nothing more
            return
        match message:
            case NodeJoined(node=node, capacity=capacity):
                self.capacity[node] = capacity
            case NodeLost(node=node):
                self.capacity.pop(node)
        assert self.simulation is not None
        self.simulation.scheduler.validate()
        self._check_holdings()

    def _check_holdings(self) -> None:
        assert self.simulation is not None
        taken: dict[NodeId, Resources] = {}
        for state in self.simulation.world._states.values():
            for node, amount in state.holds.items():
                taken[node] = taken.get(node, NOTHING) + amount
        for node, amount in taken.items():
            assert amount.fits_in(self.capacity[node]), f"{amount} on {node}, which has {self.capacity[node]}"


def audited(seed: int) -> tuple[list[SimJob], list[Message]]:
    random = Random(seed)
    auditor, jobs, physics = Auditor(), some_jobs(random), some_physics(random)
    machines: list[Node] = nodes(random.randint(1, 3))
    auditor.simulation = Simulation(
        jobs, machines, Restless(), physics=physics, seed=seed, periods=Periods(answer_s=60.0),
        listeners=[auditor.add], n_retries=10_000, end_at=1e6,
    )  # fmt: skip
    auditor.simulation.run()
    return jobs, auditor.journal


@pytest.mark.parametrize("first", range(0, 1000, 100))  # that they run beside each other
def test_capacity_is_never_exceeded_and_every_job_ends(first: int) -> None:
    n_failures = 0
    for seed in range(first, first + examples(100)):
        jobs, journal = audited(seed)
        finished = {message.job for message in of(journal, JobFinished)}
        assert finished == {job.spec.id for job in jobs}, f"seed {seed}"
        assert len(of(journal, JobSubmitted)) == len(jobs)
        assert not of(journal, RejectJob)
        n_failures += len(of(journal, JobFailed, NodeLost))
    assert n_failures > examples(20)


def test_work_is_conserved() -> None:
    """A job's last report says all of its true work, whatever was lost and done again on the way."""
    for seed in range(examples(20)):
        jobs, journal = audited(seed)
        for job in jobs:
            reports = of(journal, ProgressReported, job=job.spec.id)
            assert reports[-1].steps_done == job.work_steps
            assert all(0 <= report.steps_done <= job.work_steps for report in reports)
            assert all(one.used_core_s <= other.used_core_s for one, other in pairwise(reports))


PROGRAM = """
import hashlib
from tests.sim.test_random_worlds import audited
digest = hashlib.sha256()
for seed in range(15):
    for message in audited(seed)[1]:
        digest.update(repr(message).encode())
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_journal_in_every_process() -> None:
    digests = set()
    for hash_seed in ("0", "1", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": hash_seed}, cwd=Path(__file__).parents[2],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        digests.add(done.stdout)
    assert len(digests) == 1


def test_another_seed_gives_another_journal() -> None:
    assert audited(1)[1] != audited(2)[1]
