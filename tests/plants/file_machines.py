"""A provider whose machines are files, which outlive its process."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.executors.cluster.machines import ClusterPlace, DescribedMachines, MachinesUnknown, PoolTerms, Started
from punctual.executors.cluster.node_limits import NodeFacts


def provider(pools: Sequence[PoolTerms], place: ClusterPlace, options: Mapping[str, Any]) -> "FileMachines":
    """Make one; option `cloud`: the folder of all machines."""
    return FileMachines(pools, Path(options["cloud"]), place.name)


class FileMachines(DescribedMachines):
    """Its machines never join. A file `away` in the folder makes it silent."""

    poll_interval_s, retry_s = 0.05, 60.0

    def __init__(self, pools: Sequence[PoolTerms], cloud: Path, service: str) -> None:
        super().__init__(pools)
        self._cloud, self._service = cloud, service

    def _check(self) -> None:
        if (self._cloud / "away").exists():
            raise MachinesUnknown("the cloud does not answer")

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        self._check()
        for node in nodes:
            (self._cloud / f"{self._service}@{node}").touch()
        return Started(nodes=nodes)

    def end(self, nodes: Collection[NodeId]) -> None:
        self._check()
        for node in nodes:
            (self._cloud / f"{self._service}@{node}").unlink(missing_ok=True)

    def machines(self) -> Collection[NodeId]:
        self._check()
        return [NodeId(file.name.partition("@")[2]) for file in self._cloud.glob(f"{self._service}@*")]

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        return None

    def close(self, *, for_good: bool) -> None:
        if for_good:
            self.end(self.machines())
