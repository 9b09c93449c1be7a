"""Options of a host."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from punctual import registry
from punctual.core.cluster import usual_jobs_at_once
from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.core.resources import Resources
from punctual.core.units import span
from punctual.executors.cluster.poll_schedule import LOST_AFTER_S

if TYPE_CHECKING:
    from punctual.executors.cluster.node_limits import Limits

#: The policy that takes microseconds, and the one that shares the machine among several jobs.
INLINE_POLICY, SHARING_POLICY = "proportional", "promises-first"

#: Place where jobs run: this machine, or the nodes of a Ray cluster.
Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = ("local", "ray")
#: Names of actuators.
ACTUATORS = ("auto", "cgroup-v2", "cgroup-v1", "pacing")
_RAY_ADDRESS = re.compile(r"auto|(ray://)?(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):[0-9]{1,5}")
#: Shorter, and there would be no time to end the jobs of a node before it counts as lost, see `channel.KEEPER_FRAC`.
_LOST_AFTER_S_MIN = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """Options of a host; stored in the run's record, so that a process that resumes the run uses the same ones.

    * `actuator`: enforcement of grants: ``auto``, ``cgroup-v2``, ``cgroup-v1`` or ``pacing``.
    * `policy`: registered name of the policy that shares the machine among several jobs.
    * `shared`: whether jobs of other commands may join.
    * `engine`: place where jobs run: ``local`` or ``ray``.
    * `address`: address of the cluster; empty: there is none.
    * `lost_after_s`: seconds without an answer after which a node of a cluster is lost.
    * `cluster`: file that describes the nodes to use; empty: all nodes are used.
    * `autoscale`: most nodes that the cluster is asked for while jobs wait for room; 0: it is not asked.
    * `allow_unauthenticated_ray`: use a Ray cluster even if it lets in clients without a token.
    * `jobs_at_once`: jobs without workers that may run on a node at once; None: four per core.
    """

    actuator: str = "auto"
    policy: str = SHARING_POLICY
    shared: bool = False
    engine: Engine = "local"
    address: str = ""
    lost_after_s: float = LOST_AFTER_S
    cluster: str = ""
    autoscale: int = 0
    allow_unauthenticated_ray: bool = False
    jobs_at_once: int | None = None

    def jobs_at_once_on(self, capacity: Resources) -> int:
        """Number of jobs that may run at once on a node with this capacity."""
        return self.jobs_at_once or usual_jobs_at_once(capacity.cores)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Return the options stored in a run's record."""
        return cls(**facts.get("options", {}))

    def check(self) -> None:
        """Raise `InvalidSpec` if an option is impossible."""
        registry.check_name("policies", self.policy)
        for option, value, choices in (("actuator", self.actuator, ACTUATORS), ("engine", self.engine, ENGINES)):
            if value not in choices:
                raise InvalidSpec(
                    f"`--{option}` must be one that there is",
                    f"'{value}'",
                    "this installation of Punctual",
                    f"{did_you_mean(value, choices)}Use one of: {', '.join(choices)}.",
                )
        for option in ("address", "cluster", "autoscale", "allow_unauthenticated_ray"):
            if self.engine == "local" and getattr(self, option):
                raise InvalidSpec(
                    f"`--{option.replace('_', '-')}` needs a cluster",
                    f"'{getattr(self, option)}'",
                    "`punctual up`",
                    "Add `--engine ray`, or leave it out.",
                )
        if self.engine == "ray" and self.address and not _RAY_ADDRESS.fullmatch(self.address):
            raise InvalidSpec(
                "`--address` must be that of a Ray cluster which runs",
                f"'{self.address}'",
                "`punctual up`",
                "Write auto, HOST:PORT of its head, or ray://HOST:PORT; the usual ports are 6379 and 10001.",
            )
        if self.cluster:
            limits(self.cluster)
            from punctual.daemon.machine_providers import pools_of  # as above: only with a file

            if pools_of(self.cluster) and self.autoscale:
                raise InvalidSpec(
                    "machines must be asked for in one way",
                    "`--autoscale` and tables `[[pool]]`",
                    f"'{self.cluster}'",
                    "Leave `--autoscale` out: a pool's `most` bounds its machines.",
                )
        if not self.lost_after_s >= _LOST_AFTER_S_MIN:
            raise InvalidSpec(
                f"`--node-lost-after` must be {span(_LOST_AFTER_S_MIN)} or longer",
                f"{self.lost_after_s:g} s",
                "`punctual up`",
                "What runs there must have ended before it may be started elsewhere.",
            )


def limits(cluster: str) -> "Limits":
    """Read a cluster's file and return the limits of its nodes; raises `InvalidSpec` if it cannot be read.

    `cluster`: path of the file; empty: all nodes are used without limits.
    """
    if not cluster:
        from punctual.executors.cluster.node_limits import unlimited  # commands that need no cluster load nothing of it

        return unlimited
    from punctual.daemon.configured_nodes import ConfiguredNodes
    from punctual.request.cluster_file import read_cluster  # needs pydantic, which is slow to load

    return ConfiguredNodes(read_cluster(Path(cluster)))
