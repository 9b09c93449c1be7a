"""Do whole workers land on the deadline, with few changes of their number and no more workers than needed?

*Simulated*: drawn trainings of one to five minutes in five kinds of world. *Live*: real trainings by one to three
workers of an equal share of cores each, beside runs with constant numbers that tell what the best mix would have cost.
The cost is worker-seconds over those of the best mix of any numbers, changed without loss and with the true speeds known.

`--simulated` and `--live` make only one of the parts; `--quick` a few simulated runs, or with `--live` one live run.
Without `--quick` the figures are written to bench/results/elastic_deadline.json and .md.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import _common
from _common import json_lines
from _processes import wait_for_daemons
from _report import TARGET_HEADS, Target, conclude_targets, target_rows

from punctual.controllers.two_level import TwoLevel
from punctual.core.protocols import Controller
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.papers.decor_nn.decor_pi import DecorPi
from punctual.papers.decor_nn.quota_plant import STEADY, Contention, Noise, World
from punctual.papers.decor_nn.worker_plant import ElasticRun, ElasticTraining, Scaling, run_elastic

# Real trainings by one to three workers.

LIVE_COUNTS = (1, 2, 3)
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
        train_s = {n: each_s * self.n_steps for n, each_s in zip(LIVE_COUNTS, self.step_s, strict=True)}
        before_worker_s = LIVE_COUNTS[-1] * (self.startup_s - self.numbers[0][0])
        return self.worker_s / (before_worker_s + _least_worker_s(train_s, self.deadline_s - self.startup_s))


LIVE_HEADS = ("run", "controller", "D, s", "deviation", "resizes", "cost", "workers", "ms a step with 1, 2, 3", "drift")


def live_cells(run: LiveRun) -> list[str]:
    """As the table shows it."""
    course = ", ".join(f"{n} at {at_s:.0f} s" for at_s, n in run.numbers)
    return [
        f"{run.ratio:g} D_min, {run.repeat + 1}", run.controller, f"{run.deadline_s:.0f}", f"{run.deviation_frac:+.3%}",
        str(run.n_resizes), f"{run.cost:.3f}", course, " / ".join(f"{1e3 * each_s:.0f}" for each_s in run.step_s),
        f"{run.drift:.2f}",
    ]  # fmt: skip


def block(repeat: int, deadline_s: float, ratios: Sequence[float], controllers: Sequence[str]) -> list[LiveRun]:
    """Each ratio of the deadline to the fastest time with each controller in drawn order, between constant numbers."""
    before = {n: _constant(n) for n in LIVE_COUNTS}
    step_s = {n: each_s for n, (each_s, _) in before.items()}
    startup_s = before[LIVE_COUNTS[-1]][1]
    runs = []
    for ratio in ratios:
        fastest_s = deadline_s / ratio - startup_s
        n_epoch_steps = max(10, round(fastest_s / min(step_s.values()) / N_EPOCHS))
        order = random.Random(f"{repeat} {ratio}").sample(controllers, len(controllers))
        runs += [_steered(repeat, ratio, one, deadline_s, n_epoch_steps, step_s) for one in order]
    after_s = {n: _constant(n)[0] for n in LIVE_COUNTS}
    drift = sum(after_s[n] / step_s[n] for n in LIVE_COUNTS) / len(LIVE_COUNTS)
    mean_s = [(step_s[n] + after_s[n]) / 2 for n in LIVE_COUNTS]
    return [replace(run, step_s=mean_s, drift=drift) for run in runs]


def _constant(n: int) -> tuple[float, float]:
    """Seconds a step with its share of evaluation, and seconds before the first one, with `n` workers all the way."""
    lines = _run([f"--workers={n}..{n}"], n_epochs=1, n_epoch_steps=N_STEPS_TRIED)
    begun_s, landed_s = _begun_s(lines), float(lines[-1]["landed_s"])
    return (landed_s - begun_s) / N_STEPS_TRIED, begun_s


def _steered(
    repeat: int, ratio: float, controller: str, deadline_s: float, n_epoch_steps: int, step_s: Mapping[int, float]
) -> LiveRun:
    options = [
        f"--workers={LIVE_COUNTS[0]}..{LIVE_COUNTS[-1]}",
        f"--controller={controller}",
        f"--deadline={deadline_s:.1f}s",
    ]
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
        wait_for_daemons(Path(home))
    lines = json_lines(done.stdout)
    if done.returncode or not lines or lines[-1]["type"] != "report":
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return lines


def _begun_s(lines: Sequence[Mapping[str, Any]]) -> float:
    """Return when the first step began, from the first two reports of some: they come at most twice a second."""
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


# Simulated.

# Simulated trainings, each steered by every controller.


OURS, WITH_MODEL, DECOR = "two-level", "two-level, with a model", "decor-pi"
CONTROLLERS: dict[str, Callable[[], Controller[Any]]] = {OURS: TwoLevel, WITH_MODEL: TwoLevel, DECOR: DecorPi}

NOISY = Noise(spread_frac=0.05, correlation=0.8, neighbour_factor=1.1, neighbour_dwell_s=6.0)
WORLDS = ("calm", "noisy", "contention", "deadline to 0.8 D", "deadline to 1.3 D")
#: Worlds in which nothing happens that nobody could foresee.
FORESEEN = ("calm", "noisy")
#: The law's constants were chosen on draws with smaller seeds.
_FIRST_SEED = 1000
COUNTS = ((1, 2, 3), (1, 2, 3, 4), (1, 2, 4, 8))


@dataclass(frozen=True)
class Case:
    """One training and its world."""

    training: ElasticTraining
    world: World
    deadline_s: float
    final_deadline_s: float


@dataclass(frozen=True)
class Row:
    """Figures of one controller in one world, over all cases."""

    world: str
    controller: str
    n_runs: int
    deviation_frac: float
    latest_frac: float
    late_frac: float
    n_resizes: float
    many_resizes_frac: float
    cost: float
    cost_p90: float


def drawn(kind: str, seed: int) -> Case:
    """A training of one to five minutes that needs something between its least and its most workers."""
    rng = random.Random(f"{kind} {seed}")
    noise = STEADY if kind == "calm" else NOISY
    deadline_s = rng.uniform(60.0, 300.0)
    factor = float(kind.split()[2]) if kind.startswith("deadline") else 1.0
    final_s = factor * deadline_s
    undivided = rng.uniform(0.02, 0.4)
    size_s = rng.uniform(0.03, 0.2) / (undivided + 1.0)
    scaling = Scaling(undivided_s=undivided * size_s, divided_s=size_s, per_peer_s=rng.uniform(0.0, 0.02) * size_s)
    training = ElasticTraining(scaling=scaling, counts=rng.choice(COUNTS), startup_s=rng.uniform(1.0, 4.0))
    gain = scaling.step_s(1) / min(map(scaling.step_s, training.counts))
    ratio = rng.uniform(1.15, 0.9 * gain)
    world = World(noise=noise, can_pace=True)
    if kind == "contention":
        world = replace(world, contention=(Contention(from_s=final_s / 3, until_s=final_s / 2, delivered_frac=0.8),))
        ratio = max(ratio, 1.25)
    if factor != 1.0:
        world = replace(world, deadline_changes=((0.3 * deadline_s, final_s),))
    return Case(_sized(training, noise, min(deadline_s, final_s) / ratio), world, deadline_s, final_s)


def _sized(training: ElasticTraining, noise: Noise, fastest_s: float) -> ElasticTraining:
    """So many steps that the fastest landing to be expected is at `fastest_s`."""
    bare, one = replace(training, epoch_steps=0), replace(training, epoch_steps=1)
    per_step_s = one.fastest_s(noise) - bare.fastest_s(noise)
    return replace(training, epoch_steps=max(10, round((fastest_s - bare.fastest_s(noise)) / per_step_s)))


def row(kind: str, controller: str, n_runs: int) -> Row:
    """All cases of a world under a controller."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + n_runs)
    cases = [drawn(kind, seed) for seed in seeds]
    models = {"all-reduce": AllReduce()} if controller == WITH_MODEL else None
    runs = [
        run_elastic(
            CONTROLLERS[controller](),
            case.training,
            deadline_s=case.deadline_s,
            world=case.world,
            seed=seed,
            models=models,
        )
        for seed, case in zip(seeds, cases, strict=True)
    ]
    costs = sorted(run.worker_s / _least(case) for run, case in zip(runs, cases, strict=True))
    return Row(
        world=kind,
        controller=controller,
        n_runs=n_runs,
        deviation_frac=statistics.fmean(abs(run.deviation_frac) for run in runs),
        latest_frac=max(run.deviation_frac for run in runs),
        late_frac=_share(runs, lambda run: not run.on_time),
        n_resizes=statistics.fmean(run.n_resizes for run in runs),
        many_resizes_frac=_share(runs, lambda run: run.n_resizes > 3),
        cost=statistics.fmean(costs),
        cost_p90=costs[int(0.9 * len(costs))],
    )


