"""The bill: what machines of pools cost, and which job it was spent on."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

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
    SteeringResumed,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.pools import PoolSpec
from punctual.core.protocols import Message
from punctual.core.resources import Resources
from punctual.core.units import HOUR_S


class Payment(NamedTuple):
    """Dollars an hour for machines of a pool over a time, for a job.

    `job` None: for no job so far. If one pays for it later, the same is taken off with a negative sign.
    """

    pool: str
    job: JobId | None
    since_at: float
    until_at: float
    usd_h: float

    @property
    def usd(self) -> float:
        return (self.until_at - self.since_at) / HOUR_S * self.usd_h


class PaidMachine(NamedTuple):
    """A machine that is paid for: its present price, the jobs that hold something on it, and how far the bill counts it."""

    pool: str
    usd_h: float
    jobs: tuple[JobId, ...]
    paid_until_at: float


@dataclass(slots=True)
class _MachineBill:
    """A machine that is paid for."""

    pool: str
    paid_until_at: float
    holders: dict[JobId, float] = field(default_factory=dict)
    #: Times without a job on it so far: the first job that comes pays for them.
    idle: list[Payment] = field(default_factory=list)

    @property
    def idle_usd(self) -> float:
        return sum(payment.usd for payment in self.idle)


class Bill:
    """Adds up what each job costs, from the messages of a run in their order.

    A machine is paid for from the order on, at the present price of its pool: for its least billed time at once, then as time
    goes on. Jobs share its cost by what they hold of it. What was paid while nobody held anything, for its start-up say, is
    spent on the job that comes next; on a machine that no job comes to, on none: budgets count equal parts of it for all jobs
    that are open when it ends.

    Parameters
    ----------
    on_paid
        Called with each payment. Together those of a pool are what it has cost, and those of a job what that has.

    Attributes
    ----------
    by_job, by_pool
        Dollars spent.
    unused_usd
        Dollars spent on machines for no job.
    """

    def __init__(self, on_paid: Callable[[Payment], None] = lambda _: None) -> None:
        self._on_paid = on_paid
        self.by_job: dict[JobId, float] = {}
        self.by_pool: dict[str, float] = {}
        self.unused_usd = 0.0
        #: Parts of `unused_usd` that count for the budgets of jobs, which are open.
        self._idle_usd: dict[JobId, float] = {}
        self._now = -inf
        self._specs: dict[str, PoolSpec] = {}
        self._prices: dict[str, float] = {}
        self._machines: dict[NodeId, _MachineBill] = {}
        self._granted: dict[JobId, Allocation] = {}
        #: Number of the last answer about each job that has a process.
        self._answered: dict[JobId, int] = {}
        self._folds: dict[type, Callable[[Any], None]] = {
            PoolOffered: self._pool_offered,
            MachinesAsked: self._machines_asked,
            NodeLost: lambda event: self._end(event.node, event.at),
            JobSubmitted: self._submitted,
            JobStarted: self._changed,
            GrantApplied: self._changed,
            GrantFailed: self._changed,
            JobFinished: self._ended,
            JobFailed: self._failed,
            RejectJob: self._ended,
            SteeringResumed: self._steering_resumed,
        }

    def __bool__(self) -> bool:
        return bool(self._specs)

    def dump(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {name: value for name, value in vars(self).items() if name not in ("_folds", "_on_paid")}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of `dump`."""
        vars(self).update(deepcopy(dict(state)))

    def spent_usd(self, job: JobId, at: float) -> float:
        """Return what a job has cost if its machines end at instant `at`; safe to call from any thread."""
        machines = list(self._machines.values())
        return self.by_job.get(job, 0.0) + sum(
            self._unpaid_usd(each, at) * _parts(each).get(job, 0.0) for each in machines
        )

    def claims_usd(self, at: float) -> dict[JobId, float]:
        """Return what counts for the budget of each open job: `spent_usd`, and its parts of machines that no job came to."""
        claims = {job: self.by_job.get(job, 0.0) + idle_usd for job, idle_usd in self._idle_usd.items()}
        for machine in self._machines.values():
            for job, part in _parts(machine).items():
                claims[job] = claims.get(job, 0.0) + self._unpaid_usd(machine, at) * part
        return claims

    def total_usd_at(self, at: float) -> float:
        """Return the dollars spent in all up to instant `at`; safe to call from any thread."""
        return self.total_usd + sum(self._unpaid_usd(machine, at) for machine in list(self._machines.values()))

    def machines(self) -> dict[NodeId, PaidMachine]:
        """Return the machines that are paid for now; safe to call from any thread."""
        return {
            node: PaidMachine(
                machine.pool, self.price_usd_h(machine.pool), tuple(machine.holders), machine.paid_until_at
            )
            for node, machine in self._machines.copy().items()
        }

    def price_usd_h(self, pool: str) -> float:
        """Return the present price of a machine of the pool."""
        return self._prices.get(pool, 0.0)

    @property
    def has_price(self) -> bool:
        """Whether machines of a pool cost something."""
        return any([*self._prices.copy().values(), self.total_usd])

    @property
    def last_at(self) -> float:
        """Instant of the last message."""
        return self._now

    @property
    def kinds(self) -> tuple[type, ...]:
        """Kinds of messages that say something of the bill."""
        return tuple(self._folds)

    @property
    def total_usd(self) -> float:
        """Dollars spent in all, as far as they were counted."""
        return sum(self.by_pool.copy().values())

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
            self._machines[node] = machine = _MachineBill(event.pool, event.at)
            self._pay(machine, event.at + self._specs[event.pool].least_billed_s)

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
                for idle in machine.idle:
                    self._on_paid(idle._replace(usd_h=-idle.usd_h))
                    self._spend(idle, machine)
                machine.idle.clear()
        if granted:
            self._granted[job] = granted
            self._idle_usd.setdefault(job, 0.0)

    def _submitted(self, event: JobSubmitted) -> None:
        self._idle_usd.setdefault(event.spec.id, 0.0)

    def _changed(self, event: JobStarted | GrantApplied | GrantFailed) -> None:
        """Note what a job holds; ignore a late answer, and one about a process that is gone."""
        last = self._answered.get(event.job, 0 if isinstance(event, JobStarted) else None)
        if last is None or event.request < last:
            return
        self._answered[event.job] = event.request
        self._hold(event.job, event.granted, event.at)

    def _failed(self, event: JobFailed) -> None:
        if not event.retryable:
            self._ended(event)
        elif event.request is None or event.request >= self._answered.get(event.job, 0):
            self._answered.pop(event.job, None)
            self._hold(event.job, {}, event.at)

    def _ended(self, event: JobFinished | JobFailed | RejectJob) -> None:
        self._answered.pop(event.job, None)
        self._hold(event.job, {}, event.at)
        self._idle_usd.pop(event.job, None)

    def _steering_resumed(self, event: SteeringResumed) -> None:
        """Note what jobs were found to hold: the process of one that is not named is gone."""
        for job in [job for job in self._answered if job not in event.granted]:
            del self._answered[job]
            self._hold(job, {}, event.lost_at)
        for job, granted in event.granted.items():
            self._answered.setdefault(job, 0)
            self._hold(job, granted, event.at)

    def _share(self, pool: str, amount: Resources) -> float:
        capacity = self._specs[pool].capacity
        return amount.gpus / capacity.gpus if capacity.gpus else amount.cores / (capacity.cores or 1.0)

    def _unpaid_usd(self, machine: _MachineBill, until_at: float) -> float:
        return max(0.0, until_at - machine.paid_until_at) / HOUR_S * self.price_usd_h(machine.pool)

    def _pay(self, machine: _MachineBill, until_at: float) -> None:
        payment = Payment(machine.pool, None, machine.paid_until_at, until_at, self.price_usd_h(machine.pool))
        if until_at <= payment.since_at:
            return
        machine.paid_until_at = until_at
        self.by_pool[machine.pool] = self.by_pool.get(machine.pool, 0.0) + payment.usd
        if machine.holders:
            self._spend(payment, machine)
            return
        self._on_paid(payment)
        if machine.idle and machine.idle[-1].usd_h == payment.usd_h:
            payment = payment._replace(since_at=machine.idle.pop().since_at)
        machine.idle.append(payment)

    def _spend(self, payment: Payment, machine: _MachineBill) -> None:
        for job, part in _parts(machine).items():
            of_job = payment._replace(job=job, usd_h=payment.usd_h * part)
            self.by_job[job] = self.by_job.get(job, 0.0) + of_job.usd
            self._on_paid(of_job)

    def _end(self, node: NodeId, at: float) -> None:
        machine = self._machines.pop(node, None)
        if machine is None:
            return
        self._pay(machine, at)
        self.unused_usd += machine.idle_usd
        for job in self._idle_usd:
            self._idle_usd[job] += machine.idle_usd / len(self._idle_usd)


def _parts(machine: _MachineBill) -> dict[JobId, float]:
    """Return the part of a machine's cost that each job on it pays."""
    holders = machine.holders.copy()
    held = sum(holders.values())
    return {job: share / held if held > 0 else 1 / len(holders) for job, share in holders.items()}
