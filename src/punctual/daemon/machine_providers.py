"""Find the provider of machines that a live cluster's file names."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.daemon.run_folder import RunFolder
from punctual.executors.cluster.machines import ClusterPlace, MachineProvider, PoolTerms
from punctual.request.pool_file import PoolSection, read_pools

#: Providers of Punctual's by name, each as ``module:function``.
_OURS = {
    "market": "punctual.testing.machine_market:provider",
    "ray": "punctual.executors.ray_machines:provider",
    "slurm": "punctual.executors.slurm_machines:provider",
}


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
    pools, machines = read_pools(Path(cluster)) if cluster else ((), None)
    if machines is None:
        return None
    folder = run.state_dir / "machines"
    folder.mkdir(exist_ok=True)
    place = ClusterPlace(address=address, name=run.facts()["agents"], folder=str(folder))
    make = maker_of(machines.provider, cluster)
    provider: MachineProvider = make([terms_of(pool) for pool in pools], place, machines.options)
    return provider


def pools_of(cluster: str) -> tuple[PoolSection, ...]:
    """Return the pools of a live cluster's file, whose provider is there; raises `InvalidSpec` if they cannot be used."""
    pools, machines = read_pools(Path(cluster)) if cluster else ((), None)
    if machines is not None:
        maker_of(machines.provider, cluster)
    return pools


def terms_of(pool: PoolSection) -> PoolTerms:
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
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidSpec(
            "the provider of machines must be one that there is",
            f"'{name}' ({error})",
            f"`machines.provider` in '{file}'",
            f"Use {' or '.join(_OURS)}, or MODULE:FUNCTION of your own.",
        ) from None
    return make
