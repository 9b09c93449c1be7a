"""Cost of machines of pools over time, by pool and by job: the bill, with the times that are paid for."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf

import numpy as np

from punctual.core.bill import Bill, Payment
from punctual.core.events import MachinesAsked, Message
from punctual.core.ids import JobId
from punctual.core.units import HOUR_S


def is_same_cost(usd: float, other_usd: float) -> bool:
    """Whether two sums are the same, but for what is added up between two looks."""
    return abs(usd - other_usd) <= 0.01 + 0.01 * max(usd, other_usd)


class CostCurve:
    """Dollars an hour over time, as a sum of payments that may overlap and come in any order."""

    def __init__(self) -> None:
        #: Change of the dollars an hour at each instant.
        self._changes: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def last_at(self) -> float:
        """Instant from which on nothing more is paid."""
        return max(self._changes, default=-inf)

    def add(self, payment: Payment) -> None:
        """Add a payment."""
        for at, usd_h in ((payment.since_at, payment.usd_h), (payment.until_at, -payment.usd_h)):
            changed = self._changes.get(at, 0.0) + usd_h
            # Smaller changes, in dollars an hour, are rounding errors of what was added and taken off.
            if abs(changed) > 1e-9:
                self._changes[at] = changed
            else:
                self._changes.pop(at, None)

    def usd(self, at: Sequence[float]) -> list[float]:
        """Return the dollars that were paid for the time up to each instant."""
        instants, spent_usd = self.course()
        usd: list[float] = np.interp(at, instants, spent_usd, left=0.0).tolist() if instants else [0.0] * len(at)
        return usd

    def usd_h(self, edges_at: Sequence[float]) -> list[float]:
        """Return the mean dollars an hour between neighbouring edges, ascending instants."""
        return _per_hour(edges_at, self.usd(edges_at))

    def course(self) -> tuple[list[float], list[float]]:
        """Return the instants at which the dollars an hour change, and the dollars paid up to each."""
        instants = sorted(self._changes)
        usd_h = accumulate(self._changes[at] for at in instants)
        paid_usd = (
            (until - since) / HOUR_S * rate for (since, until), rate in zip(pairwise(instants), usd_h, strict=False)
        )
        return instants, list(accumulate(paid_usd, initial=0.0))

    def thin(self) -> None:
        """Forget every second change; the sums at the others stay exact."""
        instants, spent_usd = ([*values[:-1:2], values[-1]] for values in self.course())
        usd_h = [0.0, *_per_hour(instants, spent_usd), 0.0]
        self._changes = {at: after - before for at, (before, after) in zip(instants, pairwise(usd_h), strict=True)}


def _per_hour(at: Sequence[float], spent_usd: Sequence[float]) -> list[float]:
    spans = zip(pairwise(at), pairwise(spent_usd), strict=True)
    return [(after - before) / (until - since) * HOUR_S for (since, until), (before, after) in spans]


class CostHistory:
    """The bill of a journal over time; give it each message (`add`).

    Attributes
    ----------
    bill
        The sums.
    by_pool, by_job
        Dollars over time of each pool, and of each job on each pool; of many jobs those whose costs ended first are forgotten.
    since_at
        Instant of the first machine; None: there was none.
    """

    def __init__(self) -> None:
        self.bill = Bill(self._paid)
        self.by_pool: dict[str, CostCurve] = {}
        self.by_job: dict[JobId, dict[str, CostCurve]] = {}
        self.since_at: float | None = None
        self._n_changes = 0

    def add(self, message: Message) -> None:
        """Take the next message."""
        if self.since_at is None and isinstance(message, MachinesAsked):
            self.since_at = message.at
        self.bill.add(message)

    def settle(self, at: float) -> None:
        """Count all machines up to instant `at`."""
        self.bill.settle(at)
        for curve in self.by_pool.values():
            # Changes that are kept of a pool, and below of all jobs together: some megabytes.
            if len(curve) > 20_000:
                curve.thin()
        while self._n_changes > 100_000 and len(self.by_job) > 1:
            first = min(self.by_job, key=lambda job: max(curve.last_at for curve in self.by_job[job].values()))
            self._n_changes -= sum(map(len, self.by_job.pop(first).values()))

    def _paid(self, payment: Payment) -> None:
        if not payment.usd_h:
            return
        self.by_pool.setdefault(payment.pool, CostCurve()).add(payment)
        if payment.job is not None:
            curve = self.by_job.setdefault(payment.job, {}).setdefault(payment.pool, CostCurve())
            self._n_changes -= len(curve)
            curve.add(payment)
            self._n_changes += len(curve)
