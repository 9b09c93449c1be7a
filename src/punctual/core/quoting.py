"""Estimate whether a deadline can be met, without changing anything: a pure function of a snapshot and a policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, isfinite
from typing import Any

from punctual.core.cluster import Snapshot
from punctual.core.control import INTERVAL_SIGMAS
from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobView, awaits_promise, shape_of
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total

#: Warnings of a plan by which a promise is lost.
_LOST = ("promise-lost", "promise-in-danger")
#: Shares of the ceiling at which the finish is told where no amounts are asked for.
_SHARES = (0.25, 0.5, 0.75, 1.0)
#: Times until deadlines whose prices are told, as multiples of that until the earliest.
_LATER = (1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Expected landing of a job with an amount from now on; instants on the scheduler's clock.

    Attributes
    ----------
    cores, n_workers
        The amount; 0 workers for a job that is not made of them.
    finish_at, low_at, high_at
        Expected landing, and an interval that holds it in nine of ten cases.
    """

    cores: float
    n_workers: int
    finish_at: float
    low_at: float
    high_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HurtJob:
    """A job that would get less.

    Attributes
    ----------
    promised_until_at
        The promise that it would lose; None: it loses none.
    cores_before, cores_after
        Its present cores, and those it would hold at once.
    later_s
        Delay of its landing if that lasted; None: unknown, or it loses a promise.
    """

    job: JobId
    promised_until_at: float | None = None
    cores_before: float = 0.0
    cores_after: float = 0.0
    later_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePrice:
    """Expected cost of a job's rest on machines of pools; None: it cannot be done by then."""

    deadline_at: float
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The answer; instants on the scheduler's clock.

    Attributes
    ----------
    promises
        Whether the policy promises deadlines at all.
    deadline_at
        The deadline asked about; None: none was.
    can_be_promised
        Whether it can be promised beside all promises; None: the job has no deadline, or the policy promises none.
    earliest_at
        The earliest deadline that can be promised; None: none can, or nothing is known of the job's work.
    expected
        Finish with the amount that the policy would give it now; None: no amount, or unknown work.
    finishes
        Finishes at given amounts, ascending; empty: unknown work.
    hurt
        With the deadline promised, jobs without a promise that would have less. If it cannot be, jobs whose promises
        would have to be broken for it.
    prices
        Of the deadline and some others, the latest first, where machines have prices.
    budget_usd, bought_at
        The job's budget, and the earliest deadline that it is expected to buy; None: none.
    """

    job: JobId
    at: float
    promises: bool
    deadline_at: float | None
    can_be_promised: bool | None
    earliest_at: float | None
    expected: Finish | None
    finishes: tuple[Finish, ...]
    hurt: tuple[HurtJob, ...]
    reason: Reason
    prices: tuple[DeadlinePrice, ...] = ()
    budget_usd: float | None = None
    bought_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteRequest:
    """A request for a quote, to be answered where the policy runs; see `quote`."""

    snapshot: Snapshot
    view: JobView
    amounts: tuple[Resources, ...] = ()

    def answer(self, policy: Policy) -> Quote:
        return quote(policy, self.snapshot, self.view, self.amounts)


def refusing_guarantees(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return `plan`; if its policy promises nothing, with all jobs declined that need a promise."""
    waiting = snapshot.waiting if plan.promises is None else ()
    declined = [view.id for view in waiting if awaits_promise(view.spec, view.status, view.started_at)]
    if not declined:
        return plan
    text = "the policy promises no deadlines, and the job is to run only if its own is promised"
    return replace(plan, declines={**plan.declines, **dict.fromkeys(declined, Reason("declined", text))})


def with_job(snapshot: Snapshot, view: JobView) -> Snapshot:
    """Return the snapshot with `view` in place of the job of that name, or added to the waiting jobs."""
    view = replace(view, promised_until_at=None)
    if any(other.id == view.id for other in snapshot.holding):
        return _changed(snapshot, lambda other: view if other.id == view.id else other)
    others = tuple(other for other in snapshot.waiting if other.id != view.id)
    return replace(snapshot, waiting=(*others, view))


