"""A user's description of a cluster, simulated or live: groups of equal nodes, ``16x8:V100+4x4:T4``, and pools of machines."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from punctual.core.cluster import Node
from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.pools import Market, PoolSpec
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
    """Make groups of nodes from values; raises `InvalidSpec` about the first mistake in them."""
    groups = Annotated[tuple[NodeGroup, ...], Field(strict=False, min_length=1)]
    return checked_size(_made_of(groups, parsed_cluster(cluster), "cluster", NodeGroup, where))


def _made_of(kind: Any, given: Any, key: str, section: type[BaseModel], where: str) -> Any:
    """Make an object of type `kind` from the values `given`; raises `InvalidSpec` about the first mistake in them.

    * `key`: key of the values in their file.
    * `section`: type whose fields are the known keys below it.
    * `where`: the file.
    """
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise first_complaint(error, key, section.model_fields, where) from None


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


_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PoolSection(BaseModel):
    """Equal machines that can be asked for.

    * `name`: its machines are named after it.
    * `gpus`, `cores`, `memory_gib`, `device`: one machine, as in a group of nodes.
    * `market`: whether machines are taken away (`spot`), stay (`on-demand`), or are paid for already (`own`).
    * `price_usd_h`: price of a machine-hour; None: the trace has it, or the machines are one's own.
    * `trace`: file with the machines that could be had over time, for a simulation; None: always `most`.
    * `trace_start_s`: the simulation begins so many seconds after the trace; what comes before has been seen.
    * `least`, `most`: least and most machines at once.
    * `startup_s`, `notice_s`, `least_billed_s`: see `punctual.core.pools.PoolSpec`.
    * `options`: further keys for a live cluster's provider of machines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
    gpus: Annotated[int, Field(ge=0, le=10_000)] = 0
    cores: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_gib: MemoryGib | None = None
    device: str = ""
    market: Market
    price_usd_h: _Seconds | None = None
    trace: str | None = None
    trace_start_s: _Seconds = 0.0
    least: Annotated[int, Field(ge=0)] = 0
    most: Annotated[int, Field(ge=1, le=N_NODES_MAX)]
    startup_s: _Seconds = 0.0
    notice_s: _Seconds = 0.0
    least_billed_s: _Seconds = 0.0
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.least > self.most:
            self._refuse("`least` must be at most `most`", f"{self.least} and {self.most}", "Lower `least`.")
        if self.market == "own" and (self.price_usd_h or self.trace):
            got = "`trace`" if self.trace else f"`price_usd_h` = {self.price_usd_h:g}"
            self._refuse("one's own machines must have no price and no trace", got, "Leave it out, or name a market.")
        if self.market != "own" and self.price_usd_h is None and self.trace is None:
            self._refuse("a pool must have a price", "none", "Write `price_usd_h`, or a `trace` that has prices.")
        if self.trace is None and self.trace_start_s:
            self._refuse("`trace_start_s` needs a trace", "none", "Write `trace`, or leave `trace_start_s` out.")
        return self

    def _refuse(self, must: str, got: str, remedy: str) -> None:
        raise InvalidSpec(must, got, f"pool '{self.name}'", remedy)

    def group(self) -> NodeGroup:
        """Return all its machines as a group of nodes."""
        return NodeGroup(
            n_nodes=self.most, gpus=self.gpus, cores=self.cores, memory_gib=self.memory_gib, device=self.device
        )

    def amounts(self) -> dict[str, float]:
        """Return the amounts of one machine that its user has named."""
        named = {"cores": self.cores, "gpus": self.gpus or None, "memory_gib": self.memory_gib}
        return {name: amount for name, amount in named.items() if amount is not None}

    def spec(self) -> PoolSpec:
        """Return the pool as the core knows it."""
        alike = {field.name for field in fields(PoolSpec)} - {"capacity"}
        return PoolSpec(capacity=self.group().capacity(), **self.model_dump(include=alike))


class MachinesSection(BaseModel):
    """Table `[machines]` of a live cluster's file: who starts machines of pools.

    * `provider`: name of a provider of Punctual's, or ``module:function`` of another.
    * `options`: further keys, for the provider.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    provider: str
    options: dict[str, Any] = {}


def read_pools(path: Path) -> tuple[tuple[PoolSection, ...], MachinesSection | None]:
    """Read the pools of a live cluster's file and their provider; raises `InvalidSpec` if they cannot be used. None: no pools."""
    keys, where = keys_in(path), f"'{path}'"
    pools = pools_of(with_trace_paths(keys.get("pool", ()), lambda text: str(path.parent / text)), where)
    if not pools:
        return (), None
    if "machines" not in keys:
        raise InvalidSpec(
            "a live cluster with pools must name who starts their machines",
            "no table `[machines]`",
            where,
            'Write `[machines]` with `provider = "NAME"`; `punctual simulate` plays pools without one.',
        )
    return pools, _made_of(MachinesSection, keys["machines"], "machines", MachinesSection, where)


def pools_of(tables: Any, where: str) -> tuple[PoolSection, ...]:
    """Make pools from values; raises `InvalidSpec` about the first mistake in them."""
    pools = Annotated[tuple[PoolSection, ...], Field(strict=False)]
    return checked_names(_made_of(pools, tables, "pool", PoolSection, where))


def checked_names(pools: tuple[PoolSection, ...]) -> tuple[PoolSection, ...]:
    """Return `pools`; raises `InvalidSpec` if two have one name."""
    names = [pool.name for pool in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSpec("pools must have different names", f"'{twice}' twice", "`pool`", "Rename one.")
    return pools


def with_trace_paths(tables: Any, moved: Callable[[str], str]) -> Any:
    """Return tables `[[pool]]` with the path of each trace `moved`."""
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        return tables
    return [
        {**table, "trace": moved(table["trace"])}
        if isinstance(table, Mapping) and table.get("trace") and isinstance(table["trace"], str)
        else table
        for table in tables
    ]
