"""Immutable amounts of hardware."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache, reduce
from math import inf
from operator import add

from punctual.core.errors import InvalidSpec
from punctual.core.fast_init import unchecked_constructor
from punctual.core.units import counted, format_bytes

#: Least cores of a job without workers: the kernel takes no shorter quota, and holding nothing would pause the job.
LEAST_CORES = 0.01
#: Amounts closer than this are equal: sums of core fractions are sums of floats.
TOLERANCE = 1e-9
_LEAST = -TOLERANCE

#: The kinds of hardware that have a field.
_FIELDS = ("cores", "gpus", "memory_bytes")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

#: Amounts of further kinds of hardware with their names, in order, without zero amounts.
Others = tuple[tuple[str, float], ...]

#: `Resources.size`.
Size = tuple[float, float, int, float, int, Others]


@dataclass(frozen=True, slots=True, repr=False)
class Resources:
    """An amount of each kind of hardware. A fraction of a GPU is a part of one that several jobs share.

    Attributes
    ----------
    others
        Amounts of further kinds: disk, network, licences. Given as a mapping, or in pairs. A name has letters, digits and
        `_`, with the unit last.

    Examples
    --------
    >>> Resources(cores=0.5) + Resources(cores=1.0, gpus=1)
    Resources(cores=1.5, gpus=1, memory_bytes=0)
    >>> Resources(cores=0.5).fits_in(Resources(cores=2))
    True
    >>> print(Resources(cores=0.5, gpus=2, others={"disk_mbps": 100.0}))
    0.5 cores, 2 GPUs, 100 disk_mbps
    """

    cores: float = 0.0
    gpus: float = 0
    memory_bytes: int = 0
    others: Others = ()

    def __init__(
        self, cores: float = 0.0, gpus: float = 0, memory_bytes: int = 0, others: Mapping[str, float] | Others = ()
    ) -> None:
        # Amounts are made at every event, and the setters of slots cost half of what `object.__setattr__` does.
        _set_cores(self, cores)
        _set_gpus(self, gpus)
        _set_memory_bytes(self, memory_bytes)
        _set_others(self, _checked_others(others) if others else ())
        # One comparison chain, for the same reason; NaN fails it too.
        if not (_LEAST <= cores < inf and _LEAST <= gpus < inf and _LEAST <= memory_bytes < inf):
            raise _no_amount(str(self))

    def __post_init__(self) -> None:
        """Check an amount whose fields were set from a journal."""
        Resources.__init__(self, self.cores, self.gpus, self.memory_bytes, self.others)

    def __add__(self, other: "Resources") -> "Resources":
        if other is NOTHING:  # so many nodes hold one job, or none
            return self
        return _made(
            self.cores + other.cores,
            self.gpus + other.gpus,
            self.memory_bytes + other.memory_bytes,
            _each(add, self.others, other.others) if self.others or other.others else (),
        )

    def __sub__(self, other: "Resources") -> "Resources":
        """Return the difference; never below zero, because a deficit is not an amount."""
        if other is NOTHING:
            return self
        cores, gpus = self.cores - other.cores, self.gpus - other.gpus
        memory_bytes = self.memory_bytes - other.memory_bytes
        others = _each(_left, self.others, other.others) if self.others else ()
        if cores < 0 or gpus < 0 or memory_bytes < 0:
            return _made(max(0.0, cores), max(0, gpus), max(0, memory_bytes), others)
        return _made(cores, gpus, memory_bytes, others)

    def __mul__(self, n: int) -> "Resources":
        """`n` times the amount."""
        if n == 1:
            return self
        others = tuple([(name, amount * n) for name, amount in self.others]) if self.others else ()
        return Resources(self.cores * n, self.gpus * n, self.memory_bytes * n, others)

    def __bool__(self) -> bool:
        return self.cores > TOLERANCE or self.gpus > TOLERANCE or self.memory_bytes > 0 or self.others != ()

    def __repr__(self) -> str:
        others = f", others={dict(self.others)}" if self.others else ""
        return f"Resources(cores={self.cores!r}, gpus={self.gpus!r}, memory_bytes={self.memory_bytes!r}{others})"

    def __str__(self) -> str:
        """Return the amounts as text: ``"0.5 cores, 2 GPUs"``; omits kinds of which the amount is zero."""
        parts = [
            counted(self.cores, "core", "g") if self.cores else "",
            counted(self.gpus, "GPU", "g") if self.gpus else "",
            format_bytes(self.memory_bytes) if self.memory_bytes else "",
            *(f"{amount:g} {name}" for name, amount in self.others),
        ]
        return ", ".join(filter(None, parts)) or "nothing"

    def fits_in(self, other: "Resources") -> bool:
        return (
            self.cores <= other.cores + TOLERANCE
            and self.gpus <= other.gpus + TOLERANCE
            and self.memory_bytes <= other.memory_bytes
            and (not self.others or all(amount <= rounded_up(other.of(name)) for name, amount in self.others))
        )

    def of(self, name: str) -> float:
        """Return the amount of one kind: ``"gpus"``, or any of `others`."""
        if name in _FIELDS:
            return float(getattr(self, name))
        return next((amount for other, amount in self.others if other == name), 0.0)

    def vector(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """The amounts of the kinds `names`, which `resource_names` gives."""
        three = self.cores, self.gpus, self.memory_bytes
        return three if len(names) == len(three) else (*three, *[self.of(name) for name in names[len(three) :]])

    @property
    def size(self) -> Size:
        """Return a key for sorting: an amount that fits in another comes before it; GPUs come first."""
        others = self.others
        return (
            self.gpus,
            self.cores,
            self.memory_bytes,
            sum([amount for _, amount in others]) if others else 0.0,
            len(others),  # a small amount of one kind may be lost in the sum of large ones
            others,
        )

    def n_times(self, part: "Resources") -> int:
        """Return how many times `part` fits; 0 if not once.

        Examples
        --------
        >>> Resources(cores=7, gpus=4).n_times(Resources(cores=2, gpus=1))
        3
        """
        n: float = inf
        if part.gpus:
            n = (self.gpus + TOLERANCE) // part.gpus
        if part.cores > TOLERANCE:
            n = min(n, (self.cores + TOLERANCE) / part.cores)
        if part.memory_bytes:
            n = min(n, self.memory_bytes // part.memory_bytes)
        for name, amount in part.others:
            n = min(n, rounded_up(self.of(name)) / amount)
        return int(n) if n < inf else 0

    def ratio_to(self, part: "Resources") -> float:
        """Return the ratio to `part`, which must not be empty, by the most exact kind that `part` has."""
        if part.gpus:
            return self.gpus / part.gpus
        if part.memory_bytes:
            return self.memory_bytes / part.memory_bytes
        if part.cores:
            return self.cores / part.cores
        name, amount = part.others[0]
        return self.of(name) / amount

    def at_least(self, other: "Resources") -> "Resources":
        """The larger amount, kind by kind."""
        return _made(
            max(self.cores, other.cores),
            max(self.gpus, other.gpus),
            max(self.memory_bytes, other.memory_bytes),
            _each(max, self.others, other.others) if self.others or other.others else (),
        )

    def at_most(self, other: "Resources") -> "Resources":
        """The smaller amount, kind by kind."""
        return _made(
            min(self.cores, other.cores),
            min(self.gpus, other.gpus),
            min(self.memory_bytes, other.memory_bytes),
            _each(min, self.others, other.others) if self.others else (),
        )


_set_cores, _set_gpus, _set_memory_bytes, _set_others = (
    vars(Resources)[field.name].__set__ for field in fields(Resources)
)

#: Makes an amount of such as were checked: most amounts are sums and differences of others.
_made = unchecked_constructor(Resources)

NOTHING = Resources()


def resource_names(amounts: Iterable[Resources]) -> tuple[str, ...]:
    """Return the kinds of hardware in `amounts`: ``cores``, ``gpus``, ``memory_bytes``, then others by name."""
    return (*_FIELDS, *sorted({name for amount in amounts for name, _ in amount.others}))


def largest(amounts: Iterable[Resources]) -> Resources:
    """The most that any of `amounts` has, kind by kind."""
    return reduce(Resources.at_least, amounts, NOTHING)


def same_amount(amount: Resources, other: Resources) -> bool:
    """Whether two amounts are equal but for the rounding of sums."""
    return amount.fits_in(other) and other.fits_in(amount)


def total(amounts: Iterable[Resources]) -> Resources:
    """The sum of `amounts`."""
    rest = iter(amounts)
    first = next(rest, NOTHING)
    second = next(rest, None)
    if second is None:  # most allocations lie on one node
        return first
    cores, gpus = first.cores + second.cores, first.gpus + second.gpus
    memory_bytes = first.memory_bytes + second.memory_bytes
    others = _each(add, first.others, second.others) if first.others or second.others else ()
    for amount in rest:
        cores += amount.cores
        gpus += amount.gpus
        memory_bytes += amount.memory_bytes
        if amount.others:
            others = _each(add, others, amount.others)
    return _made(cores, gpus, memory_bytes, others)


def _each(combine: Callable[[float, float], float], one: Others, other: Others) -> Others:
    """Return `combine` kind by kind; a kind that is not named counts as 0."""
    left, right = dict(one), dict(other)
    return _checked_others({name: combine(left.get(name, 0.0), right.get(name, 0.0)) for name in {**left, **right}})


def _left(amount: float, taken: float) -> float:
    """Return the difference; 0 if only rounding is left."""
    return amount - taken if amount > rounded_up(taken) else 0.0


def rounded_up(amount: float) -> float:
    """The largest amount that is still equal: rates in bytes per second are sums of large floats."""
    return amount + TOLERANCE * max(1.0, amount)


def _checked_others(others: Mapping[str, float] | Others) -> Others:
    """Return pairs in the order of their names, without zero amounts."""
    amounts = dict(others)
    for name, amount in amounts.items():
        _check_name(name)
        if not _LEAST <= amount < inf:
            raise _no_amount(f"{amount:g} {name}")
    return tuple([(name, amounts[name]) for name in sorted(amounts) if amounts[name] > TOLERANCE])


@cache
def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in _FIELDS:
        raise InvalidSpec(
            f"a further kind of hardware must have a name of letters, digits and `_` that is none of {', '.join(_FIELDS)}",
            repr(name), "an amount of resources", "Name it with its unit, as `disk_mbps`.",
        )  # fmt: skip


def _no_amount(got: str) -> InvalidSpec:
    return InvalidSpec(
        "an amount must be finite and not negative", got, "an amount of resources", "Give numbers of zero or more."
    )