def quote(policy: Policy, snapshot: Snapshot, view: JobView, amounts: Sequence[Resources] = ()) -> Quote:
    """Return the quote for the deadline of `view`: whether it can be promised, the earliest that can, and who is hurt.

    Parameters
    ----------
    policy
        One that promises deadlines has a method ``quoted(snapshot, job)``: what `allocate` answers, and the earliest deadline
        that could be promised to the job; None: none could.
    view
        A new job, or one of the snapshot with another deadline.
    amounts
        Amounts for which the finish is estimated; empty: some up to the job's ceiling.

    Notes
    -----
    *Properties.* Changes nothing. Costs one decision of the policy and what it takes to find the earliest deadline, and
    another decision if the deadline cannot be promised; where promises to others stand in the way, and the policy does not
    weigh them, as many more as it takes to find how many of these.
    """
    asked = with_job(snapshot, view)
    view = _of(asked, view.id)
    quoted = getattr(policy, "quoted", None)
    plan, earliest_at = (policy.allocate(asked), None) if quoted is None else quoted(asked, view.id)
    promises = quoted is not None and plan.promises is not None
    deadline_at = view.deadline_at
    can_be_promised = _is_promised(plan, view, earliest_at) if promises and deadline_at is not None else None
    fastest = _finish(snapshot, view, view.spec.ceiling)
    hurt: tuple[HurtJob, ...] | None
    if can_be_promised is False and deadline_at is not None and (earliest_at is not None or fastest is not None):
        # If the whole cluster is not enough, no promise is in the way.
        is_possible = fastest is None or fastest.finish_at <= deadline_at
        hurt = _broken(policy, asked, view) if is_possible else None
    else:
        hurt = _with_less(asked, plan, view.id)
    held = _amount(plan, view)
    return Quote(
        job=view.id,
        at=snapshot.at,
        promises=promises,
        deadline_at=deadline_at,
        can_be_promised=can_be_promised,
        earliest_at=earliest_at,
        expected=_finish(snapshot, view, held),
        finishes=tuple(finish for amount in amounts or _usual(view) if (finish := _finish(snapshot, view, amount))),
        hurt=hurt or (),
        reason=_reason(view, promises, can_be_promised, earliest_at, hurt),
        **_priced(policy, asked, view, earliest_at or (None if fastest is None else fastest.finish_at)),
    )


def _priced(policy: Policy, snapshot: Snapshot, view: JobView, earliest_at: float | None) -> dict[str, Any]:
    """Return the fields of a quote about money, if machines have prices and the policy heeds them.

    Such a policy has methods ``deadline_prices_usd(snapshot, view, deadlines_at)`` and ``bought_deadline_at(snapshot, view)``.
    """
    prices_usd = getattr(policy, "deadline_prices_usd", None)
    if prices_usd is None or not snapshot.pools:
        return {}
    asked_at = [] if view.deadline_at is None else [view.deadline_at]
    others_at = [] if earliest_at is None else [snapshot.at + n * (earliest_at - snapshot.at) for n in _LATER]
    deadlines_at = sorted({*asked_at, *others_at}, reverse=True)
    prices = zip(deadlines_at, prices_usd(snapshot, view, deadlines_at), strict=True)
    has_budget = view.spec.budget_usd is not None
    return {
        "prices": tuple(DeadlinePrice(deadline_at=at, usd=usd) for at, usd in prices),
        "budget_usd": view.spec.budget_usd,
        "bought_at": policy.bought_deadline_at(snapshot, view) if has_budget else None,  # type: ignore[attr-defined]
    }


def _is_promised(plan: Plan, view: JobView, earliest_at: float | None) -> bool:
    """Whether the plan promises the deadline, or will once it has been seen what else comes."""
    if view.id in (plan.promises or {}):
        return True
    return earliest_at is not None and view.deadline_at is not None and earliest_at <= view.deadline_at


