"""Read the state that a round hands on to the next; a journal may have been written by another version."""

from collections.abc import Container
from math import isfinite
from typing import Any

from punctual.core.cluster import Snapshot
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


def with_deadlines(jobs: Container[JobId], snapshot: Snapshot) -> dict[JobId, float]:
    """Return those of the jobs that there are with their deadlines, to be handed on; 0: none."""
    views = (*snapshot.holding, *snapshot.waiting)
    return {view.id: view.deadline_at or 0.0 for view in views if view.id in jobs}


def with_same_deadline(value: object, snapshot: Snapshot) -> set[JobId]:
    """Return the jobs that a round has handed on by `with_deadlines`, but for those whose deadlines were moved since."""
    due_at = amounts_in(value)
    return {id for id, at in with_deadlines(due_at.keys(), snapshot).items() if at == due_at[id]}
