"""Every controller in the folder runs the conformance kit."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import punctual.controllers
from punctual.core.protocols import Controller
from punctual.testing.controller_kit import ControllerConformance


def _controllers() -> dict[str, type[Any]]:
    """Class of every public module: `remaining_cost.py` holds `RemainingCost`."""
    found = {}
    for module in iter_modules(punctual.controllers.__path__):
        if not module.name.startswith("_"):
            name = module.name.title().replace("_", "")
            found[name] = getattr(import_module(f"punctual.controllers.{module.name}"), name)
    return found


def _conformance(controller: type[Any]) -> type[ControllerConformance]:
    def make(self: ControllerConformance) -> Controller[Any]:
        made: Controller[Any] = controller()
        return made

    return type(f"Test{controller.__name__}", (ControllerConformance,), {"make": make, "__module__": __name__})


for _name, _controller in _controllers().items():
    globals()[f"Test{_name}"] = _conformance(_controller)


def test_the_published_controllers_are_found() -> None:
    assert {"DecorPi", "ProportionalIntegral"} <= set(_controllers())