def _reason(
    view: JobView,
    promises: bool,
    can_be_promised: bool | None,
    earliest_at: float | None,
    hurt: Sequence[HurtJob] | None,
) -> Reason:
    if not promises:
        return Reason("no-promises", "the policy promises no deadlines: forecasts are all there is")
    if can_be_promised is False and hurt and hurt[0].promised_until_at is not None:
        return Reason("breaks-promises", "for that deadline promises to other jobs would have to be broken")
    if earliest_at is None:
        if view.work is None and view.curve is None:
            return Reason("unknown-work", "it is not known how much work the job has, so nothing can be promised")
        if view.work is not None and not view.work.is_steady:
            return Reason("not-by-cores", "cores alone do not say when the job is done, so nothing can be promised")
        within = "" if view.spec.budget_usd is None else " and within its budget"
        return Reason("nothing-left", f"no deadline can be promised to it beside what is promised{within}")
    if can_be_promised is None:
        return Reason("earliest", "no deadline was asked about: this is the earliest that can be promised")
    if can_be_promised:
        return Reason("can-be-promised", "the deadline can be promised, and every promise is kept")
    if hurt is None:
        return Reason("too-early", "the deadline is too early, also if no promise to another job were kept")
    return Reason(
        "needs-margins", "the deadline would need what is kept free of promises: margins, and a part of the devices"
    )


def _changed(snapshot: Snapshot, change: Callable[[JobView], JobView]) -> Snapshot:
    """Return the snapshot with the changed view of each job."""
    return replace(snapshot, holding=tuple(map(change, snapshot.holding)), waiting=tuple(map(change, snapshot.waiting)))


def _of(snapshot: Snapshot, job: JobId) -> JobView:
    return next(view for view in (*snapshot.holding, *snapshot.waiting) if view.id == job)


# Jobs that the deadline would hurt.


def _broken(policy: Policy, snapshot: Snapshot, view: JobView) -> tuple[HurtJob, ...] | None:
    """Jobs whose promises would be lost if the job had a promise that counts for more than all of theirs.

    Where that is not enough, and its own is lost, those that are due last are taken to have none, about as few as will do.
    None: it could not be kept either way.
    """
    others = [other for other in (*snapshot.holding, *snapshot.waiting) if other.id != view.id]
    weight = 10.0 * sum((other.spec.weight for other in others), view.spec.weight)
    spec = replace(view.spec, weight=weight, guarantee=False)
    forced = replace(view, spec=spec, promised_until_at=view.deadline_at)
    snapshot = _changed(snapshot, lambda other: forced if other.id == view.id else other)
    promised = [(other.promised_until_at, other) for other in others if other.promised_until_at is not None]
    latest = [other for _, other in sorted(promised, key=lambda pair: (-pair[0], pair[1].id))]
    plans: dict[int, Plan] = {}

    def is_kept(n: int) -> bool:
        """Whether its promise is kept if the `n` that are due last have none."""
        withdrawn = {other.id for other in latest[:n]}
        plans[n] = policy.allocate(
            _changed(snapshot, lambda each: replace(each, promised_until_at=None) if each.id in withdrawn else each)
        )
        return view.id in _kept(plans[n])

    n = 0
    if not is_kept(0):
        low, n = 0, len(latest)  # so few will not do, so many may
        if not is_kept(n):
            return None
        # Each halving costs a plan, and a quote may cost as much as a few.
        for _ in range(4):
            middle = (low + n) // 2
            if middle == low:
                break
            low, n = (low, middle) if is_kept(middle) else (middle, n)
    plan = plans[n]
    kept = _kept(plan)
    return tuple(
        HurtJob(
            job=other.id,
            promised_until_at=other.promised_until_at,
            cores_before=total(other.planned.values()).cores,
            cores_after=_amount(plan, other).cores,
        )
        for _, other in promised
        if other.id not in kept
    )


def _kept(plan: Plan) -> set[JobId]:
    """The jobs whose promises the plan keeps."""
    lost = {id for id, reason in plan.warnings.items() if reason.code in _LOST}
    return (plan.promises or {}).keys() - lost


