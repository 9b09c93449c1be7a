"""Keep promised deadlines first, and spend the rest where a device-second is worth most."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf, isfinite, nan

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import total
from punctual.core.units import HOUR_S, counted, span
from punctual.policies._admission_control import AdmissionControl, Reservation
from punctual.policies._allocation_problem import AllocationProblem, Candidate
from punctual.policies._configurations import ChoiceTable, Pool
from punctual.policies._core_allocator import CoreAllocator
from punctual.policies._earliest import no_guarantee, waits_for_promise
from punctual.policies._jobs import is_bound, is_protected, n_demanded, n_workers, seconds_for
from punctual.policies._packing import Move, Packing
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._promise_parameters import PromiseParameters
from punctual.policies._repair import all_waiting, repair, start_rigid
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, Solution

#: Proven gap at which the knapsack stops: of one pool, and of several.
_GAP, _GAP_SEVERAL = 1e-3, 1e-2
#: Least seconds between two plans of an unchanged cluster.
_ASK_AGAIN_S = 1.0
#: A job is moved to make room if that costs at most this share of the time it still needs.
_MOVE_FRAC = 0.05
#: Least volume with which a job is counted, in device-seconds.
_LEAST_VOLUME_S = 60.0
#: Least seconds that a job is taken to last, also one that is nearly done.
_LEAST_LASTS_S = 1e-3
#: The urgency of a job rises with this power of the share of its time that it needs: late, but not too late.
_URGENCY_POWER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisesFirst(PromiseParameters):
    """Promises every deadline that can be kept beside those already promised, and shares the rest by worth.

    Use it where jobs can be resized and paused, with deadlines or without: it is meant to be good at completion times,
    waiting and deadlines at once. A job with a promise holds at each moment at least what a plan until its deadline
    says; everything else is one knapsack, solved with a proven bound. Jobs that have waited too long get a promise too.
    A part of the devices is never promised: otherwise, where more is asked for than there is, the first large jobs would
    shut out all small ones that come later.

    Jobs on shares of cores whose controllers say how much work is left are promised deadlines too, by an exact plan;
    the page of this policy tells how.

    Parameters
    ----------
    admission
        Treatment of a job whose deadline cannot be promised; ``"none"``: no deadline is promised.
    work
        Whether promised work is put off as long as its devices allow, which leaves them to other jobs now; or done
        early, which makes room for later promises: better where far more is asked for than there is.
    volume_power
        Extra worth of a step of a short job: worth falls with this power of the device-seconds left.
    urgency
        Extra worth of jobs that need most of the time to a deadline that is not promised, but can be met
        beside the others.
    promised_frac
        Share of the devices that promises may take. None: a twentieth of the GPUs and, of cores, all but `background_frac`; or
        all, if jobs without a promise are turned away.
    risk_sigmas
        Standard deviations of the speed that a promise leaves aside.
    amortisation_s
        Seconds for which an allocation is assumed to last when the cost of a change is weighed against its gain.
    hysteresis_frac
        Share by which a job's present allocation is worth more than another.
    max_wait_s
        A job may hold nothing for this time and ten times as long as it would run; then it is promised an end of its
        waiting, before others are promised anything. 0: no such promises.
    prior_s
        Device-seconds expected of a job that does not say how long it is, at first.
    background_frac
        Share of a node's cores that jobs on shares of cores are promised nothing of, as long as there are such jobs
        without a deadline: these have it at least.

    Raises
    ------
    InvalidSpec
        `admission` is not known, a share is no share, or a number is below zero.

    Notes
    -----
    *Symbols.* r_j(q) rate of job j with q devices, b_j = max_q r_j(q)/q, R_j steps left, v_j = R_j/b_j, w_j weight.

    *Formula.* Worth of a step u_j = (w_j/b_j) (v_j/1 h)^−`volume_power` (1 + `urgency` t_j³),
    t_j the share of the time to the deadline that the job needs at its fastest, 0 if it is promised or cannot be met
    together with the others, 1 if it never ran and nobody knows what it needs. The knapsack maximises Σ u_j r_j(q_j), less what changes lose, over the numbers that keep all promises.

    *Source.* The idea of a guaranteed share is that of [elasticflow2023], the bound that of [sinha1979], the choice of
    deadlines that can be met together that of [moore1968]; objective and the plan over spans are ours.

    *Properties.* Deterministic. Bound and objective are in the plan. O(n m) for the knapsack with n jobs of m numbers,
    O(promised · spans · m) for the promises, O(changes · nodes) for the places.

    *Fails when* nothing is known of speeds and nobody reports: promises are then worth what the declarations are.
    """

    volume_power: float = 0.4
    urgency: float = 16.0
    amortisation_s: float = 600.0
    hysteresis_frac: float = 0.02

    def allocate(self, snapshot: Snapshot) -> Plan:
        return _PromisesRound(self, self._builder(snapshot)).plan()

    def quoted(self, snapshot: Snapshot, job: JobId) -> tuple[Plan, float | None]:
        """The plan, and the earliest instant that could be promised to `job` as its deadline; None: none could."""
        round = _PromisesRound(self, self._builder(snapshot))
        if not self.promises:
            return replace(round.plan(), promises=None), None
        earliest_s = round.earliest_s(job)  # before nodes are given out
        return round.plan(), None if earliest_s is None else snapshot.at + earliest_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobFeatures:
    """Inputs of the worth of n jobs, one entry each.

    Attributes
    ----------
    weights
        Declared.
    remaining
        Steps left; NaN: unknown.
    attained_s
        Device-seconds held so far.
    best, fastest
        Steps per second: highest per device, and highest in all.
    left_s
        Seconds to the deadline; infinite without a deadline.
    promised
        Whether the deadline is promised.
    startup_s, resize_s
        Training time that a start and a change cost.
    columns
        Column of what each has now; 0: nothing.
    """

    weights: FloatArray
    remaining: FloatArray
    attained_s: FloatArray
    best: FloatArray
    fastest: FloatArray
    left_s: FloatArray
    promised: BoolArray
    startup_s: FloatArray
    resize_s: FloatArray
    columns: IntArray

    @property
    def room_s(self) -> FloatArray:
        """Seconds to the deadline in which each can work."""
        room_s: FloatArray = self.left_s - np.where(self.columns > 0, 0.0, self.startup_s)
        return room_s


class UtilityModel:
    """Worth of each configuration, by the parameters of the policy.

    Parameters
    ----------
    reachable
        Jobs whose deadlines can be met together.
    """

    def __init__(self, policy: PromisesFirst, reachable: BoolArray) -> None:
        self._policy, self._reachable = policy, reachable

    def volumes_s(self, features: JobFeatures) -> FloatArray:
        """Least device-seconds left; where the end is not known, as many as were held already."""
        known = features.remaining / features.best
        guess = np.maximum(max(self._policy.prior_s, 1.0), features.attained_s)
        return np.maximum(_LEAST_VOLUME_S, np.where(np.isnan(known), guess, known))

    def of_steps(self, features: JobFeatures) -> FloatArray:
        """Worth of one step of each job."""
        by_volume = (self.volumes_s(features) / HOUR_S) ** -self._policy.volume_power
        urgent = 1.0 + self._policy.urgency * self.tightness(features) ** _URGENCY_POWER
        worth: FloatArray = features.weights / features.best * by_volume * urgent
        return worth

    def tightness(self, features: JobFeatures) -> FloatArray:
        """Share of the time to the deadline that the job needs at its fastest; 0 if promised, or not to be met with the others.

        1 for a job with a deadline that never ran, and of which nobody knows how much it has to do: it has to be measured.
        """
        counts = self._reachable & ~features.promised
        is_unknown = np.isnan(features.remaining) & (features.attained_s == 0.0) & ~features.promised
        tight = np.where(is_unknown & (features.room_s > 0) & np.isfinite(features.room_s), 1.0, 0.0)
        np.divide(features.remaining, features.fastest * features.room_s, out=tight, where=counts)
        return tight

    def values(self, features: JobFeatures, rates: FloatArray) -> FloatArray:
        """Worth per second of every column, shape of `rates`: steps, less those that a change loses."""
        by_step, amortisation_s = self.of_steps(features), max(self._policy.amortisation_s, 1e-3)
        rows = np.arange(len(rates))
        now = rates[rows, features.columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            lasts_s = np.nan_to_num(features.remaining[:, None] / rates, nan=amortisation_s, posinf=amortisation_s)
        holds = features.columns > 0
        lost_s = np.where(holds, features.resize_s, features.startup_s)[:, None]
        kept_frac = 1.0 - lost_s / (np.clip(lasts_s, _LEAST_LASTS_S, amortisation_s) + lost_s)
        value = by_step[:, None] * rates * kept_frac
        value[:, 0] = -by_step * now * np.minimum(1.0, features.startup_s / amortisation_s)
        value[rows, features.columns] = by_step * now * (1.0 + self._policy.hysteresis_frac)
        return value


class _PromisesRound:
    """The plan for one snapshot."""

    def __init__(self, policy: PromisesFirst, builder: PlanBuilder) -> None:
        self._policy, self._builder, self._at = policy, builder, builder.snapshot.at
        waiting = all_waiting(builder, repair(builder))
        rigid = [view for view in waiting if view.spec.controller is None and view.spec.worker is None]
        #: No promise is possible for a job whose speed follows neither from workers nor from a controller.
        self._unpromisable = [view for view in rigid if waits_for_promise(view)]
        start_rigid(builder, (view for view in rigid if view not in self._unpromisable))
        self._cores = CoreAllocator(policy, builder, waiting)
        self._problem = AllocationProblem.of(builder, waiting)
        self._candidates, self._pools = self._problem.candidates, self._problem.pools
        taken = self._cores.growth() if self._candidates else {}
        self._admission = AdmissionControl(policy, builder.last_carry, self._problem, taken)

    def plan(self) -> Plan:
        """Promises, then the knapsack, then nodes."""
        solution = self._shared() if self._candidates else None
        if solution is None:
            return self._finished(None, {}, is_unfinished=False)
        moves = [self._move(candidate, int(k)) for candidate, k in zip(self._candidates, solution.choices, strict=True)]
        packing = Packing(self._builder, moves)
        packing.run()
        held = {}
        for candidate, move in zip(self._candidates, moves, strict=True):
            n, options = n_workers(candidate.view.spec, self._builder.held(candidate.view)), candidate.options
            held[candidate.id] = (move.kind, options.uses_gpus), n * options.reserved_per_worker
        return self._finished(solution, held, is_unfinished=packing.n_postponed > 0)

    def earliest_s(self, job: JobId) -> float | None:
        """Seconds until the earliest deadline of `job` that could be promised; None: none could."""
        for candidate in self._candidates:
            if candidate.id == job:
                return self._admission.earliest_s(candidate)
        return self._cores.earliest_s(job)

    # The knapsack.

    def _shared(self) -> Solution | None:
        """Return the column of each candidate; None if no choice satisfies all constraints."""
        table = self._problem.table
        features = self._features()
        values = UtilityModel(self._policy, self._reachable(table, features)).values(features, table.rates)
        return self._solve(table, values, self._allowed(table))

    def _reachable(self, table: ChoiceTable, features: JobFeatures) -> BoolArray:
        """Jobs whose deadlines can be met together, the promised ones among them."""
        columns, device_s = least_device_s(table, features.remaining, features.room_s)
        pools, chosen = table.pools[np.arange(len(columns)), columns], np.zeros(len(columns), dtype=bool)
        for i, pool in enumerate(self._pools):
            own = np.flatnonzero((columns > 0) & (pools == i))
            chosen[own] = reachable_together(
                device_s[own],
                features.left_s[own],
                features.weights[own],
                self._admission.capacity(pool),
                always=features.promised[own],
            )
        return chosen

    def _features(self) -> JobFeatures:
        candidates, specs = self._candidates, [candidate.view.spec for candidate in self._candidates]
        return JobFeatures(
            weights=np.array([spec.weight for spec in specs]),
            remaining=np.array([nan if each.remaining is None else each.remaining for each in candidates]),
            attained_s=np.array([self._attained_s(each.view) for each in candidates]),
            best=np.array([each.options.best for each in candidates]),
            fastest=np.array([each.options.fastest for each in candidates]),
            left_s=np.array([each.left_s for each in candidates]),
            promised=np.array([self._admission.is_promised(each) for each in candidates]),
            startup_s=np.array([spec.startup_s for spec in specs]),
            resize_s=np.array([spec.resize_cost_s for spec in specs]),
            columns=np.array([each.column for each in candidates]),
        )

    def _attained_s(self, view: JobView) -> float:
        held = total(view.granted.values())
        since_s = max(0.0, self._at - view.accrued_at)
        return view.granted_gpu_s + held.gpus * since_s or view.granted_core_s + held.cores * since_s

    def _allowed(self, table: ChoiceTable) -> BoolArray:
        """Return the columns that keep every promise and do not pause a protected job."""
        allowed, never_ending = self._protecting(table), self._admission.never_ending()
        for i, candidate in enumerate(self._candidates):
            reservation = self._admission.reservation(candidate)
            if candidate.view.spec.controller is not None and isfinite(candidate.left_s):
                allowed[i] &= _used(candidate, reservation, table.amounts[i])
            if candidate.id in never_ending:
                allowed[i, 1:] = False
            if reservation is not None:
                allowed[i] &= _keeping(candidate, reservation, table.amounts[i])
            if self._admission.is_starting(candidate) and allowed[i, candidate.column] and candidate.column:
                # Others would wait for what it gives up until it has started.
                allowed[i] = np.arange(len(allowed[i])) == candidate.column
        return allowed

    def _protecting(self, table: ChoiceTable) -> BoolArray:
        """Return the columns that neither pause a protected job nor send a bound one to another kind of nodes."""
        allowed = table.allowed.copy()
        allowed[:, 0] = [not (candidate.n and is_protected(candidate.view)) for candidate in self._candidates]
        for i, candidate in enumerate(self._candidates if len(self._pools) > 1 else ()):
            if candidate.is_bound:
                kinds = candidate.options.kinds
                allowed[i, 1 : len(kinds)] = [kind == candidate.kind for kind in kinds[1:]]
        return allowed

    def _solve(self, table: ChoiceTable, values: FloatArray, allowed: BoolArray) -> Solution | None:
        """Solve with all promises as constraints, or without promises if they cannot all be kept."""
        for permitted in (allowed, self._protecting(table)):
            solution = self._solved(values, permitted)
            if solution.status != "infeasible":
                break
        else:
            return None
        capped = self._with_room_to_start(table, values, permitted, solution)
        again = solution if capped is None else self._solved(values, capped)
        return again if again.status != "infeasible" else solution

    def _solved(self, values: FloatArray, permitted: BoolArray) -> Solution:
        return self._problem.solve(values, permitted, _GAP if len(self._pools) == 1 else _GAP_SEVERAL)

    def _with_room_to_start(
        self, table: ChoiceTable, values: FloatArray, permitted: BoolArray, solution: Solution
    ) -> BoolArray | None:
        """The columns with which jobs that are launched now leave promised jobs what these are to hold before they have started.

        None: the solution is one of them.
        """
        launched = [
            i for i, candidate in enumerate(self._candidates) if not candidate.n and candidate.view.status == "queued"
        ]
        chosen = [(i, int(solution.choices[i])) for i in launched if solution.choices[i]]
        worth = {i: values[i, column] / table.amounts[i, column] for i, column in chosen}
        starts = [
            (self._candidates[i], self._pools[table.pools[i, column]], self._candidates[i].options.counts[column])
            for i, column in sorted(chosen, key=lambda pair: -worth[pair[0]])
        ]
        most = self._admission.most_at_start(starts)
        if all(most.get(candidate.id, n) == n for candidate, _, n in starts):
            return None
        capped = permitted.copy()
        for i in launched:
            candidate, reservation = self._candidates[i], self._admission.reservation(self._candidates[i])
            least = 0 if reservation is None else reservation.n
            capped[i] &= table.amounts[i] <= most.get(candidate.id, least) * candidate.options.per_worker
        return capped

    # Nodes, and what is handed on.

    def _move(self, candidate: Candidate, column: int) -> Move:
        options, reservation = candidate.options, self._admission.reservation(candidate)
        kind, n = options.kinds[column], options.counts[column]
        return Move(
            view=candidate.view,
            worker=candidate.worker,
            n_before=candidate.n,
            kind_before=candidate.kind,
            n=n,
            kind=kind,
            fallbacks=tuple(smaller for smaller in reversed(options.counts_on(kind)) if smaller < n),
            n_least=0 if reservation is None else reservation.n,
            stays=self._stays(candidate),
            reason=_why(candidate, column, reservation if self._admission.is_promised(candidate) else None),
        )

    def _stays(self, candidate: Candidate) -> bool:
        """Whether the job is not to be moved: it is bound to its nodes, or it would lose too much by it."""
        if is_bound(candidate.view) or self._admission.is_starting(candidate):
            return candidate.n > 0
        reservation = self._admission.reservation(candidate)
        if reservation is not None:
            was_alone = reservation.n_nodes == 1 < candidate.options.n_nodes[reservation.pool[0]]
            if was_alone or not reservation.bears_a_change:
                return candidate.n > 0
        rate_sps = float(candidate.options.rates[candidate.column])
        left_s = (
            self._policy.amortisation_s if candidate.remaining is None else seconds_for(candidate.remaining, rate_sps)
        )
        return candidate.n > 0 and candidate.view.spec.startup_s > _MOVE_FRAC * left_s

    def _finished(
        self, solution: Solution | None, held: Mapping[JobId, tuple[Pool, int]], *, is_unfinished: bool
    ) -> Plan:
        changed = [
            (candidate, self._builder.held(candidate.view))
            for candidate in self._candidates
            if self._builder.held(candidate.view) != candidate.view.planned
        ]
        carry = self._admission.handed_on()
        carry["stalls"] = self._admission.stalls(changed)
        carry["cores"] = {**self._cores.handed_on(), "workers": self._admission.reserved_cores()}
        plan = self._builder.build(**carry)
        looks_s = _ASK_AGAIN_S if is_unfinished else max(self._cores.changes_in_s(), _ASK_AGAIN_S)
        # A change that a promise needs is not put off.
        next_s = min(looks_s, self._admission.needed_at(held))
        solution = solution or self._cores.solution
        return replace(
            plan,
            declines={
                **self._admission.declines(),
                **self._cores.declines,
                **{view.spec.id: no_guarantee(view, self._at, None) for view in self._unpromisable},
            },
            promises={**self._admission.promises(), **self._cores.promises()},
            warnings={**self._admission.warnings, **self._cores.warnings},
            bound=solution.bound if solution is not None else None,
            objective=solution.value if solution is not None else None,
            ask_again_at=None if next_s == inf else self._at + next_s,
        )


def _used(candidate: Candidate, reservation: Reservation | None, amounts: IntArray) -> BoolArray:
    """The columns of a job that is steered to its deadline that are not more than it is paced to use."""
    least = candidate.view.spec.worker_counts()[0]
    n_most = max(n_demanded(candidate.view), least, 0 if reservation is None else reservation.n)
    used: BoolArray = amounts <= n_most * candidate.options.per_worker
    return used


def _keeping(candidate: Candidate, reservation: Reservation, amounts: IntArray) -> BoolArray:
    """The columns with which a promise is kept: what is reserved, or more of it if the job bears that change."""
    least, (kind, _) = reservation.n * candidate.options.per_worker, reservation.pool
    if not least and reservation.bears_a_change:
        return np.ones(len(amounts), dtype=bool)
    on_kind = np.zeros(len(amounts), dtype=bool)
    on_kind[: len(candidate.options.kinds)] = [each == kind for each in candidate.options.kinds]
    on_kind[0] |= not least
    kept: BoolArray = on_kind & (amounts >= least)
    if not reservation.bears_a_change:
        kept &= (amounts == least) | (np.arange(len(amounts)) == candidate.column)
    return kept


def _why(candidate: Candidate, column: int, promise: Reservation | None) -> Reason:
    """Reason for the change to `column`; `promise`: the reservation for the deadline, if that is promised."""
    options, n = candidate.options, candidate.options.counts[column]
    facts = {"n_workers_before": float(candidate.n), "n_workers": float(n)}
    if n == 0:
        return Reason("paused", f"{candidate.n} -> 0 workers: other jobs gain more by them for now", facts)
    after_s = None if candidate.remaining is None else candidate.remaining / float(options.rates[column])
    due = _due(candidate, column, after_s, facts, promise) if isfinite(candidate.left_s) else ""
    if not candidate.n:
        verb = "starts" if candidate.view.started_at is None else "goes on"
        return Reason("starts", f"{verb} with {counted(n, 'worker')}{due}", facts)
    code = "grows" if n > candidate.n else "shrinks" if n < candidate.n else "moves"
    change = f"{candidate.n} -> {n} workers"
    if candidate.remaining is None or after_s is None or not candidate.column:
        return Reason(code, f"{change}{due}", facts)
    sooner_s = candidate.remaining / float(options.rates[candidate.column]) - after_s
    facts["sooner_s"] = sooner_s
    gain = "earlier, worth more per device than elsewhere"
    loss = "later, the devices are worth more elsewhere"
    return Reason(code, f"{change}: finishes {span(sooner_s)} {gain if sooner_s >= 0 else loss}{due}", facts)


def _due(
    candidate: Candidate, column: int, after_s: float | None, facts: dict[str, float], promise: Reservation | None
) -> str:
    """Return a text on the later part of a promised plan, if it rises; else on the time left to the deadline.

    Notes it in `facts` too.
    """
    facts["left_s"] = candidate.left_s
    word = "deadline" if promise is None else "promised deadline"
    options = candidate.options
    if promise is not None:
        amount = options.counts[column] * options.reserved_per_worker
        rises_s = promise.share.rises_at_s(amount if promise.pool == (options.kinds[column], options.uses_gpus) else 0)
        if isfinite(rises_s):
            n_later = int(promise.share.at(rises_s)) // options.reserved_per_worker
            facts |= {"rises_s": rises_s, "n_workers_later": float(n_later)}
            return f"; {word} in {span(max(0.0, candidate.left_s))}, rises to {n_later} in {span(rises_s)}"
    if after_s is None:
        return ""
    slack_s = candidate.left_s - after_s
    facts["slack_s"] = slack_s
    return f"; {word} {span(slack_s)} {'behind' if slack_s >= 0 else 'before'} its end"


def least_device_s(table: ChoiceTable, remaining: FloatArray, room_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the smallest column that does each job within `room_s` (0: none), and its device-seconds.

    Parameters
    ----------
    remaining
        Shape (n,), steps left; NaN: unknown, and no column will do.
    room_s
        Shape (n,), seconds until its deadline; infinite: no column, because none is needed.
    """
    has_deadline = (room_s > 0) & np.isfinite(room_s) & np.isfinite(remaining)
    wanted_sps = np.where(has_deadline, remaining / np.where(has_deadline, room_s, 1.0), np.inf)
    amounts = np.where(table.allowed & (table.rates >= wanted_sps[:, None]), table.amounts, np.iinfo(np.int64).max)
    amounts[:, 0] = np.iinfo(np.int64).max
    columns, rows = amounts.argmin(axis=1), np.arange(len(remaining))
    columns[amounts[rows, columns] == np.iinfo(np.int64).max] = 0
    rates = np.where(columns > 0, table.rates[rows, columns], 1.0)
    return columns, np.where(columns > 0, table.amounts[rows, columns] * remaining / rates, 0.0)


