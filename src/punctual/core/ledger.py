"""The ledger of grants. It implements the kernel's second rule: *reserve the larger*.

While a resize is in flight nobody knows whether the job still has the old amount or has the new one already, so it
is booked with the larger of the two, kind by kind and node by node. Asking is allowed only if everything that is
booked still fits. Shrinking one job and growing another is therefore safe in any order of effects, also when effects
are late, fail or are lost.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import reduce

from punctual.core.errors import InvariantBroken
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.resources import NOTHING, Resources, total


def larger(one: Allocation, other: Allocation) -> Allocation:
    """Return the larger amount on every node."""
    if not one or not other:
        return one or other
    return {node: one.get(node, NOTHING).at_least(other.get(node, NOTHING)) for node in one.keys() | other.keys()}


@dataclass(slots=True)
class LedgerEntry:
    """Grant and requests of one job, which have no empty amounts.

    Attributes
    ----------
    granted
        The amount that the job holds, by the last answer.
    asked
        Requests without an answer, oldest first. More than one only after an answer was given up.
    held
        The larger of all of these on every node, which is booked.
    """

    granted: Allocation = field(default_factory=dict)
    asked: dict[int, Allocation] = field(default_factory=dict)
    held: Allocation = field(default_factory=dict)

    def ask(self, request: int, allocation: Allocation) -> None:
        """Record that `allocation` was asked for under number `request`."""
        self.asked[request] = dict(allocation)
        self._add_up()

    def settle(self, request: int, granted: Allocation) -> None:
        """Record the answer to request number `request`: the job holds `granted`, and older requests are void."""
        self.granted = granted
        self.asked = {number: asked for number, asked in self.asked.items() if number > request}
        self._add_up()

    def lose(self, node: NodeId) -> bool:
        """Drop the grants on `node`; return whether there were any."""
        if node not in self.held:
            return False
        self.granted = _without(self.granted, node)
        self.asked = {request: _without(asked, node) for request, asked in self.asked.items()}
        self.held = _without(self.held, node)
        return True

    def _add_up(self) -> None:
        self.held = reduce(larger, self.asked.values(), self.granted)


@dataclass(slots=True)
class Bookings:
    """Amounts booked on each node, by job; a query about one node reads only the jobs on it."""

    _amounts: dict[NodeId, dict[JobId, Resources]] = field(default_factory=dict)
    _totals: dict[NodeId, Resources] = field(default_factory=dict)

    def put(self, job: JobId, allocation: Allocation) -> None:
        """Book `allocation` for a job that has nothing booked."""
        for node, amount in allocation.items():
            self._amounts.setdefault(node, {})[job] = amount
            self._totals.pop(node, None)

    def remove(self, job: JobId, nodes: Iterable[NodeId]) -> None:
        """Cancel the job's bookings on `nodes`."""
        for node in nodes:
            del self._amounts[node][job]
            self._totals.pop(node, None)

    def forget(self, node: NodeId) -> list[JobId]:
        """Cancel all bookings on `node`; return the jobs that had one."""
        self._totals.pop(node, None)
        return list(self._amounts.pop(node, {}))

    def total_on(self, node: NodeId) -> Resources:
        """Return the sum of all bookings on `node`."""
        known = self._totals.get(node)
        if known is None:
            known = self._totals[node] = total(self._amounts.get(node, {}).values())
        return known

    def others_on(self, node: NodeId, but: Container[JobId]) -> Resources:
        """Return the bookings on `node` of jobs other than `but`; sums them, because subtracting fractions drifts."""
        amounts = self._amounts.get(node, {})
        others = [amount for job, amount in amounts.items() if job not in but]
        return self.total_on(node) if len(others) == len(amounts) else total(others)


