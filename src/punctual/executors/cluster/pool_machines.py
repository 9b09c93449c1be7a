"""Machines of pools: performs the commands about them through a provider, and tells what becomes of them."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import inf
from queue import Empty, SimpleQueue
from typing import Protocol

from punctual.core.commands import AskMachines, MachineCommand, ReleaseMachines
from punctual.core.events import Event, MachinesAsked, MachinesRefused, PoolOffered
from punctual.core.ids import NodeId
from punctual.core.pools import HeldMachines, PoolSpec
from punctual.core.protocols import Clock
from punctual.executors.cluster.machines import MachineProvider, MachinesUnknown, Offer, machine_name
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride

_LOG = logging.getLogger(__name__)


class MachineListener(Protocol):
    """Receives news of machines in the provider's thread."""

    def told(self, event: Event) -> None: ...

    def is_joined(self, node: NodeId) -> bool: ...

    def machine_lost(self, node: NodeId, cause: str) -> None:
        """Give up the node of a machine that is gone, and tell it; empty `cause`: it was released."""
        ...

    def machine_noticed(self, node: NodeId, ends_wall: float) -> None: ...


class PoolMachines:
    """The machines of one service; usable from any thread.

    Parameters
    ----------
    held
        Machines of an earlier process of this service, by pool.
    """

    def __init__(
        self, provider: MachineProvider, held: Mapping[str, HeldMachines], clock: Clock, listener: MachineListener
    ) -> None:
        self._provider, self._clock, self._listener = provider, clock, listener
        self._lock = threading.Lock()
        now = clock.now()
        #: Pool of each machine that starts or is there, and the instant from which on it is awaited.
        self._pool_of = {node: pool for pool, machines in held.items() for node in machines.nodes}
        self._held, self._since_at = frozenset(self._pool_of), dict.fromkeys(self._pool_of, now)
        self._n_named = {pool: machines.n_named for pool, machines in held.items()}
        self._offers: dict[str, Offer] = {}
        #: Pools whose past was told.
        self._known_pools = set(held)
        #: Names of all nodes that are machines of the provider, whether or not they are used.
        self._named: set[NodeId] = set()
        self._ends_wall: dict[NodeId, float] = {}
        #: Instant until which no more machines of a pool are offered than are held, because one could not be started.
        self._paused_until_at: dict[str, float] = {}
        #: Why the last machine of a pool could not be had.
        self._causes: dict[str, str] = {}
        #: Machines that were released and have not ended.
        self._ending: set[NodeId] = set()
        #: Why the machines are not known; empty: they are.
        self._unknown = ""
        self._commands: SimpleQueue[MachineCommand | None] = SimpleQueue()
        self._has_looked, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="punctual-machines", daemon=True)

    def open(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def has_looked(self) -> bool:
        """Whether the machines of the earlier process that are gone are known."""
        return self._has_looked.is_set()

    def perform(self, command: MachineCommand) -> None:
        """Start or end machines; returns at once."""
        self._commands.put(command)

    def named(self, facts: NodeFacts) -> tuple[NodeId, NodeOverride] | None:
        """Return the machine that a node is, and the limits of its pool, which are awaited; None: none of a pool."""
        self._has_looked.wait(30.0)
        node = self._provider.name_of(facts)
        if node is None:
            return None
        with self._lock:
            self._named.add(node)
            offer = self._offers.get(self._pool_of.get(node, ""))
        if offer is None:
            return node, NodeOverride(device=facts.device)
        spec, capacity = offer.spec, offer.spec.capacity
        return node, NodeOverride(
            cores=capacity.cores,
            gpus=capacity.gpus,
            memory_bytes=capacity.memory_bytes,
            device=spec.device or facts.device,
        )

    def may_use(self, node: NodeId) -> bool:
        """Whether a present node is to be used: false for a machine that was not announced, or was given up."""
        with self._lock:
            return node not in self._named or node in self._pool_of

    def forget(self, node: NodeId) -> bool:
        """Give up a machine whose node is lost, and end it if it still runs; return whether the node was one."""
        with self._lock:
            return self._pool_of.pop(node, None) is not None

    def close(self, *, for_good: bool, limit_s: float) -> None:
        """Leave the machines running or, `for_good`, end them and tell that; takes about `limit_s` seconds at most."""
        self._ends.set()
        self._commands.put(None)
        self._thread.join(limit_s)

        def close() -> None:
            self._is_done(lambda: self._provider.close(for_good=for_good))

        closing = threading.Thread(target=close, name="punctual-machines-end", daemon=True)
        closing.start()
        closing.join(limit_s)
        with self._lock:
            nodes = list(self._pool_of) if for_good else []
        for node in nodes:
            self._lose(node, "")

    # In the thread.

    def _run(self) -> None:
        while not self._ends.is_set():
            self._look()
            look_at = time.monotonic() + self._provider.poll_interval_s
            while not self._ends.is_set() and (left_s := look_at - time.monotonic()) > 0:
                try:
                    command = self._commands.get(timeout=left_s)
                except Empty:
                    break
                match command:
                    case AskMachines():
                        self._start(command)
                    case ReleaseMachines(nodes=nodes):
                        self._ending.update(nodes)
                        self._end_released()

    def _is_done(self, call: Callable[[], None]) -> bool:
        """Whether a call of the provider succeeds."""
        try:
            call()
        except Exception:  # noqa: BLE001 -- whatever a provider raises, the machines that are there go on
            _LOG.exception("the provider of machines has failed")
            return False
        return True

    def _look(self) -> None:
        """Find out what can be had, and what has become of the machines."""
        try:
            running = set(self._provider.machines())
            lost = self._provider.lost()
            running -= lost.keys()
            noticed = self._provider.noticed()
            # Last: a machine that was taken away is not offered any more.
            self._take_offers(self._provider.offers())
        except MachinesUnknown as error:
            self._warn(str(error))
            return
        except Exception:  # noqa: BLE001 -- see above
            _LOG.exception("the provider of machines does not tell of them")
            return
        self._warn("")
        with self._lock:
            known = dict(self._pool_of)
        for node, pool in known.items():
            if node not in running:
                self._give_up(node, pool, lost.get(node, "its provider has it no more"))
            elif node in self._since_at:
                self._check_comes(node, pool)
        for node, ends_wall in noticed.items():
            if node in known and self._ends_wall.get(node) != ends_wall:
                self._ends_wall[node] = ends_wall
                self._listener.machine_noticed(node, ends_wall)
        self._end_released()
        with self._lock:
            unknown = running - self._pool_of.keys() - self._ending
        if unknown:
            _LOG.warning("machines that no job is to have are ended: %s", ", ".join(sorted(unknown)))
            self._is_done(lambda: self._provider.end(unknown))
        self._has_looked.set()

    def _warn(self, unknown: str) -> None:
        """Log why the machines are not known, once; empty: they are."""
        if unknown != self._unknown:
            _LOG.warning("%s", unknown or "the provider of machines answers again")
        self._unknown = unknown

    def _take_offers(self, offers: Mapping[str, Offer]) -> None:
        now = self._clock.now()
        for name, offered in offers.items():
            offer = offered
            if self._is_paused(name):
                offer = replace(offered, obtainable=min(offered.obtainable, self._n_held(name)))
            before = self._offers.get(name)
            if before is not None and replace(before, seen=offer.seen) == offer:
                continue
            seen = () if name in self._known_pools else offer.seen
            self._known_pools.add(name)
            with self._lock:
                self._offers[name] = offer
            for ago_s, price_usd_h, n in (*seen, (0.0, offer.price_usd_h, offer.obtainable)):
                self._listener.told(PoolOffered(at=now - ago_s, pool=offer.spec, price_usd_h=price_usd_h, obtainable=n))

    def _is_paused(self, pool: str) -> bool:
        return self._clock.now() < self._paused_until_at.get(pool, -inf)

    def _n_held(self, pool: str) -> int:
        with self._lock:
            return sum(of == pool for of in self._pool_of.values())

    def _check_comes(self, node: NodeId, pool: str) -> None:
        """Give up a machine that has not joined in time."""
        if self._listener.is_joined(node):
            del self._since_at[node]
            return
        offer = self._offers.get(pool)
        # As long as an order may be without an answer (`core.pools`), and then twice its start-up.
        limit_s = 600.0 + 2 * (offer.spec.startup_s if offer else 0.0)
        if self._clock.now() > self._since_at[node] + limit_s:
            self._give_up(node, pool, f"it has not joined within {limit_s:.0f} s")

    def _give_up(self, node: NodeId, pool: str, cause: str) -> None:
        """Tell that a machine is gone; if it could not be started, have others wait: they would be paid for in vain, too."""
        offer = self._offers.get(pool)
        is_new = self._since_at.pop(node, None) is not None and node not in self._held
        if is_new and offer is not None and offer.obtainable >= self._n_held(pool):
            self._paused_until_at[pool] = self._clock.now() + 60.0
        _LOG.warning("machine '%s' is gone: %s", node, cause)
        self._lose(node, cause)

    def _start(self, command: AskMachines) -> None:
        offer = self._offers.get(command.pool)
        if offer is None or self._is_paused(command.pool):
            cause = "there is no such pool" if offer is None else "one of them could not be started just now"
            self._refuse(command, command.n_machines, cause)
            return
        first = self._n_named.get(command.pool, 0)
        nodes = [machine_name(command.pool, i) for i in range(first, first + command.n_machines)]
        at = self._clock.now()
        started, cause = self._started(offer.spec, nodes)
        with self._lock:
            self._pool_of |= dict.fromkeys(started, command.pool)
        self._since_at |= dict.fromkeys(started, at)
        if started:
            self._n_named[command.pool] = 1 + max(nodes.index(node) for node in started) + first
            self._listener.told(MachinesAsked(at=at, pool=command.pool, nodes=tuple(started)))
        if len(started) < len(nodes):
            self._refuse(command, len(nodes) - len(started), cause)

    def _started(self, spec: PoolSpec, nodes: list[NodeId]) -> tuple[list[NodeId], str]:
        try:
            answer = self._provider.start(spec, nodes)
        except Exception as error:  # noqa: BLE001 -- see above
            _LOG.exception("machines of pool '%s' cannot be started", spec.name)
            return [], f"{type(error).__name__}: {error}"
        return [node for node in nodes if node in set(answer.nodes)], answer.cause

    def _refuse(self, command: AskMachines, n_machines: int, cause: str) -> None:
        if self._causes.get(command.pool) != cause:
            _LOG.warning("machines of pool '%s' cannot be had: %s", command.pool, cause)
        self._causes[command.pool] = cause
        self._listener.told(
            MachinesRefused(at=self._clock.now(), pool=command.pool, n_machines=n_machines, cause=cause)
        )

    def _end_released(self) -> None:
        """End the machines that were released; what fails is tried again with the next look."""
        nodes: Collection[NodeId] = frozenset(self._ending)
        if nodes and self._is_done(lambda: self._provider.end(nodes)):
            self._ending.clear()
            for node in nodes:
                self._lose(node, "")

    def _lose(self, node: NodeId, cause: str) -> None:
        self.forget(node)
        for known in (self._ends_wall, self._since_at):
            known.pop(node, None)
        self._listener.machine_lost(node, cause)
