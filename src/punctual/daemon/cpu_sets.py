"""CPU sets of jobs (`taskset`): bound each job's cores so that jobs whose sets overlap fit together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from punctual.core.cluster import Snapshot
from punctual.core.events import Event, PlanProposed
from punctual.core.ids import JobId
from punctual.core.job import JobView, awaits_promise
from punctual.core.plan import Plan
from punctual.core.protocols import Sink
from punctual.core.quoting import Quote, QuoteRequest, with_job
from punctual.core.reason import Reason
from punctual.core.resources import TOLERANCE
from punctual.daemon.planner import QuotingPlanner

Cpus = frozenset[int]


class CpuSets:
    """CPUs of a machine's jobs; for any thread.

    Parameters
    ----------
    own
        CPUs of the daemon, which jobs without a set of their own have.

    Attributes
    ----------
    all
        CPUs of the daemon and of all jobs that it has had: a capacity that grows, and never breaks a promise.
    """

    def __init__(self, own: Iterable[int]) -> None:
        self._own = self.all = Cpus(own)
        self._of: dict[JobId, Cpus] = {}

    def add(self, job: JobId, cpus: Iterable[int]) -> None:
        """Add a job, with the daemon's CPUs if it has none of its own."""
        self._of[job] = Cpus(cpus) or self._own
        self.all |= self._of[job]

    def remove(self, job: JobId) -> None:
        """Remove a job that has ended."""
        self._of.pop(job, None)

    def bounds(self, snapshot: Snapshot) -> list["Bound"]:
        """Return the bounds of the jobs that may use only some of the CPUs."""
        sets = {job: cpus for job, cpus in list(self._of.items()) if cpus < self.all}
        return bounds_within(snapshot, sets) if sets else []


@dataclass(slots=True)
class Bound:
    """Cores that a job may have, of those of its own CPUs.

    Attributes
    ----------
    holds
        Whether it holds something, or is planned to.
    cores
        As many as are free for it on its CPUs.
    """

    view: JobView
    cpus: Cpus
    holds: bool
    cores: float = 0.0

    @property
    def most_cores(self) -> float:
        """Cores that it may use at most."""
        return self.view.spec.ceiling.cores

    @property
    def least_cores(self) -> float:
        """Cores without which it cannot run, as far as its CPUs have them; a job made of workers has all of its own."""
        least = self.most_cores if self.view.spec.worker is not None else self.view.spec.floor.cores
        return min(least, float(len(self.cpus)))

    @property
    def demand_cores(self) -> float:
        """Demand of its controller."""
        return min(max(self.view.demand.cores, self.least_cores), self.most_cores)

    @property
    def waits(self) -> bool:
        """Whether it cannot start for want of room on its CPUs."""
        return not self.holds and self.cores < self.least_cores - TOLERANCE

    @property
    def binds(self) -> bool:
        """Whether it may have less than it could use."""
        return self.waits or self.cores < self.most_cores - TOLERANCE

    def bounded(self) -> JobView:
        """Return the job with this ceiling."""
        spec, work = self.view.spec, self.view.work
        if not self.binds or spec.worker is not None:
            return self.view
        ceiling = replace(spec.ceiling, cores=max(self.cores, spec.floor.cores))
        if work is not None:
            work = replace(work, usable_cores=min(work.usable_cores, ceiling.cores))
        demand = self.view.demand.at_most(ceiling)
        return replace(self.view, spec=replace(spec, ceiling=ceiling), demand=demand, work=work)

    def reason(self) -> Reason:
        """Return the reason why it has no more."""
        cpus = f"CPU{'s' * (len(self.cpus) > 1)} {', '.join(map(str, sorted(self.cpus)))}"
        text = f"waits: it may use {cpus} only, where other jobs leave it less than its least of {self.least_cores:g} cores"
        if not self.waits:
            text = f"it may use {cpus} only, and shares them: at most {self.cores:.3g} cores are left to it"
        return Reason("cpu-set", text, {"set_cores": float(len(self.cpus)), "left_cores": self.cores})


def bounds_within(snapshot: Snapshot, sets: Mapping[JobId, Cpus]) -> list[Bound]:
    """Return bounds with which all jobs with CPU sets can have their most cores at the same time, on their own CPUs.

    Parameters
    ----------
    sets
        CPUs of the jobs that may not use all of them.

    Notes
    -----
    Cores are given on each CPU, so that the bounds fit whatever the sets have in common: first the floors of running jobs,
    then the demands of promised ones, the floors of waiting ones in order of submission, and equal parts of the rest. Jobs
    with all CPUs need no bound: the capacity of the machine is theirs.
    """
    holding = {view.id for view in snapshot.holding}
    bounds = [Bound(view, sets[view.id], view.id in holding) for view in snapshot.jobs if view.id in sets]
    free = dict.fromkeys(Cpus().union(*sets.values()), 1.0)
    _raise(free, [(bound, bound.least_cores) for bound in bounds if bound.holds])
    _raise(free, [(bound, bound.demand_cores) for bound in bounds if bound.view.promised_until_at is not None])
    for bound in bounds:
        if bound.waits:
            _raise(free, [(bound, bound.least_cores)])
    _raise(free, [(bound, bound.most_cores) for bound in bounds if not bound.waits])
    return bounds


