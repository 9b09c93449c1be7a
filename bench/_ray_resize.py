"""A training that grows from one node to two and shrinks back: Punctual's beside Ray Train's, on one machine, in turns."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from _agent import environment
from _common import stamp
from _processes import wait_until
from nodes import Training
from resize import Change, StepLog

from punctual.core.errors import InvalidSpec

PROGRAM = str(Path(__file__).with_name("_ray_resize_training.py"))
OURS = "Punctual"
#: How often Ray Train looks whether it can have another number of workers, seconds; and what else is set.
_DEFAULT_INTERVAL_S = 60.0
RAY_TRAIN: dict[str, tuple[float, dict[str, str]]] = {
    "Ray Train": (_DEFAULT_INTERVAL_S, {}),
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
_N_CHANGES = 2
_END_S_MAX = 60.0

#: What a training's weights were, by the number of steps.
Looks = dict[int, str]


def needs_ray_train() -> None:
    """Raises `InvalidSpec` where Ray Train is not installed."""
    if any(find_spec(name) is None for name in ("ray", "pandas", "pyarrow")):
        raise InvalidSpec(
            "Ray Train must be installed", "no package of that name", "this Python",
            "Install it (`pip install 'ray[train]'`), or leave out `--part resize`.",
        )  # fmt: skip


def our_changes() -> tuple[list[Change], Looks]:
    """Return the changes of a training on two nodes, and its weights meanwhile."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), [PROGRAM, "punctual", folder], spans_nodes=True)
        try:
            for _ in range(_N_CHANGES):
                for before, after in ((1, 2), (2, 1)):
                    training.first.train_on(6)
                    redone = training.first.page.worker_status().n_steps_redone
                    stop_s = training.resize(after - 1)
                    redone = training.first.page.worker_status().n_steps_redone - redone
                    found.append(Change(OURS, before, after, stop_s, redone))
            training.first.train_on(12)
        finally:
            training.close()
        return found, _looks(Path(folder))


def looks_alone(n_steps: int) -> Looks:
    """Return what the weights are where there was one worker all the time."""
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), [PROGRAM, "punctual", folder], spans_nodes=False)
        try:
            training.first.train_on(n_steps + 1)
        finally:
            training.close()
        return _looks(Path(folder))


def _looks(folder: Path) -> Looks:
    lines = (folder / "looks").read_text().splitlines()
    return {int(step): told for step, told in (line.split() for line in lines)}


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
    wait_until(lambda: ray.available_resources().get("CPU", 0.0) == 1.0, _END_S_MAX)
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


def turn_of(name: str, cluster: Any) -> dict[str, Any]:
    """Our changes and theirs; and how many of the looks at our weights were as with one worker."""
    changes, looks = our_changes()
    changes += ray_changes(name, cluster)
    alone = looks_alone(max(looks))
    return {
        "stamp": stamp(), "beside": name, "changes": [asdict(change) for change in changes],
        "n_looks": len(looks), "n_looks_alike": sum(alone[step] == told for step, told in looks.items()),
    }  # fmt: skip


class Turns:
    """Findings, turn by turn."""

    def __init__(self, turns: Sequence[dict[str, Any]]) -> None:
        self.turns = turns

    def of(self, name: str, before: int) -> list[Change]:
        changes = (Change(**change) for turn in self.turns for change in turn["changes"])
        return [change for change in changes if (change.system, change.before) == (name, before)]

    def times_less(self, name: str, before: int) -> list[float]:
        """Their stop over ours, in the median, of each turn."""
        each = [Turns([turn]) for turn in self.turns if turn["beside"] == name]
        return [stop_s(turn.of(name, before)) / stop_s(turn.of(OURS, before)) for turn in each]

    def rows(self, names: Sequence[str]) -> list[list[str]]:
        return [
            [
                name,
                *(cell for before in (1, 2) for cell in _cells(self.of(name, before))),
                *("" if name == OURS else _median_and_range(self.times_less(name, before), ".0f") for before in (1, 2)),
            ]
            for name in (OURS, *names)
        ]


def stop_s(changes: Sequence[Change]) -> float:
    return median(change.stop_s for change in changes)


def _cells(changes: Sequence[Change]) -> list[str]:
    told = _median_and_range([change.stop_s for change in changes], ".2f")
    if any(change.at_least for change in changes):
        told = f"at least {told}"
    return [told, f"{median(change.n_steps_redone for change in changes):.0f}"]


def _median_and_range(values: Sequence[float], shown: str) -> str:
    return f"{median(values):{shown}} ({min(values):{shown}}–{max(values):{shown}})"
