"""Plug-ins that a scenario names, by family."""

from collections.abc import Iterable, Mapping
from typing import Any

from punctual import registry
from punctual.core.protocols import Controller, PerfModel
from punctual.sim.choice import named
from punctual.sim.recording import RECORDED_POLICIES
from punctual.sim.scaling import ScalingRule
from punctual.sim.traces import deadlines as deadline_rules
from punctual.sim.traces import synthetic

#: The short name is the one people use.
_DEADLINES: Mapping[str, type] = {**deadline_rules.RULES, "uniform": deadline_rules.UniformSlack}


def policy(name: str) -> type:
    """Return the class of the policy `name`; raise `InvalidSpec`, as all of these do, for an unknown name."""
    return RECORDED_POLICIES.get(name) or registry.load("policies", name)


def controller(name: str) -> type:
    """The class of the controller `name`."""
    return registry.load("controllers", name)


def controllers(names: Iterable[str | None]) -> dict[str, Controller[Any]]:
    """The controllers under their names."""
    return {name: controller(name)() for name in sorted({name for name in names if name})}


def models(names: Iterable[str | None]) -> dict[str, PerfModel[Any]]:
    """The performance models under their names."""
    return {name: registry.load("models", name)() for name in sorted({name for name in names if name})}


def scaling(name: str) -> type[ScalingRule]:
    """The class of the rule of scaling `name`."""
    return registry.load("scaling", name)


def generator(name: str) -> type[synthetic.Generator]:
    """The class of the generator `name`."""
    return registry.load(synthetic.FAMILY, name)


def deadlines(name: str) -> type[deadline_rules.DeadlineRule]:
    """The class of the deadline rule `name`."""
    return named(_DEADLINES, name, "deadline rules", "deadlines")
