"""Thresholds of the garbage collector during a simulation."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Whether a simulation has left objects that no search has looked at.
_is_left = False
#: New objects between two searches of the youngest, and searches of the middle ones between two of all objects.
_N_OBJECTS, _N_SEARCHES = 200_000, 100
#: Python 3.12 begins with some hundreds of frozen objects; who freezes what a program has imported freezes more than these.
_N_FROZEN_BY_PYTHON = 10_000


def is_frozen() -> bool:
    """Return whether somebody has frozen objects, which `gc.unfreeze` would thaw."""
    return gc.get_freeze_count() > _N_FROZEN_BY_PYTHON


@contextmanager
def rare_collections() -> Iterator[None]:
    """Raise the thresholds of the collector of reference cycles.

    Messages and records contain no cycles, but there are millions of them, and each search looks at all jobs: with the
    usual thresholds it takes a third of the time. Objects that are left afterwards count as old: otherwise the next search,
    of the youngest, would look at all of them. What is garbage of these goes when the next simulation begins: old objects
    alone are hardly ever looked at.
    """
    global _is_left
    thresholds = gc.get_threshold()
    if _is_left and thresholds[0]:
        gc.collect()
        _is_left = False
    gc.set_threshold(_N_OBJECTS if thresholds[0] else 0, thresholds[1], _N_SEARCHES)
    try:
        yield
    finally:
        if not is_frozen():
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*thresholds)
        _is_left = True
