"""Plans: when one is asked for, whether an answer can be used, and why jobs wait that it leaves without a place.

One plan is in flight at a time, and it may get lost.

A plan that takes amounts or promises away is made without knowing what that leaves. If a job that it gives nothing would fit
there, the clock asks for another plan, which knows. A policy that leaves cores free on purpose is asked once more, and not
again until something changes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, awaits_promise
from punctual.core.ledger import Bookings
from punctual.core.outbox import Outbox
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.units import format_bytes, span

#: Shortest time from a plan to the next one that it causes, in seconds.
_SOONEST_S = 0.1
#: A policy that asks for the next plan within so many seconds need not be asked before.
_ROOM_S = 1.0
#: After so many plans in a row that the clock asked for and that changed nothing, it asks for the next only after some seconds:
#: at least, growth with each such plan, at most. So a policy that looks out for something that stays away looks ever less often.
#: The growth is slow, and not by the time that has passed: an instant that a promise asks for may become known only when it is
#: near, long after a few such plans.
_N_IDLE, _IDLE_LEAST_S, _IDLE_FACTOR, _IDLE_MOST_S = 2, 1.0, 1.01, 60.0
#: Number of idle plans from which the time no longer grows.
_N_IDLE_MOST = 500


@dataclass(slots=True)
class Planning:
    """Requests for plans and their answers.

    Attributes
    ----------
    revision
        Revision of the last request.
    is_due
        Something has changed since that a plan should know.
    requested_at
        Instant of the request of the plan in flight; None: none is.
    last_requested_at
        Instant of the last request.
    has_new_demands
        Demands have changed since, and a plan may be requested for them later.
    retry_at
        None is requested before this instant.
    stale_revision
        Revision in force when capacity, or the plan in force, last changed while a plan was in flight. Plans that are
        no newer may not fit any more; those are dropped without a warning.
    used_revision
        Revision of the plan in force.
    is_late
        The user was told that plans do not come in time.
    is_fallback
        The user was told that another policy makes the plans.
    promised
        Promised deadlines.
    is_by_clock
        Nothing has changed: it is only the instant that the last plan named for another one.
    n_idle
        Number of plans in a row that the clock alone asked for and that changed nothing, or left room again and started
        nobody; one in flight counts.
    """

    revision: int = 0
    is_due: bool = False
    requested_at: float | None = None
    last_requested_at: float = -inf
    has_new_demands: bool = False
    retry_at: float = 0.0
    stale_revision: int = 0
    used_revision: int = 0
    is_late: bool = False
    is_fallback: bool = False
    promised: dict[JobId, float] = field(default_factory=dict)
    is_by_clock: bool = False
    n_idle: int = 0

    def may_request(self, at: float) -> bool:
        """Whether a plan is due and none is in flight."""
        return self.is_due and self.requested_at is None and at >= self.retry_at

    def request(self, at: float) -> int:
        """Note a request for a plan at instant `at`; return its number."""
        self.revision += 1
        self.requested_at = self.last_requested_at = at
        self.has_new_demands = False
        self.n_idle = self.n_idle + 1 if self.is_by_clock else 0
        self.is_by_clock = False
        return self.revision

    def demands_change(self, at: float, gather_s: float) -> float:
        """Note that a demand has changed; return the seconds until a plan is due for it; infinite: that is known already.

        Demands that change within `gather_s` seconds of a request are gathered, and get one plan.
        """
        wait_s = self.last_requested_at + gather_s - at
        if wait_s <= 0.0:
            self.is_due = True
        if self.is_due or self.has_new_demands:
            return inf
        self.has_new_demands = True
        return wait_s

    def clock_asks(self) -> None:
        """Note that the instant has come for which the last plan asked for another one."""
        self.is_by_clock = not self.is_due
        self.is_due = True

    def ask_again_s(self, at: float, ask_again_at: float | None, leaves_room: bool = False) -> float:
        """Return the seconds until the clock asks for the next plan, if the plan of instant `at` wants it at `ask_again_at`.

        `leaves_room`: the plan was made without knowing how much room it leaves, so the next one comes soon in any case.
        """
        if ask_again_at is None or (leaves_room and ask_again_at > at + _ROOM_S):
            ask_again_at = at
        least_s = _SOONEST_S
        if self.n_idle >= _N_IDLE:
            least_s = min(_IDLE_LEAST_S * _IDLE_FACTOR ** min(self.n_idle, _N_IDLE_MOST), _IDLE_MOST_S)
        return max(least_s, ask_again_at - at)

    def answer(self, revision: int) -> bool:
        """Note the answer to request number `revision`; return whether it is newer than the plan in force.

        A late one does not end the wait for a newer one.
        """
        if revision == self.revision:
            self.requested_at, self.is_late = None, False
        return self.used_revision <= revision <= self.revision

    def use(self, revision: int, *, is_news: bool) -> None:
        """Note that the plan of request number `revision` is in force; `is_news`: it changes something.

        A plan in flight was made without knowing of it.
        """
        self.used_revision = revision
        if is_news:
            self.n_idle = 0
        if self.requested_at is not None:
            self.stale_revision, self.is_due = self.revision, True

    def promise(self, promises: Mapping[JobId, float] | None, may_have: Callable[[JobId], bool]) -> Iterable[JobId]:
        """Note a plan's promises to jobs that `may_have` one. Returns the jobs whose promise has changed."""
        if promises is None:
            return ()
        kept = {job: until_at for job, until_at in promises.items() if may_have(job)}
        news = {job for job, _ in self.promised.items() ^ kept.items()}
        self.promised = kept
        return sorted(news)

    def falls_back(self, cause: str) -> bool:
        """Note why another policy made the plan, if one did; return whether that cause is new."""
        is_news = bool(cause) and not self.is_fallback
        self.is_fallback = bool(cause)
        return is_news

    def give_up(self, at: float, plan_s: float) -> str:
        """Take the plan in flight as lost, and another one as due, if it has not come for `plan_s` seconds.

        Returns
        -------
        str
            Warning for the user; empty: nothing was lost, or no plan has come in time since the last one was.
        """
        if self.requested_at is None or at < self.requested_at + plan_s:
            return ""
        is_news = not self.is_late
        self.requested_at, self.is_due, self.is_late = None, True, True
        return (
            f"no plan came within {span(plan_s)}; the last one stays in force and another is asked for"
            if is_news
            else ""
        )

    def exchange_policy(self, *, keeps_promises: bool) -> Iterable[JobId]:
        """Void the plan in flight, because another policy plans now. Returns the jobs whose promise is void."""
        self.reset()
        self.used_revision = self.revision + 1
        return () if keeps_promises else self.promise({}, lambda _: True)

    def reset(self) -> None:
        """Forget the plan in flight, which is lost."""
        self.is_due, self.requested_at, self.retry_at = True, None, -inf


