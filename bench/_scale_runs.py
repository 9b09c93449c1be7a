"""The rows of `bench/ray_cluster.py` about many nodes: one service, so many agents without training, and their jobs."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _processes import rss_bytes, wait_until
from _service_load import LiveService, cpu_s, quantile

#: A job needs a tenth of a core for its deadline.
CORES, DEADLINE = "0.05..0.2", "4h"


@dataclass(frozen=True)
class ScaleRun:
    """Measurements of one service. CPU is of one core; `threads` has it by thread of the service.

    `decided_s` are the decisions in the window, `submitting_s` those before it, and `planned_s` the plans before it, when jobs came.
    """

    n_agents: int
    n_jobs: int
    window_s: float
    service_cores: float
    planner_cores: float
    agents_cores: float
    rss_mb: float
    planner_mb: float
    n_threads: int
    threads: dict[str, float]
    decided_s: list[float] = field(repr=False)
    submitting_s: list[float] = field(repr=False)
    by_kind: dict[str, dict[str, float]]
    planned_s: list[float] = field(repr=False)
    running_s: float = 0.0
    n_plans: int | None = None

    @property
    def n_decided(self) -> int:
        return sum(int(kind["n"]) for kind in self.by_kind.values())

    @property
    def decision_p99_s(self) -> float:
        return quantile(self.decided_s, 0.99)

    def kept(self) -> dict[str, Any]:
        """Return it for the file of results: of long lists every two-hundredth part."""
        lists = {name: value for name, value in asdict(self).items() if isinstance(value, list)}
        return asdict(self) | {
            name: [quantile(values, i / 200) for i in range(201)] if values else [] for name, values in lists.items()
        }

    @property
    def cores(self) -> float:
        """Service and planner."""
        return self.service_cores + self.planner_cores


def by_kind(decided: Sequence[tuple[str, float]]) -> dict[str, dict[str, float]]:
    """Return of each kind of event how many there were, and how long they took: together, at most and in the middle."""
    kinds: dict[str, list[float]] = {}
    for kind, taken_s in decided:
        kinds.setdefault(kind, []).append(taken_s)
    return {
        kind: {"n": len(taken), "sum_s": sum(taken), "p50_s": quantile(taken, 0.5), "max_s": max(taken)}
        for kind, taken in kinds.items()
    }


def usage(service: LiveService, name: str) -> dict[str, Any]:
    """Return what the service says of itself."""
    assert service.process.stdin is not None
    service.process.stdin.write(f"{name}\n".encode())
    service.process.stdin.flush()
    file = service.home.parent / name
    if not wait_until(file.exists, 60.0, 0.2):
        raise RuntimeError("the service does not say what it has used")
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def measured(n_agents: int, n_jobs: int, folder: Path, settle_s: float, window_s: float) -> ScaleRun:
    folder.mkdir(parents=True)
    script = str(Path(__file__).with_name("_scale_service.py"))
    service = LiveService(folder / "home", [sys.executable, script, str(n_agents), str(folder)])
    try:
        wait_until(lambda: len(service.cluster()["nodes"]) == n_agents, 400.0, 0.2)
        begun_at = time.monotonic()
        for _ in range(n_jobs):
            service.give(["true"], deadline=DEADLINE, cores=CORES)
        service.await_running(n_jobs)
        running_s = time.monotonic() - begun_at
        time.sleep(settle_s)
        return _window(service, n_agents, n_jobs, window_s, running_s)
    finally:
        service.kill()  # of jobs that pretend nothing is left


def _window(service: LiveService, n_agents: int, n_jobs: int, window_s: float, running_s: float) -> ScaleRun:
    kinds = service.processes()
    first, before, begun_at = usage(service, "first"), cpu_s(kinds), time.monotonic()
    time.sleep(window_s)
    last, after, ended_at = usage(service, "last"), cpu_s(kinds), time.monotonic()
    window_s = ended_at - begun_at
    planner, agents_used = ((after[kind] - before[kind]) / window_s for kind in ("planner", "agents"))
    threads = {
        name: (used - first["cpu_s"].get(name, 0.0)) / window_s
        for name, used in last["cpu_s"].items()
    }  # fmt: skip
    return ScaleRun(
        n_agents=n_agents, n_jobs=n_jobs, window_s=window_s, service_cores=threads.pop("all"), planner_cores=planner,
        agents_cores=agents_used, rss_mb=last["rss_bytes"] / 1e6, planner_mb=sum(map(rss_bytes, kinds["planner"])) / 1e6,
        n_threads=last["n_threads"], threads=threads, decided_s=[taken for _, taken in last["decided_s"]],
        by_kind=by_kind(last["decided_s"]), planned_s=first["planned_s"],
        submitting_s=[taken for _, taken in first["decided_s"]],
        running_s=running_s, n_plans=len(first["planned_s"]),
    )  # fmt: skip
