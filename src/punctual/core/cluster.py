"""The hardware there is, and the picture of everything that a policy decides on."""

from dataclasses import dataclass

from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.resources import Resources


@dataclass(frozen=True, slots=True)
class Node:
    """One machine and what it has."""

    id: NodeId
    capacity: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The only argument of a policy.

    Attributes
    ----------
    at
        Instant of the picture, seconds.
    revision
        Number of the picture; a plan made from it carries the same number.
    nodes, jobs
        Nodes by id; jobs that have not ended, in order of submission.
    seed
        For policies that draw: the only source of randomness.
    carry
        What the policy put into its last plan, for warm starts.
    """

    at: float
    revision: int
    nodes: tuple[Node, ...]
    jobs: tuple[JobView, ...]
    seed: int = 0
    carry: object = None
