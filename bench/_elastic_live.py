"""The live part of `bench/elastic_deadline.py`: real trainings by one to three workers."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from _common import json_lines

COUNTS = (1, 2, 3)
#: Of each worker; all together leave a little of two CPUs to what else runs.
CORES_EACH = 0.3
N_EPOCHS = 4
#: Steps of the runs with a constant number, in one epoch.
N_STEPS_TRIED = 60


@dataclass(frozen=True)
class LiveRun:
    """One run. `step_s`: seconds a step with each constant number, means of before and after the runs of its block.

    `drift`: those after over those before. Where it is far from 1 the machine was another one meanwhile, and so is the cost.
    """

    repeat: int
    ratio: float
    controller: str
    deadline_s: float
    deviation_frac: float
    n_resizes: int
    worker_s: float
    n_steps: int
    startup_s: float
    numbers: list[tuple[float, int]]
    step_s: list[float]
    drift: float

    @property
    def cost(self) -> float:
        """Worker-seconds over those of the best mix of constant numbers."""
        train_s = {n: each_s * self.n_steps for n, each_s in zip(COUNTS, self.step_s, strict=True)}
        before_worker_s = COUNTS[-1] * (self.startup_s - self.numbers[0][0])
        return self.worker_s / (before_worker_s + _least_worker_s(train_s, self.deadline_s - self.startup_s))


HEADS = ("run", "controller", "D, s", "deviation", "resizes", "cost", "workers", "ms a step with 1, 2, 3", "drift")


def cells(run: LiveRun) -> list[str]:
    """As the table shows it."""
    course = ", ".join(f"{n} at {at_s:.0f} s" for at_s, n in run.numbers)
    return [
        f"{run.ratio:g} D_min, {run.repeat + 1}", run.controller, f"{run.deadline_s:.0f}", f"{run.deviation_frac:+.3%}",
        str(run.n_resizes), f"{run.cost:.3f}", course, " / ".join(f"{1e3 * each_s:.0f}" for each_s in run.step_s),
        f"{run.drift:.2f}",
    ]  # fmt: skip


def block(repeat: int, deadline_s: float, ratios: Sequence[float], controllers: Sequence[str]) -> list[LiveRun]:
    """Each ratio of the deadline to the fastest time with each controller in drawn order, between constant numbers."""
    before = {n: _constant(n) for n in COUNTS}
    step_s = {n: each_s for n, (each_s, _) in before.items()}
    startup_s = before[COUNTS[-1]][1]
    runs = []
    for ratio in ratios:
        fastest_s = deadline_s / ratio - startup_s
        n_epoch_steps = max(10, round(fastest_s / min(step_s.values()) / N_EPOCHS))
        order = random.Random(f"{repeat} {ratio}").sample(controllers, len(controllers))
        runs += [_steered(repeat, ratio, one, deadline_s, n_epoch_steps, step_s) for one in order]
    after_s = {n: _constant(n)[0] for n in COUNTS}
    drift = sum(after_s[n] / step_s[n] for n in COUNTS) / len(COUNTS)
    mean_s = [(step_s[n] + after_s[n]) / 2 for n in COUNTS]
    return [replace(run, step_s=mean_s, drift=drift) for run in runs]


def _constant(n: int) -> tuple[float, float]:
    """Seconds a step with its share of evaluation, and seconds before the first one, with `n` workers all the way."""
    lines = _run([f"--workers={n}..{n}"], n_epochs=1, n_epoch_steps=N_STEPS_TRIED)
    begun_s, landed_s = _begun_s(lines), float(lines[-1]["landed_s"])
    return (landed_s - begun_s) / N_STEPS_TRIED, begun_s


def _steered(
    repeat: int, ratio: float, controller: str, deadline_s: float, n_epoch_steps: int, step_s: Mapping[int, float]
) -> LiveRun:
    options = [f"--workers={COUNTS[0]}..{COUNTS[-1]}", f"--controller={controller}", f"--deadline={deadline_s:.1f}s"]
    lines = _run(options, n_epochs=N_EPOCHS, n_epoch_steps=n_epoch_steps)
    report, numbers = lines[-1], _numbers(lines)
    landed_s = float(report["landed_s"])
    ends = [at_s for at_s, _ in numbers[1:]] + [landed_s]
    return LiveRun(
        repeat=repeat,
        ratio=ratio,
        controller=controller,
        deadline_s=deadline_s,
        deviation_frac=float(report["deviation_frac"]),
        n_resizes=len(numbers) - 1,
        worker_s=sum(n * (max(end_s, at_s) - at_s) for (at_s, n), end_s in zip(numbers, ends, strict=True)),
        n_steps=n_epoch_steps * N_EPOCHS,
        startup_s=_begun_s(lines),
        numbers=numbers,
        step_s=list(step_s.values()),
        drift=1.0,
    )


def _least_worker_s(train_s: Mapping[int, float], time_s: float) -> float:
    """Worker-seconds of the best mix of numbers; all that there are if even that is too late."""
    costs = [n * time_s for n, each_s in train_s.items() if each_s <= time_s]
    for fewer, fewer_s in train_s.items():
        for more, more_s in train_s.items():
            if more_s < time_s < fewer_s:
                at_more_s = (1 - time_s / fewer_s) / (1 / more_s - 1 / fewer_s)
                costs.append(more * at_more_s + fewer * (time_s - at_more_s))
    return min(costs, default=max(train_s) * min(train_s.values()))


def _run(options: Sequence[str], *, n_epochs: int, n_epoch_steps: int) -> list[dict[str, Any]]:
    """The lines of `punctual run --json`, the report last."""
    program = [sys.executable, str(Path(__file__).with_name("_elastic_job.py"))]
    with tempfile.TemporaryDirectory(prefix="punctual-bench-") as home:
        done = subprocess.run(
            [sys.executable, "-m", "punctual", "run", "--json", f"--cores-per-worker={CORES_EACH}", *options, "--",
             *program, f"--epochs={n_epochs}", f"--steps={n_epoch_steps}"],
            env=os.environ | {"PUNCTUAL_HOME": home}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    lines = json_lines(done.stdout)
    if done.returncode or not lines or lines[-1]["type"] != "report":
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return lines


def _begun_s(lines: Sequence[Mapping[str, Any]]) -> float:
    """When the first step began, from the first two reports of some: they come at most twice a second."""
    seen = [line for line in lines if line["type"] == "progress" and line["steps_done"]]
    first, second = seen[0], next(line for line in seen if line["steps_done"] > seen[0]["steps_done"])
    step_s = (second["elapsed_s"] - first["elapsed_s"]) / (second["steps_done"] - first["steps_done"])
    return float(first["elapsed_s"] - step_s * first["steps_done"])


def _numbers(lines: Sequence[Mapping[str, Any]]) -> list[tuple[float, int]]:
    """Instants and numbers of workers granted, before the landing."""
    landed_s = lines[-1]["landed_s"]
    grants = [line for line in lines if line["type"] in {"started", "grant"} and line["elapsed_s"] < landed_s]
    course = [(float(line["elapsed_s"]), round(line["grant_cores"] / CORES_EACH)) for line in grants]
    return [course[0], *(after for before, after in pairwise(course) if after[1] != before[1])]
