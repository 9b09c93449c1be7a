"""One decision of the policy that keeps promises first."""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from typing import Protocol

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import total
from punctual.optim.solution import BoolArray, FloatArray, IntArray, Solution
from punctual.policies import _pledges
from punctual.policies._base import is_protected, n_workers, seconds_for
from punctual.policies._candidates import Candidate, Field
from punctual.policies._draft import Draft
from punctual.policies._options import Pool, Table
from punctual.policies._pledges import Pledges
from punctual.policies._seats import Move, Seating
from punctual.policies._why import why
from punctual.policies._worth import Facts, Worth

#: Proven gap at which the knapsack stops: of one pool, and of several.
_GAP, _GAP_SEVERAL = 1e-3, 1e-2
#: Least time between two looks at an unchanged cluster.
_LOOK_S = 1.0
#: A job is moved to make room if that costs at most this share of the time it still needs.
_MOVE_FRAC = 0.05


class Parameters(_pledges.Parameters, Protocol):
    """What a round takes from the policy."""

    @property
    def volume_power(self) -> float: ...
    @property
    def urgency(self) -> float: ...
    @property
    def urgency_power(self) -> float: ...
    @property
    def lasting_s(self) -> float: ...
    @property
    def steadiness(self) -> float: ...
    @property
    def welcome(self) -> float: ...


