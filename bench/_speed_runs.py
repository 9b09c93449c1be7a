"""Real trainings whose speed is measured: with parameter servers, and with an all-reduce over gloo.

Each worker and each server is a process with an equal share of a core, held to it by a control group. So the speed
follows from their numbers, as on a cluster, though all of them run on the cores of one machine. A process enters its
group when it is ready: nobody waits for imports at a tenth of a core.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from _agent import Agent
from _processes import wait_until

from punctual.core.ids import JobId
from punctual.elastic_training.virtual_ranks import cut
from punctual.elastic_training.worker_pool import HANG_VARIABLE
from punctual.executors.local.cgroup_v1 import CgroupV1, CgroupV1Group

if TYPE_CHECKING:
    from torch import nn

SYNCHRONOUS, ASYNCHRONOUS, ALL_REDUCE = "synchronous servers", "asynchronous servers", "all-reduce"

WIDTH, N_LAYERS = 360, 3
GLOBAL_BATCH, LOCAL_BATCH = 240, 48
N_WARM = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of how long a training is watched."""

    cores_each: float
    watch_s: float
    n_steps_min: int


class Quotas:
    """A control group for each process of a training, by role and number."""

    def __init__(self, cores_each: float) -> None:
        self._cores_each = cores_each
        self._groups: dict[str, CgroupV1Group] = {}

    def cgroup_procs_files(self, role: str, n: int) -> list[list[str]]:
        """Files to write one's process id to."""
        return [self._entrances(f"{role}-{i}") for i in range(n)]

    def _entrances(self, name: str) -> list[str]:
        if name not in self._groups:
            self._groups[name] = CgroupV1.found().open(JobId(f"speed-{name}"), os.getpid())
            self._groups[name].grant(self._cores_each)
        return [str(path) for path in self._groups[name].files.cgroup_procs_files]

    def remove(self) -> None:
        """Remove the groups when all processes have ended."""
        for group in self._groups.values():
            for entrance in group.files.cgroup_procs_files:
                _remove(entrance.parent)


def _remove(folder: Path) -> None:
    """The last process may need a moment to be gone."""
    until = time.monotonic() + 5.0
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


@contextmanager
def quotas(cores_each: float) -> Iterator[Quotas]:
    """Raises `OSError`, or `TypeError` where there is no such hierarchy at all."""
    made = Quotas(cores_each)
    with ExitStack() as at_end:
        at_end.callback(made.remove)
        made.cgroup_procs_files("server", 1)
        yield made


def enter(cgroup_procs_files: list[str]) -> None:
    """Move this process, with all its threads, into a group."""
    for path in cgroup_procs_files:
        with open(path, "w") as file:  # noqa: PTH123 -- a file of the kernel
            file.write(str(os.getpid()))


def make_model() -> "nn.Module":
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(N_LAYERS)])


class Watch:
    """Counts steps from the time on when the first ones are done."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._stamps: list[float] = []

    def is_over(self) -> bool:
        """Called after each step."""
        self._stamps.append(time.monotonic())
        n_seen = len(self._stamps) - N_WARM
        return n_seen > self._effort.n_steps_min and self._stamps[-1] - self._stamps[N_WARM] >= self._effort.watch_s

    @property
    def rate_sps(self) -> float:
        return (len(self._stamps) - 1 - N_WARM) / (self._stamps[-1] - self._stamps[N_WARM])


# Parameter servers.


def parameter_server_sps(
    n_workers: int, n_servers: int, limits: Quotas, effort: Effort, *, is_synchronous: bool
) -> float:
    """Steps a second; asynchronous: of all workers together, each with a batch of its own of constant size."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        options = {
            "folder": name, "is_synchronous": is_synchronous, "n_workers": n_workers, "effort": asdict(effort),
            "entrances": limits.cgroup_procs_files("worker", n_workers),
        }  # fmt: skip
        script = str(Path(__file__).with_name("_served_training.py"))
        agent = Agent(
            folder / "page", [sys.executable, script, json.dumps(options)], n_workers, target={"n_servers": n_servers},
            variables={HANG_VARIABLE: "600"},
        )  # fmt: skip
        try:
            _await(folder, "ready-*", n_workers, agent, effort)
            _limit_servers(agent.workers(), n_workers, limits.cgroup_procs_files("server", n_servers))
            (folder / "go").touch()
            _await(folder, "*.json", n_workers if not is_synchronous else 1, agent, effort)
            rates = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        finally:
            agent.close()
    return float(rates[0] if is_synchronous else sum(rates))


def _await(folder: Path, pattern: str, n: int, agent: Agent, effort: Effort) -> None:
    """Wait until there are so many files."""
    patience_s = 120 + 40 * effort.watch_s
    wait_until(lambda: len([*folder.glob(pattern)]) >= n or agent.process.poll() is not None, patience_s, 0.02)
    if len([*folder.glob(pattern)]) < n:
        raise RuntimeError(f"workers and servers have not come so far as {pattern}")


def _limit_servers(pids: list[int], n_workers: int, cgroup_procs_files: list[list[str]]) -> None:
    """Hold the servers to their cores; the agent has its forkserver start workers first, and then servers."""
    for pid, paths in zip(sorted(pids)[n_workers:], cgroup_procs_files, strict=True):
        for path in paths:
            Path(path).write_text(str(pid))


# All-reduce.


def all_reduce_sps(n_workers: int, limits: Quotas, effort: Effort) -> float:
    """Steps a second with the same global batch for any number of workers."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["torch", "torch._dynamo", "_speed_runs"])
    cgroup_procs_files = limits.cgroup_procs_files("worker", n_workers)
    inbox, outbox = start.Pipe(duplex=False)
    processes = [
        start.Process(
            target=_reduce, args=(rank, n_workers, store.port, cgroup_procs_files[rank], effort, outbox), daemon=True
        )
        for rank in range(n_workers)
    ]
    try:
        for process in processes:
            process.start()
        if not inbox.poll(60 + 20 * effort.watch_s):
            raise RuntimeError(f"{n_workers} workers with an all-reduce have not answered")
        return float(inbox.recv())
    finally:
        for process in processes:  # at a tenth of a core the end of an interpreter takes a second
            process.kill()
        for process in processes:
            process.join()


def _reduce(
    rank: int, n_workers: int, port: int, cgroup_procs_files: list[str], effort: Effort, outbox: Connection
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.TCPStore("127.0.0.1", port, is_master=False), rank=rank, world_size=n_workers
    )
    model, watch = make_model(), Watch(effort)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    inputs = torch.randn(len(cut(GLOBAL_BATCH, n_workers)[rank]), WIDTH)
    goes_on = torch.full((1,), float(rank == 0))  # only the first worker says so, and all hear it
    enter(cgroup_procs_files)
    while True:
        model(inputs).square().mean().backward()
        gradient = torch.cat([one.grad.view(-1) for one in model.parameters() if one.grad is not None] + [goes_on])
        dist.all_reduce(gradient)
        optimizer.step()
        optimizer.zero_grad()
        if not gradient[-1]:
            break
        if rank == 0 and watch.is_over():
            goes_on.zero_()
    if rank == 0:
        outbox.send(watch.rate_sps)
    dist.destroy_process_group()
