"""Immutable amounts of hardware."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from punctual.core.errors import InvalidSpec

#: Amounts closer than this are equal: sums of core fractions are sums of floats.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each kind of hardware.

    Examples
    --------
    >>> Resources(cores=0.5) + Resources(cores=1.0, gpus=1)
    Resources(cores=1.5, gpus=1, memory_bytes=0)
    >>> Resources(cores=0.5).fits_in(Resources(cores=2))
    True
    """

    cores: float = 0.0
    gpus: int = 0
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("cores", "gpus", "memory_bytes"):
            amount = getattr(self, name)
            if not isfinite(amount) or amount < -TOLERANCE:
                raise InvalidSpec(
                    f"`{name}` must be finite and not negative", repr(amount), "an amount of resources",
                    "Give a number of zero or more.",
                )  # fmt: skip

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(self.cores + other.cores, self.gpus + other.gpus, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "Resources") -> "Resources":
        """What is left; never below zero, because a deficit is not an amount."""
        return Resources(
            max(0.0, self.cores - other.cores),
            max(0, self.gpus - other.gpus),
            max(0, self.memory_bytes - other.memory_bytes),
        )

    def __mul__(self, n: int) -> "Resources":
        """`n` times the amount."""
        return Resources(self.cores * n, self.gpus * n, self.memory_bytes * n)

    def __bool__(self) -> bool:
        return self.cores > TOLERANCE or self.gpus > 0 or self.memory_bytes > 0

    def fits_in(self, other: "Resources") -> bool:
        return (
            self.cores <= other.cores + TOLERANCE
            and self.gpus <= other.gpus
            and self.memory_bytes <= other.memory_bytes
        )

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


NOTHING = Resources()


def total(amounts: Iterable[Resources]) -> Resources:
    """The sum of `amounts`."""
    result = NOTHING
    for amount in amounts:
        result = result + amount
    return result
