"""Everybody gets what they want, or the same share of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, isfinite

from punctual.core.cluster import Node, Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan, PlanStatus
from punctual.core.resources import Resources, total
from punctual.core.story import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional:
    """Grants each job its demand; where demands do not fit, scales them all by the same factor.

    Use it where controllers demand no more than their job needs: then demands fit nearly always, and where they do
    not, nobody is singled out. It does not look at deadlines, so under lasting overload all jobs become late together.

    Parameters
    ----------
    least_cores
        A job that has been placed holds at least this many cores, also where its floor and its demand are lower:
        holding nothing would pause it.

    Raises
    ------
    InvalidSpec
        `least_cores` is not a finite number above zero.

    Notes
    -----
    *Formula.* On a node of capacity C with jobs i of demand d_i and floor f_i, where Σ f_i ≤ C < Σ d_i:
    grant g_i = max(f_i, s·d_i) with the scale s in [0, 1] for which Σ g_i = C. Without floors in the way s = C / Σ d_i.

    *Source.* [decor2025], the rule for several jobs on one machine.

    *Differs.* (1) Floors hold: the published rule scales without regard to them. (2) Several nodes: a job lies whole
    on one, which it keeps while it runs. (3) GPUs and memory are not scaled: a job gets all it demands of them or its
    floor.

    *Properties.* Deterministic; O(n log n) in jobs plus queued jobs × nodes; the order of `snapshot.jobs` does not
    matter, because jobs are taken by instant of submission and then by name.

    *Fails when* the floors of running jobs that may not be paused do not fit: the plan is infeasible.
    """

    least_cores: float = 0.01

    def __post_init__(self) -> None:
        if not (isfinite(self.least_cores) and self.least_cores > 0):
            raise InvalidSpec(
                "`least_cores` must be finite and above zero", f"{self.least_cores} cores", "policy 'proportional'",
                "Give a small number, as 0.01.",
            )  # fmt: skip

    def allocate(self, snapshot: Snapshot) -> Plan:
        claims = [self._claim(view) for view in sorted(snapshot.jobs, key=_seniority)]
        shares = {node.id: _Share(node, []) for node in sorted(snapshot.nodes, key=lambda node: node.id)}
        homes = snapshot.carry if isinstance(snapshot.carry, dict) else {}
        left_out = [claim for claim in claims if not _put_back(claim, shares, homes)]
        waiting = [claim for claim in _those_that_run_first(left_out) if not _place(claim, shares)]
        return _plan(snapshot.revision, list(shares.values()), waiting)

    def _claim(self, view: JobView) -> "_Claim":
        spec = view.spec
        floor = replace(spec.floor, cores=min(max(spec.floor.cores, self.least_cores), spec.ceiling.cores))
        return _Claim(view, floor or spec.ceiling, view.demand.at_most(spec.ceiling).at_least(floor))


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one job must have and what it wants, floor ≤ demand ≤ ceiling."""

    view: JobView
    floor: Resources
    demand: Resources

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def runs(self) -> bool:
        return self.view.status != "queued"


@dataclass(frozen=True, slots=True)
class _Share:
    """One node and the jobs on it."""

    node: Node
    claims: list[_Claim]

    def has_room_for(self, claim: _Claim) -> bool:
        return total(one.floor for one in (*self.claims, claim)).fits_in(self.node.capacity)

    def unclaimed_cores(self) -> float:
        """What demands leave free; below zero where they do not fit."""
        return self.node.capacity.cores - fsum(claim.demand.cores for claim in self.claims)


def _seniority(view: JobView) -> tuple[float, JobId]:
    return view.submitted_at, view.spec.id


def _those_that_run_first(claims: Iterable[_Claim]) -> list[_Claim]:
    return sorted(claims, key=lambda claim: not claim.runs)


def _put_back(claim: _Claim, shares: dict[NodeId, _Share], homes: dict[JobId, NodeId]) -> bool:
    """Put a running job where it is already; whether that was possible."""
    if not claim.runs:
        return False
    granted = claim.view.granted
    # A job whose launch is not answered yet holds nothing, and belongs where the last plan put it.
    home = max(granted, key=lambda node: (granted[node].cores, node)) if granted else homes.get(claim.id)
    share = shares.get(home) if home is not None else None
    if share is None or not share.has_room_for(claim):
        return False
    share.claims.append(claim)
    return True


def _place(claim: _Claim, shares: dict[NodeId, _Share]) -> bool:
    """Put a job on the node with the most free cores, of those with room for its floor; whether there was one."""
    if claim.view.granted:  # it runs somewhere else and its floor no longer fits there: moving is not this policy's
        return False
    candidates = [share for share in shares.values() if share.has_room_for(claim)]
    if not candidates:
        return False
    max(candidates, key=_Share.unclaimed_cores).claims.append(claim)
    return True


