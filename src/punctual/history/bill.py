"""The bill: what machines of pools cost, and which job it was spent on."""

from collections.abc import Callable
from math import inf
from typing import Any

from punctual.core.commands import RejectJob
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
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


class _Machine:
    """A machine that is paid for."""

    __slots__ = ("asked_at", "holders", "paid_until_at", "pool", "unassigned_usd")

    def __init__(self, pool: str, at: float) -> None:
        self.pool = pool
        self.asked_at = self.paid_until_at = at
        self.holders: dict[JobId, float] = {}
        #: Cost so far of times without a job on it: the first job that comes pays for it.
        self.unassigned_usd = 0.0


class Bill:
    """Adds up what each job costs, from the messages of a run in their order.

    A machine is paid for from the order on, at the present price of its pool, and at least for its least billed time. Jobs
    share its cost by what they hold of it. Time in which nobody holds anything, its start-up for one, is paid by the job that
    comes next; on a machine that no job comes to, by nobody.

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
        self._now = -inf
        self._specs: dict[str, PoolSpec] = {}
        self._prices: dict[str, float] = {}
        self._machines: dict[NodeId, _Machine] = {}
        self._granted: dict[JobId, Allocation] = {}
        self._folds: dict[type, Callable[[Any], None]] = {
            PoolOffered: self._pool_offered,
            MachinesAsked: self._machines_asked,
            NodeLost: lambda event: self._end(event.node, event.at),
            JobStarted: lambda event: self._hold(event.job, event.granted, event.at),
            GrantApplied: lambda event: self._hold(event.job, event.granted, event.at),
            GrantFailed: lambda event: self._hold(event.job, event.granted, event.at),
            JobFinished: lambda event: self._hold(event.job, {}, event.at),
            JobFailed: lambda event: self._hold(event.job, {}, event.at),
            RejectJob: lambda event: self._hold(event.job, {}, event.at),
        }

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
        for node in event.nodes:
            self._machines[node] = _Machine(event.pool, event.at)

    def _hold(self, job: JobId, granted: Allocation, at: float) -> None:
        before = self._granted.get(job, {})
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
        self._granted[job] = granted

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
