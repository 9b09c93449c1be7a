"""The bill: what machines of pools cost, and which job it was spent on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, NamedTuple

from punctual.core import events
from punctual.core.commands import RejectJob
from punctual.core.events import Message
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.lifecycle import folds_in
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


@dataclass(slots=True)
class PaidMachine:
    """A machine that is paid for.

    Attributes
    ----------
    usd_h
        Its present price.
    paid_until_at
        Instant up to which the bill counts it.
    shares
        Share of the machine that each job on it holds.
    idle
        Times without a job on it so far: the first job that comes pays for them.
    """

    pool: str
    usd_h: float
    paid_until_at: float
    shares: dict[JobId, float] = field(default_factory=dict)
    idle: list[Payment] = field(default_factory=list)

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Jobs that hold something on it."""
        return tuple(self.shares)

    @property
    def idle_usd(self) -> float:
        return sum(payment.usd for payment in self.idle)

    def unpaid_usd(self, until_at: float) -> float:
        """Return the dollars up to an instant that are not counted yet."""
        return max(0.0, until_at - self.paid_until_at) / HOUR_S * self.usd_h

    def parts(self) -> dict[JobId, float]:
        """Return the part of its cost that each job on it pays."""
        shares = self.shares.copy()
        held = sum(shares.values())
        return {job: share / held if held > 0 else 1 / len(shares) for job, share in shares.items()}


