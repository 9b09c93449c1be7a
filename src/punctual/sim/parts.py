"""Plug-ins that a scenario names, by family."""

from collections.abc import Iterable, Mapping
from typing import Any

from punctual import registry
from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.sim.choice import PlugInChoice, made
from punctual.sim.recording import RECORDED_POLICIES
from punctual.sim.traces import deadlines

#: The short name is the one people use.
_DEADLINES: Mapping[str, type] = {**deadlines.RULES, "uniform": deadlines.UniformSlack}


def kind(family: str, name: str) -> Any:
    """Return the class of the plug-in `name`: of a registered family, a deadline rule, or a policy of recorded runs.

    Raises
    ------
    InvalidSpec
        There is none.
    """
    if family == "policies" and name in RECORDED_POLICIES:
        return RECORDED_POLICIES[name]
    if family != "deadlines":
        return registry.load(family, name)
    if name not in _DEADLINES:
        raise InvalidSpec(
            "`deadlines` must be one of the deadline rules", f"'{name}'", "`deadlines`",
            f"{did_you_mean(name, _DEADLINES)}Known: {', '.join(_DEADLINES)}.",
        )  # fmt: skip
    return _DEADLINES[name]


def made_as(family: str, choice: PlugInChoice, where: str) -> Any:
    """Return the plug-in that `choice` names, with its parameters; raise `InvalidSpec` about what is below the path `where`."""
    return made(kind(family, choice.name), choice.parameters, where)


def by_default(family: str, names: Iterable[str | None]) -> dict[str, Any]:
    """Return the plug-ins of these names with their default parameters, by name; None and empty names are left out."""
    return {name: registry.load(family, name)() for name in sorted({name for name in names if name})}
