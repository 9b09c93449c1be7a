"""Members of a generation, as a worker sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from multiprocessing.connection import Connection
from typing import Any, Self

from punctual.elastic_training.links import Links

#: Progress of a worker's copy of the training: steps, then evaluations since the last step. Empty if copies differ on
#: purpose: none is further than another. None: it has no copy.
Progress = Sequence[int] | None


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node of a generation with several: the address of its first worker, and its number of workers."""

    address: str
    port: int
    n_workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A worker's place in one generation of the group.

    * `generation`: number of this membership; grows by one or more with each change.
    * `rank`, `n_workers`: rank of this worker, and number of all.
    * `source`: rank of the worker whose state is the training's. -1: nobody holds any (the first generation, or all
      workers were lost): begin from the last checkpoint, or from the start.
    * `lacking`: ranks of the workers that must take the state of the source.
    * `i_device`: index of this worker's device among those that the job is shown; None on a CPU.
    * `shares_device`: whether several workers use one device.
    * `store_path`: the file in which workers with a device each find each other, in a folder that only the job's user
      may enter; empty on CPUs.
    * `links`: connections of the worker to the others; None for a single worker, and for servers.
    * `peers`: connections of a worker to each parameter server; those of a server to each worker, by rank.
    * `nodes`, `i_node`: the nodes on which the workers are, and which of them is this worker's; empty: all are on one.
      The ranks of a node follow each other.
    * `certificate`: certificate that the first workers of nodes show each other; empty for all others.
    """

    generation: int
    rank: int
    n_workers: int
    source: int = -1
    lacking: tuple[int, ...] = ()
    i_device: int | None = None
    shares_device: bool = False
    store_path: str = ""
    links: Links | None = None
    peers: tuple[Connection, ...] = ()
    nodes: tuple[NodePlace, ...] = ()
    i_node: int = 0
    certificate: str = field(default="", repr=False)

    @property
    def places(self) -> list[range]:
        """Ranks of the workers of each node."""
        counts = [place.n_workers for place in self.nodes] or [self.n_workers]
        ends = list(accumulate(counts))
        return [range(end - n, end) for end, n in zip(ends, counts, strict=True)]

    def words(self) -> dict[str, Any]:
        """Return the fields to send, without links and peers, which are handed over as files."""
        return {name: value for name, value in asdict(self).items() if name not in ("links", "peers")}

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Self:
        """Make a membership from the fields that `words` returned, also after JSON."""
        nodes = tuple(NodePlace(**place) for place in words.get("nodes", ()))
        return cls(**{**words, "lacking": tuple(words["lacking"]), "nodes": nodes})


def source_of(progresses: Sequence[Progress]) -> tuple[int, tuple[int, ...]]:
    """Compute `source` and `lacking` of a membership from the workers' progress, by rank."""
    holders = [rank for rank, progress in enumerate(progresses) if progress is not None]
    if not holders:
        return -1, ()
    source = max(holders, key=lambda rank: tuple(progresses[rank] or ()))
    n_steps = tuple(progresses[source] or ())[:1]
    return source, tuple(
        rank for rank, progress in enumerate(progresses) if progress is None or tuple(progress)[:1] < n_steps
    )
