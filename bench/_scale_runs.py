"""The rows of `bench/ray_cluster.py` about many nodes: one service, so many agents without training, and their jobs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _host_live_runs import rss_mb
from _processes import wait_until
from _service_load import Caller, quantile, started

from punctual.daemon.paths import HOME_VARIABLE
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import cpu_clock_ns

HERE = Path(__file__).parent
#: A job needs a tenth of a core for its deadline.
CORES, DEADLINE = "0.05..0.2", "4h"
_START_S_MAX, _RUN_S_MAX = 120.0, 400.0


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


class ScaledService:
    def __init__(self, n_agents: int, folder: Path) -> None:
        self._folder = folder
        with (folder / "service.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "_scale_service.py", str(n_agents), folder],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._caller = Caller(started(self._process, _START_S_MAX))
        self.pid = self._process.pid

    def submit(self) -> None:
        self._caller.ask("POST", "/v1/jobs", {"program": ["true"], "deadline": DEADLINE, "cores": CORES})

    def n_running(self) -> int:
        return int(self._caller.ask("GET", "/v1/cluster")["jobsByState"].get("running", 0))

    def n_nodes(self) -> int:
        return len(self._caller.ask("GET", "/v1/cluster")["nodes"])

    def usage(self, name: str) -> dict[str, Any]:
        """Return what the service says of itself."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n".encode())
        self._process.stdin.flush()
        file = self._folder / name
        until(file.exists, 60.0)
        told: dict[str, Any] = json.loads(file.read_text())
        return told

    def pids_of(self, words: str) -> list[int]:
        """The processes below the service with `words` in their command line."""
        return [pid for pid in descendants(self.pid) if words in Path(f"/proc/{pid}/cmdline").read_text()]

    def close(self) -> None:
        """End it by force: of jobs that pretend nothing is left."""
        self._caller.close()
        below = descendants(self.pid)
        self._process.kill()
        self._process.wait(60)
        until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in below), 20.0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def until(holds: Callable[[], bool], limit_s: float) -> None:
    """Wait; raise `RuntimeError` if it does not come to hold in time."""
    if not wait_until(holds, limit_s, 0.2):
        raise RuntimeError("it has not come to it")


def measured(n_agents: int, n_jobs: int, folder: Path, settle_s: float, window_s: float) -> ScaleRun:
    folder.mkdir(parents=True)
    os.environ[HOME_VARIABLE] = str(folder / "home")
    service = ScaledService(n_agents, folder)
    try:
        until(lambda: service.n_nodes() == n_agents, _RUN_S_MAX)
        begun_at = time.monotonic()
        for _ in range(n_jobs):
            service.submit()
        until(lambda: service.n_running() == n_jobs, _RUN_S_MAX)
        running_s = time.monotonic() - begun_at
        time.sleep(settle_s)
        return _window(service, n_agents, n_jobs, window_s, running_s)
    finally:
        service.close()


def _window(service: ScaledService, n_agents: int, n_jobs: int, window_s: float, running_s: float) -> ScaleRun:
    planners, agents = service.pids_of("policy_worker"), service.pids_of("_scale_agents")
    first, others, begun_at = service.usage("first"), [_cpu_s(planners), _cpu_s(agents)], time.monotonic()
    time.sleep(window_s)
    last, later, ended_at = service.usage("last"), [_cpu_s(planners), _cpu_s(agents)], time.monotonic()
    window_s = ended_at - begun_at
    planner, agents_used = ((b - a) / window_s for a, b in zip(others, later, strict=True))
    threads = {
        name: (used - first["cpu_s"].get(name, 0.0)) / window_s
        for name, used in last["cpu_s"].items()
    }  # fmt: skip
    return ScaleRun(
        n_agents=n_agents, n_jobs=n_jobs, window_s=window_s, service_cores=threads.pop("all"), planner_cores=planner,
        agents_cores=agents_used, rss_mb=last["rss_bytes"] / 1e6, planner_mb=sum(map(rss_mb, planners)),
        n_threads=last["n_threads"], threads=threads, decided_s=[taken for _, taken in last["decided_s"]],
        by_kind=by_kind(last["decided_s"]), planned_s=first["planned_s"],
        submitting_s=[taken for _, taken in first["decided_s"]],
        running_s=running_s, n_plans=len(first["planned_s"]),
    )  # fmt: skip


def _cpu_s(pids: Sequence[int]) -> float:
    return sum(cpu_clock_ns(pid) or 0 for pid in pids) / 1e9
