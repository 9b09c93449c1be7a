"""Base class of policies: name, checks of parameters, a cache of the cluster's hardware; and what a round hands on to the next."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from typing import Literal, get_args, get_origin

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.policies._hardware import HardwareMemory
from punctual.policies._plan_builder import PlanBuilder

#: Units of parameters, by the ends of their names.
_UNITS = {"s": "s", "cores": "cores", "sigmas": "standard deviations"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBase:
    """Base of the policies. Its cache saves work and changes no decision; each policy object has its own."""

    _memory: HardwareMemory = field(default_factory=HardwareMemory, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `InvalidSpec` unless each choice is one of its type, and each number is finite and not negative."""
        for each in fields(self):
            if get_origin(each.type) is Literal:
                self._check_choice(each.name, *get_args(each.type))
            elif isinstance(getattr(self, each.name), int | float):
                self._check_not_negative(each.name, _UNITS.get(each.name.rpartition("_")[2], ""))

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


def with_deadlines(jobs: Container[JobId], snapshot: Snapshot) -> dict[JobId, float]:
    """Return those of the jobs that there are with their deadlines, to be handed on; 0: none."""
    views = (*snapshot.holding, *snapshot.waiting)
    return {view.id: view.deadline_at or 0.0 for view in views if view.id in jobs}


def with_same_deadline(due_at: Mapping[JobId, float], snapshot: Snapshot) -> set[JobId]:
    """Return the jobs that a round has handed on by `with_deadlines`, but for those whose deadlines were moved since."""
    return {id for id, at in with_deadlines(due_at, snapshot).items() if at == due_at[id]}
