"""Random numbers that depend only on the seed, not on the platform or the version of Python."""

from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import pairwise
from random import Random
from typing import TypeVar

T = TypeVar("T")

_N_BITS = 53
_N_UNIFORMS = 12


def fraction(*names: object) -> float:
    """A number from 0 to below 1 that depends on `names` and on nothing else."""
    text = "\0".join(map(str, names)).encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    return (drawn >> (64 - _N_BITS)) / float(1 << _N_BITS)


class Draw:
    """A stream of random numbers.

    Of Python's generator only `random()` is used, which is the one method whose values will never change; and no
    function of the platform's mathematical library, whose last digits differ.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random  # noqa: S311 -- nobody is kept out by these

    def uniform(self, low: float, high: float) -> float:
        """Uniform from `low` to `high`."""
        return low + (high - low) * self._random()

    def count(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included, all equally likely."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, frac: float) -> bool:
        """True in `frac` of all cases."""
        return self._random() < frac

    def one_of(self, choices: Sequence[T]) -> T:
        """Return one of `choices`, all equally likely."""
        return choices[self.count(0, len(choices) - 1)]

    def pick(self, choices: Sequence[tuple[T, float]]) -> T:
        """Return one of `choices`, with probability proportional to its number."""
        left = self._random() * weight_of(choices)
        for choice, weight in choices:
            left -= weight
            if left < 0:
                return choice
        return choices[-1][0]

    def exponential(self, mean: float) -> float:
        """Exponential with mean `mean`, by comparisons alone (von Neumann 1951).

        A run of falling uniforms of odd length, which has probability 1 - 1/e or exp(-x) given its first value x, ends
        the search; each failed run adds 1.
        """
        n_whole = 0
        while True:
            first = last = self._random()
            length = 1
            while (following := self._random()) < last:
                last = following
                length += 1
            if length % 2:
                return mean * (n_whole + first)
            n_whole += 1

    def between(self, quantiles: Sequence[tuple[float, float]]) -> float:
        """Draw from a distribution given by some of its quantiles, linear between them.

        Parameters
        ----------
        quantiles
            Pairs of a fraction and a value, ascending from fraction 0 to fraction 1.
        """
        at = self._random()
        for (low, low_value), (high, high_value) in pairwise(quantiles):
            if at <= high:
                return low_value + (high_value - low_value) * (at - low) / (high - low)
        return quantiles[-1][1]


def stream(seed: int, kind: str, name: str) -> Draw:
    """Return the stream of draws of one kind for one job or node; equal in every process and on every platform."""
    text = f"{seed}\0{kind}\0{name}".encode("utf-8", "surrogatepass")
    return Draw(int.from_bytes(blake2b(text, digest_size=8).digest(), "big"))


def log_normal(draw: Draw, sigma: float, mean_log: float = 0.0) -> float:
    """A factor whose logarithm has mean `mean_log` and standard deviation `sigma`.

    The logarithm is a sum of uniforms, which no platform adds differently, and so ends at six standard deviations;
    the power is taken in decimals, because the last digit of a platform's exponential function is its own.
    """
    normal = -_N_UNIFORMS / 2
    for _ in range(_N_UNIFORMS):
        normal += draw.uniform(0.0, 1.0)
    return float(Decimal(mean_log + sigma * normal).exp())


def weight_of(choices: Sequence[tuple[object, float]]) -> float:
    """The sum of the numbers beside `choices`."""
    total = 0.0
    for _, weight in choices:  # not `sum`, which rounds differently from Python 3.12 on
        total += weight
    return total


def mean_of(choices: Sequence[tuple[float, float]]) -> float:
    """The mean of what `Draw.pick` draws."""
    return weight_of([(None, value * weight) for value, weight in choices]) / weight_of(choices)


def mean_between(quantiles: Sequence[tuple[float, float]]) -> float:
    """The mean of what `Draw.between` draws."""
    pieces = pairwise(quantiles)
    return weight_of([(None, (high - low) * (a + b) / 2) for (low, a), (high, b) in pieces])