@dataclass(slots=True)
class Bill:
    """Adds up what each job costs, from the messages of a run in their order.

    A machine is paid for from the order on, at the present price of its pool: for its least billed time at once, then as time
    goes on. Jobs share its cost by what they hold of it. What was paid while nobody held anything, for its start-up say, is
    spent on the job that comes next; on a machine that no job comes to, on none: budgets count equal parts of it for all jobs
    that are open when it ends.

    Attributes
    ----------
    on_paid
        Called with each payment. Together those of a pool are what it has cost, and those of a job what that has.
    by_job, by_pool
        Dollars spent.
    unused_usd
        Dollars spent on machines for no job.
    last_at
        Instant of the last message.
    FOLDS
        Folds of the kinds of messages that say something of the bill.
    """

    on_paid: Callable[[Payment], None] | None = None
    by_job: dict[JobId, float] = field(default_factory=dict)
    by_pool: dict[str, float] = field(default_factory=dict)
    unused_usd: float = 0.0
    last_at: float = -inf
    #: Parts of `unused_usd` that count for the budgets of jobs, which are open.
    _idle_usd: dict[JobId, float] = field(default_factory=dict)
    #: The last offer of each pool.
    _offers: dict[str, events.PoolOffered] = field(default_factory=dict)
    _machines: dict[NodeId, PaidMachine] = field(default_factory=dict)
    _granted: dict[JobId, Allocation] = field(default_factory=dict)
    #: Number of the last answer about each job that has a process.
    _answered: dict[JobId, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._offers)

    def spent_usd(self, job: JobId, at: float) -> float:
        """Return what a job has cost if its machines end at instant `at`; safe to call from any thread."""
        machines = self.machines().values()
        return self.by_job.get(job, 0.0) + sum(each.unpaid_usd(at) * each.parts().get(job, 0.0) for each in machines)

    def claims_usd(self, at: float) -> dict[JobId, float]:
        """Return what counts for the budget of each open job: `spent_usd`, and its parts of machines that no job came to."""
        claims = {job: self.by_job.get(job, 0.0) + idle_usd for job, idle_usd in self._idle_usd.items()}
        for machine in self._machines.values():
            for job, part in machine.parts().items():
                claims[job] = claims.get(job, 0.0) + machine.unpaid_usd(at) * part
        return claims

    def total_usd_at(self, at: float) -> float:
        """Return the dollars spent in all up to instant `at`; safe to call from any thread."""
        return self.total_usd + sum(machine.unpaid_usd(at) for machine in self.machines().values())

    def machines(self) -> dict[NodeId, PaidMachine]:
        """Return the machines that are paid for now, to be read only; safe to call from any thread."""
        return self._machines.copy()

    def price_usd_h(self, pool: str) -> float:
        """Return the present price of a machine of the pool."""
        return self._offers[pool].price_usd_h if pool in self._offers else 0.0

    @property
    def has_price(self) -> bool:
        """Whether machines of a pool cost something."""
        return bool(self.total_usd) or any(offer.price_usd_h for offer in self._offers.copy().values())

    @property
    def total_usd(self) -> float:
        """Dollars spent in all, as far as they were counted."""
        return sum(self.by_pool.copy().values())

    def add(self, message: Message) -> None:
        """Take the next message."""
        self.last_at = max(self.last_at, message.at)
        if (fold := self.FOLDS.get(type(message))) is not None:
            fold(self, message)

    def settle(self, at: float) -> None:
        """Pay for all machines up to instant `at`."""
        for machine in self._machines.values():
            self._pay(machine, at)

    def close(self) -> None:
        """Pay for all machines up to the last message, and end them."""
        for node in tuple(self._machines):
            self._end(node, self.last_at)

    def _fold_pool_offered(self, event: events.PoolOffered) -> None:
        for machine in self._machines.values():
            if machine.pool == event.pool.name:
                self._pay(machine, event.at)
                machine.usd_h = event.price_usd_h
        self._offers[event.pool.name] = event

    def _fold_machines_asked(self, event: events.MachinesAsked) -> None:
        if (offer := self._offers.get(event.pool)) is None:
            return
        for node in event.nodes:
            self._machines[node] = machine = PaidMachine(event.pool, offer.price_usd_h, event.at)
            self._pay(machine, event.at + offer.pool.least_billed_s)

    def _fold_node_lost(self, event: events.NodeLost) -> None:
        self._end(event.node, event.at)

    def _fold_job_submitted(self, event: events.JobSubmitted) -> None:
        self._idle_usd.setdefault(event.spec.id, 0.0)

    def _fold_job_started(self, event: events.GrantAnswer) -> None:
        """Note what a job holds; ignore a late answer, and one about a process that is gone."""
        last = self._answered.get(event.job, 0 if isinstance(event, events.JobStarted) else None)
        if last is None or event.request < last:
            return
        self._answered[event.job] = event.request
        self._hold(event.job, event.granted, event.at)

    _fold_grant_applied = _fold_grant_failed = _fold_job_started

    def _fold_job_failed(self, event: events.JobFailed) -> None:
        if not event.retryable:
            self._fold_job_finished(event)
        elif event.request is None or event.request >= self._answered.get(event.job, 0):
            self._answered.pop(event.job, None)
            self._hold(event.job, {}, event.at)

    def _fold_job_finished(self, event: events.JobFinished | events.JobFailed | RejectJob) -> None:
        self._answered.pop(event.job, None)
        self._hold(event.job, {}, event.at)
        self._idle_usd.pop(event.job, None)

    _fold_reject_job = _fold_job_finished

    def _fold_steering_resumed(self, event: events.SteeringResumed) -> None:
        """Note what jobs were found to hold: the process of one that is not named is gone."""
        for job in [job for job in self._answered if job not in event.granted]:
            del self._answered[job]
            self._hold(job, {}, event.lost_at)
        for job, granted in event.granted.items():
            self._answered.setdefault(job, 0)
            self._hold(job, granted, event.at)

    FOLDS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = folds_in(vars())

    def _hold(self, job: JobId, granted: Allocation, at: float) -> None:
        before = self._granted.pop(job, {})
        for node in before.keys() | granted.keys():
            machine = self._machines.get(node)
            if machine is None:
                continue
            self._pay(machine, at)
            machine.shares.pop(job, None)
            if node in granted:
                machine.shares[job] = self._share(machine.pool, granted[node])
                for idle in machine.idle:
                    self._tell(idle._replace(usd_h=-idle.usd_h))
                    self._spend(idle, machine)
                machine.idle.clear()
        if granted:
            self._granted[job] = granted
            self._idle_usd.setdefault(job, 0.0)

    def _share(self, pool: str, amount: Resources) -> float:
        capacity = self._offers[pool].pool.capacity
        return amount.gpus / capacity.gpus if capacity.gpus else amount.cores / (capacity.cores or 1.0)

    def _pay(self, machine: PaidMachine, until_at: float) -> None:
        payment = Payment(machine.pool, None, machine.paid_until_at, until_at, machine.usd_h)
        if until_at <= payment.since_at:
            return
        machine.paid_until_at = until_at
        self.by_pool[machine.pool] = self.by_pool.get(machine.pool, 0.0) + payment.usd
        if machine.shares:
            self._spend(payment, machine)
            return
        self._tell(payment)
        if machine.idle and machine.idle[-1].usd_h == payment.usd_h:
            payment = payment._replace(since_at=machine.idle.pop().since_at)
        machine.idle.append(payment)

    def _spend(self, payment: Payment, machine: PaidMachine) -> None:
        for job, part in machine.parts().items():
            of_job = payment._replace(job=job, usd_h=payment.usd_h * part)
            self.by_job[job] = self.by_job.get(job, 0.0) + of_job.usd
            self._tell(of_job)

    def _tell(self, payment: Payment) -> None:
        if self.on_paid is not None:
            self.on_paid(payment)

    def _end(self, node: NodeId, at: float) -> None:
        machine = self._machines.pop(node, None)
        if machine is None:
            return
        self._pay(machine, at)
        self.unused_usd += machine.idle_usd
        for job in self._idle_usd:
            self._idle_usd[job] += machine.idle_usd / len(self._idle_usd)
