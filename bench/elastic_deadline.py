"""Do whole workers land on the deadline, with few changes of their number and no more workers than needed?

Drawn trainings of one to five minutes in five kinds of world, simulated. The cost is worker-seconds over those of the best mix of
any numbers, changed without loss and with the true speeds known.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from _common import Results
from _report import Column, Run, Section, Target, run, table_of

from punctual.controllers.two_level import TwoLevel
from punctual.core.protocols import Controller
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.papers.decor_nn.decor_pi import DecorPi
from punctual.sim.plants.quota_plant import STEADY, Contention, Noise, PlantWorld
from punctual.sim.plants.worker_plant import ElasticTraining, Scaling, run_elastic

OURS, WITH_MODEL, DECOR = "two-level", "two-level, with a model", "decor-pi"
CONTROLLERS: dict[str, Callable[[], Controller[Any]]] = {OURS: TwoLevel, WITH_MODEL: TwoLevel, DECOR: DecorPi}

NOISY = Noise(spread_frac=0.05, correlation=0.8, neighbour_factor=1.1, neighbour_dwell_s=6.0)
WORLDS = ("calm", "noisy", "contention", "deadline to 0.8 D", "deadline to 1.3 D")
#: Worlds in which nothing happens that nobody could foresee.
FORESEEN = ("calm", "noisy")
#: The law's constants were chosen on draws with smaller seeds.
_FIRST_SEED = 1000
COUNTS = ((1, 2, 3), (1, 2, 3, 4), (1, 2, 4, 8))
#: What is to be reached where nothing unforeseen happens, by figure: text, limit, how it is shown.
TARGETS: dict[str, tuple[str, float, Callable[[float], str]]] = {
    "deviation_frac": ("deviation", 0.001, "{:.3%}".format), "late_frac": ("late", 0.0, "{:.1%}".format),
    "n_resizes": ("changes", 3.0, "{:.2f}".format), "cost": ("worker-seconds of the best mix", 1.05, "{:.3f}".format),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One training and its world."""

    training: ElasticTraining
    world: PlantWorld
    deadline_s: float
    final_deadline_s: float


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
    world = PlantWorld(noise=noise, can_pace=True)
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


def row(kind: str, controller: str, n_runs: int) -> Run:
    """All cases of a world under a controller."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + n_runs)
    cases = [drawn(kind, seed) for seed in seeds]
    models = {"all-reduce": AllReduce()} if controller == WITH_MODEL else None
    runs = [
        run_elastic(
            CONTROLLERS[controller](), case.training, deadline_s=case.deadline_s, world=case.world, seed=seed, models=models
        )
        for seed, case in zip(seeds, cases, strict=True)
    ]  # fmt: skip
    # Of the best mix for the last deadline, as if it had been known from the start.
    least = [case.training.least_worker_s(case.final_deadline_s, case.world.noise) for case in cases]
    costs = sorted(one.worker_s / least_s for one, least_s in zip(runs, least, strict=True))
    return {
        "world": kind, "controller": controller, "n_runs": n_runs,
        "deviation_frac": fmean(abs(one.deviation_frac) for one in runs), "latest_frac": max(one.deviation_frac for one in runs),
        "late_frac": fmean(not one.on_time for one in runs), "n_resizes": fmean(one.n_resizes for one in runs),
        "many_resizes_frac": fmean(one.n_resizes > 3 for one in runs), "cost": fmean(costs), "cost_p90": costs[int(0.9 * len(costs))],
    }  # fmt: skip


def targets(rows: list[Run]) -> list[Target]:
    ours = [row for row in rows if row["controller"] == OURS and row["world"] in FORESEEN]
    return [
        Target(f"two-level: {text}", limit, fmean(row[name] for row in ours), shown)
        for name, (text, limit, shown) in TARGETS.items()
    ]


def sections(results: Results) -> list[Section]:
    columns = [
        Column("runs", "n_runs"), Column("mean dev.", "deviation_frac", "{:.3%}".format), Column("latest", "latest_frac", "{:+.3%}".format),
        Column("late", "late_frac", "{:.1%}".format), Column("resizes", "n_resizes", "{:.1f}".format),
        Column("over 3", "many_resizes_frac", "{:.0%}".format), Column("cost", "cost", "{:.3f}".format),
        Column("cost, 90th", "cost_p90", "{:.3f}".format),
    ]  # fmt: skip
    table = table_of(results["rows"], {"world": "world", "controller": "controller"}, columns)
    return [Section("Simulated trainings of workers", *table, targets(results["rows"]))]


def measured(*, quick: bool) -> Results:
    n_runs, worlds, controllers = (40, FORESEEN, (OURS, DECOR)) if quick else (100, WORLDS, tuple(CONTROLLERS))
    rows = [
        row(world, controller, n_runs)
        for controller in controllers
        for world in worlds
        if controller != WITH_MODEL or world in FORESEEN
    ]
    return {"rows": rows}


if __name__ == "__main__":
    sys.exit(run("elastic_deadline", __doc__, measured, sections))
