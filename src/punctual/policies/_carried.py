"""Read the state that a round hands on to the next; a journal may have been written by another version."""

from math import isfinite
from typing import Any

from punctual.core.ids import JobId


def amounts_in(value: object) -> dict[Any, float]:
    """A table of amounts that a round has handed on, without what means nothing."""
    if not isinstance(value, dict):
        return {}
    return {
        key: float(candidate)
        for key, candidate in value.items()
        if isinstance(candidate, int | float) and isfinite(candidate) and candidate >= 0
    }


def stalls_in(value: object) -> dict[JobId, tuple[float, float]]:
    """Spans of time that a round has handed on, without what means nothing."""
    named = value.items() if isinstance(value, dict) else ()
    return {
        JobId(str(id)): (float(span[0]), float(span[1]))
        for id, span in named
        if isinstance(span, list)
        and len(span) == 2
        and all(isinstance(at, int | float) and isfinite(at) for at in span)
    }


def listed(value: object) -> list[Any]:
    """Return a list from the carry; an empty one for any other value."""
    return value if isinstance(value, list) else []
