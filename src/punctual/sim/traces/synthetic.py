"""Generators of traces: their protocol."""

from collections.abc import Iterator
from typing import Protocol

from punctual.sim.traces.job import TraceJob

#: The family of plug-ins: one file, one generator.
FAMILY = "traces.generators"


class Generator(Protocol):
    """Makes jobs; its parameters are its fields."""

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in order of submission, the same for a seed on every platform."""
        ...
