"""Real Ray nodes on this machine, each held to a part of its cores by a control group."""

import os
import secrets
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.mounts import hierarchy

_PERIOD_US, _SHARES = 20_000, 1 << 17
_END_S_MAX = 20.0


class Group:
    """A control group with a quota, which everything is in that is started by what is in it."""

    def __init__(self, name: str, cores: float) -> None:
        cpu = hierarchy("cpu")
        if cpu is None or not os.access(cpu.own, os.W_OK):
            raise InvalidSpec(
                "nodes with a part of the cores need control groups",
                "none that may be written to (version 1, controller cpu)",
                "this machine",
                "Run the benchmark as root where there are.",
            )
        self.folder = cpu.own / name
        self.folder.mkdir()
        (self.folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (self.folder / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD_US)))
        # Else all of the node together would count as one process among those of the machine.
        (self.folder / "cpu.shares").write_text(str(_SHARES))

    def take(self, pid: int) -> None:
        """Have the process in it, and all below it."""
        for each in (pid, *descendants(pid)):
            with suppress(ProcessLookupError):
                (self.folder / "cgroup.procs").write_text(str(each))

    def pids(self) -> list[int]:
        files = self.folder.rglob("cgroup.procs")
        return [int(line) for file in files for line in file.read_text().split()]

    def kill(self) -> None:
        """As if the machine had failed: everything in it ends at once."""
        give_up_at = time.monotonic() + _END_S_MAX
        while (pids := self.pids()) and time.monotonic() < give_up_at:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self) -> None:
        self.kill()
        for folder in sorted((path.parent for path in self.folder.rglob("cgroup.procs")), reverse=True):
            folder.rmdir()


class RayNodes:
    """A cluster whose head has no CPUs, and whose other nodes have one each by Ray's accounts, and `cores` in fact."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.address = cluster, str(cluster.address)
        #: By the node's id in Ray.
        self.groups: dict[str, Group] = {}

    def add(self, cores: float) -> Group:
        node = self.cluster.add_node(num_cpus=1)
        group = Group(f"punctual-bench-{os.getpid()}-{len(self.groups)}", cores)
        self.groups[node.node_id] = group
        for processes in node.all_processes.values():
            for each in processes:
                group.take(each.process.pid)
        return group

    def group_of(self, name: NodeId, names: Sequence[NodeId]) -> Group:
        """That of the node of this name; one of `names` has no part of its id in Ray."""
        ids = {node: next((id for id in self.groups if node.endswith(f"-{id[:8]}")), None) for node in names}
        (rest,) = self.groups.keys() - ids.values()
        return self.groups[ids[name] or rest]


@contextmanager
def ray_cluster(n_head_cpus: int, folder: Path) -> Iterator[Any]:
    """A `Cluster` of Ray's, of which there is the head, and which this process is connected to; all of it is gone afterwards."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }  # fmt: skip
    warnings.simplefilter("ignore")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": n_head_cpus, "include_dashboard": False})
    try:
        ray.init(address=str(cluster.address), log_to_driver=False, configure_logging=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def ray_nodes(n_nodes: int, cores: float, folder: Path) -> Iterator[RayNodes]:
    """Start real Ray nodes; all that runs in them ends with the context."""
    with ray_cluster(0, folder) as cluster:
        nodes = RayNodes(cluster)
        try:
            for _ in range(n_nodes):
                nodes.add(cores)
            yield nodes
        finally:
            for group in nodes.groups.values():
                group.remove()
