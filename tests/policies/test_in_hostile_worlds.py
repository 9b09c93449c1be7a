"""Every policy in simulated worlds in which everything goes wrong: its plans are valid, and every job ends."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from random import Random

import pytest
from tests.examples import examples
from tests.policies.pictures import linear
from tests.sim.pieces import PERFECT, nodes, of, sim_job
from tests.sim.test_random_worlds import Auditor, some_physics

from punctual import registry
from punctual.core.cluster import Node
from punctual.core.commands import RejectJob, WarnUser
from punctual.core.events import Event, JobFinished, NodeJoined, NodeLost, NodeNoticed
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


def some_departures(random: Random, there: list[Node]) -> Iterator[Event]:
    """Notices of nodes, some withdrawn; the others are taken away, and machines of the same names come later."""
    for node in there:
        at = 0.0
        while (at := at + random.expovariate(0.01)) < 400.0 and random.random() < 0.7:
            ends_at = at + random.choice([0.0, 1.0, 30.0, 200.0])
            yield NodeNoticed(at=at, node=node.id, ends_at=ends_at)
            if random.random() < 0.3:
                yield NodeNoticed(at=(at + ends_at) / 2, node=node.id, ends_at=None)
                continue
            yield NodeLost(at=ends_at, node=node.id)
            at = ends_at + random.choice([0.0, 20.0])
            yield NodeJoined(at=at, node=node.id, capacity=node.capacity)


@pytest.mark.parametrize("name", registry.names("policies"))
def test_every_job_ends(name: str) -> None:
    for seed in range(examples(40)):
        random = Random(seed)
        auditor, jobs, there = Auditor(), some_jobs(random), nodes(random.randint(1, 3))
        physics, departures = some_physics(random), list[Event]()
        if seed % 2:  # nodes that are taken away in place of nodes that break
            physics, departures = replace(physics, node_mtbf_s=inf), [*some_departures(random, there)]
        auditor.simulation = Simulation(
            jobs, there, registry.load("policies", name)(), models={"linear": linear()},
            physics=physics, seed=seed, periods=Periods(answer_s=60.0), listeners=[auditor.add],
            n_retries=10_000, end_at=1e6, events=departures,
        )  # fmt: skip
        auditor.simulation.run()
        finished = {event.job for event in of(auditor.journal, JobFinished)}
        declined = {command.job for command in of(auditor.journal, RejectJob)}
        assert finished | declined == {job.spec.id for job in jobs}, seed
        assert not finished & declined, seed
        assert name in DECLINING or not declined, seed
        refused = [warning for warning in of(auditor.journal, WarnUser) if warning.reason.code == "plan-refused"]
        assert all("no valid plan" in warning.reason.text for warning in refused), (seed, refused)
