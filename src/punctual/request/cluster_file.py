"""A user's description of a cluster, simulated or live: ``16x8:V100+4x4:T4``, or groups of equal nodes."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from punctual.core.cluster import Node
from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.resources import Resources
from punctual.core.units import GIB_BYTES
from punctual.request.input_file import keys_in
from punctual.request.pydantic_errors import first_complaint

_GROUP = re.compile(r"([0-9]{1,9})x([0-9]{1,9})(?::([A-Za-z0-9_.-]+))?")

#: Each node is an object in memory, and a larger cluster than any that there is.
N_NODES_MAX = 100_000

#: Default cores of a device, enough to limit no job.
PLENTY_CORES = 1_000.0


#: No machine has more than an exbibyte: a larger number is a mistake in the file.
MemoryGib = Annotated[float, Field(gt=0, le=2**30, allow_inf_nan=False)]


class NodeGroup(BaseModel):
    """`n_nodes` equal machines.

    * `nodes`: their names; empty: any will do, and in a simulation they are numbered.
    * `gpus`: devices of each node.
    * `cores`, `memory_gib`: cores and memory of each node; None: so much that it limits no job.
    * `device`: kind of the devices.
    * `jobs_at_once`: jobs without workers that may run on a node at once; None: as many as fit.
    * `others`: amounts of further kinds of hardware, of each node, by names with their units: ``disk_mbps``. Of those
      that only other groups have, it has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    nodes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    n_nodes: Annotated[int, Field(ge=1, le=N_NODES_MAX)] = 1
    gpus: Annotated[int, Field(ge=0, le=10_000)] = 0
    cores: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_gib: MemoryGib | None = None
    device: str = ""
    jobs_at_once: Annotated[int, Field(ge=1)] | None = None
    others: dict[str, float] = {}

    @model_validator(mode="before")
    @classmethod
    def _count_named(cls, given: Any) -> Any:
        names = given.get("nodes") if isinstance(given, Mapping) else None
        if not names or not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return given
        if given.get("n_nodes", len(names)) != len(names):
            raise InvalidSpec(
                "`nodes` must name each node of the group", f"{names}", "`cluster`", "Leave `n_nodes` out."
            )
        return {**given, "n_nodes": len(names)}

    @field_validator("others")
    @classmethod
    def _is_amount(cls, given: dict[str, float]) -> dict[str, float]:
        Resources(others=given)
        return given

    def capacity(self) -> Resources:
        """Capacity of one node."""
        n = max(1, self.gpus)
        # Without a figure, a node has plenty of memory: a pebibyte.
        memory_bytes = n * 2**50 if self.memory_gib is None else int(self.memory_gib * GIB_BYTES)
        cores = n * PLENTY_CORES if self.cores is None else self.cores
        return Resources(cores, self.gpus, memory_bytes, self.others)


def cluster_in(path: Path) -> Any:
    """Return the groups of nodes of a file, as written; raises `InvalidSpec` if it cannot be read, or has none."""
    cluster = keys_in(path).get("cluster")
    if cluster is None:
        raise InvalidSpec(
            "the file must describe a cluster",
            "no `cluster`",
            f"'{path}'",
            "Write a table `[[cluster]]` for each group of equal nodes: `n_nodes`, `cores`, `gpus`.",
        )
    return cluster


def read_cluster(path: Path) -> tuple[NodeGroup, ...]:
    """Read the groups of nodes of a live cluster's file, none if it has only pools; raises `InvalidSpec` if they cannot be read."""
    keys = keys_in(path)
    if "pool" in keys and "cluster" not in keys:
        return ()
    return groups_of(cluster_in(path), f"'{path}'")


def groups_of(cluster: Any, where: str) -> tuple[NodeGroup, ...]:
    """Make groups of nodes from values; raises `InvalidSpec` about all mistakes in them."""
    try:
        return checked_size(_GROUPS.validate_python(parsed_cluster(cluster)))
    except ValidationError as error:
        complaint = first_complaint(error, "cluster", NodeGroup.model_fields)
        raise InvalidSpec(complaint.must, complaint.got, f"{complaint.where} in {where}", complaint.remedy) from None


_GROUPS = TypeAdapter(Annotated[tuple[NodeGroup, ...], Field(strict=False, min_length=1)])


def parsed_cluster(given: Any) -> Any:
    """Parse `given` to groups of nodes as tables if it is text; otherwise return it.

    Raises `InvalidSpec`: the text is none.
    """
    if not isinstance(given, str):
        return given
    return tuple(_group(part, given) for part in given.split("+"))


def checked_size(groups: tuple[NodeGroup, ...]) -> tuple[NodeGroup, ...]:
    """Return `groups`; raises `InvalidSpec` if they have too many nodes together, or a name is used twice."""
    n_nodes = sum(group.n_nodes for group in groups)
    if n_nodes > N_NODES_MAX:
        raise InvalidSpec(
            f"a cluster must have at most {N_NODES_MAX:,} nodes", f"{n_nodes:,}", "`cluster`", "Take fewer nodes."
        )
    names = [name for group in groups for name in group.nodes]
    if len(set(names)) < len(names):
        raise InvalidSpec("`nodes` must name each node once", f"{names}", "`cluster`", "Name each node in one group.")
    return groups


def cluster_text(groups: tuple[NodeGroup, ...]) -> str | None:
    """Format groups as ``16x8:V100+4x4:T4``; None: the text would not be read as the same groups."""
    text = "+".join(f"{part.n_nodes}x{part.gpus}{':' if part.device else ''}{part.device}" for part in groups)
    try:
        return text if groups_of(text, "the cluster") == groups else None
    except InvalidSpec:
        return None


def nodes_of(groups: Iterable[NodeGroup]) -> list[Node]:
    """List the machines, numbered so that their names sort in order."""
    groups = tuple(groups)
    width = len(str(sum(group.n_nodes for group in groups) - 1))
    each = [(group, i) for group in groups for i in range(group.n_nodes)]
    return [
        Node(
            NodeId(group.nodes[i] if group.nodes else f"node-{number:0{width}}"),
            group.capacity(),
            group.device,
            jobs_at_once=group.jobs_at_once,
        )
        for number, (group, i) in enumerate(each)
    ]


def n_devices(groups: Iterable[NodeGroup]) -> int:
    """Number of devices of all nodes together."""
    return sum(group.n_nodes * group.gpus for group in groups)


def n_units(groups: Iterable[NodeGroup]) -> int:
    """Number of units of which a load is a share: the devices or, if there are none, the cores."""
    groups = tuple(groups)
    return n_devices(groups) or sum(int(group.n_nodes * group.capacity().cores) for group in groups)


def _group(text: str, cluster: str) -> dict[str, Any]:
    matched = _GROUP.fullmatch(text.strip())
    if not matched or not int(matched[1]):
        raise InvalidSpec(
            "a cluster must be groups of nodes, each as nodes x devices", repr(text.strip()), f"the cluster '{cluster}'",
            "Write for example `16x8`, or `16x8:V100+4x4:T4`.",
        )  # fmt: skip
    return {"n_nodes": int(matched[1]), "gpus": int(matched[2]), "device": matched[3] or ""}
