"""Every registered controller of ours runs the conformance kit."""

from typing import Any

from punctual import registry
from punctual.core.protocols import Controller
from punctual.testing.controller_kit import ControllerConformance

#: Those that are meant for jobs made of workers.
_OF_WORKERS = {"two-level"}


def _conformance(controller: type[Any], *, of_workers: bool) -> type[ControllerConformance]:
    def make(self: ControllerConformance) -> Controller[Any]:
        made: Controller[Any] = controller()
        return made

    members = {"make": make, "of_workers": of_workers, "__module__": __name__}
    return type(f"Test{controller.__name__}", (ControllerConformance,), members)


for _name in registry.names("controllers"):
    _suite = _conformance(registry.load("controllers", _name), of_workers=_name in _OF_WORKERS)
    globals()[_suite.__name__] = _suite


def test_the_published_controllers_are_found() -> None:
    assert {"decor-pi", "proportional-integral"} <= set(registry.names("controllers"))
