"""`punctual up` with the agents of `_scale_agents.py`, as with those of Ray: `python _scale_service.py N_AGENTS FOLDER`.

For each line of standard input, what it has used until then is written to a file of FOLDER with that line as its name: CPU
seconds by thread, and by kind of event how long each decision since the last line took and each plan was asked for.
"""

import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _processes import rss_bytes, status_of

from punctual.cli import main
from punctual.core.cluster import Snapshot
from punctual.core.events import Event, PlanProposed
from punctual.core.protocols import Sink
from punctual.daemon import host_executor
from punctual.daemon.engine import Engine
from punctual.daemon.planner import SwitchingPlanner
from punctual.executors.cluster.bridge import BridgedMembers
from punctual.executors.cluster.node_names import NodeNames

_decided: list[tuple[str, float]] = []
_planned: list[float] = []
_asked_at: list[float] = []
_deliver, _request = Engine._deliver, SwitchingPlanner.request  # noqa: SLF001 -- they are timed, whatever calls them


def _timed(engine: Engine, events: Sequence[Event]) -> None:
    begun_at = time.perf_counter()
    _deliver(engine, events)
    each_s = (time.perf_counter() - begun_at) / len(events)
    _decided.extend((type(event).__name__, each_s) for event in events)
    if isinstance(events[0], PlanProposed) and _asked_at:
        _planned.append(time.monotonic() - _asked_at.pop())


def _noted(planner: SwitchingPlanner, snapshot: Snapshot, sink: Sink) -> None:
    _asked_at[:] = [time.monotonic()]
    _request(planner, snapshot, sink)


def cpu_by_thread() -> dict[str, float]:
    """Return the CPU seconds of the present threads; others count as `ended`, and those without Python as `native`."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    used: dict[str, float] = {}
    for folder in Path("/proc/self/task").iterdir():
        fields = (folder / "schedstat").read_text().split()
        name = names.get(int(folder.name), "native")
        used[name] = used.get(name, 0.0) + int(fields[0]) / 1e9
    used["all"] = time.process_time()
    return used


def tell(folder: Path) -> None:
    for line in sys.stdin:
        told: dict[str, Any] = {
            "cpu_s": cpu_by_thread(),
            "rss_bytes": rss_bytes(),
            "n_threads": int(status_of()["Threads"]),
            "decided_s": list(_decided),
            "planned_s": list(_planned),
        }
        _decided.clear()
        _planned.clear()
        written = folder / f"{line.strip()}.new"
        written.write_text(json.dumps(told))
        written.rename(folder / line.strip())


if __name__ == "__main__":
    agents = [sys.executable, str(Path(__file__).with_name("_scale_agents.py")), sys.argv[1]]
    host_executor.members_of = lambda *_: BridgedMembers(agents, NodeNames())
    Engine._deliver, SwitchingPlanner.request = _timed, _noted  # type: ignore[method-assign, assignment]  # noqa: SLF001 -- timed as they are
    threading.Thread(target=tell, args=(Path(sys.argv[2]),), daemon=True).start()
    sys.argv = ["punctual", "up", "--engine", "ray", "--listen", "127.0.0.1:0", "--json"]
    main()
