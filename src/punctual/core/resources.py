"""Immutable amounts of hardware."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import inf

from punctual.core.errors import InvalidSpec

#: Amounts closer than this are equal: sums of core fractions are sums of floats.
TOLERANCE = 1e-9
_LEAST = -TOLERANCE


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each kind of hardware. A fraction of a GPU is a part of one that several jobs share.

    Examples
    --------
    >>> Resources(cores=0.5) + Resources(cores=1.0, gpus=1)
    Resources(cores=1.5, gpus=1, memory_bytes=0)
    >>> Resources(cores=0.5).fits_in(Resources(cores=2))
    True
    """

    cores: float = 0.0
    gpus: float = 0
    memory_bytes: int = 0

    def __init__(self, cores: float = 0.0, gpus: float = 0, memory_bytes: int = 0) -> None:
        # Amounts are made at every event, and the setters of slots cost half of what `object.__setattr__` does.
        _set_cores(self, cores)
        _set_gpus(self, gpus)
        _set_memory_bytes(self, memory_bytes)
        self.__post_init__()

    def __post_init__(self) -> None:
        # One comparison chain, for the same reason; NaN fails it too.
        if not (_LEAST <= self.cores < inf and _LEAST <= self.gpus < inf and _LEAST <= self.memory_bytes < inf):
            raise InvalidSpec(
                "an amount must be finite and not negative", str(self), "an amount of resources",
                "Give numbers of zero or more.",
            )  # fmt: skip

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(self.cores + other.cores, self.gpus + other.gpus, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "Resources") -> "Resources":
        """What is left; never below zero, because a deficit is not an amount."""
        cores, gpus = self.cores - other.cores, self.gpus - other.gpus
        memory_bytes = self.memory_bytes - other.memory_bytes
        if cores < 0 or gpus < 0 or memory_bytes < 0:
            return Resources(max(0.0, cores), max(0, gpus), max(0, memory_bytes))
        return Resources(cores, gpus, memory_bytes)

    def __mul__(self, n: int) -> "Resources":
        """`n` times the amount."""
        if n == 1:
            return self
        return Resources(self.cores * n, self.gpus * n, self.memory_bytes * n)

    def __bool__(self) -> bool:
        return self.cores > TOLERANCE or self.gpus > TOLERANCE or self.memory_bytes > 0

    def __str__(self) -> str:
        """For people: ``"0.5 cores, 2 GPUs"``; kinds of which there is none are left out."""
        parts = [
            f"{self.cores:g} core{'s' * (self.cores != 1)}" if self.cores else "",
            f"{self.gpus:g} GPU{'s' * (self.gpus != 1)}" if self.gpus else "",
            f"{self.memory_bytes / 2**30:g} GiB" if self.memory_bytes else "",
        ]
        return ", ".join(filter(None, parts)) or "nothing"

    def fits_in(self, other: "Resources") -> bool:
        return (
            self.cores <= other.cores + TOLERANCE
            and self.gpus <= other.gpus + TOLERANCE
            and self.memory_bytes <= other.memory_bytes
        )

    def n_times(self, part: "Resources") -> int:
        """How many times `part`, which holds something, fits."""
        pairs = (
            (self.gpus + TOLERANCE, part.gpus),
            (self.memory_bytes, part.memory_bytes),
            (self.cores + TOLERANCE, part.cores),
        )
        return min(int(have // one) for have, one in pairs if one > 0)

    def at_least(self, other: "Resources") -> "Resources":
        """The larger amount, kind by kind."""
        return Resources(
            max(self.cores, other.cores), max(self.gpus, other.gpus), max(self.memory_bytes, other.memory_bytes)
        )

    def at_most(self, other: "Resources") -> "Resources":
        """The smaller amount, kind by kind."""
        return Resources(
            min(self.cores, other.cores), min(self.gpus, other.gpus), min(self.memory_bytes, other.memory_bytes)
        )


_set_cores, _set_gpus, _set_memory_bytes = (vars(Resources)[field.name].__set__ for field in fields(Resources))

NOTHING = Resources()


def total(amounts: Iterable[Resources]) -> Resources:
    """The sum of `amounts`."""
    rest = iter(amounts)
    first = next(rest, NOTHING)
    second = next(rest, None)
    if second is None:  # most allocations lie on one node
        return first
    cores, gpus = first.cores + second.cores, first.gpus + second.gpus
    memory_bytes = first.memory_bytes + second.memory_bytes
    for amount in rest:
        cores += amount.cores
        gpus += amount.gpus
        memory_bytes += amount.memory_bytes
    return Resources(cores, gpus, memory_bytes)
