"""Jobs of a live journal, whose work was measured."""

from dataclasses import dataclass, replace

from punctual.core.errors import InvalidSpec
from punctual.sim.job import SimJob
from punctual.sim.traces import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The job of a live journal costs what it turned out to cost: see `punctual.sim.recorded`."""

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        if trace.recorded is None or trace.spec is None:
            raise InvalidSpec(
                "the trace must be a live journal", "another one", f"job '{trace.id}'", "Take another rule of scaling."
            )
        spec = replace(trace.spec, deadline_s=trace.deadline_s, controller=controller or trace.spec.controller)
        return replace(trace.recorded, submitted_at=trace.submitted_at, spec=spec)
