"""Promises of `promises-first` that were broken, with speeds that are known exactly.

Drawn jobs ask for three to five times what there is, with deadlines soon after the least time; each start and change costs
10 to 60 s. Some or all may not be paused, clusters have one to eight nodes, and each further node makes some jobs slower.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from _common import Results
from _report import Column, Section, Target, run, table_of

from punctual.core.cluster import Node
from punctual.core.commands import WarnUser
from punctual.core.events import JobFinished, Message, PlanProposed
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated
from punctual.policies.promises_first import PromisesFirst
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import MeasuredTruth

GPU = Resources(gpus=1)
#: Parameters under which promises are counted.
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "admission=decline": {"admission": "decline"},
    "promised_frac=1": {"promised_frac": 1.0},
    "promised_frac=1, work=early": {"promised_frac": 1.0, "work": "early"},
}
#: Nodes, and devices on each.
CLUSTERS = ((1, 16), (1, 32), (2, 16), (4, 8), (8, 4))
#: Share of the jobs that may not be paused.
UNPAUSABLE = (0.0, 0.3, 1.0)
N_JOBS = 60
N_PROMISED_WANTED = 50_000


@dataclass(slots=True)
class Count:
    """Counts of one row of the table: worlds, promises, broken ones, and those whose users were warned."""

    n_worlds: int = 0
    n_promised: int = 0
    n_broken: int = 0
    n_broken_unwarned: int = 0
    n_warned: int = 0

    def add(self, other: "Count") -> None:
        """Count another world too."""
        for name, n in asdict(other).items():
            setattr(self, name, getattr(self, name) + n)


def drawn_jobs(random: Random, n_gpus: int, unpausable_frac: float) -> list[SimJob]:
    """Jobs that together ask for three to five times what there is until the last of them comes."""
    load, most_slack, split_frac = random.uniform(3, 5), random.choice([1.5, 2.5, 4.0]), random.choice([1.0, 1.0, 0.8])
    drawn = [_drawn(random, most_slack) for _ in range(N_JOBS)]
    gap_s = sum(device_s for *_, device_s in drawn) / N_JOBS / (load * n_gpus)
    at, jobs = 0.0, []
    for i, (rates, work_steps, deadline_s, cost_s, _) in enumerate(drawn):
        at += random.choice([0.0, random.expovariate(1.0 / gap_s), 2 * random.expovariate(1.0 / gap_s)])
        measured = {(n, m): rate * split_frac ** (m - 1) for n, rate in rates.items() for m in range(1, min(n, 8) + 1)}
        profile = tuple(
            SeenRate(shape=Shape(n_workers=n, n_nodes=m), rate_sps=rate) for (n, m), rate in measured.items()
        )
        spec = JobSpec(
            id=JobId(f"job-{i:03}"), worker=GPU, counts=tuple(rates), floor=GPU, ceiling=GPU * max(rates),
            work_steps=work_steps, deadline_s=deadline_s, startup_s=cost_s, resize_cost_s=cost_s,
            preemptible=random.random() >= unpausable_frac, controller=None, model="tabulated", profile=profile,
        )  # fmt: skip
        jobs.append(SimJob(at, spec, MeasuredTruth(measured), work_steps))
    return jobs


def _drawn(random: Random, most_slack: float) -> tuple[dict[int, float], float, float, float, float]:
    """Rates by number of workers, steps, deadline, cost of a change, and device-seconds asked for."""
    power, most = random.uniform(0.6, 0.95), random.choice((2, 4, 8, 16))
    rates = {n: n**power for n in (1, 2, 4, 8, 16) if n <= most}
    asked = random.choice([n for n in rates if 4 * n >= most])
    duration_s, cost_s = 300.0 * 24.0 ** random.random(), random.uniform(10.0, 60.0)
    deadline_s = cost_s + random.uniform(1.05, most_slack) * duration_s
    return rates, rates[asked] * duration_s, deadline_s, cost_s, asked * duration_s


def world(seed: int, parameters: dict[str, Any], unpausable_frac: float) -> Count:
    """Play one drawn world."""
    random = Random(seed)
    n_nodes, n_each = CLUSTERS[seed % len(CLUSTERS)]
    jobs = drawn_jobs(random, n_nodes * n_each, unpausable_frac)
    nodes = [Node(NodeId(f"n{i}"), GPU * n_each) for i in range(n_nodes)]
    journal: list[Message] = []
    Simulation(
        jobs, nodes, PromisesFirst(**parameters), models={"tabulated": Tabulated()}, listeners=[journal.append]
    ).run()
    return counted(journal)


def counted(journal: Sequence[Message]) -> Count:
    """The promises of one journal, and what became of them."""
    promised, ends, warned = dict[JobId, float](), dict[JobId, float](), set[JobId]()
    for message in journal:
        if isinstance(message, PlanProposed) and message.plan is not None:
            promised |= message.plan.promises or {}
        elif isinstance(message, JobFinished):
            ends[message.job] = message.at
        elif isinstance(message, WarnUser) and message.reason.code.startswith("promise"):
            warned |= {job for job in [message.job] if job is not None and message.at < promised.get(job, 0.0)}
    broken = {job for job, until_at in promised.items() if ends.get(job, until_at) > until_at}
    return Count(1, len(promised), len(broken), len(broken - warned), len(warned & promised.keys()))


def measured(*, quick: bool) -> Results:
    """Play worlds until enough was promised."""
    rows = {(name, share): Count() for name in SETTINGS for share in UNPAUSABLE}
    seed = 0
    while sum(row.n_promised for row in rows.values()) < (600 if quick else N_PROMISED_WANTED):
        for (name, share), row in rows.items():
            row.add(world(seed, SETTINGS[name], share))
        seed += 1
    found = [{"parameters": name, "unpausable_frac": share, **asdict(row)} for (name, share), row in rows.items()]
    return {"n_jobs": N_JOBS, "rows": found}


def sections(results: Results) -> list[Section]:
    columns = [
        Column("worlds", "n_worlds"), Column("promises", "n_promised"), Column("broken", "n_broken"),
        Column("broken, not warned", "n_broken_unwarned"), Column("warned", "n_warned"),
    ]  # fmt: skip
    n_promised, n_broken, n_unwarned = (
        sum(row[name] for row in results["rows"]) for name in ("n_promised", "n_broken", "n_broken_unwarned")
    )
    rows = [{**row, "unpausable": f"{row['unpausable_frac']:.0%}"} for row in results["rows"]]
    table = table_of(rows, {"parameters": "parameters", "not pausable": "unpausable"}, columns)
    text = f"promises broken of {n_promised:,}, {n_unwarned} of them without a warning"
    return [Section("Promises in drawn worlds", *table, [Target(text, 0, n_broken, "{:.0f}".format)])]


if __name__ == "__main__":
    sys.exit(run("promises", __doc__, measured, sections))
