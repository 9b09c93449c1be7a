"""Every registered performance model of ours runs the conformance kit."""

from typing import Any

from punctual import registry
from punctual.core.protocols import PerfModel
from punctual.testing.model_kit import ModelConformance

#: Models that only say what was measured.
_TABLES = {"tabulated"}


def _conformance(name: str, model: type[Any]) -> type[ModelConformance]:
    def make(self: ModelConformance) -> PerfModel[Any]:
        made: PerfModel[Any] = model()
        return made

    own = {"make": make, "extrapolates": name not in _TABLES, "__module__": __name__}
    return type(f"Test{model.__name__}", (ModelConformance,), own)


for _name in registry.names("models"):
    _suite = _conformance(_name, registry.load("models", _name))
    globals()[_suite.__name__] = _suite


def test_the_models_are_found() -> None:
    known = {"all-reduce", "amdahl", "parameter-server", "tabulated"}
    assert known <= set(registry.names("models"))
