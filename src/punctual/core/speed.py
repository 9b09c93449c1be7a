"""The shape on which a job's speed depends, and the curve of its learned speed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from sys import float_info
from typing import Any

from punctual.core.fast_init import fast_init, unchecked_constructor

#: Less is no speed: its inverse is infinite.
_LEAST_SPS = float_info.min


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The part of an allocation on which a job's speed depends.

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


made_shape = unchecked_constructor(Shape)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRate:
    """A measured speed: `rate_sps` steps per second on average over `over_s` seconds in `shape`."""

    shape: Shape
    rate_sps: float
    over_s: float = 1.0


@fast_init
@dataclass(frozen=True, slots=True)
class RateCurve:
    """A job's learned speed; hides its model and that model's state."""

    model: Any
    state: Any

    def rate_sps(self, shape: Shape) -> float:
        """Return the expected steps per second; 0 if the job cannot run or is unknown (then `std_sps` is infinite)."""
        rate: float = self.model.rate_sps(self.state, shape)
        return rate if _LEAST_SPS <= rate < inf else 0.0  # whatever the model answers: plans are made for others too

    def std_sps(self, shape: Shape) -> float:
        """Return the standard deviation of `rate_sps`, in steps per second."""
        std: float = self.model.std_sps(self.state, shape)
        return std if std >= 0.0 else inf

    def served_sps(
        self, n_workers: Sequence[int], n_servers: Sequence[int], device: str
    ) -> Sequence[Sequence[float]] | None:
        """Return rates by numbers of workers (rows) and servers; None if the model has no such batch query."""
        answer = getattr(self.model, "served_sps", None)
        return None if answer is None else answer(self.state, n_workers, n_servers, device)
