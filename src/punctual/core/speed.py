"""What the speed of a job depends on, and what is known of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of an allocation a job's speed depends on.

    Attributes
    ----------
    n_workers
        Workers that train side by side; 1 for a job that is not made of workers.
    cores
        CPU cores of all of them together.
    n_nodes
        Nodes they are spread over.
    device
        Kind of the nodes' devices (``"V100"``); of several kinds their names joined by ``+``, in alphabetical order.
    n_servers
        Parameter servers beside the workers.
    """

    n_workers: int = 1
    cores: float = 0.0
    n_nodes: int = 1
    device: str = ""
    n_servers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRate:
    """A measured speed: `rate_sps` steps per second on average over `over_s` seconds in `shape`."""

    shape: Shape
    rate_sps: float
    over_s: float = 1.0
