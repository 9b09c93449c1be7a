"""Find the provider of machines that a live cluster's file names, and the machines that daemons have left."""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import known_runs
from punctual.executors.cluster.machines import ClusterPlace, MachineProvider, PoolTerms
from punctual.executors.json_files import read_object, write_json

if TYPE_CHECKING:
    from punctual.request.cluster_file import MachinesSection, PoolSection

_LOG = logging.getLogger(__name__)

#: Providers of Punctual's by name, each as ``module:function``.
_OURS = {
    "market": "punctual.testing.machine_market:provider",
    "ray": "punctual.executors.ray_machines:provider",
    "slurm": "punctual.executors.slurm_machines:provider",
}
#: Folder in that of a run.
_MACHINES = "machines"


def provider_of(run: RunFolder, cluster: str, address: str) -> MachineProvider | None:
    """Make the provider of the machines of a run's pools; None: the run has no pools.

    Parameters
    ----------
    cluster, address
        As in a host's options.

    Raises
    ------
    InvalidSpec
        The file or the provider cannot be used.
    """
    pools, machines = _read_cluster(cluster)
    if machines is None:
        return None
    terms = {
        "provider": machines.provider,
        "options": machines.options,
        "pools": [pool.model_dump() for pool in pools],
        "file": cluster,
        "address": address,
    }
    fleet = _fleet_of(run, terms)
    provider = fleet.provider(terms)
    run.record_facts(machines=fleet.name)  # first: without it the machines count as abandoned
    fleet.record(terms)
    return provider


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines of pools that a daemon asked for, or may have: they outlive it, and cost money.

    Its folder has the files of their provider and, until it is known that none is left, the terms on which they were asked for.

    Attributes
    ----------
    name
        Name of the service to the provider, and of the folder.
    """

    run: RunFolder
    name: str

    @property
    def _folder(self) -> Path:
        return self.run.state_dir / _MACHINES / self.name

    @property
    def _terms_file(self) -> Path:
        return self._folder / "terms.json"

    @property
    def is_kept(self) -> bool:
        """Whether a daemon has the machines, or the next one goes on with them."""
        return self.run.facts().get("machines") == self.name and (self.run.is_live() or bool(self.run.open_jobs()))

    def exists(self) -> bool:
        """Whether there may be machines."""
        return self._terms_file.exists()

    def terms(self) -> dict[str, Any]:
        """Return the terms on which the machines were asked for; empty: there are none."""
        return read_object(self._terms_file)

    def record(self, terms: Mapping[str, Any]) -> None:
        """Write down the terms, before anything is asked for on them."""
        write_json(self._terms_file, terms)

    def forget(self) -> None:
        """Note that no machine is left."""
        self._terms_file.unlink(missing_ok=True)

    def provider(self, terms: Mapping[str, Any]) -> MachineProvider:
        """Make the provider of the machines; raises `InvalidSpec` if it cannot be used."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place = ClusterPlace(address=terms["address"], name=self.name, folder=str(self._folder))
        from punctual.request.cluster_file import pools_of as sections_of  # needs pydantic, too

        pools = [terms_of(pool) for pool in sections_of(terms["pools"], f"'{terms['file']}'")]
        make = maker_of(terms["provider"], terms["file"])
        provider: MachineProvider = make(pools, place, terms["options"])
        return provider

    def end(self) -> list[NodeId]:
        """End all machines that are left, and return them.

        Raises
        ------
        InvalidSpec
            They cannot be ended now.
        """
        with ExitStack() as failing:
            try:
                provider = self.provider(self.terms())
                failing.callback(provider.close, for_good=False)
                nodes = sorted(provider.machines())
                provider.close(for_good=True)
                failing.pop_all()
            except InvalidSpec:
                raise
            except Exception as error:  # whatever a provider raises, the machines may be there
                raise InvalidSpec(
                    "machines that nobody needs must be ended",
                    f"a provider that does not do it ({type(error).__name__}: {error})",
                    f"machines of '{self.run.name}', asked for by '{self.terms().get('file')}'",
                    f"Run `punctual clean` again; or end them by hand, and remove '{self._terms_file}'. They may be paid for.",
                ) from error
        self.forget()
        return nodes


