"""Machines of pools: performs the commands about them through a provider, and tells what becomes of them."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from queue import Empty, SimpleQueue
from typing import Protocol

from punctual.core.commands import AskMachines, MachineCommand, ReleaseMachines
from punctual.core.events import Event, MachinesAsked, MachinesRefused, NodeNoticed, PoolOffered
from punctual.core.ids import NodeId
from punctual.core.pools import HeldMachines, PoolSpec
from punctual.core.units import span
from punctual.executors.cluster.machines import MachineProvider, MachinesUnknown, Offer, machine_name, pool_of
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride

_LOG = logging.getLogger(__name__)


class MachineListener(Protocol):
    """Receives news of machines in the provider's thread."""

    def receive(self, event: Event) -> None: ...

    def is_joined(self, node: NodeId) -> bool: ...

    def machine_lost(self, node: NodeId, cause: str) -> None:
        """Give up the node of a machine that is gone, and tell it; empty `cause`: it was released."""
        ...


class PoolMachines:
    """The machines of one service; usable from any thread.

    * `held`: machines of an earlier process of this service, by pool. Those of a pool that there is not any more stay
      until they are not used.
    * `on_ended`: called when it is known that no machine is left.
    """

    def __init__(
        self,
        provider: MachineProvider,
        held: Mapping[str, HeldMachines],
        now: Callable[[], float],
        listener: MachineListener,
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_ended = on_ended
        self._provider, self._now, self._listener = provider, now, listener
        self._lock = threading.RLock()
        #: Pool of each machine that starts or is there, and the instant from which on it is awaited.
        self._pool_of = {node: pool for pool, machines in held.items() for node in machines.nodes}
        self._held, self._since_at = frozenset(self._pool_of), dict.fromkeys(self._pool_of, now())
        self._n_named = {pool: machines.n_named for pool, machines in held.items()}
        self._offers: dict[str, Offer] = {}
        #: Offers of pools of the earlier process, for those that there are not any more.
        self._closed = {
            pool: Offer(spec=replace(of.spec, least=0, most=0), price_usd_h=of.price_usd_h, obtainable=0)
            for pool, of in held.items()
            if of.spec is not None
        }
        #: Pools whose past was told.
        self._known_pools = set(held)
        #: Names of all nodes that are machines of the provider, whether or not they are used.
        self._named: set[NodeId] = set()
        self._ends_wall: dict[NodeId, float] = {}
        #: Instant until which no more machines of a pool are offered than are held, because it has refused some that it offers.
        self._paused_until_at: dict[str, float] = {}
        #: Why machines of a pool could not be had when they were asked for last.
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

        done = list[bool]()

        def close() -> None:
            done.append(self._is_done(lambda: self._provider.close(for_good=for_good)))

        closing = threading.Thread(target=close, name="punctual-machines-end", daemon=True)
        closing.start()
        closing.join(limit_s)
        if for_good and done == [True] and not self._thread.is_alive():  # else an order may be under way
            self._on_ended()
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
        except MachinesUnknown as error:
            _LOG.warning("%s", error)
            return False
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
            offers = self._provider.offers()
        except MachinesUnknown as error:
            self._note_unknown(str(error))
            return
        except Exception as error:  # noqa: BLE001 -- see above
            cause = f"their provider does not tell of them ({type(error).__name__}: {error})"
            self._note_unknown(cause, is_fault=True)
            return
        self._note_unknown("")
        with self._lock:
            known = dict(self._pool_of)
        gone = {node: lost.get(node, "its provider has it no more") for node in known if node not in running}
        gone |= {node: cause for node in known if node not in gone and (cause := self._missing(node, known[node]))}
        self._give_up({node: (known[node], cause) for node, cause in gone.items()}, offers)
        for node, ends_wall in noticed.items():
            # Of a node that has not joined nobody would keep it.
            if node in known and self._ends_wall.get(node) != ends_wall and self._listener.is_joined(node):
                self._ends_wall[node] = ends_wall
                ends_at = self._now() + ends_wall - time.time()
                self._listener.receive(NodeNoticed(at=self._now(), node=node, ends_at=ends_at))
        for node in [node for node, ends_wall in self._ends_wall.items() if ends_wall > time.time()]:
            if node in known and node not in noticed:  # it stays after all
                del self._ends_wall[node]
                self._listener.receive(NodeNoticed(at=self._now(), node=node, ends_at=None))
        self._end_released()
        with self._lock:
            unknown = running - self._pool_of.keys() - self._ending
        if unknown:
            _LOG.warning("machines that no job is to have are ended: %s", ", ".join(sorted(unknown)))
            for node in unknown:  # it may still be ending when the next one of its pool starts, under another name
                pool, number = pool_of(node), node.rpartition("-")[2]
                n_named = int(number) + 1 if number.isdecimal() else 0
                self._n_named[pool] = max(self._n_named.get(pool, 0), n_named)
            self._is_done(lambda: self._provider.end(unknown))
        self._has_looked.set()

    def _note_unknown(self, unknown: str, *, is_fault: bool = False) -> None:
        """Note why the machines are not known, and none can be asked for; empty: they are. It is told once.

        `is_fault`: the exception that is being handled says where.
        """
        if unknown == self._unknown:
            return
        _LOG.warning("%s", unknown or "the provider of machines answers again", exc_info=is_fault)
        self._unknown = unknown
        if not unknown:
            return
        if not self._offers:
            self._is_done(lambda: self._take_offers(self._provider.offers()))
        for pool in self._offers:
            self._refuse(pool, 0, unknown)

    def _take_offers(self, offers: Mapping[str, Offer]) -> None:
        now = self._now()
        for name, offered in {**self._closed, **offers}.items():
            offer = offered
            if self._unknown or self._is_paused(name):
                offer = replace(offered, obtainable=min(offered.obtainable, self._n_held(name)))
            before = self._offers.get(name)
            if before is not None and replace(before, seen=offer.seen) == offer:
                continue
            seen = () if name in self._known_pools else offer.seen
            self._known_pools.add(name)
            with self._lock:
                self._offers[name] = offer
            for ago_s, price_usd_h, n in (*seen, (0.0, offer.price_usd_h, offer.obtainable)):
                self._listener.receive(
                    PoolOffered(at=now - ago_s, pool=offer.spec, price_usd_h=price_usd_h, obtainable=n)
                )

    def _is_paused(self, pool: str) -> bool:
        return self._now() < self._paused_until_at.get(pool, -inf)

    def _n_held(self, pool: str) -> int:
        with self._lock:
            return sum(of == pool for of in self._pool_of.values())

    def _missing(self, node: NodeId, pool: str) -> str:
        """Return why a machine is to be given up that has not joined in time; empty: it has, or may yet."""
        if node not in self._since_at:
            return ""
        if self._listener.is_joined(node):
            del self._since_at[node]
            return ""
        offer = self._offers.get(pool)
        # As long as an order may be without an answer (`core.pools`), and then twice its start-up.
        limit_s = 600.0 + 2 * (offer.spec.startup_s if offer else 0.0)
        is_late = self._now() > self._since_at[node] + limit_s
        return f"it has not joined within {span(limit_s)}" if is_late else ""

    def _give_up(self, gone: Mapping[NodeId, tuple[str, str]], offers: Mapping[str, Offer]) -> None:
        """Report machines that are gone, with pools and causes, and the present offers.

        Of a pool whose machines never came no others are asked for at once: they would be paid for in vain, too.
        """
        in_vain: dict[str, list[str]] = {}
        for node, (pool, cause) in gone.items():
            if self._since_at.pop(node, None) is not None and node not in self._held:
                in_vain.setdefault(pool, []).append(cause)
            self.forget(node)
        for pool in in_vain:
            self._rest(pool, offers)
        self._take_offers(offers)  # before the losses are told: they would be made up for
        for node, (_, cause) in gone.items():
            _LOG.warning("machine '%s' is gone: %s", node, cause)
            self._lose(node, cause)
        for pool, causes in in_vain.items():
            self._refuse(pool, len(causes), causes[-1])

    def _start(self, command: AskMachines) -> None:
        offer = self._offers.get(command.pool)
        if offer is None or self._unknown or self._is_paused(command.pool):  # it was ordered just before that was told
            cause = "there is no such pool" if offer is None else self._unknown or self._causes[command.pool]
            self._refuse(command.pool, command.n_machines, cause)
            return
        first = self._n_named.get(command.pool, 0)
        nodes = [machine_name(command.pool, i) for i in range(first, first + command.n_machines)]
        at = self._now()
        started, cause = self._started(offer.spec, nodes)
        with self._lock:
            self._pool_of |= dict.fromkeys(started, command.pool)
        self._since_at |= dict.fromkeys(started, at)
        if started:
            self._n_named[command.pool] = 1 + max(nodes.index(node) for node in started) + first
            self._listener.receive(MachinesAsked(at=at, pool=command.pool, nodes=tuple(started)))
        if len(started) < len(nodes):
            with suppress(Exception):
                self._rest(command.pool, self._provider.offers())
            self._refuse(command.pool, len(nodes) - len(started), cause)

    def _started(self, spec: PoolSpec, nodes: list[NodeId]) -> tuple[list[NodeId], str]:
        try:
            answer = self._provider.start(spec, nodes)
        except Exception as error:  # noqa: BLE001 -- see above
            _LOG.exception("machines of pool '%s' cannot be started", spec.name)
            return [], f"{type(error).__name__}: {error}"
        return [node for node in nodes if node in set(answer.nodes)], answer.cause

    def _refuse(self, pool: str, n_machines: int, cause: str) -> None:
        """Tell why machines cannot be had."""
        if self._causes.get(pool) != cause:
            _LOG.warning("machines of pool '%s' cannot be had: %s", pool, cause)
        self._causes[pool] = cause
        again_at = self._paused_until_at[pool] if self._is_paused(pool) and not self._unknown else None
        if (offer := self._offers.get(pool)) is not None:  # any larger offer is news from now on
            with self._lock:
                self._offers[pool] = replace(offer, obtainable=min(offer.obtainable, self._n_held(pool)))
        self._listener.receive(
            MachinesRefused(at=self._now(), pool=pool, n_machines=n_machines, cause=cause, again_at=again_at)
        )

    def _rest(self, pool: str, offers: Mapping[str, Offer]) -> None:
        """Ask a pool for no machine for a while if it offers more than it has just been able to start."""
        if pool in offers and offers[pool].obtainable > self._n_held(pool):
            self._paused_until_at[pool] = self._now() + self._provider.retry_s

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
