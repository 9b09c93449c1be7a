"""The nodes of a cluster, and the snapshot from which a policy decides."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.pools import Pool
from punctual.core.resources import Resources, total


@dataclass(frozen=True, slots=True)
class Node:
    """One machine and its capacity.

    Attributes
    ----------
    device
        The kind of its devices, ``"V100"`` say.
    slowness
        CPU time of a step on this node over that on other nodes of its kind; 1 unless the node was found to be slow.
    jobs_at_once
        Limit of jobs without workers that run on the node at once; None: as many as fit.
    ends_at
        Instant at which the node is taken away; None: it stays. Policies see no other nodes.
    """

    id: NodeId
    capacity: Resources
    device: str = ""
    slowness: float = 1.0
    jobs_at_once: int | None = None
    ends_at: float | None = None

    @property
    def usual_memory_bytes(self) -> int:
        """Memory reserved on this node for a job of unknown need: an equal part; 0 without `jobs_at_once`."""
        return self.capacity.memory_bytes // self.jobs_at_once if self.jobs_at_once else 0


def usual_jobs_at_once(cores: float) -> int:
    """Default number of jobs that run on a node at once: each can hold a quarter of a core."""
    # On less than a quarter of a core a training hardly advances, and many jobs on one node slow each other down.
    return max(1, ceil(4 * cores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The only argument of a policy.

    Attributes
    ----------
    at
        Instant of the snapshot, seconds.
    revision
        Number of the snapshot; a plan made from it carries the same number.
    nodes
        Nodes in order of their ids.
    holding
        Jobs that hold something, or to which the last plan gives something.
    waiting
        The other jobs that have not ended: new ones in order of submission, and those that were paused.
    free
        Amount of each node that the last plan leaves free.
    seed
        Seed of policies that draw: their only source of randomness.
    carry
        State that the policy put into its last plan.
    pools
        Pools of machines that can be asked for. Those of their machines that are there are nodes too.
    spent_usd
        Dollars of machines of pools that count for the budget of each open job (`punctual.core.bill.Bill.claims_usd`).
    """

    at: float
    revision: int
    nodes: tuple[Node, ...]
    holding: tuple[JobView, ...]
    waiting: tuple[JobView, ...]
    free: dict[NodeId, Resources]
    seed: int = 0
    carry: object = None
    pools: tuple[Pool, ...] = ()
    spent_usd: Mapping[JobId, float] = field(default_factory=dict)

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """Unfinished jobs in order of submission."""
        return tuple(sorted(self.holding + self.waiting, key=lambda job: (job.submitted_at, job.spec.id)))

    @classmethod
    def of(
        cls, at: float, nodes: Iterable[Node], jobs: Iterable[JobView], *, revision: int = 1, seed: int = 0,
        carry: object = None, pools: tuple[Pool, ...] = (), spent_usd: Mapping[JobId, float] | None = None,
    ) -> "Snapshot":  # fmt: skip
        """Return the snapshot of `jobs` on `nodes`; a job without `planned` is planned to keep its grant."""
        nodes = tuple(nodes)
        in_order = sorted(jobs, key=lambda job: job.submitted_at)
        jobs = tuple(job if job.planned else replace(job, planned=job.granted) for job in in_order)
        taken = [(node, amount) for job in jobs for node, amount in job.planned.items()]
        free = {node.id: node.capacity - total(amount for on, amount in taken if on == node.id) for node in nodes}
        return cls(
            at=at,
            revision=revision,
            nodes=nodes,
            holding=tuple(job for job in jobs if job.planned),
            waiting=tuple(job for job in jobs if not job.planned),
            free=free,
            seed=seed,
            carry=carry,
            pools=pools,
            spent_usd=dict(spent_usd or {}),
        )
