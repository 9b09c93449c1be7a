"""Jobs made of workers and parameter servers, as fast as Optimus found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual.papers.optimus.served_speeds import read_laws
from punctual.papers.optimus.with_servers import ServedLaw, WithServers
from punctual.sim.speed_laws import Served
from punctual.sim.traces import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServers(WithServers):
    """The job is made of workers and parameter servers, as fast as `punctual.sim.speed_laws.Served` says.

    Attributes
    ----------
    tables
        File with measured speeds, see `punctual.papers.optimus.served_speeds`: a job's law is the one that fits its model's. Empty:
        all jobs have the one below.
    compute_frac, fixed_frac, link_frac, worker_frac, server_frac
        Terms of the law with one worker and one server, as shares of a step.
    """

    model: str | None = "parameter-server"
    tables: str = ""
    compute_frac: float = 0.75
    fixed_frac: float = 0.05
    link_frac: float = 0.15
    worker_frac: float = 0.03
    server_frac: float = 0.02
    laws: Mapping[str, Served] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        WithServers.__post_init__(self)
        object.__setattr__(self, "laws", read_laws(self.tables) if self.tables else {})
        self._shares()

    def law(self, trace: TraceJob) -> ServedLaw:
        return self.laws[trace.model_among(self.laws)] if self.tables else self._shares()

    def _shares(self) -> Served:
        return Served(self.compute_frac, self.fixed_frac, self.link_frac, self.worker_frac, self.server_frac)
