"""The bill: what machines of pools cost, and which job it was spent on."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import Any

from punctual.core.commands import RejectJob
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    MachinesAsked,
    NodeLost,
    PoolOffered,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.pools import PoolSpec
from punctual.core.protocols import Message
from punctual.core.resources import Resources
from punctual.core.units import HOUR_S


@dataclass(slots=True)
class _Machine:
    """A machine that is paid for."""

    pool: str
    asked_at: float
    paid_until_at: float
    holders: dict[JobId, float] = field(default_factory=dict)
    #: Cost so far of times without a job on it: the first job that comes pays for it.
    unassigned_usd: float = 0.0


class Bill:
    """Adds up what each job costs, from the messages of a run in their order.

    A machine is paid for from the order on, at the present price of its pool, and at least for its least billed time. Jobs
    share its cost by what they hold of it. Time in which nobody holds anything, its start-up for one, is paid by the job that
    comes next; on a machine that no job comes to, by nobody: a budget counts it for all jobs that are open when it ends.

    Attributes
    ----------
    by_job, by_pool
        Dollars spent.
    unused_usd
        Dollars spent on machines for no job.
    """

    def __init__(self) -> None:
        self.by_job: dict[JobId, float] = {}
        self.by_pool: dict[str, float] = {}
        self.unused_usd = 0.0
        #: Parts of `unused_usd` that count for the budgets of jobs, which are open.
        self._idle_usd: dict[JobId, float] = {}
        self._now = -inf
        self._specs: dict[str, PoolSpec] = {}
        self._prices: dict[str, float] = {}
        self._machines: dict[NodeId, _Machine] = {}
        self._granted: dict[JobId, Allocation] = {}
        self._folds: dict[type, Callable[[Any], None]] = {
            PoolOffered: self._pool_offered,
            MachinesAsked: self._machines_asked,
            NodeLost: lambda event: self._end(event.node, event.at),
            JobSubmitted: self._submitted,
            JobStarted: lambda event: self._hold(event.job, event.granted, event.at),
            GrantApplied: lambda event: self._hold(event.job, event.granted, event.at),
            GrantFailed: lambda event: self._hold(event.job, event.granted, event.at),
            JobFinished: self._ended,
            JobFailed: lambda event: self._hold(event.job, {}, event.at) if event.retryable else self._ended(event),
            RejectJob: self._ended,
        }

    def __bool__(self) -> bool:
        return bool(self._specs)

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {name: value for name, value in vars(self).items() if name != "_folds"}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `dump`."""
        vars(self).update(deepcopy(dict(state)))

    def claims_usd(self, at: float) -> dict[JobId, float]:
        """Return what each open job costs if all its machines end at instant `at`, for its budget.

        Least times billed are in it, and an equal part of machines that have ended without a job; a machine that starts is not.
        """
        claims = {job: self.by_job.get(job, 0.0) + idle_usd for job, idle_usd in self._idle_usd.items()}
        for machine in self._machines.values():
            paid_at = max(at, machine.asked_at + self._specs[machine.pool].least_billed_s)
            left_usd = max(0.0, paid_at - machine.paid_until_at) / HOUR_S * self._prices.get(machine.pool, 0.0)
            held = sum(machine.holders.values())
            for job, share in machine.holders.items():
                part = share / held if held > 0 else 1 / len(machine.holders)
                claims[job] = claims.get(job, 0.0) + left_usd * part
        return claims

    @property
    def total_usd(self) -> float:
        """Dollars spent in all."""
        return sum(self.by_pool.values())

    def add(self, message: Message) -> None:
        """Take the next message."""
        self._now = max(self._now, message.at)
        fold = self._folds.get(type(message))
        if fold is not None:
            fold(message)

    def settle(self, at: float) -> None:
        """Pay for all machines up to instant `at`."""
        for machine in self._machines.values():
            self._pay(machine, at)

    def close(self) -> None:
        """Pay for all machines up to the last message, and end them."""
        for node in tuple(self._machines):
            self._end(node, self._now)

    def _pool_offered(self, event: PoolOffered) -> None:
        name = event.pool.name
        for machine in self._machines.values():
            if machine.pool == name:
                self._pay(machine, event.at)
        self._specs[name], self._prices[name] = event.pool, event.price_usd_h

    def _machines_asked(self, event: MachinesAsked) -> None:
        for node in event.nodes if event.pool in self._specs else ():
            self._machines[node] = _Machine(event.pool, event.at, event.at)

    def _hold(self, job: JobId, granted: Allocation, at: float) -> None:
        before = self._granted.pop(job, {})
        for node in before.keys() | granted.keys():
            machine = self._machines.get(node)
            if machine is None:
                continue
            self._pay(machine, at)
            machine.holders.pop(job, None)
            if node in granted:
                machine.holders[job] = self._share(machine.pool, granted[node])
                self._spend(machine.unassigned_usd, machine)
                machine.unassigned_usd = 0.0
        if granted:
            self._granted[job] = granted
            self._idle_usd.setdefault(job, 0.0)

    def _submitted(self, event: JobSubmitted) -> None:
        self._idle_usd.setdefault(event.spec.id, 0.0)

    def _ended(self, event: JobFinished | JobFailed | RejectJob) -> None:
        self._hold(event.job, {}, event.at)
        self._idle_usd.pop(event.job, None)

    def _share(self, pool: str, amount: Resources) -> float:
        capacity = self._specs[pool].capacity
        return amount.gpus / capacity.gpus if capacity.gpus else amount.cores / (capacity.cores or 1.0)

    def _pay(self, machine: _Machine, until_at: float) -> None:
        over_s = max(0.0, until_at - machine.paid_until_at)
        cost_usd = over_s / HOUR_S * self._prices.get(machine.pool, 0.0)
        machine.paid_until_at = max(until_at, machine.paid_until_at)
        self.by_pool[machine.pool] = self.by_pool.get(machine.pool, 0.0) + cost_usd
        if machine.holders:
            self._spend(cost_usd, machine)
        else:
            machine.unassigned_usd += cost_usd

    def _spend(self, cost_usd: float, machine: _Machine) -> None:
        held = sum(machine.holders.values())
        for job, share in machine.holders.items():
            part = share / held if held > 0 else 1 / len(machine.holders)
            self.by_job[job] = self.by_job.get(job, 0.0) + cost_usd * part

    def _end(self, node: NodeId, at: float) -> None:
        machine = self._machines.pop(node, None)
        if machine is None:
            return
        self._pay(machine, max(at, machine.asked_at + self._specs[machine.pool].least_billed_s))
        self.unused_usd += machine.unassigned_usd
        for job in self._idle_usd:
            self._idle_usd[job] += machine.unassigned_usd / len(self._idle_usd)
