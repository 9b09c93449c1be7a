"""Give each job its demand; in a shortage, share by the policy's rule, by default more to earlier deadlines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.errors import check_above_zero
from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import LEAST_CORES, Resources, resource_names
from punctual.policies._base import PolicyBase
from punctual.policies._elastic_fill import ElasticFill, Participant
from punctual.policies._jobs import due_at, seniority
from punctual.solvers.water_filling import fill

Shortage = Literal["scale", "earliest-deadline", "deadline-weighted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional(PolicyBase):
    """Grants each job its demand; where demands do not fit, shares in inverse proportion to the time that is left.

    Use it where controllers demand no more than their job needs: then demands fit nearly always. It takes microseconds
    and plans nothing: under lasting overload many jobs become late that `promises-first` would have saved.

    Parameters
    ----------
    least_cores
        A job that has been placed holds at least this many cores, also where its floor and its demand are lower:
        holding nothing would pause it.
    reserved_cores
        Cores of each node that jobs without workers do not get, because the host itself needs them.
    shortage
        What happens where demands do not fit: share ``"deadline-weighted"``, in inverse proportion to the time that is
        left; ``"scale"`` them by one factor, which makes an urgent job late for the sake of jobs that have time; or
        fill them in the order of ``"earliest-deadline"``.

    Raises
    ------
    InvalidSpec
        `least_cores` is not a finite number above zero, `reserved_cores` is not one of zero or more, or `shortage` is none of
        the three.

    Notes
    -----
    *Formula.* On a node of capacity C with jobs i of demand d_i and floor f_i, where Σ f_i ≤ C < Σ d_i:
    grant g_i = min(d_i, max(f_i, λ·w_i)) with the level λ for which Σ g_i = C. The weights are w_i = d_i (scale) or
    w_i = 1 / (deadline_i − now) (deadline-weighted). With earliest-deadline each job in the order of deadlines gets its
    demand as long as the floors of the others still fit. Without floors in the way scaling is g_i = d_i · C / Σ d_i.

    *Source.* [decor2025], the rule for several jobs on one machine and its two variants.

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(n log n) in jobs plus waiting jobs × nodes.

    *Fails when* the floors of running jobs that may not be paused do not fit: the plan is infeasible.
    """

    least_cores: float = LEAST_CORES
    reserved_cores: float = 0.0
    shortage: Shortage = "deadline-weighted"

    def __post_init__(self) -> None:
        PolicyBase.__post_init__(self)
        check_above_zero("policy 'proportional'", least_cores=self.least_cores)

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        sharing = ElasticFill(builder, least_cores=self.least_cores, n_parts=1)
        sharing.grow(sharing.workers, lambda participant: self._rank(participant, snapshot.at))
        sharing.lay_out_workers()
        on_node: dict[NodeId, list[Participant]] = {}
        for participant in sorted(sharing.fractions, key=lambda participant: seniority(participant.view)):
            on_node.setdefault(sharing.node_of(participant), []).append(participant)
        for node, participants in on_node.items():
            self._share(sharing, node, participants)
        return builder.build()

    def _rank(self, participant: Participant, at: float) -> float:
        """Return the rank of a job made of workers; the lowest grows first."""
        if self.shortage == "earliest-deadline":
            return due_at(participant.view)
        amount, demand = _measure(participant.amount), _measure(participant.rungs[-1])
        return amount / demand if self.shortage == "scale" else amount / _urgency(participant.view, at)

    def _share(self, sharing: ElasticFill, node: NodeId, participants: Sequence[Participant]) -> None:
        """Raise the jobs on a node from their floors: cores by the rule, all else in order of submission."""
        free, at = sharing.builder.free[node], sharing.builder.snapshot.at
        floors = [participant.rungs[0].cores for participant in participants]
        demands = [participant.rungs[-1].cores for participant in participants]
        capacity_cores = max(0.0, free.cores - self.reserved_cores) + sum(floors)
        cores = self._cores([participant.view for participant in participants], demands, floors, capacity_cores, at)
        for participant, amount in zip(participants, cores, strict=True):
            extra = _whole_extra(participant, sharing.builder.free[node])
            grant = replace(participant.rungs[0] + extra, cores=amount)
            sharing.give(participant, grant, _reason(participant, grant, sharing.builder.hardware.capacity[node], node))

    def _cores(
        self, views: Sequence[JobView], demands: Sequence[float], floors: Sequence[float], capacity: float, at: float
    ) -> list[float]:
        if self.shortage == "earliest-deadline":
            return _in_order(views, demands, floors, capacity)
        weights = demands if self.shortage == "scale" else [_urgency(view, at) for view in views]
        # A demand of nothing has any weight: its floor is nothing as well.
        return fill([weight or 1.0 for weight in weights], floors, demands, capacity)


def _urgency(view: JobView, at: float) -> float:
    # A job without a deadline comes after all that have one; a deadline within a second counts as a second away.
    return 1e-12 if view.deadline_at is None else 1 / max(1.0, view.deadline_at - at)


def _measure(amount: Resources) -> float:
    """Return the amount of the scarcest resource it contains: GPUs, cores, memory, or a named one."""
    return float(amount.gpus or amount.cores or amount.memory_bytes or amount.others[0][1])


def _in_order(
    views: Sequence[JobView], demands: Sequence[float], floors: Sequence[float], capacity: float
) -> list[float]:
    """Raise one job after the other from its floor to its demand, the earliest deadline first."""
    cores, left = list(floors), max(0.0, capacity - sum(floors))
    for i in sorted(range(len(views)), key=lambda i: (due_at(views[i]), *seniority(views[i]))):
        more = min(left, demands[i] - floors[i])
        cores[i] += more
        left -= more
    return cores


def _whole_extra(participant: Participant, free: Resources) -> Resources:
    """Return the demand over the floor except cores: of each kind all if it is free, otherwise none."""
    extra = participant.rungs[-1] - participant.rungs[0]
    return Resources(
        gpus=extra.gpus if extra.gpus <= free.gpus else 0,
        memory_bytes=extra.memory_bytes if extra.memory_bytes <= free.memory_bytes else 0,
        others={name: amount for name, amount in extra.others if amount <= free.of(name)},
    )


def _reason(participant: Participant, grant: Resources, capacity: Resources, node: NodeId) -> Reason:
    demand = participant.rungs[-1]
    facts = {"demand_cores": demand.cores, "granted_cores": grant.cores, "node_cores": capacity.cores}
    if demand.fits_in(grant):
        return Reason("as-demanded", "the job gets what it demands", facts)
    if not Resources(demand.cores).fits_in(grant):
        text = f"demands exceed the {capacity.cores:g} cores of node '{node}' and are scaled down"
        return Reason("scaled", text, facts)
    missing = demand - grant
    facts |= {f"missing_{name}": missing.of(name) for name in resource_names([missing]) if name != "cores"}
    return Reason("not-whole", f"{missing} demanded over the floor: not all of it is free on node '{node}'", facts)