def _least(case: Case) -> float:
    """Worker-seconds of the best mix for the last deadline, as if it had been known from the start."""
    return case.training.least_worker_s(case.final_deadline_s, case.world.noise)


def _share(runs: Sequence[ElasticRun], holds: Callable[[ElasticRun], bool]) -> float:
    return sum(map(holds, runs)) / len(runs)


HEADS = (
    "world", "controller", "runs", "mean dev.", "latest", "late", "resizes", "over 3", "cost", "cost, 90th",
)  # fmt: skip


def cells(found: Row) -> list[str]:
    """As the table shows it."""
    return [
        found.world, found.controller, str(found.n_runs), f"{found.deviation_frac:.3%}", f"{found.latest_frac:+.3%}",
        f"{found.late_frac:.1%}", f"{found.n_resizes:.1f}", f"{found.many_resizes_frac:.0%}", f"{found.cost:.3f}",
        f"{found.cost_p90:.3f}",
    ]  # fmt: skip


# What is told of them.

#: Mean deviation, share of late runs, mean number of changes, mean cost: what is to be reached where nothing unforeseen happens.
TARGETS = (0.001, 0.0, 3.0, 1.05)
RATIOS = (1.2, 1.5)
NAME = "elastic_deadline"


def simulate(n_runs: int, worlds: tuple[str, ...], controllers: tuple[str, ...]) -> list[Row]:
    found = []
    for controller in controllers:
        for world in worlds:
            if controller == WITH_MODEL and world not in FORESEEN:
                continue
            found.append(row(world, controller, n_runs))
            print("  ".join(cells(found[-1])), flush=True)
    return found


