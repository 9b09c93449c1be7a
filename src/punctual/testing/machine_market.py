"""A market of machines for tests and demonstrations: it replays traces of spot machines, each of them a Ray node of this machine.

A machine comes and goes as in a simulation of the same file, at `speed` times the pace: its pool's times are so many times shorter,
and its price so many times higher, that its bill is that of the trace.
"""

import json
import shutil
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.pools import SEEN_S, PoolSpec
from punctual.executors.cluster.machines import (
    MACHINE_LABEL,
    ClusterPlace,
    Offer,
    PoolTerms,
    Started,
    machine_by_label,
    pool_of,
)
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.sim.market import NOT_THERE
from punctual.sim.pool_traces import course_of
from punctual.testing import market_machine

#: Price and count over time, ascending, in seconds from the market's beginning.
_Course = Sequence[tuple[float, float, int]]


def provider(pools: Sequence[PoolTerms], place: ClusterPlace, options: Mapping[str, Any]) -> "MachineMarket":
    """Make a market; the only option is `speed`, by default 1."""
    unknown = sorted(options.keys() - {"speed"})
    speed = options.get("speed", 1.0)
    if unknown or not isinstance(speed, int | float) or not 0 < speed < 1e6:
        raise InvalidSpec(
            "a market has one option, `speed`, a number above 0",
            f"`{unknown[0]}`" if unknown else repr(speed),
            "`machines.options`",
            "Write `speed = 600.0`, say, or leave it out.",
        )
    return MachineMarket(pools, place, float(speed))