def _with_less(snapshot: Snapshot, plan: Plan, job: JobId) -> tuple[HurtJob, ...]:
    """Running jobs that the plan promises nothing, and gives less than they have."""
    hurt = []
    for other in snapshot.holding:
        if other.id == job or other.id in (plan.promises or {}):
            continue
        before, after = total(other.planned.values()), _amount(plan, other)
        if not _has_less(before, after):
            continue
        finish_before, finish_after = _finish(snapshot, other, before), _finish(snapshot, other, after)
        later_s = None
        if finish_before is not None and finish_after is not None:
            later_s = max(0.0, finish_after.finish_at - finish_before.finish_at)
        hurt.append(HurtJob(job=other.id, cores_before=before.cores, cores_after=after.cores, later_s=later_s))
    return tuple(hurt)


def _has_less(before: Resources, after: Resources) -> bool:
    # A job that has no promise is hurt if it would hold less by more than a twentieth.
    kept_frac = 0.95
    return after.cores < kept_frac * before.cores or after.gpus < kept_frac * before.gpus


def _amount(plan: Plan, view: JobView) -> Resources:
    """Return the amount that the plan gives the job."""
    kept: Allocation = view.planned if plan.keeps_others else {}
    return total(plan.grants.get(view.id, kept).values())


# Expected landings.


def _usual(view: JobView) -> list[Resources]:
    """Amounts that a user may want to know about."""
    spec, unit = view.spec, view.spec.unit
    if unit is None:
        return [replace(spec.ceiling, cores=frac * spec.ceiling.cores) for frac in _SHARES]
    counts = spec.worker_counts()
    # Largest number of worker counts in a quote.
    step = max(1, -(-len(counts) // 8))
    return [unit * n for n in counts[::-1][::step][::-1]]


def _finish(snapshot: Snapshot, view: JobView, amount: Resources) -> Finish | None:
    """Return the expected landing with `amount` from now on; None if the job's speed is unknown."""
    lasts = _of_workers(snapshot, view, amount) if view.spec.worker is not None else _on_cores(snapshot, view, amount)
    if lasts is None:
        return None
    lasts_s, std_s = lasts
    at = snapshot.at if view.granted or not view.spec.startup_s else snapshot.at + view.spec.startup_s
    parts = view.spec.parts_of(amount)
    return Finish(
        cores=amount.cores,
        n_workers=0 if parts is None else parts[0],
        finish_at=at + lasts_s,
        low_at=at + max(0.0, lasts_s - INTERVAL_SIGMAS * std_s),
        high_at=at + lasts_s + INTERVAL_SIGMAS * std_s,
    )


def _on_cores(snapshot: Snapshot, view: JobView, amount: Resources) -> tuple[float, float] | None:
    left_core_s, work = view.core_s_left(snapshot.at), view.work
    if left_core_s is None and view.spec.work_core_s is not None:
        left_core_s = max(0.0, view.spec.work_core_s - view.granted_core_s)
    usable_cores = view.spec.ceiling.cores if work is None else work.usable_cores
    cores = min(amount.cores, usable_cores) if work is None or work.is_steady else usable_cores
    if left_core_s is None or cores <= 0:
        return None
    std_core_s = 0.1 * left_core_s if work is None else work.std_core_s
    return left_core_s / cores, std_core_s / cores


def _of_workers(snapshot: Snapshot, view: JobView, amount: Resources) -> tuple[float, float] | None:
    steps = view.remaining_steps(snapshot.at)
    devices: Any = {node.id: node.device for node in snapshot.nodes}
    devices |= {pool.spec.name: pool.spec.device for pool in snapshot.pools}
    if steps is None or view.curve is None or not amount or not devices:
        return None
    node = next(iter(view.planned or devices))
    shape = shape_of(view.spec, {node: amount}, devices)
    rate_sps, std_sps = view.curve.rate_sps(shape), view.curve.std_sps(shape)
    if not (0 < rate_sps < inf):
        return None
    lasts_s = steps / rate_sps
    std_frac = hypot(std_sps / rate_sps if isfinite(std_sps) else 1.0, view.steps_total_std / max(steps, 1.0))
    return lasts_s, lasts_s * std_frac