def record(rows: list[Row], runs: list[LiveRun]) -> None:
    """Replace the parts that were made; keep the others as they are on record."""
    content = {name: part for name, part in _common.on_record(NAME).items() if name != "stamp"}
    if rows:
        content["simulated"] = {"stamp": _common.stamp(), "rows": [asdict(row) for row in rows]}
    if runs:
        content["live"] = {"stamp": _common.stamp(), "runs": [asdict(run) for run in runs]}
    _common.write_results(NAME, content, page)


def page(results: _common.Results) -> str:
    lines = []
    if "simulated" in results:
        part = results["simulated"]
        rows = [cells(Row(**row)) for row in part["rows"]]
        lines += [
            "## Simulated",
            "",
            *_common.markdown_table(HEADS, rows),
            "",
            _common.stamp_text(part),
            "",
        ]
    if "live" in results:
        part = results["live"]
        rows = [live_cells(LiveRun(**run)) for run in part["runs"]]
        lines += ["## Live", "", *_common.markdown_table(LIVE_HEADS, rows), "", _common.stamp_text(part), ""]
    return "\n".join(lines)


def targets(rows: list[Row]) -> list[Target]:
    """Return the targets of the simulated part, where nothing unforeseen happens."""
    ours = [row for row in rows if row.controller == OURS and row.world in FORESEEN]
    names = {
        "deviation_frac": "deviation",
        "late_frac": "late",
        "n_resizes": "changes",
        "cost": "worker-seconds of the best mix",
    }
    shown = ("{:.3%}".format, "{:.1%}".format, "{:.2f}".format, "{:.3f}".format)
    return [
        Target(f"two-level: {text}", most, sum(getattr(row, name) for row in ours) / len(ours) if ours else None, how)
        for (name, text), most, how in zip(names.items(), TARGETS, shown, strict=True)
    ]


def live(n_repeats: int, *, quick: bool) -> list[LiveRun]:
    if quick:
        return block(0, 20.0, (1.6,), (OURS,))
    runs = []
    for repeat in range(n_repeats):
        for run in block(repeat, 75.0, RATIOS, (OURS, DECOR)):
            runs.append(run)
            print("  ".join(live_cells(run)), flush=True)
    return runs


def main() -> int:
    options = _options()
    rows, runs = [], []
    if not options.live:
        ours, decor = OURS, DECOR
        rows = simulate(40, FORESEEN, (ours, decor)) if options.quick else simulate(100, WORLDS, tuple(CONTROLLERS))
    if options.live or not (options.simulated or options.quick):
        runs = live(options.repeats, quick=options.quick)
        _common.print_table(LIVE_HEADS, [live_cells(run) for run in runs])
    if not options.quick:
        record(rows, runs)
    found = targets(rows)
    _common.print_table(TARGET_HEADS, target_rows(found))
    return conclude_targets(found, found[0], quick=options.quick or not rows)


def _options() -> argparse.Namespace:
    parser = _common.parser("How exactly, how steadily and how cheaply whole workers land. See the head of this file.")
    parser.add_argument("--simulated", action="store_true", help="only the simulated part")
    parser.add_argument("--live", action="store_true", help="only the live part")
    parser.add_argument("--repeats", type=int, default=2, help="of the live part")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