#: Jobs that a plan decides on, with what it gives them.
Changes = list[tuple[ScheduledJob, Allocation]]


def checked(
    plan: Plan,
    revision: int,
    active: Mapping[JobId, ScheduledJob],
    capacity: Mapping[NodeId, Resources],
    planned: Bookings,
) -> tuple[Changes, str]:
    """Return the changes of a plan, and the reason why it cannot be used; the reason is empty if it can.

    Parameters
    ----------
    revision
        Revision that was requested.
    active
        The jobs that have not ended.
    planned
        Amounts of the last plan, by node.
    """
    if plan.revision != revision:
        return [], f"it is of revision {plan.revision}, and was requested as {revision}"
    try:
        changes = _changes_of(plan, active)
        fault = _fault_of(plan, changes, capacity, planned)
        return [(job, _on_nodes_there(job, grant, capacity)) for job, grant in changes], fault
    except Exception as error:  # noqa: BLE001 -- a policy may propose anything
        return [], f"it is no plan: {type(error).__name__}: {error}"


def _changes_of(plan: Plan, active: Mapping[JobId, ScheduledJob]) -> Changes:
    """Return the plan's changes to known, unfinished jobs that may hold something.

    One that is to run only with a promise gets nothing before it has one: also of a policy that stands in for another.
    """
    named, promises = plan.grants if plan.keeps_others else active, plan.promises or {}
    jobs = [active[job] for job in named if job in active and not active[job].is_withheld]
    return [
        (job, {} if _lacks_promise(job, promises) else plan.grants.get(job.spec.id, {}))
        for job in jobs
        if job.submitted_revision < plan.revision
    ]


def _lacks_promise(job: ScheduledJob, promises: Collection[JobId]) -> bool:
    return job.spec.id not in promises and awaits_promise(job.spec, job.status, job.started_at)


def _fault_of(plan: Plan, changes: Changes, capacity: Mapping[NodeId, Resources], planned: Bookings) -> str:
    if plan.status == "infeasible":
        return "the policy found no valid plan"
    if plan.promises and not all(map(isfinite, plan.promises.values())):
        return "it promises an end that is no instant"
    for job, grant in changes:
        fault = fault_of_grant(job, grant)
        if fault:
            return fault
    return _overbooked(changes, capacity, planned)


def fault_of_size(spec: JobSpec, capacity: Resources) -> Reason | None:
    """Return why a job can never run on a cluster of `capacity`; None if it may, or if no node has joined yet."""
    if not capacity or spec.floor.fits_in(capacity):
        return None
    return Reason("too-large", f"its floor of {spec.floor} does not fit in what there is: {capacity}")


def fault_of_grant(job: ScheduledJob, grant: Allocation) -> str:
    """Return why the job cannot have `grant`; empty if it can."""
    amount, spec = total(grant.values()), job.spec
    if not amount:
        may_pause = spec.preemptible or job.status not in ("running", "starting") or job.leaves_at < inf
        return "" if may_pause else f"nothing for job '{spec.id}', which runs and may not be paused"
    if not amount.fits_in(spec.ceiling):
        return f"{amount} for job '{spec.id}', over its ceiling of {spec.ceiling}"
    if not spec.floor.fits_in(amount):
        return f"{amount} for job '{spec.id}', under its floor of {spec.floor}"
    if spec.worker is not None and spec.parts_of(amount) is None:
        return f"{amount} for job '{spec.id}', which is no number of its workers that it can run with"
    return ""