class MachineMarket:
    """Provider of machines that are processes here; see `punctual.executors.cluster.machines.MachineProvider`.

    A machine's processes outlive this one, and the course of the market goes on.

    Parameters
    ----------
    speed
        Seconds of the traces that pass in a second.
    now_s
        Returns the present second of the traces; None: they go on by themselves.
    """

    #: Seconds between two looks at it: it costs nothing, and prices change often.
    poll_interval_s = 0.1
    #: Seconds until a machine that could not be started is tried again: what is wrong with this computer may be over.
    retry_s = 60.0

    def __init__(
        self,
        pools: Sequence[PoolTerms],
        place: ClusterPlace,
        speed: float,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._place, self._folder, self._speed = place, Path(place.folder), speed
        self._courses: dict[str, _Course] = {
            pool.spec.name: course_of(pool.spec, pool.price_usd_h, pool.trace, pool.trace_start_s) for pool in pools
        }
        self._specs = {pool.spec.name: _faster(pool.spec, speed) for pool in pools}
        self._lock = threading.RLock()
        #: Unix time at which machines that have had notice end.
        self._ends_wall: dict[NodeId, float] = {}
        self._lost: dict[NodeId, str] = {}
        #: Machines that this object knows of, oldest first: those of an earlier process, too.
        self._machines: dict[NodeId, None] = dict.fromkeys(sorted(self._running(), key=_number))
        #: Machines that have joined; others are taken away without notice.
        self._joined: set[NodeId] = set()
        begun_wall = self._begun()
        self._now_s = now_s or (lambda: (time.time() - begun_wall) * speed)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._trade, name="punctual-market", daemon=True)
        self._thread.start()

    # The protocol.

    def offers(self) -> Mapping[str, Offer]:
        now_s = self._now_s()
        return {
            name: Offer(spec=spec, price_usd_h=price * self._speed, obtainable=min(n, spec.most), seen=self._seen(name))
            for name, spec in self._specs.items()
            for price, n in [_at(self._courses[name], now_s)]
        }

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        with self._lock:
            n_free = max(0, self._obtainable(pool.name) - len(self._of(pool.name)))
            for node in nodes[:n_free]:
                market_machine.start(self._folder, node, self._command(pool, node))
                self._machines[node] = None
        cause = NOT_THERE if n_free < len(nodes) else ""
        return Started(nodes=nodes[:n_free], cause=cause)

    def end(self, nodes: Collection[NodeId]) -> None:
        with self._lock:
            for node in nodes:
                self._end(node)

    def machines(self) -> Collection[NodeId]:
        running = self._running()
        with self._lock:
            for node in self._machines.keys() - set(running):
                self._end(node)
                self._lost[node] = f"its processes have ended, see {self._folder / node}.log"
        return running

    def lost(self) -> Mapping[NodeId, str]:
        with self._lock:
            lost, self._lost = self._lost, {}
            return lost

    def noticed(self) -> Mapping[NodeId, float]:
        with self._lock:
            return dict(self._ends_wall)

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        node = machine_by_label(facts)
        with self._lock:
            if node is not None:
                self._joined.add(node)
        return node

    def close(self, *, for_good: bool) -> None:
        self._ends.set()
        self._thread.join()
        if for_good:
            self.end(self._running())
            self._begun_file.unlink(missing_ok=True)

    # The course of the market.

    def _trade(self) -> None:
        """Take away machines as their pools' courses say, in a thread of its own."""
        while not self._ends.wait(0.05):
            with self._lock:
                self._take_away()

    def _take_away(self) -> None:
        now_wall = time.time()
        for name, spec in self._specs.items():
            machines = [node for node in self._of(name) if node not in self._ends_wall]
            for node in list(reversed(machines))[: max(0, len(machines) - self._obtainable(name))]:
                notice_s = spec.notice_s if node in self._joined else 0.0
                self._ends_wall[node] = now_wall + notice_s
        for node in [node for node, ends_wall in self._ends_wall.items() if ends_wall <= now_wall]:
            self._end(node)
            self._lost[node] = "it was taken away"

    def _obtainable(self, pool: str) -> int:
        return min(_at(self._courses[pool], self._now_s())[1], self._specs[pool].most)

    def _of(self, pool: str) -> list[NodeId]:
        """Return the machines of a pool without those that have had notice, oldest first."""
        return [node for node in self._machines if pool_of(node) == pool and node not in self._ends_wall]

    def _seen(self, pool: str) -> list[tuple[float, float, int]]:
        """Return the course of the last days, as it would have been seen."""
        now_s = self._now_s()
        past = [(at, price, n) for at, price, n in self._courses[pool] if now_s - SEEN_S <= at < now_s]
        return [
            ((now_s - at) / self._speed, price * self._speed, min(n, self._specs[pool].most)) for at, price, n in past
        ]

    @property
    def _begun_file(self) -> Path:
        return self._folder / "begun.json"

    def _begun(self) -> float:
        """Return the Unix time at which the market of this place began."""
        with suppress(OSError, ValueError):
            return float(json.loads(self._begun_file.read_text()))
        now_wall = time.time()
        self._begun_file.write_text(json.dumps(now_wall))
        return now_wall

    # Machines as processes.

    def _running(self) -> list[NodeId]:
        return [NodeId(name) for name in market_machine.running(self._folder)]

    def _end(self, node: NodeId) -> None:
        self._machines.pop(node, None)
        self._ends_wall.pop(node, None)
        self._joined.discard(node)
        market_machine.end(self._folder, node)
        shutil.rmtree(self._temporary(node), ignore_errors=True)

    def _temporary(self, node: NodeId) -> Path:
        """Return the folder of a machine's Ray: short, because the paths of its sockets are longer by half of what they may be."""
        name = sha256(f"{self._folder} {node}".encode()).hexdigest()[:8]
        return Path(tempfile.gettempdir()) / f"market-{name}"

    def _command(self, pool: PoolSpec, node: NodeId) -> list[str]:
        cores = max(1, int(min(pool.capacity.cores, 64.0)))
        return [
            str(Path(sys.executable).with_name("ray")),
            "start",
            f"--address={self._place.address or 'auto'}",
            f"--labels={MACHINE_LABEL}={node}",
            f"--num-cpus={cores}",
            f"--num-gpus={pool.capacity.gpus}",
            # Machines that start together would take the same sockets.
            f"--temp-dir={self._temporary(node)}",
            "--include-log-monitor=False",
            # The least that Ray takes: nothing lies in it.
            "--object-store-memory=80000000",
            "--disable-usage-stats",
            "--block",
        ]


def _faster(spec: PoolSpec, speed: float) -> PoolSpec:
    """Return the pool with its times made shorter."""
    return replace(
        spec,
        startup_s=spec.startup_s / speed,
        notice_s=spec.notice_s / speed,
        least_billed_s=spec.least_billed_s / speed,
    )


def _at(course: _Course, at_s: float) -> tuple[float, int]:
    """Return price and count at an instant; nothing can be had before the course begins."""
    i = bisect_right(course, at_s, key=lambda point: point[0])
    return (course[0][1], 0) if i == 0 else course[i - 1][1:]


def _number(node: NodeId) -> int:
    return int(node.rpartition("-")[2])