def machines_ended(run: RunFolder) -> None:
    """Note that no machine of a run is left."""
    if (fleet := _present(run)) is not None:
        fleet.forget()


def has_machines(run: RunFolder) -> bool:
    """Whether the last daemon of a run may have left machines, with which the next one goes on."""
    fleet = _present(run)
    return fleet is not None and fleet.exists()


def _present(run: RunFolder) -> Fleet | None:
    name = run.facts().get("machines")
    return None if name is None else Fleet(run, str(name))


def fleets(run: RunFolder) -> list[Fleet]:
    """Return what there may be of machines that daemons of a run asked for."""
    files = sorted((run.state_dir / _MACHINES).glob("*/terms.json"))
    is_here = not files or run.machine() is None  # those of another machine are its own
    return [Fleet(run, file.parent.name) for file in files if is_here]


def abandoned() -> list[Fleet]:
    """Return what there may be of machines that no daemon has and no daemon will go on with."""
    return [fleet for run in known_runs() for fleet in fleets(run) if not fleet.is_kept]


def end_abandoned() -> None:
    """End machines that no daemon has; what fails is logged, and done by the next daemon."""
    for fleet in abandoned():
        try:
            if nodes := fleet.end():
                _LOG.warning("machines that a daemon of '%s' has left are ended: %s", fleet.run.name, ", ".join(nodes))
        except InvalidSpec as error:
            _LOG.warning("machines may be left and paid for: %s", error)


def _fleet_of(run: RunFolder, terms: Mapping[str, Any]) -> Fleet:
    """Return where a run's machines are on these terms: with those that the run has, if their provider is the same."""
    agents = str(run.facts()["agents"])
    names = (agents if number == 1 else f"{agents}-{number}" for number in count(1))
    before = (Fleet(run, name) for name in names)
    return next(fleet for fleet in before if not (known := fleet.terms()) or _has_same_provider(known, terms))


def _has_same_provider(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return all(before.get(name) == now[name] for name in ("provider", "address"))


def _read_cluster(cluster: str) -> "tuple[tuple[PoolSection, ...], MachinesSection | None]":
    """Read the pools of a live cluster's file and the machines' provider; None: it names none."""
    if not cluster:
        return (), None
    from punctual.request.cluster_file import read_pools  # needs pydantic, which is slow to load

    return read_pools(Path(cluster))


def pools_of(cluster: str) -> "tuple[PoolSection, ...]":
    """Return the pools of a live cluster's file, whose provider is there; raises `InvalidSpec` if they cannot be used."""
    pools, machines = _read_cluster(cluster)
    if machines is not None:
        maker_of(machines.provider, cluster)
    return pools


def terms_of(pool: "PoolSection") -> PoolTerms:
    """Return a pool as a provider of machines knows it."""
    return PoolTerms(
        spec=pool.spec(),
        price_usd_h=pool.price_usd_h,
        trace=pool.trace,
        trace_start_s=pool.trace_start_s,
        amounts=pool.amounts(),
        options=pool.options,
    )


def maker_of(name: str, file: str) -> Callable[..., MachineProvider]:
    """Import the function that makes a provider; raises `InvalidSpec` if it cannot be imported."""
    module, _, function = _OURS.get(name, name).partition(":")
    try:
        make: Callable[..., MachineProvider] = getattr(import_module(module), function)
    except Exception as error:  # noqa: BLE001 -- whatever the import of a user's module raises
        raise InvalidSpec(
            "the provider of machines must be one that there is",
            f"'{name}' ({error})",
            f"`machines.provider` in '{file}'",
            f"Use {' or '.join(_OURS)}, or MODULE:FUNCTION of your own.",
        ) from None
    return make
