"""Checks of parameters, shared by rules and generators."""

from math import inf

from punctual.core.errors import InvalidSpec


def check(holds: bool, must: str, got: object, name: str) -> None:
    """Raise `InvalidSpec` about the parameters of `name` unless `holds`."""
    if not holds:
        raise InvalidSpec(must, str(got), f"'{name}'", "Correct the parameter, or leave it out for its default.")


def check_bounds(name: str, **bounds: float) -> None:
    """Raise `InvalidSpec` unless the parameters `bounds`, the lower one first, are finite, positive and in order."""
    (low, lowest), (high, highest) = bounds.items()
    got = f"{low}={lowest:g}, {high}={highest:g}"
    check(0 < lowest <= highest < inf, f"0 < `{low}` <= `{high}` must hold", got, name)
