"""Jobs made of workers and parameter servers that exchange a network layer by layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual.core.errors import check_above_zero
from punctual.papers.optimus.with_servers import ServedLaw, WithServers
from punctual.papers.smd.layers import LayeredServed, LayerTimes, Overlap, read_tables
from punctual.sim.scaling._base import WHERE
from punctual.sim.traces import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredServers(WithServers):
    """The job is made of workers and parameter servers that exchange its network layer by layer [smd2021].

    Its speed is that of `punctual.papers.smd.layers.LayeredServed`. By default it is declared for all numbers of workers and
    servers up to 16 each, so that policies plan with what the layers say.

    Attributes
    ----------
    tables
        File with the measured layers of one network, which all jobs train, or folder with ``MODEL.csv`` for the models
        that the trace names.
    bandwidth_bytes_per_s
        Bandwidth of the link between a worker and a server. The default is 10 Gbit/s.
    overlap, slice_s, worker_s, server_s
        See the law.
    """

    model: str | None = "tabulated"
    n_samples: int = 256
    tables: str
    bandwidth_bytes_per_s: float = 1.25e9
    overlap: Overlap = "wait-free"
    slice_s: float = 0.0
    worker_s: float = 0.0
    server_s: float = 0.0
    laws: Mapping[str, LayeredServed] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        WithServers.__post_init__(self)
        check_above_zero(WHERE, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s)
        laws = {
            model: LayeredServed(
                times=LayerTimes.of(layers, self.bandwidth_bytes_per_s),
                overlap=self.overlap,
                slice_s=self.slice_s,
                worker_s=self.worker_s,
                server_s=self.server_s,
            )
            for model, layers in read_tables(self.tables).items()
        }
        object.__setattr__(self, "laws", laws)

    def law(self, trace: TraceJob) -> ServedLaw:
        return self.laws[""] if "" in self.laws else self.laws[trace.model_among(self.laws)]
