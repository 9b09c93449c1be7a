"""Jobs from generators, by name."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from punctual import registry
from punctual.traces.job import TraceJob
from punctual.traces.named import build

#: The family of plug-ins: one file, one generator.
FAMILY = "traces.generators"


class Generator(Protocol):
    """Makes jobs; its parameters are its fields."""

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in order of submission, the same for a seed on every platform."""
        ...


def generator(name: str, parameters: Mapping[str, Any] | None = None) -> Generator:
    """The generator registered as `name`, with `parameters`.

    Raises
    ------
    InvalidSpec
        When there is no such generator or parameter, or its value will not do.
    """
    kind: type[Generator] = registry.load(FAMILY, name)
    return build(kind, name, parameters or {})
