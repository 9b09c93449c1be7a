"""Who trains together, as a worker sees it."""

from dataclasses import dataclass
from multiprocessing.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A worker's place in one generation of the group.

    Attributes
    ----------
    generation
        Number of this membership; grows by one or more with each change.
    rank, n_workers
        Which worker this is, and of how many.
    store_host, store_port
        Where the agent's store listens; empty and 0 for a worker that is alone.
    source
        Rank of the worker whose state is the training's; None: all members hold equal state already. -1: nobody holds
        any (the first generation, or all workers were lost): begin from the last checkpoint, or from the start.
    i_device
        Which of the devices that the job is shown this worker uses; None on a CPU.
    shares_device
        Whether several workers use one device.
    peers
        Connections of a worker to each parameter server; those of a server to each worker, by rank.
    """

    generation: int
    rank: int
    n_workers: int
    store_host: str = ""
    store_port: int = 0
    source: int | None = None
    i_device: int | None = None
    shares_device: bool = False
    peers: tuple[Connection, ...] = ()
