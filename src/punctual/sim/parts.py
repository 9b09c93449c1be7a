"""The parts a scenario names, by family."""

from collections.abc import Mapping

from punctual import registry
from punctual.sim.choice import named


def policy(name: str) -> type:
    """The class of the policy `name`."""
    return registry.load("policies", name)


def controller(name: str) -> type:
    """The class of the controller `name`."""
    return registry.load("controllers", name)