def _plan(revision: int, shares: Sequence[_Share], waiting: Sequence[_Claim]) -> Plan:
    plan = Plan(
        revision=revision,
        grants={},
        reasons={claim.id: _reason_to_wait(claim) for claim in waiting},
        status=_status(waiting),
        carry={claim.id: share.node.id for share in shares for claim in share.claims},
    )
    for share in shares:
        for claim, grant in zip(share.claims, _grants(share), strict=True):
            plan.grants[claim.id] = {share.node.id: grant}
            plan.reasons[claim.id] = _reason(claim, grant, share)
    return plan


def _status(waiting: Iterable[_Claim]) -> PlanStatus:
    """Infeasible if a job would have to be paused that may not be."""
    broken = any(claim.runs and not claim.view.spec.preemptible for claim in waiting)
    return "infeasible" if broken else "feasible"


def _grants(share: _Share) -> list[Resources]:
    """What each job on the node gets: its floor, then GPUs and memory in order of submission, then cores by scaling."""
    capacity, claims = share.node.capacity, share.claims
    cores = fill([claim.demand.cores for claim in claims], [claim.floor.cores for claim in claims], capacity.cores)
    free = capacity - total(claim.floor for claim in claims)
    grants = []
    for claim, amount in zip(claims, cores, strict=True):
        extra = _whole_extra(claim, free)
        free = free - extra
        grants.append(replace(claim.floor + extra, cores=amount))
    return grants


def _whole_extra(claim: _Claim, free: Resources) -> Resources:
    """GPUs and memory over the floor: of each kind all that is demanded if it is free, otherwise none."""
    extra = claim.demand - claim.floor
    return Resources(
        gpus=extra.gpus if extra.gpus <= free.gpus else 0,
        memory_bytes=extra.memory_bytes if extra.memory_bytes <= free.memory_bytes else 0,
    )


def fill(demands: Sequence[float], floors: Sequence[float], capacity: float) -> list[float]:
    """Scale demands down to a capacity, by one factor, but none below its floor.

    Parameters
    ----------
    demands, floors
        Shape (n,), in cores, with floors ≤ demands and Σ floors ≤ capacity.
    capacity
        In cores.

    Returns
    -------
    list of float
        Shape (n,), in cores; the demands themselves if they fit.

    Examples
    --------
    >>> fill([4.0, 2.0, 0.5], [0.0, 0.0, 0.5], 2.0)
    [1.0, 0.5, 0.5]
    """
    if fsum(demands) <= capacity:
        return list(demands)
    scale = _scale(demands, floors, capacity)
    return [max(floor, scale * demand) for demand, floor in zip(demands, floors, strict=True)]


def _scale(demands: Sequence[float], floors: Sequence[float], capacity: float) -> float:
    """The factor s with Σ max(floor, s·demand) = capacity.

    Going from the job whose floor is the smallest part of its demand upwards: while the jobs so far are scaled and
    the rest sit at their floors, the first factor that leaves the next job at its floor is the one.
    """
    order = sorted(range(len(demands)), key=lambda i: floors[i] / demands[i] if demands[i] else inf)
    scale = 0.0
    for n_scaled in range(1, len(order) + 1):
        scaled, at_floor = order[:n_scaled], order[n_scaled:]
        left = max(0.0, capacity - fsum(floors[i] for i in at_floor))
        scale = left / fsum(demands[i] for i in scaled)
        if not at_floor or scale * demands[at_floor[0]] <= floors[at_floor[0]]:
            break
    return scale


def _reason(claim: _Claim, grant: Resources, share: _Share) -> Reason:
    facts = {"demand_cores": claim.demand.cores, "granted_cores": grant.cores, "node_cores": share.node.capacity.cores}
    if claim.demand.fits_in(grant):
        return Reason("as-demanded", "the job gets what it demands", facts)
    if grant.cores < claim.demand.cores:
        text = f"demands exceed the {share.node.capacity.cores:g} cores of node '{share.node.id}' and are scaled down"
        return Reason("scaled", text, facts)
    missing = claim.demand - grant
    facts |= {"missing_gpus": float(missing.gpus), "missing_memory_bytes": float(missing.memory_bytes)}
    return Reason("not-whole", f"GPUs or memory demanded over the floor are not free on node '{share.node.id}'", facts)


def _reason_to_wait(claim: _Claim) -> Reason:
    floor = claim.floor
    facts = {
        "floor_cores": floor.cores, "floor_gpus": float(floor.gpus), "floor_memory_bytes": float(floor.memory_bytes),
    }  # fmt: skip
    return Reason("waits", "no node has room for the job's floor beside the floors of the jobs on it", facts)
