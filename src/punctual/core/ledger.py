"""Who holds what. The kernel's second rule lives here: *reserve the larger*.

While a resize is in flight nobody knows whether the job still has the old amount or has the new one already, so it
is booked with the larger of the two, kind by kind and node by node. Asking is allowed only if everything that is
booked still fits. Shrinking one job and growing another is therefore safe in any order of effects, also when effects
are late, fail or are lost.
"""

from dataclasses import dataclass, field

from punctual.core.errors import InvariantBroken
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.resources import NOTHING, Resources, total


def larger(one: Allocation, other: Allocation) -> Allocation:
    """The larger amount on every node."""
    return {node: one.get(node, NOTHING).at_least(other.get(node, NOTHING)) for node in one.keys() | other.keys()}


@dataclass(slots=True)
class _Account:
    """What one job has and what was asked for it."""

    #: What the job really holds, by the last answer.
    granted: Allocation = field(default_factory=dict)
    #: Requests without an answer, oldest first. More than one only after an answer was given up on.
    asked: dict[int, Allocation] = field(default_factory=dict)

    def held(self) -> Allocation:
        held = self.granted
        for allocation in self.asked.values():
            held = larger(held, allocation)
        return held


class Ledger:
    """Capacities, grants and requests; the only place that answers "does this still fit?"."""

    def __init__(self) -> None:
        self._capacity: dict[NodeId, Resources] = {}
        self._accounts: dict[JobId, _Account] = {}
        #: Nodes on which a fact (less capacity, a grant larger than asked) put more than fits; no job may grow there.
        self._overdrawn: set[NodeId] = set()

    @property
    def nodes(self) -> dict[NodeId, Resources]:
        """Capacity by node."""
        return self._capacity

    def join(self, node: NodeId, capacity: Resources) -> None:
        self._capacity[node] = capacity
        self._excuse(node)

    def lose(self, node: NodeId) -> list[JobId]:
        """Forget `node` and all that lay on it; the jobs that held or were to hold something there."""
        self._capacity.pop(node, None)
        self._overdrawn.discard(node)
        hit = [job for job, account in self._accounts.items() if node in account.held()]
        for job in hit:
            account = self._accounts[job]
            account.granted = _without(account.granted, node)
            account.asked = {request: _without(asked, node) for request, asked in account.asked.items()}
        return hit

    def open(self, job: JobId) -> None:
        self._accounts[job] = _Account()

    def close(self, job: JobId) -> None:
        """Everything the job held is free."""
        self._accounts.pop(job, None)

    def granted(self, job: JobId) -> Allocation:
        return self._accounts[job].granted

    def holds(self, job: JobId) -> bool:
        """Whether anything is booked for the job."""
        return any(self._accounts[job].held().values())

    def in_flight(self, job: JobId) -> bool:
        return bool(self._accounts[job].asked)

    def may_ask(self, job: JobId, allocation: Allocation) -> bool:
        """Whether everything booked still fits if `allocation` is asked for `job` as well."""
        held = self._accounts[job].held()
        for node, amount in allocation.items():
            before = held.get(node, NOTHING)
            after = before.at_least(amount)
            if after == before:
                continue
            if node not in self._capacity:
                return False
            if not (self._held_by_others(job, node) + after).fits_in(self._capacity[node]):
                return False
        return True

    def ask(self, job: JobId, request: int, allocation: Allocation) -> None:
        if not self.may_ask(job, allocation):
            raise InvariantBroken(f"{allocation} was asked for job '{job}' although it does not fit")
        self._accounts[job].asked[request] = allocation

    def settle(self, job: JobId, request: int, granted: Allocation) -> None:
        """Request number `request` was answered: `granted` is what the job holds, older requests are void."""
        account = self._accounts[job]
        account.granted = {node: amount for node, amount in granted.items() if amount and node in self._capacity}
        account.asked = {number: asked for number, asked in account.asked.items() if number > request}
        for node in granted:
            self._excuse(node)

    def held_on(self, node: NodeId) -> Resources:
        return total(account.held().get(node, NOTHING) for account in self._accounts.values())

    def validate(self) -> None:
        """Raise `InvariantBroken` if more is booked on a node than it has, through our own asking."""
        for node, capacity in self._capacity.items():
            held = self.held_on(node)
            if held.fits_in(capacity):
                self._overdrawn.discard(node)
            elif node not in self._overdrawn:
                raise InvariantBroken(f"{held} is booked on node '{node}', which has {capacity}")

    def _held_by_others(self, job: JobId, node: NodeId) -> Resources:
        return total(account.held().get(node, NOTHING) for other, account in self._accounts.items() if other != job)

    def _excuse(self, node: NodeId) -> None:
        if node in self._capacity and not self.held_on(node).fits_in(self._capacity[node]):
            self._overdrawn.add(node)


def _without(allocation: Allocation, node: NodeId) -> Allocation:
    return {other: amount for other, amount in allocation.items() if other != node}
