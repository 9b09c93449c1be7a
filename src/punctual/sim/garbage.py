"""Thresholds of the garbage collector during a simulation."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Whether a simulation has left objects that no search has looked at.
_is_left = False
#: Whether objects were seen to be frozen; they take long to count, and whoever freezes them mostly keeps them so.
_is_frozen = False


def is_frozen() -> bool:
    """Return whether somebody has frozen objects, which `gc.unfreeze` would thaw; once seen, it is taken to stay so."""
    global _is_frozen
    # Python 3.12 begins with some hundreds of frozen objects; who freezes what a program has imported freezes more
    # than these.
    _is_frozen = _is_frozen or gc.get_freeze_count() > 10_000
    return _is_frozen


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
    # New objects between two searches of the youngest, and searches of the middle ones between two of all objects.
    gc.set_threshold(200_000 if thresholds[0] else 0, thresholds[1], 100)
    try:
        yield
    finally:
        if not is_frozen():
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*thresholds)
        _is_left = True
