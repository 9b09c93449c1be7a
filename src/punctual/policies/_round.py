"""One decision of the policy that keeps promises first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any, Protocol

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import TOLERANCE, total
from punctual.core.story import Reason
from punctual.optim.knapsack import solve_knapsack
from punctual.optim.solution import FloatArray, IntArray, Solution
from punctual.optim.vector_knapsack import solve_vector_knapsack
from punctual.policies._base import (
    is_protected,
    n_workers,
    never_fits,
    seconds_for,
    seniority,
    span_text,
    starts,
)
from punctual.policies._draft import Draft
from punctual.policies._options import PARTS_PER_CORE, Options, Pool, Table, options_of
from punctual.policies._promises import Book, Claim
from punctual.policies._repair import follow_demands, settle
from punctual.policies._seats import Move, Seating
from punctual.policies._worth import Facts, Worth

#: Proven gap at which the knapsack stops.
_GAP = 1e-3
#: Newcomers of one round for which everything is planned anew if there is no room beside it.
_N_NEW_MAX = 3
#: Share of the way to the deadline that is kept free against rounding.
_ROUNDING_FRAC = 1e-6
#: Least time between two looks at an unchanged cluster.
_LOOK_S = 1.0
#: A job is moved to make room if that costs at most this share of the time it still needs.
_MOVE_FRAC = 0.05
#: A job may wait this many times as long as it takes at its fastest, and a constant time more.
_PATIENCE = 10.0


class Parameters(Protocol):
    """What a round takes from the policy."""

    @property
    def admission(self) -> str: ...
    @property
    def work(self) -> str: ...
    @property
    def volume_power(self) -> float: ...
    @property
    def urgency(self) -> float: ...
    @property
    def urgency_power(self) -> float: ...
    @property
    def caution(self) -> float: ...
    @property
    def lasting_s(self) -> float: ...
    @property
    def steadiness(self) -> float: ...
    @property
    def welcome(self) -> float: ...
    @property
    def patience_s(self) -> float: ...
    @property
    def prior_s(self) -> float: ...
    @property
    def offered_frac(self) -> float: ...


@dataclass(slots=True)
class Entry:
    """One job made of workers: what it has, and what it may have."""

    view: JobView
    options: Options
    kind: str
    n: int
    column: int
    remaining: float | None
    left_s: float

    @property
    def id(self) -> JobId:
        return self.view.spec.id

    @property
    def pool(self) -> Pool:
        return self.kind, self.options.uses_gpus

    @property
    def restarts_s(self) -> float:
        """Time that a start, or a change, and one more change would cost."""
        spec = self.view.spec
        return spec.resize_cost_s + max(spec.resize_cost_s, 0.0 if self.n else spec.startup_s)


class Round:
    """The plan for one snapshot."""

    def __init__(self, snapshot: Snapshot, parameters: Parameters) -> None:
        self._snapshot, self._parameters = snapshot, parameters
        self._draft = Draft(snapshot)
        carry = snapshot.carry if isinstance(snapshot.carry, dict) else {}
        #: Until when promised jobs are to be done, and how many jobs were paused to let others pass.
        self._promised = {JobId(id): until_at for id, until_at in _table(carry.get("promised")).items()}
        self._overdue = {JobId(id): until_at for id, until_at in _table(carry.get("overdue")).items()}
        self._n_parted = 0
        self._claims: dict[JobId, Claim] = {}
        self._refused = {JobId(str(id)) for id in _listed(carry.get("refused"))}
        self._prices = {str(pool): price for pool, price in _table(carry.get("prices")).items()}
        self._declines: dict[JobId, Reason] = {}
        idle = settle(self._draft)
        follow_demands(self._draft)
        waiting = sorted((*snapshot.waiting, *idle), key=seniority) if idle else snapshot.waiting
        self._start_whole(waiting)
        self._entries = self._candidates(waiting)
        self._pools = self._find_pools()
        self._capacities = self._free_in_pools()

    def plan(self) -> Plan:
        """Promises, then the knapsack, then nodes."""
        book = self._promises()
        if not self._entries:
            return self._finished(None, book, {})
        table = Table.of([one.options for one in self._entries], self._pools)
        needs = self._needs(book)
        facts = self._facts(book)
        worth = self._worth()
        values = worth.table(facts, table.rates)
        allowed = self._allowed(table, facts, needs)
        found = self._solve(table, self._welcomed(values, facts, self._prices), allowed)
        if found is not None and (facts.is_new & (found.choices == 0)).any():
            # The last round's price was too low for all that came at once.
            prices = {_text(pool): float(price) for pool, price in zip(self._pools, found.multipliers, strict=True)}
            found = self._solve(table, self._welcomed(values, facts, prices), allowed)
        if found is None:
            return self._finished(None, book, {})
        moves = [self._move(one, int(k), book) for one, k in zip(self._entries, found.choices, strict=True)]
        seating = Seating(self._draft, moves)
        seating.run()
        self._n_parted = seating.n_parted
        held = {
            one.id: ((move.kind, one.options.uses_gpus), self._amount(one))
            for one, move in zip(self._entries, moves, strict=True)
        }
        return self._finished(found, book, held)

    # Who takes part.

    def _start_whole(self, waiting: Sequence[JobView]) -> None:
        """Jobs without workers get what they demand in order of submission."""
        for view in waiting:
            if view.spec.worker is None and view.status != "stopping":
                allocation = self._draft.fit(view)
                if allocation is not None:
                    self._draft.put(view, allocation, starts(view, allocation))
                elif self._draft.hardware.amount(view) is None:
                    self._draft.explain(view, never_fits(view))

    def _candidates(self, waiting: Sequence[JobView]) -> list[Entry]:
        holding = sorted(self._snapshot.holding, key=seniority)
        views = [view for view in holding if self._draft.held(view)]
        entries = [
            self._entry(view)
            for view in (*views, *waiting)
            if view.spec.worker is not None and view.status != "stopping"
        ]
        return [entry for entry in entries if entry is not None]

    def _entry(self, view: JobView) -> Entry | None:
        hardware, held = self._draft.hardware, self._draft.held(view)
        options = options_of(hardware, view)
        if options is None:
            if not held:
                self._draft.explain(view, never_fits(view))
            return None
        n = n_workers(view.spec, held)
        kind = hardware.kind_of[next(iter(held))] if held else ""
        at = self._snapshot.at
        remaining = view.remaining_steps(at) if options.known else None
        left_s = inf if view.deadline_at is None else view.deadline_at - at
        return Entry(view, options, kind, n, options.column(kind, n), remaining, left_s)

    def _find_pools(self) -> list[Pool]:
        """Those that any job can draw on."""
        pools = {(kind, one.options.uses_gpus) for one in self._entries for kind in one.options.kinds[1:]}
        return sorted(pools)

    def _free_in_pools(self) -> dict[Pool, int]:
        """What the candidates may share: what is free, and what they hold."""
        hardware, free = self._draft.hardware, self._draft.free
        has: dict[Pool, float] = {}
        for kind, uses_gpus in self._pools:
            amounts = [free[node] for node in hardware.kinds[kind]]
            has[kind, uses_gpus] = sum(
                one.gpus if uses_gpus else (one.cores + TOLERANCE) * PARTS_PER_CORE for one in amounts
            )
        for one in self._entries:
            if one.n and one.pool in has:
                has[one.pool] += one.n * one.options.per_worker
        return {pool: int(amount) for pool, amount in has.items()}

    # Promises.

    def _promises(self) -> Book:
        capacities, frac = self._reserved(), self._parameters.offered_frac
        offered = {pool: int(frac * n) for pool, n in capacities.items()}
        book = Book(capacities, offered, late=self._parameters.work == "late")
        if self._parameters.admission == "none":
            return book
        kept: list[tuple[Entry, Claim]] = []
        others: list[tuple[Entry, Claim]] = []
        for one in self._entries:
            claim = self._claim(one)
            if claim is not None:
                self._claims[one.id] = claim
                (kept if claim.promised else others).append((one, claim))
        book.keep([claim for _, claim in kept], [claim for _, claim in others])
        self._offer(book, [claim for _, claim in kept], others)
        return book

    def _offer(self, book: Book, kept: list[Claim], others: Sequence[tuple[Entry, Claim]]) -> None:
        """Promise what can be promised to those that have no promise yet."""
        n_new = 0
        for one, claim in sorted(others, key=lambda pair: not pair[1].overdue):
            given = book.offer(claim)
            if not given and claim.id not in self._refused and n_new < _N_NEW_MAX:
                n_new += 1
                given = book.offer_again(claim, kept)
            if given:
                kept.append(claim)
                self._refused.discard(claim.id)
            else:
                self._refuse(one)

    def _refuse(self, one: Entry) -> None:
        self._refused.add(one.id)
        if self._parameters.admission == "decline" and one.view.status == "queued":
            text = f"its deadline in {span_text(one.left_s)} cannot be promised beside what is promised already"
            self._declines[one.id] = Reason("declined", text, {"left_s": one.left_s})

    def _claim(self, one: Entry) -> Claim | None:
        """What the job would need for its promise; None if there is none to be had."""
        promised = one.id in self._promised and 0 < one.left_s < inf
        overdue = not promised and (one.id in self._overdue or self._is_overdue(one))
        due_s = self._waits_until_s(one) if overdue else one.left_s
        until_s = due_s * (1 - _ROUNDING_FRAC) - one.restarts_s
        if not 0 < due_s < inf or (one.remaining is None and not overdue):
            return None
        work_steps = self._slice(one) if one.remaining is None else one.remaining
        kept, caution = promised or (overdue and one.id in self._overdue), self._parameters.caution
        if not kept and (until_s <= 0 or work_steps > one.options.surely_fastest(caution) * until_s):
            return None
        ladders = {pool: one.options.ladder(pool[0], caution) for pool in self._preferred(one)}
        return Claim(
            id=one.id, work_steps=work_steps, until_s=max(until_s, 1e-3), due_at=self._snapshot.at + due_s,
            ladders=ladders, promised=kept, overdue=overdue,
        )  # fmt: skip

    def _waits_until_s(self, one: Entry) -> float:
        """Seconds from now by which a job that has waited too long is to be done."""
        until_at = self._overdue.get(one.id, 0.0)
        return until_at - self._snapshot.at if until_at > self._snapshot.at else self._patience_s(one)

    def _is_overdue(self, one: Entry) -> bool:
        """Whether the job holds nothing and has waited longer than anyone should."""
        if one.n or self._parameters.patience_s <= 0:
            return False
        since_at = one.view.submitted_at if one.view.started_at is None else one.view.granted_at
        return self._snapshot.at - since_at > self._patience_s(one)

    def _patience_s(self, one: Entry) -> float:
        """The longer a job takes, the longer it can wait."""
        work_steps = self._slice(one) if one.remaining is None else one.remaining
        return self._parameters.patience_s + _PATIENCE * work_steps / one.options.fastest

    def _slice(self, one: Entry) -> float:
        """Of a job that nobody knows the end of, so much is promised at a time."""
        return float(one.options.rates[1]) * self._parameters.prior_s

    def _preferred(self, one: Entry) -> list[Pool]:
        """Where it is first, then where it is fastest per device."""
        kinds = dict.fromkeys(one.options.kinds[1:])
        return [
            (kind, one.options.uses_gpus)
            for kind in sorted(kinds, key=lambda kind: (kind != one.kind, -one.options.best_on(kind), kind))
        ]

    def _reserved(self) -> dict[Pool, int]:
        """What promises may count on: what jobs that may not be paused need at least is not for them."""
        left = dict(self._capacities)
        for one in self._entries:
            if is_protected(one.view) and one.n and one.id not in self._promised and one.pool in left:
                left[one.pool] -= min(one.n, one.options.least_on(one.kind)) * one.options.per_worker
        return {pool: max(0, n) for pool, n in left.items()}

    def _needs(self, book: Book) -> list[tuple[Pool, int] | None]:
        needs: list[tuple[Pool, int] | None] = []
        for one in self._entries:
            promise = book.promises.get(one.id)
            needs.append((promise.pool, int(promise.amounts[0])) if promise and len(promise.amounts) else None)
        return needs

    # The knapsack.

    def _worth(self) -> Worth:
        p = self._parameters
        return Worth(
            volume_power=p.volume_power, urgency=p.urgency, urgency_power=p.urgency_power, prior_s=max(p.prior_s, 1.0),
            lasting_s=max(p.lasting_s, 1e-3), steadiness=p.steadiness,
        )  # fmt: skip

    def _facts(self, book: Book) -> Facts:
        return Facts.of(
            [
                (
                    one.view.spec.weight, nan if one.remaining is None else one.remaining,
                    self._attained_s(one.view), one.options.best, one.options.fastest, one.left_s,
                    one.id in book.promises and not self._claims[one.id].overdue, one.view.spec.startup_s, one.view.spec.resize_cost_s, one.column,
                    one.view.started_at is None,
                )
                for one in self._entries
            ]
        )  # fmt: skip

    def _attained_s(self, view: JobView) -> float:
        held = total(view.granted.values())
        since_s = max(0.0, self._snapshot.at - view.accrued_at)
        return view.granted_gpu_s + held.gpus * since_s or view.granted_core_s + held.cores * since_s

    def _welcomed(self, values: FloatArray, facts: Facts, prices: Mapping[str, float]) -> FloatArray:
        """Jobs that never ran get the price of their smallest number on top: they start, small, if anyone does."""
        price = self._parameters.welcome * max((prices.get(_text(pool), 0.0) for pool in self._pools), default=0.0)
        welcomed = values.copy()
        for i in np.flatnonzero(facts.is_new & (facts.columns == 0)) if price else ():
            options = self._entries[i].options
            welcomed[i, 1 : len(options.counts)] += price * int(options.amounts[1:].min())
        return welcomed

    def _allowed(self, table: Table, facts: Facts, needs: Sequence[tuple[Pool, int] | None]) -> Any:
        allowed = table.allowed.copy()
        for i, (one, need) in enumerate(zip(self._entries, needs, strict=True)):
            if one.n and is_protected(one.view):
                allowed[i, 0] = False
            if need is not None:
                allowed[i] &= self._keeping(one, need, table.rates[i], table.amounts[i])
        return allowed

    def _keeping(self, one: Entry, need: tuple[Pool, int], rates: FloatArray, amounts: IntArray) -> Any:
        """The columns with which a promise is kept."""
        (kind, _), least = need
        if not least and not one.restarts_s:
            return np.ones(len(rates), dtype=bool)
        on_kind = np.zeros(len(rates), dtype=bool)
        on_kind[: len(one.options.kinds)] = [each == kind for each in one.options.kinds]
        enough = on_kind & (amounts >= least)
        if not least:
            enough[0] = True
        if one.restarts_s and one.remaining is not None:
            # A change costs time: only to what it can stay with, or to what the plan says.
            with np.errstate(divide="ignore", invalid="ignore"):
                alone = one.remaining / rates + one.restarts_s <= one.left_s
            stays = np.arange(len(rates)) == one.column
            enough &= alone | stays | (amounts == least)
        return enough

    def _solve(self, table: Table, values: FloatArray, allowed: Any) -> Solution | None:
        for permitted in (allowed, self._unpromised(table)):
            found = self._knapsack(table, values, permitted)
            if found.status != "infeasible":
                return found
        return None

    def _unpromised(self, table: Table) -> Any:
        allowed = table.allowed.copy()
        allowed[:, 0] = [not (one.n and is_protected(one.view)) for one in self._entries]
        return allowed

    def _knapsack(self, table: Table, values: FloatArray, allowed: Any) -> Solution:
        if len(self._pools) == 1:
            pool = self._pools[0]
            return solve_knapsack(
                table.amounts, values, self._capacities[pool], allowed=allowed, gap_limit=_GAP,
                multiplier=self._prices.get(_text(pool)),
            )  # fmt: skip
        costs = table.amounts[:, :, None] * (table.pools[:, :, None] == np.arange(len(self._pools)))
        return solve_vector_knapsack(costs, values, [self._capacities[pool] for pool in self._pools], allowed=allowed)

    # Nodes, reasons, and what is handed on.

    def _amount(self, one: Entry) -> int:
        return n_workers(one.view.spec, self._draft.held(one.view)) * one.options.per_worker

    def _move(self, one: Entry, column: int, book: Book) -> Move:
        options, promise = one.options, book.promises.get(one.id)
        least = int(promise.amounts[0]) if promise and len(promise.amounts) else 0
        kind, n = options.kinds[column], options.counts[column]
        smaller = [
            options.counts[k] for k in range(len(options.counts))
            if options.kinds[k] == kind and 0 < options.counts[k] < n
        ]  # fmt: skip
        return Move(
            view=one.view, worker=one.view.spec.worker or one.view.spec.ceiling, n_before=one.n, kind_before=one.kind, n=n, kind=kind,
            fallbacks=tuple(sorted(smaller, reverse=True)), stays=self._stays(one), reason=self._why(one, column, least),
        )  # fmt: skip

    def _stays(self, one: Entry) -> bool:
        """Whether the job is not to be moved: it may not be paused, or it would lose too much by it."""
        if is_protected(one.view) or one.view.status == "starting":
            return one.n > 0
        rate_sps = float(one.options.rates[one.column])
        left_s = seconds_for(one.remaining, rate_sps) if one.remaining is not None else self._parameters.lasting_s
        return one.n > 0 and one.view.spec.startup_s > _MOVE_FRAC * left_s

    def _why(self, one: Entry, column: int, least: int) -> Reason:
        """What the change does to the job."""
        options, n = one.options, one.options.counts[column]
        facts = {"n_workers_before": float(one.n), "n_workers": float(n)}
        if n == 0:
            return Reason("paused", f"{one.n} -> 0 workers: what it had is worth more to others for now", facts)
        after_s = one.remaining / float(options.rates[column]) if one.remaining is not None else None
        due = "" if not isfinite(one.left_s) else self._due(one, after_s, least, facts)
        if not one.n:
            verb = "starts" if one.view.started_at is None else "goes on"
            return Reason("starts", f"{verb} with {n} worker{'s' * (n != 1)}{due}", facts)
        code = "grows" if n > one.n else "shrinks" if n < one.n else "moves"
        change = f"{one.n} -> {n} workers"
        if after_s is None or not one.column:
            return Reason(code, f"{change}{due}", facts)
        before_s = one.remaining / float(options.rates[one.column])  # type: ignore[operator]
        sooner_s = before_s - after_s
        facts |= {"sooner_s": sooner_s}
        tail = (
            "earlier, worth more per device than elsewhere"
            if sooner_s >= 0
            else "later, the devices are worth more elsewhere"
        )
        return Reason(code, f"{change}: finishes {span_text(abs(sooner_s))} {tail}{due}", facts)

    def _due(self, one: Entry, after_s: float | None, least: int, facts: dict[str, float]) -> str:
        facts["left_s"] = one.left_s
        if after_s is None:
            return ""
        slack_s = one.left_s - after_s
        facts["slack_s"] = slack_s
        word = "promised deadline" if least else "deadline"
        return f"; {word} {span_text(abs(slack_s))} {'behind' if slack_s >= 0 else 'before'} its end"

    def _handed_on(self, book: Book, *, overdue: bool) -> dict[str, object]:
        """Until when the promised jobs are to be done."""
        claims = [claim for id, claim in sorted(self._claims.items()) if id in book.promises]
        return {claim.id: claim.due_at for claim in claims if claim.overdue is overdue}

    def _finished(self, found: Solution | None, book: Book, held: Mapping[JobId, tuple[Pool, int]]) -> Plan:
        present = {view.spec.id for view in (*self._snapshot.holding, *self._snapshot.waiting)}
        prices = (
            {_text(pool): float(price) for pool, price in zip(self._pools, found.multipliers, strict=True)}
            if found is not None
            else {}
        )
        plan = self._draft.plan(
            promised=self._handed_on(book, overdue=False),
            overdue=self._handed_on(book, overdue=True),
            refused=sorted(self._refused & present),
            prices=prices,
        )
        next_s = _LOOK_S if self._n_parted else book.needed_at(held)
        return replace(
            plan,
            declines=self._declines,
            bound=found.bound if found is not None else None,
            objective=found.value if found is not None else None,
            ask_again_at=None if next_s is None else self._snapshot.at + max(next_s, _LOOK_S),
        )


def _text(pool: Pool) -> str:
    return f"{pool[0]}:{'gpus' if pool[1] else 'cores'}"


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: object) -> dict[Any, float]:
    if not isinstance(value, dict):
        return {}
    return {
        key: float(one) for key, one in value.items() if isinstance(one, int | float) and isfinite(one) and one >= 0
    }
