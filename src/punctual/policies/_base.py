"""Base class of policies: name, checks of parameters, a cache of the cluster's hardware; and what a round hands on to the next."""

import re
from collections.abc import Container
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.policies._hardware import HardwareMemory
from punctual.policies._plan_builder import PlanBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBase:
    """Base of the policies. Its cache saves work and changes no decision; each policy object has its own."""

    _memory: HardwareMemory = field(default_factory=HardwareMemory, init=False, repr=False, compare=False)

    def _builder(self, snapshot: Snapshot) -> PlanBuilder:
        """An empty plan for `snapshot`."""
        return PlanBuilder(snapshot, self._memory.hardware_of(snapshot.nodes))

    def _check_choice(self, parameter: str, *choices: str) -> None:
        """Raise `InvalidSpec` unless the parameter is one of `choices`."""
        value = getattr(self, parameter)
        if value not in choices:
            raise self._wrong(f"`{parameter}` must be one of {', '.join(choices)}", f"'{value}'", "Choose one of them.")

    def _check_not_negative(self, parameter: str, unit: str = "") -> None:
        """Raise `InvalidSpec` unless the parameter is finite and zero or more."""
        value = getattr(self, parameter)
        if not 0 <= value < inf:
            must, got = f"`{parameter}` must be finite and not negative", f"{value} {unit}".strip()
            raise self._wrong(must, got, "Give zero or a positive number.")

    def _check_positive(self, parameter: str, unit: str = "") -> None:
        """Raise `InvalidSpec` unless the parameter is above zero (infinite is), or None."""
        value = getattr(self, parameter)
        if value is not None and not value > 0:
            must, got = f"`{parameter}` must be above zero", f"{value} {unit}".strip()
            raise self._wrong(must, got, "Give a positive number, or leave it out.")

    def _wrong(self, must: str, got: str, remedy: str) -> InvalidSpec:
        name = re.sub("(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()
        return InvalidSpec(must, got, f"policy '{name}'", remedy)


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