def reachable_together(
    device_s: FloatArray, left_s: FloatArray, weights: FloatArray, n_devices: float, *, always: BoolArray
) -> BoolArray:
    """Whether each deadline is among those that can be met together.

    Parameters
    ----------
    device_s
        Shape (n,), what each job takes until its deadline.
    left_s
        Shape (n,), seconds until its deadline.
    always
        Shape (n,), jobs that are never left out.

    Notes
    -----
    *Formula.* In order of deadlines each job is taken; as long as those taken need more than half of `n_devices` times the
    seconds until then, the one that needs most for its weight is left out. If none is left, the one that needs least is taken.

    *Source.* [moore1968], for one machine; half of `n_devices` are taken as one that is so much faster.

    *Properties.* With equal weights no more deadlines can be met by half of the devices, if these are one. O(n log n).

    Examples
    --------
    >>> none = np.zeros(3, dtype=bool)
    >>> reachable_together(np.array([9.0, 2.0, 3.0]), np.array([10.0, 10.0, 11.0]), np.ones(3), 2.0, always=none)
    array([False,  True,  True])
    """
    taken, heap, load_s = np.zeros(len(left_s), dtype=bool), list[tuple[float, int]](), 0.0
    by_weight = device_s / weights
    for i in np.argsort(left_s, kind="stable").tolist():
        taken[i], load_s = True, load_s + float(device_s[i])
        if not always[i]:
            heappush(heap, (-float(by_weight[i]), i))
        # Deadlines count as reachable on half of the devices: jobs that come later need the rest. With all of
        # it, jobs of Chronus' trace at load 3 were chased until later ones overtook them: 6 to 13 % longer completion
        # times, 20 to 50 fewer deadlines.
        while heap and load_s > 0.5 * n_devices * left_s[i]:
            _, left_out = heappop(heap)
            taken[left_out], load_s = False, load_s - float(device_s[left_out])
    if len(taken) and not taken.any():
        taken[by_weight.argmin()] = True
    return taken
