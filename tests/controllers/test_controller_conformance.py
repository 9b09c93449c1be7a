"""Every registered controller of ours runs the conformance kit."""

from typing import Any

from punctual import registry
from punctual.core.protocols import Controller
from punctual.testing.controller_kit import ControllerConformance


def _conformance(controller: type[Any]) -> type[ControllerConformance]:
    def make(self: ControllerConformance) -> Controller[Any]:
        made: Controller[Any] = controller()
        return made

    return type(f"Test{controller.__name__}", (ControllerConformance,), {"make": make, "__module__": __name__})


for _name in registry.names("controllers"):
    _suite = _conformance(registry.load("controllers", _name))
    globals()[_suite.__name__] = _suite


def test_the_published_controllers_are_found() -> None:
    assert {"decor-pi", "proportional-integral"} <= set(registry.names("controllers"))
