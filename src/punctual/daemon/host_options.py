"""How a host does its work."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from punctual import registry
from punctual.core.cluster import usual_jobs_at_once
from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.core.resources import Resources
from punctual.executors.cluster.executor import LOST_AFTER_S
from punctual.executors.cluster.node_limits import Limits, unlimited

#: The policy that takes microseconds, and the one that shares the machine among several jobs.
INLINE_POLICY, SHARING_POLICY = "proportional", "promises-first"

#: Where jobs run: on this machine, or on the nodes of a Ray cluster.
Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = ("local", "ray")
#: How grants are enforced.
ACTUATORS = ("auto", "cgroup-v2", "cgroup-v1", "pacing")
_RAY_ADDRESS = re.compile(r"auto|(ray://)?(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):[0-9]{1,5}")
#: Shorter, and there would be no time to end the jobs of a node before it counts as lost, see `channel.KEEPER_FRAC`.
_LOST_AFTER_S_MIN = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """How a host does its work; kept in the run's record, so that who resumes it does it the same way.

    Attributes
    ----------
    actuator
        How grants are enforced: ``auto``, ``cgroup-v2``, ``cgroup-v1`` or ``pacing``.
    policy
        Registered name of the policy that shares the machine among several jobs.
    shared
        Whether jobs of other commands may join.
    engine
        Where jobs run.
    address
        Of the cluster; empty: there is none.
    lost_after_s
        After so many seconds without an answer a node of a cluster is lost.
    cluster
        File that describes the nodes which are used; empty: all are.
    autoscale
        Up to so many nodes the cluster is asked for more of them where jobs wait for room; 0: it is not.
    allow_unauthenticated_ray
        Use a Ray cluster also if it lets in who has no token.
    jobs_at_once
        How many jobs that are not made of workers may run on a node at once; None: four per core.
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
        """Those of the run of which these are the facts."""
        return cls(**facts.get("options", {}))

    def check(self) -> None:
        """Raise `InvalidSpec` if something cannot be."""
        registry.check_name("policies", self.policy)
        if self.actuator not in ACTUATORS:
            raise InvalidSpec(
                "`--actuator` must be one that there is",
                f"'{self.actuator}'",
                "this installation of Punctual",
                f"{did_you_mean(self.actuator, ACTUATORS)}Use one of: {', '.join(ACTUATORS)}.",
            )
        if self.engine not in ENGINES:
            raise InvalidSpec(
                "`--engine` must be one that there is",
                f"'{self.engine}'",
                "`punctual up`",
                f"Use {' or '.join(ENGINES)}.",
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
        limits(self.cluster)
        if not self.lost_after_s >= _LOST_AFTER_S_MIN:
            raise InvalidSpec(
                f"`--node-lost-after` must be {_LOST_AFTER_S_MIN:g} s or longer",
                f"{self.lost_after_s:g} s",
                "`punctual up`",
                "What runs there must have ended before it may be started elsewhere.",
            )


def limits(cluster: str) -> Limits:
    """Which nodes of a cluster are used, as its file describes them; raises `InvalidSpec` if that cannot be read.

    Parameters
    ----------
    cluster
        The file; empty: all nodes are.
    """
    if not cluster:
        return unlimited
    from punctual.daemon.described_nodes import DescribedNodes
    from punctual.request.cluster_file import read_cluster  # needs pydantic, which is slow to load

    return DescribedNodes(read_cluster(Path(cluster)))
