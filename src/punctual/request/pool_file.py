"""A user's description of pools of machines: tables `[[pool]]` in the file of a cluster, simulated or live."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from punctual.core.errors import InvalidSpec
from punctual.core.pools import Market, PoolSpec
from punctual.request.cluster_file import N_NODES_MAX, MemoryGib, NodeGroup
from punctual.request.input_file import keys_in
from punctual.request.pydantic_errors import first_complaint

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
        return PoolSpec(
            name=self.name,
            capacity=self.group().capacity(),
            device=self.device,
            market=self.market,
            least=self.least,
            most=self.most,
            startup_s=self.startup_s,
            notice_s=self.notice_s,
            least_billed_s=self.least_billed_s,
        )


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
    pools = pools_of(with_trace_paths(keys.get("pool", ()), path.parent), where)
    if not pools:
        return (), None
    if "machines" not in keys:
        raise InvalidSpec(
            "a live cluster with pools must name who starts their machines",
            "no table `[machines]`",
            where,
            'Write `[machines]` with `provider = "NAME"`; `punctual simulate` plays pools without one.',
        )
    try:
        return pools, MachinesSection.model_validate(keys["machines"])
    except ValidationError as error:
        complaint = first_complaint(error, "machines", MachinesSection.model_fields)
        raise InvalidSpec(complaint.must, complaint.got, f"{complaint.where} in {where}", complaint.remedy) from None


_POOLS = TypeAdapter(Annotated[tuple[PoolSection, ...], Field(strict=False)])


def pools_of(tables: Any, where: str) -> tuple[PoolSection, ...]:
    """Make pools from values; raises `InvalidSpec` about all mistakes in them."""
    try:
        return checked_names(_POOLS.validate_python(tables))
    except ValidationError as error:
        complaint = first_complaint(error, "pool", PoolSection.model_fields)
        raise InvalidSpec(complaint.must, complaint.got, f"{complaint.where} in {where}", complaint.remedy) from None


def checked_names(pools: tuple[PoolSection, ...]) -> tuple[PoolSection, ...]:
    """Return `pools`; raises `InvalidSpec` if two have one name."""
    names = [pool.name for pool in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSpec("pools must have different names", f"'{twice}' twice", "`pool`", "Rename one.")
    return pools


def with_trace_paths(tables: Any, folder: Path) -> Any:
    """Return tables `[[pool]]` of a file in `folder` with the paths of their traces from here."""
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        return tables
    return [
        {**table, "trace": str(folder / table["trace"])}
        if isinstance(table, Mapping) and isinstance(table.get("trace"), str)
        else table
        for table in tables
    ]
