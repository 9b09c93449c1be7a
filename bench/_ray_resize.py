"""A training that grows from one node to two and shrinks back: Punctual's beside Ray Train's, on one machine, in turns."""

import os
import secrets
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from _agent import Agent, environment
from _common import stamp
from _processes import wait_until
from _report import Column, Run
from resize import Change, StepLog

from punctual.channel import GROUP_KEY_VARIABLE, GROUP_VARIABLE, NODE_ADDRESS_VARIABLE
from punctual.core.errors import InvalidSpec

PROGRAM = str(Path(__file__).with_name("_resize_training.py"))
ADDRESS = "127.0.0.1"
OURS = "Punctual"
#: How often Ray Train looks whether it can have another number of workers, seconds; and what else is set.
RAY_TRAIN: dict[str, tuple[float, dict[str, str]]] = {
    "Ray Train": (60.0, {}),
    "Ray Train, quick": (
        0.0,
        {
            "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
            "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.1",
            # Until it gives up to start as many workers as were there before a node has gone.
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "1",
        },
    ),
}

#: What a training's weights were, by the number of steps.
Looks = dict[int, str]


@contextmanager
def ray_cluster(folder: Path) -> Iterator[Any]:
    """A `Cluster` of Ray's with its head, which this process is connected to; all of it is gone afterwards."""
    if any(find_spec(name) is None for name in ("ray", "pandas", "pyarrow")):
        raise InvalidSpec(
            "Ray Train must be installed", "no package of that name", "this Python",
            "Install it (`pip install 'ray[train]'`), or leave out `--part resize`.",
        )  # fmt: skip
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }  # fmt: skip
    warnings.simplefilter("ignore")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=str(cluster.address), log_to_driver=False, configure_logging=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


class Training:
    """A training of one worker, whose others are on the same node, or each on another: one agent on each node."""

    def __init__(self, folder: Path, *, spans_nodes: bool) -> None:
        self._words = [PROGRAM, "exact", str(folder)]
        self.first = self.other = self._node(folder / "first", {})
        self.n_alone = 1
        if spans_nodes:
            group = self.first.page.group()
            assert group is not None
            port, key = group
            variables = {GROUP_VARIABLE: f"{ADDRESS}:{port}", GROUP_KEY_VARIABLE: key.hex()}
            self.other, self.n_alone = self._node(folder / "other", variables), 0
            self.resize(self.n_alone)

    def _node(self, path: Path, variables: dict[str, str]) -> Agent:
        variables = {NODE_ADDRESS_VARIABLE: ADDRESS, **variables}
        agent = Agent(path, [sys.executable, *self._words], target={"spans_nodes": True}, variables=variables)
        agent.await_answer()
        return agent

    def resize(self, n_workers: int) -> float:
        """Change the number of workers of the other node; return for how many seconds training stood still."""
        before_ns = self.first.page.worker_status().last_stop_ns
        self.other.send_target(n_workers)
        self.other.await_answer(lambda _: self.first.page.worker_status().last_stop_ns != before_ns)
        return self.first.page.worker_status().last_stop_ns / 1e9

    def close(self) -> None:
        for node in {self.other, self.first}:
            node.close()


@contextmanager
def training(*, spans_nodes: bool) -> Iterator[tuple[Training, Looks]]:
    """A training, and what its weights were, which is known when it has ended."""
    looks: Looks = {}
    with tempfile.TemporaryDirectory() as folder:
        made = Training(Path(folder), spans_nodes=spans_nodes)
        try:
            yield made, looks
        finally:
            made.close()
        for line in Path(folder, "looks").read_text().splitlines():
            step, told = line.split()
            looks[int(step)] = told


def our_changes() -> tuple[list[Change], Looks]:
    """Return the changes of a training on two nodes, and its weights meanwhile."""
    found = []
    with training(spans_nodes=True) as (ours, looks):
        for before, after in ((1, 2), (2, 1)) * 2:
            ours.first.train_on(6)
            redone = ours.first.page.worker_status().n_steps_redone
            stop_s = ours.resize(after - 1)
            redone = ours.first.page.worker_status().n_steps_redone - redone
            found.append(Change(OURS, before, after, stop_s, redone))
        ours.first.train_on(12)
    return found, looks


def looks_alone(n_steps: int) -> Looks:
    """Return what the weights are where there was one worker all the time."""
    with training(spans_nodes=False) as (alone, looks):
        alone.first.train_on(n_steps + 1)
    return looks


def ray_changes(name: str, cluster: Any) -> list[Change]:
    """Return the changes of Ray Train, to whose cluster of one node another is added, and which then loses it."""
    import ray

    with _ray_training(name, str(cluster.address)) as log:
        if not log.train_on():
            raise RuntimeError(f"{name} has not begun")
        added: list[Any] = []
        grown = log.change(name, 1, 2, lambda: added.append(cluster.add_node(num_cpus=1)))
        log.train_on()
        shrunk = log.change(name, 2, 1, lambda: cluster.remove_node(added[0]))
    wait_until(lambda: ray.available_resources().get("CPU", 0.0) == 1.0, 60.0)
    return [grown, shrunk]


@contextmanager
def _ray_training(name: str, address: str) -> Iterator[StepLog]:
    interval_s, variables = RAY_TRAIN[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = StepLog(Path(folder) / "log")
        with Path(folder, "output").open("wb") as output:
            driver = subprocess.Popen(
                [sys.executable, PROGRAM, "ray", folder, address, str(interval_s)],
                env=environment(**variables), stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield log
        finally:
            driver.kill()  # all that it has started ends with it
            driver.wait()


def turn_of(name: str, cluster: Any) -> Run:
    """Our changes and theirs; and how many of the looks at our weights were as with one worker."""
    changes, looks = our_changes()
    changes += ray_changes(name, cluster)
    alone = looks_alone(max(looks))
    return {
        "stamp": stamp(), "beside": name, "changes": [asdict(change) for change in changes],
        "n_looks": len(looks), "n_looks_alike": sum(alone[step] == told for step, told in looks.items()),
    }  # fmt: skip


def changes_of(turns: Sequence[Run], name: str, before: int) -> list[Run]:
    """Return the changes of one of the systems from so many workers."""
    changes = [change for turn in turns for change in turn["changes"]]
    return [change for change in changes if (change["system"], change["before"]) == (name, before)]


def times_less(turns: Sequence[Run], name: str, before: int) -> list[float]:
    """Their stop over ours, in the median, of each turn."""

    def stop_s(turn: Run, system: str) -> float:
        return median(change["stop_s"] for change in changes_of([turn], system, before))

    return [stop_s(turn, name) / stop_s(turn, OURS) for turn in turns if turn["beside"] == name]


def rows_of(turns: Sequence[Run], names: Sequence[str]) -> list[list[str]]:
    """Return a row for each system: stops and steps redone in each direction, and the stops over ours."""
    return [
        [
            name,
            *(column.cell(changes_of(turns, name, before)) for before in (1, 2) for column in _CHANGE_COLUMNS),
            *("" if name == OURS else _range(times_less(turns, name, before), ".0f") for before in (1, 2)),
        ]
        for name in (OURS, *names)
    ]


def _range(values: Sequence[float], shown: str) -> str:
    return f"{median(values):{shown}} ({min(values):{shown}}–{max(values):{shown}})"


_CHANGE_COLUMNS = (
    Column("s", "stop_s", str, lambda values: _range(values, ".2f")), Column("steps redone", "n_steps_redone", "{:.0f}".format),
)  # fmt: skip
