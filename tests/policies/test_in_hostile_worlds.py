"""Every policy in simulated worlds in which everything goes wrong: its plans are valid, and every job ends."""

from random import Random

import pytest
from tests.examples import examples
from tests.policies.pictures import linear
from tests.sim.pieces import PERFECT, nodes, of, sim_job
from tests.sim.test_random_worlds import Auditor, some_physics

from punctual import registry
from punctual.core.commands import RejectJob, WarnUser
from punctual.core.events import JobFinished
from punctual.core.scheduler import Periods
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation

#: Policies that turn jobs away for good, as they come out of the box.
DECLINING = ("elasticflow",)


def some_jobs(random: Random) -> list[SimJob]:
    """Elastic and rigid ones, some with a known speed, a deadline, or the right not to be paused."""
    at, jobs = 0.0, []
    for i in range(random.randint(5, 15)):
        at += random.choice([0.0, random.expovariate(0.05)])
        jobs.append(
            sim_job(
                f"job-{i}",
                at,
                counts=random.choice([(1,), (2,), (4,), (1, 2, 4), (2, 3)]),
                steps=random.uniform(1, 400),
                truth=PERFECT,
                restarts=random.random() < 0.3,
                resize_cost_s=random.choice([0.0, 3.0]),
                startup_s=2.0,
                deadline_s=random.choice([None, 30.0, 1000.0]),
                weight=random.choice([1.0, 2.0]),
                model=random.choice([None, "linear"]),
                preemptible=random.random() < 0.7,
            )
        )
    return jobs


@pytest.mark.parametrize("name", registry.names("policies"))
def test_every_job_ends(name: str) -> None:
    for seed in range(examples(40)):
        random = Random(seed)
        auditor, jobs = Auditor(), some_jobs(random)
        auditor.simulation = Simulation(
            jobs, nodes(random.randint(1, 3)), registry.load("policies", name)(), models={"linear": linear()},
            physics=some_physics(random), seed=seed, periods=Periods(answer_s=60.0), listeners=[auditor.add],
            n_retries=10_000, end_at=1e6,
        )  # fmt: skip
        auditor.simulation.run()
        finished = {event.job for event in of(auditor.journal, JobFinished)}
        declined = {command.job for command in of(auditor.journal, RejectJob)}
        assert finished | declined == {job.spec.id for job in jobs}, seed
        assert not finished & declined, seed
        assert name in DECLINING or not declined, seed
        refused = [warning for warning in of(auditor.journal, WarnUser) if warning.reason.code == "plan-refused"]
        assert all("no valid plan" in warning.reason.text for warning in refused), (seed, refused)