class Round:
    """The plan for one snapshot."""

    def __init__(self, snapshot: Snapshot, parameters: Parameters) -> None:
        self._snapshot, self._parameters = snapshot, parameters
        self._draft = Draft(snapshot)
        self._field = Field.of(self._draft)
        self._candidates, self._pools = self._field.candidates, self._field.pools
        carry = snapshot.carry if isinstance(snapshot.carry, dict) else {}
        self._pledges = Pledges(snapshot.at, carry, self._candidates, self._field.capacities, parameters)
        #: Of a unit of each pool, in the last round.
        self._prices = {str(pool): price for pool, price in _pledges.amounts(carry.get("prices")).items()}

    def plan(self) -> Plan:
        """Promises, then the knapsack, then nodes."""
        found = self._shared() if self._candidates else None
        if found is None:
            return self._finished(None, {}, n_parted=0)
        moves = [self._move(one, int(k)) for one, k in zip(self._candidates, found.choices, strict=True)]
        seating = Seating(self._draft, moves)
        seating.run()
        held = {
            one.id: ((move.kind, one.options.uses_gpus), self._amount(one))
            for one, move in zip(self._candidates, moves, strict=True)
        }
        return self._finished(found, held, n_parted=seating.n_parted)

    # The knapsack.

    def _shared(self) -> Solution | None:
        """The column of each candidate; None: there is no choice that keeps what must be kept."""
        table = Table.of([one.options for one in self._candidates], self._pools)
        facts = self._facts()
        values = self._worth().table(facts, table.rates)
        allowed = self._allowed(table)
        found = self._solve(table, self._welcomed(values, facts, self._prices), allowed)
        if found is not None and (facts.is_new & (found.choices == 0)).any():
            # The last round's price was too low for all that came at once.
            found = self._solve(table, self._welcomed(values, facts, self._prices_of(found)), allowed)
        return found

    def _worth(self) -> Worth:
        p = self._parameters
        return Worth(
            volume_power=p.volume_power, urgency=p.urgency, urgency_power=p.urgency_power, prior_s=max(p.prior_s, 1.0),
            lasting_s=max(p.lasting_s, 1e-3), steadiness=p.steadiness,
        )  # fmt: skip

    def _facts(self) -> Facts:
        return Facts.of(
            [
                (
                    one.view.spec.weight, nan if one.remaining is None else one.remaining,
                    self._attained_s(one.view), one.options.best, one.options.fastest, one.left_s,
                    self._pledges.is_promised(one), one.view.spec.startup_s, one.view.spec.resize_cost_s, one.column,
                    one.view.started_at is None,
                )
                for one in self._candidates
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
            options = self._candidates[i].options
            welcomed[i, 1 : len(options.counts)] += price * int(options.amounts[1:].min())
        return welcomed

    def _allowed(self, table: Table) -> BoolArray:
        """The columns with which nobody is paused that may not be, and every promise is kept."""
        allowed = self._protecting(table)
        for i, (one, need) in enumerate(zip(self._candidates, self._pledges.needs(), strict=True)):
            if need is not None:
                allowed[i] &= _keeping(one, need, table.rates[i], table.amounts[i])
        return allowed

    def _protecting(self, table: Table) -> BoolArray:
        allowed = table.allowed.copy()
        allowed[:, 0] = [not (one.n and is_protected(one.view)) for one in self._candidates]
        return allowed

    def _solve(self, table: Table, values: FloatArray, allowed: BoolArray) -> Solution | None:
        """With all promises; where they cannot all be kept any more, without."""
        price = self._prices.get(_text(self._pools[0]))
        gap_limit = _GAP if len(self._pools) == 1 else _GAP_SEVERAL
        for permitted in (allowed, self._protecting(table)):
            found = self._field.solve(table, values, permitted, gap_limit, price)
            if found.status != "infeasible":
                return found
        return None

    # Nodes, and what is handed on.

    def _move(self, one: Candidate, column: int) -> Move:
        options, promise = one.options, self._pledges.book.promises.get(one.id)
        is_promised = promise is not None and len(promise.amounts) > 0 and promise.amounts[0] > 0
        kind, n = options.kinds[column], options.counts[column]
        smaller = {
            count for count, on in zip(options.counts, options.kinds, strict=True) if on == kind and 0 < count < n
        }
        return Move(
            view=one.view, worker=one.view.spec.worker or one.view.spec.ceiling, n_before=one.n, kind_before=one.kind,
            n=n, kind=kind, fallbacks=tuple(sorted(smaller, reverse=True)), stays=self._stays(one),
            reason=why(one, column, is_promised=is_promised),
        )  # fmt: skip

    def _stays(self, one: Candidate) -> bool:
        """Whether the job is not to be moved: it may not be paused, or it would lose too much by it."""
        if is_protected(one.view) or one.view.status == "starting":
            return one.n > 0
        rate_sps = float(one.options.rates[one.column])
        left_s = self._parameters.lasting_s if one.remaining is None else seconds_for(one.remaining, rate_sps)
        return one.n > 0 and one.view.spec.startup_s > _MOVE_FRAC * left_s

    def _amount(self, one: Candidate) -> int:
        return n_workers(one.view.spec, self._draft.held(one.view)) * one.options.per_worker

    def _prices_of(self, found: Solution | None) -> dict[str, float]:
        if found is None:
            return {}
        return {_text(pool): float(price) for pool, price in zip(self._pools, found.multipliers, strict=True)}

    def _finished(self, found: Solution | None, held: Mapping[JobId, tuple[Pool, int]], *, n_parted: int) -> Plan:
        present = {view.spec.id for view in (*self._snapshot.holding, *self._snapshot.waiting)}
        plan = self._draft.plan(**self._pledges.handed_on(present), prices=self._prices_of(found))
        next_s = _LOOK_S if n_parted else self._pledges.book.needed_at(held)
        return replace(
            plan,
            declines=self._pledges.declines,
            bound=found.bound if found is not None else None,
            objective=found.value if found is not None else None,
            ask_again_at=None if next_s is None else self._snapshot.at + max(next_s, _LOOK_S),
        )


def _keeping(one: Candidate, need: tuple[Pool, int], rates: FloatArray, amounts: IntArray) -> BoolArray:
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
    kept: BoolArray = enough
    return kept


def _text(pool: Pool) -> str:
    return f"{pool[0]}:{'gpus' if pool[1] else 'cores'}"