@dataclass(slots=True)
class Ledger:
    """Capacities, grants and requests; the only place that decides whether an amount still fits.

    Attributes
    ----------
    nodes
        Capacity of each node.
    """

    nodes: dict[NodeId, Resources] = field(default_factory=dict)
    _entries: dict[JobId, LedgerEntry] = field(default_factory=dict)
    _booked: Bookings = field(default_factory=Bookings)
    #: Nodes on which a fact (less capacity, a grant larger than asked) put more than fits; no job may grow there.
    _overdrawn: set[NodeId] = field(default_factory=set)

    def join(self, node: NodeId, capacity: Resources) -> None:
        """Add `node` with `capacity`, or change its capacity."""
        self.nodes[node] = capacity
        self._excuse([node])

    def lose(self, node: NodeId) -> list[JobId]:
        """Remove `node` and all on it. Returns the jobs that held or were to hold something there."""
        self.nodes.pop(node, None)
        self._overdrawn.discard(node)
        hit = self._booked.forget(node)
        for job in hit:
            self._entries[job].lose(node)
        return hit

    def open(self, job: JobId) -> None:
        """Allow `job` to hold something from now on."""
        self._entries[job] = LedgerEntry()

    def close(self, job: JobId) -> None:
        """Release all that the job held."""
        entry = self._entries.pop(job, None)
        if entry is not None:
            self._booked.remove(job, entry.held)

    def granted(self, job: JobId) -> Allocation:
        """Return the job's grant, by the last answer."""
        return self._entries[job].granted

    def holds(self, job: JobId) -> bool:
        """Whether anything is booked for the job."""
        return bool(self._entries[job].held)

    def in_flight(self, job: JobId) -> bool:
        """Whether a request has no answer yet."""
        return bool(self._entries[job].asked)

    def ask(self, job: JobId, request: int, allocation: Allocation) -> bool:
        """Book `allocation`, asked under number `request`, beside the job's grant; False if that does not fit.

        Returns
        -------
        bool
            Whether it is booked.
        """
        entry = self._entries[job]
        if not self._fits(job, entry.held, allocation):
            return False
        self._booked.remove(job, entry.held)
        entry.ask(request, allocation)
        self._booked.put(job, entry.held)
        return True

    def _fits(self, job: JobId, held: Allocation, allocation: Allocation) -> bool:
        """Whether everything booked still fits if `allocation` is booked beside `held`, which `job` has."""
        for node, amount in allocation.items():
            before = held.get(node)
            if before is not None and amount.fits_in(before):
                continue
            if node not in self.nodes:
                return False
            if before is None:
                after = amount + self._booked.total_on(node)
            else:
                after = self._booked.others_on(node, (job,)) + before.at_least(amount)
            if not after.fits_in(self.nodes[node]):
                return False
        return True

    def settle(self, job: JobId, request: int, granted: Allocation) -> None:
        """Record the answer to request number `request`: the job holds `granted`, and older requests are void."""
        entry = self._entries[job]
        held = entry.held
        entry.settle(request, {node: amount for node, amount in granted.items() if amount and node in self.nodes})
        if entry.held != held:  # most answers say that the job holds what was asked, which is booked
            self._booked.remove(job, held)
            self._booked.put(job, entry.held)
            self._excuse(entry.granted)

    def held_on(self, node: NodeId) -> Resources:
        """Return the sum of all bookings on `node`."""
        return self._booked.total_on(node)

    def validate(self) -> None:
        """Raise `InvariantBroken` if more is booked on a node than it has, through our own asking."""
        for node, capacity in self.nodes.items():
            held = self.held_on(node)
            if held.fits_in(capacity):
                self._overdrawn.discard(node)
            elif node not in self._overdrawn:
                raise InvariantBroken(f"{held} is booked on node '{node}', which has {capacity}")

    def _excuse(self, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            if not self.held_on(node).fits_in(self.nodes[node]):
                self._overdrawn.add(node)


def _without(allocation: Allocation, node: NodeId) -> Allocation:
    return {other: amount for other, amount in allocation.items() if other != node}
