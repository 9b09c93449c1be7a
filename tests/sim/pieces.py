"""Small jobs, nodes and policies to simulate with."""

from collections.abc import Iterable
from random import Random
from typing import Any

from punctual.core.cluster import Node, Snapshot
from punctual.core.events import Message
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import AllReduceTruth, Constant, SpeedLaw

GPU = Resources(gpus=1)
#: Seconds for one step with one worker, twice as fast with two: no communication.
PERFECT = AllReduceTruth(step_s=1.0, communication_frac=0.0)


def nodes(n_nodes: int = 1, n_gpus: int = 4, device: str = "") -> list[Node]:
    return [Node(NodeId(f"node-{i}"), Resources(gpus=n_gpus), device) for i in range(n_nodes)]


def sim_job(
    id: str, at: float = 0.0, *, counts: tuple[int, ...] = (1,), steps: float = 100.0, truth: SpeedLaw | None = None,
    restarts: bool = False, **declared: Any,
) -> SimJob:  # fmt: skip
    spec = JobSpec(
        id=JobId(id),
        worker=GPU,
        counts=counts,
        floor=GPU * counts[0],
        ceiling=GPU * counts[-1],
        **{"work_steps": steps, "controller": None, "preemptible": True, **declared},
    )
    return SimJob(at, spec, truth or Constant(1.0), steps, restarts)


class Fifo:
    """Starts waiting jobs in their order with their least count, on the first nodes with room; changes nothing else."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        free = {node: amount.gpus for node, amount in snapshot.free.items()}
        grants: dict[JobId, Allocation] = {}
        for view in snapshot.waiting:
            placed = place(view.spec.worker_counts()[0], free)
            if not placed:
                break
            grants[view.id] = placed
        return Plan(revision=snapshot.revision, grants=grants, keeps_others=True)


class Scripted:
    """Gives each job what the script says from an instant on."""

    def __init__(self, *steps: tuple[float, dict[str, Allocation]]) -> None:
        self._steps = steps

    def allocate(self, snapshot: Snapshot) -> Plan:
        grants = [grants for at, grants in self._steps if at <= snapshot.at][-1]
        present = {view.id for view in snapshot.jobs}
        return Plan(
            revision=snapshot.revision,
            grants={JobId(id): grant for id, grant in grants.items() if id in present},
        )


class Restless:
    """Gives random jobs random counts on random nodes, at every opportunity another; pauses the rest."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        random = Random(snapshot.seed * 1_000_003 + snapshot.revision)
        free = {node.id: node.capacity.gpus for node in snapshot.nodes}
        jobs = sorted(snapshot.jobs, key=lambda view: (view.submitted_at, view.id))
        random.shuffle(jobs)
        grants: dict[JobId, Allocation] = {}
        for view in jobs:
            # Somebody has to run, because the next opportunity may be that job's end.
            may_pause = bool(view.granted) and any(grants.values())
            grants[view.id] = {} if may_pause and random.random() < 0.1 else self._grant(view, free, random)
        return Plan(revision=snapshot.revision, grants=grants)

    @staticmethod
    def _grant(view: JobView, free: dict[NodeId, float], random: Random) -> Allocation:
        counts = [n for n in view.spec.worker_counts() if n <= sum(free.values())]
        return place(random.choice(counts), free) if counts else {}


def place(n: int, free: dict[NodeId, float]) -> Allocation:
    """`n` GPUs on the first nodes with room, taken out of `free`; empty if they do not fit."""
    placed: Allocation = {}
    for node, n_free in sorted(free.items()):
        taken = min(n - sum(amount.gpus for amount in placed.values()), n_free)
        if taken > 0:
            placed[node] = Resources(gpus=taken)
    if sum(amount.gpus for amount in placed.values()) < n:
        return {}
    for node, amount in placed.items():
        free[node] -= amount.gpus
    return placed


def on(*counts: int) -> Allocation:
    """So many GPUs on node-0, node-1 and so on."""
    return {NodeId(f"node-{i}"): Resources(gpus=n) for i, n in enumerate(counts) if n}


def play(jobs: Iterable[SimJob], on_nodes: Iterable[Node], policy: Any, **rest: Any) -> list[Message]:
    """The journal of a simulation."""
    journal: list[Message] = []
    Simulation(jobs, on_nodes, policy, listeners=[journal.append, *rest.pop("listeners", ())], **rest).run()
    return journal


def of(journal: Iterable[Message], *kinds: type, job: str | None = None) -> list[Any]:
    """The messages of some kinds, about one job or about all."""
    return [
        message for message in journal
        if isinstance(message, kinds) and (job is None or getattr(message, "job", None) == job)
    ]  # fmt: skip
