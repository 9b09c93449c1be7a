"""Declarations of a script about its phases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from punctual.tracking.complaint import invalid, whole

#: Names of phases that run once after each epoch, or names with what is known about each.
Phases = Iterable[str] | Mapping[str, "Phase | int"]


@dataclass(frozen=True, slots=True)
class Phase:
    """Declaration of one kind of phase; values that are left out are learned.

    * `count`: occurrences over the whole job; None: once after each epoch, the last included.
    * `units`: units in one occurrence (batches of an evaluation); None: as many as the last occurrence had.
    * `cost_steps`: cost of one unit, in training steps; None: it is measured.

    Raises `ValueError`: a number is negative or not a number.
    """

    count: int | None = None
    units: int | None = None
    cost_steps: float | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            whole(self.count, "count", "a phase")
        if self.units is not None:
            whole(self.units, "units", "a phase", least=1)
        if self.cost_steps is not None and not _is_amount(self.cost_steps):
            raise invalid(
                "`cost_steps` must be 0 or more", f"{self.cost_steps} steps", "a phase",
                "Give the cost of one unit in steps, as cost_steps=2.5.",
            )  # fmt: skip


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value) and value >= 0


def by_name(phases: Phases) -> dict[str, Phase]:
    """Return the declaration of each phase, in whichever form they were given."""
    if isinstance(phases, Mapping):
        declared = {name: known if isinstance(known, Phase) else Phase(count=known) for name, known in phases.items()}
    else:
        declared = {name: Phase() for name in ([phases] if isinstance(phases, str) else phases)}
    for name in declared:
        check_name(name)
    return declared


def check_name(name: object) -> None:
    """Raise `ValueError` if this cannot be the name of a phase."""
    if not isinstance(name, str) or not name:
        raise invalid(
            "the name of a phase must be a text", repr(name), "`punctual.phase`",
            "Name the kind of phase: punctual.phase('evaluate').",
        )  # fmt: skip
