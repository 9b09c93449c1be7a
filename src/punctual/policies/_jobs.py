"""Shared rules of all policies: the order of jobs, the least a job may hold, and reasons of changes."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Literal

from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.reason import Reason
from punctual.core.resources import LEAST_CORES, Resources, resource_names, total
from punctual.core.units import counted

#: The allowed count that a job gets from a policy that does not resize.
Size = Literal["largest", "smallest"]

#: Instants closer than this are the same: they are large numbers.
ROUNDING_S = 1e-6


def seniority(view: JobView) -> tuple[float, JobId]:
    """Return a key that sorts jobs by submission, then by name."""
    return view.submitted_at, view.spec.id


def is_protected(view: JobView) -> bool:
    """Whether the job runs and may not be paused."""
    return not view.spec.preemptible and view.status != "stopping"


def is_bound(view: JobView) -> bool:
    """Whether the job runs and must not leave its nodes: it may not be paused, or a move would lose all its work.

    On some clusters a move launches a job again.
    """
    return is_protected(view) or (begins_anew(view) and view.status != "stopping")


def begins_anew(view: JobView) -> bool:
    """Whether its next launch would begin at the first step, because it is never launched again from a checkpoint."""
    return view.spec.n_retries == 0


def is_steered(view: JobView) -> bool:
    """Whether a controller steers a job on a share of cores that is not being stopped."""
    return view.spec.worker is None and view.spec.controller is not None and view.status != "stopping"


def may_pause(view: JobView) -> bool:
    """Whether the job runs and may be paused; not while it starts."""
    return view.spec.preemptible and view.status not in ("starting", "stopping") and bool(view.planned)


def has_promise(view: JobView, at: float) -> bool:
    """Whether its deadline is still to come, and it was promised to be done by then or sooner."""
    until_at, deadline_at = view.promised_until_at, view.deadline_at
    return (
        until_at is not None and deadline_at is not None and deadline_at > at and deadline_at >= until_at - ROUNDING_S
    )


def n_workers(spec: JobSpec, allocation: Allocation) -> int:
    """Return the number of workers that fit in `allocation`; 1 for a job without workers that holds something."""
    unit = spec.unit
    if unit is None:
        return int(bool(allocation))
    return total(allocation.values()).n_times(unit) if allocation else 0


def n_demanded(view: JobView) -> int:
    """Return the number of workers in the demand of its controller; without a controller, the most it may have."""
    return n_workers(view.spec, {NodeId(""): view.demand})


def due_at(view: JobView) -> float:
    """Instant of the deadline; infinite without one."""
    deadline_s = view.spec.deadline_s  # `view.deadline_at` would be slower, and every plan asks this of all jobs
    return inf if deadline_s is None else view.submitted_at + deadline_s


def shares_of(amount: Resources, capacity: Resources) -> tuple[float, ...]:
    """The amount as shares of a whole: of its GPUs, cores and memory, and of each further kind that the whole has."""
    # Spelled out because it is asked for each step by which a job grows.
    shares = (
        amount.gpus / (capacity.gpus or 1),
        amount.cores / (capacity.cores or 1.0),
        amount.memory_bytes / (capacity.memory_bytes or 1),
    )
    return (*shares, *[amount.of(name) / there for name, there in capacity.others]) if capacity.others else shares


def least(spec: JobSpec, least_cores: float = LEAST_CORES) -> Resources:
    """The least that a job without workers may be given: its floor, but not nothing."""
    floor = replace(spec.floor, cores=min(max(spec.floor.cores, least_cores), spec.ceiling.cores))
    return floor or spec.ceiling


def seconds_for(steps: float | None, rate_sps: float) -> float:
    """Seconds for so many steps; infinite if the steps or the rate are unknown."""
    if steps is None or rate_sps <= 0:
        return 0.0 if steps == 0 else inf
    return steps / rate_sps


#: A deadline that cannot be promised is told of while at least so much time is left; a later word is of no use.
TOLD_LEAST_S = 1.0


def amount_text(view: JobView, allocation: Allocation, n: int | None = None) -> str:
    """Return the job's amount as text: ``"8 workers on 2 nodes"``; `n`: its workers, if known already."""
    n_nodes = len(allocation)
    where = f"node '{next(iter(allocation))}'" if n_nodes == 1 else f"{n_nodes} nodes"
    if view.spec.worker is None:
        return f"{total(allocation.values())} on {where}"
    n = n_workers(view.spec, allocation) if n is None else n
    return f"{counted(n, 'worker')} on {where}"


def starts(view: JobView, allocation: Allocation) -> Reason:
    """Return the reason for a first amount to a job that held nothing."""
    n = n_workers(view.spec, allocation)
    facts = {"n_workers": float(n), "n_nodes": float(len(allocation))}
    verb = "starts" if view.started_at is None else "goes on"
    return Reason("starts", f"{verb} with {amount_text(view, allocation, n)}", facts)


def waits(wanted: Resources, free: Mapping[NodeId, Resources]) -> Reason:
    """Return the reason why a job gets nothing yet."""
    if wanted.others:
        free_amount, names = total(free.values()), resource_names([wanted])
        facts = {f"wanted_{name}": wanted.of(name) for name in names}
        facts |= {f"free_{name}": free_amount.of(name) for name in names}
        return Reason("waits", f"waits for {wanted}: free are {free_amount}, on {len(free)} nodes", facts)
    if wanted.gpus:
        n_free = sum([amount.gpus for amount in free.values()])
        facts = {"wanted_gpus": float(wanted.gpus), "free_gpus": float(n_free)}
        return Reason("waits", f"waits for {wanted.gpus} GPUs: {n_free} are free", facts)
    free_cores = sum([amount.cores for amount in free.values()])
    facts = {"wanted_cores": wanted.cores, "free_cores": free_cores}
    return Reason("waits", f"waits for {wanted}: {free_cores:g} cores are free, on {len(free)} nodes", facts)


def never_fits(view: JobView) -> Reason:
    """Return the reason why a job can never run."""
    unit = view.spec.unit
    least_amount = unit * view.spec.worker_counts()[0] if unit else least(view.spec)
    return Reason("never-fits", f"the nodes of no kind have the {least_amount} that it needs at least, even if empty")