def _raise(free: dict[int, float], targets: Iterable[tuple[Bound, float]]) -> None:
    """Raise bounds to their targets, by equal parts of what is `free` of each CPU where that is too little."""
    wanting, raised = list(targets), 1.0
    while raised > TOLERANCE:
        raised = 0.0
        wanting = [(bound, target) for bound, target in wanting if target > bound.cores + TOLERANCE]
        n_takers = {cpu: sum(cpu in bound.cpus for bound, _ in wanting) for cpu in free}
        # CPUs of the fewest jobs first, and of these the jobs with the fewest CPUs: they have no others.
        for cpu in sorted(free, key=lambda cpu: (n_takers[cpu], cpu)):
            takers = sorted(
                (len(bound.cpus), bound.view.id, i) for i, (bound, _) in enumerate(wanting) if cpu in bound.cpus
            )
            for n_before, (_, _, i) in enumerate(takers):
                bound, target = wanting[i]
                more = max(0.0, min(target - bound.cores, free[cpu] / (len(takers) - n_before)))
                bound.cores, free[cpu], raised = bound.cores + more, free[cpu] - more, raised + more


class ConfinedPlanner:
    """Plans within the bounds that the CPU sets of jobs put on them."""

    def __init__(self, planner: QuotingPlanner, sets: CpuSets) -> None:
        self._planner, self._sets = planner, sets

    def use(self, policy: str, parameters: Mapping[str, Any]) -> None:
        self._planner.use(policy, parameters)

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        bounds = {bound.view.id: bound for bound in self._sets.bounds(snapshot)}
        if not bounds:
            self._planner.request(snapshot, sink)
            return
        self._planner.request(_confined(snapshot, bounds), lambda event: sink(_explained(event, bounds)))

    def quote(self, request: QuoteRequest, limit_s: float) -> Quote:
        asked = with_job(request.snapshot, request.view)
        bounds = {bound.view.id: bound for bound in self._sets.bounds(asked)}
        view = bounds[request.view.id].bounded() if request.view.id in bounds else request.view
        return self._planner.quote(replace(request, snapshot=_confined(request.snapshot, bounds), view=view), limit_s)


def _confined(snapshot: Snapshot, bounds: Mapping[JobId, Bound]) -> Snapshot:
    """Return the snapshot with bounded jobs, and without those that have no room."""

    def confined(views: Iterable[JobView]) -> tuple[JobView, ...]:
        known = [(view, bounds.get(view.id)) for view in views]
        return tuple(view if bound is None else bound.bounded() for view, bound in known if not (bound and bound.waits))

    return replace(snapshot, holding=confined(snapshot.holding), waiting=confined(snapshot.waiting))


def _explained(event: Event, bounds: Mapping[JobId, Bound]) -> Event:
    """Return the plan with its bounds as the reasons of what they bind, where the plan says anything of it."""
    if not isinstance(event, PlanProposed) or event.plan is None:
        return event
    plan = event.plan
    told = {
        job: bound.reason()
        for job, bound in bounds.items()
        if bound.waits or (bound.binds and _cores_of(plan, job) >= bound.cores - TOLERANCE)
    }
    crowded_out = [job for job, bound in bounds.items() if bound.waits and _is_crowded_out(bound, bounds.values())]
    declined = {job: told[job] for job in crowded_out}
    return replace(event, plan=replace(plan, reasons={**plan.reasons, **told}, declines={**plan.declines, **declined}))


def _is_crowded_out(bound: Bound, bounds: Iterable[Bound]) -> bool:
    """Whether a job runs only with a promise, and promised jobs alone leave it too little of its CPUs."""
    view = bound.view
    if view.promised_until_at is not None or not awaits_promise(view.spec, view.status, view.started_at):
        return False
    promised = [each for each in bounds if each.holds and each.view.promised_until_at is not None]
    taken_cores = sum(each.demand_cores for each in promised if each.cpus <= bound.cpus)
    return len(bound.cpus) - taken_cores < bound.least_cores - TOLERANCE


def _cores_of(plan: Plan, job: JobId) -> float:
    return sum(amount.cores for amount in plan.grants.get(job, {}).values())