def _on_nodes_there(job: ScheduledJob, grant: Allocation, capacity: Mapping[NodeId, Resources]) -> Allocation:
    """Return the part of a grant on nodes that are there.

    Where that is no allocation, return nothing; but the whole grant of a job at work, which goes on with what it has until the
    next plan, because nothing is asked for on a node that is not there.
    """
    there = {node: amount for node, amount in grant.items() if node in capacity}
    if len(there) == len(grant) or (there and not fault_of_grant(job, there)):
        return there
    return grant if job.status in ("running", "starting") else {}


def _overbooked(changes: Changes, capacity: Mapping[NodeId, Resources], planned: Bookings) -> str:
    """Return the first node on which the changes do not fit beside the others' plans; empty if none."""
    booked: dict[NodeId, Resources] = {}
    for _, grant in changes:
        for node, amount in grant.items():
            booked[node] = booked[node] + amount if node in booked else amount
    decided = {job.spec.id for job, _ in changes}
    for node, amount in booked.items():
        # A node may have been lost since the snapshot; nothing is asked for there.
        if node not in capacity:
            continue
        total_on = amount + planned.others_on(node, decided)
        if not total_on.fits_in(capacity[node]):
            return f"{total_on} on node '{node}', which has {capacity[node]}"
    return ""


def takes_any(changes: Changes) -> bool:
    """Whether a job is to have less than before on some node."""
    for job, grant in changes:
        for node, amount in job.target.items():
            if node not in grant or not amount.fits_in(grant[node]):
                return True
    return False


def has_room(jobs: Iterable[ScheduledJob], capacity: Mapping[NodeId, Resources], planned: Bookings) -> bool:
    """Whether the plan in force leaves enough for one of the jobs to which it gives nothing."""
    waiting = {_least(job.spec) for job in jobs if not (job.target or job.is_withheld or job.stop_cause)}
    left = [amount - planned.total_on(node) for node, amount in capacity.items()] if waiting else []
    # Any amount will do for a job without a floor.
    return any(
        sum(amount.n_times(unit) if unit else bool(amount) for amount in left) >= n_units for unit, n_units in waiting
    )


def _least(spec: JobSpec) -> tuple[Resources, int]:
    """Return an amount, and how many of it a job needs at least, on one node or several."""
    return (spec.floor, 1) if spec.unit is None else (spec.unit, spec.worker_counts()[0])


def waiting_since(revision: int, active: Mapping[JobId, ScheduledJob]) -> dict[JobId, ScheduledJob]:
    """Return the jobs that the plan of `revision` knew and could have started, and has left waiting."""
    return {
        name: job
        for name, job in active.items()
        if job.status == "queued" and not (job.target or job.is_withheld) and job.submitted_revision < revision
    }


def tell_waiting(snapshot: Snapshot, jobs: Mapping[JobId, ScheduledJob], outbox: Outbox) -> None:
    """Tell each of these waiting jobs once why it waits; another reason is told, too.

    Only jobs without workers wait for a place or for memory, where nodes have a limit of jobs that run at once.
    """
    limited = [node for node in snapshot.nodes if node.jobs_at_once is not None]
    running = Counter(node for job in snapshot.holding if job.spec.worker is None for node in job.planned)
    is_full = all(running[node.id] >= (node.jobs_at_once or 0) for node in limited)
    usual_bytes = min((node.usual_memory_bytes for node in limited), default=0)
    free_bytes = max((snapshot.free[node.id].memory_bytes for node in limited), default=0)
    for view in [view for view in snapshot.waiting if view.id in jobs]:
        job, needed_bytes = jobs[view.id], view.spec.asked_memory_bytes or view.expected_memory_bytes or usual_bytes
        if not snapshot.nodes:
            reason = Reason("waits", "it waits for a node: all are leaving (`punctual ps`)")
        elif not limited or view.spec.worker is not None:
            continue
        elif is_full:
            reason = _waits_for_place(sum(running.values()))
        elif needed_bytes > free_bytes:
            reason = _waits_for_memory(view.spec, needed_bytes, free_bytes)
        else:
            continue
        kind = " ".join([reason.code, *reason.facts])  # reasons of one kind have the same facts, with other numbers
        if kind not in job.told:
            job.told |= {kind}
            outbox.warn(snapshot.at, job, reason)


def _waits_for_place(n_jobs: int) -> Reason:
    run = "job runs" if n_jobs == 1 else "jobs run"
    text = f"it waits until a job ends: {n_jobs} {run}, and no more do at once (`--jobs-at-once`)"
    return Reason("waits", text, {"n_jobs": n_jobs})


def _waits_for_memory(spec: JobSpec, needed_bytes: int, free_bytes: int) -> Reason:
    is_asked = bool(spec.asked_memory_bytes)
    needed = "that it asked for" if is_asked else "that are set aside for it (say what it needs: `--memory`)"
    text = f"it waits for memory: of the {format_bytes(needed_bytes)} {needed}, {format_bytes(free_bytes)} are free"
    return Reason("waits", text, {"needed_bytes": needed_bytes, "free_bytes": free_bytes})
