"""The simulated part of `bench/elastic_deadline.py`: many drawn trainings, each steered by every controller."""

import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # the plants of the tests

from punctual.controllers.two_level import TwoLevel
from punctual.core.protocols import Controller
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.papers.decor_nn.decor_pi import DecorPi
from punctual.papers.decor_nn.quota_plant import STEADY, Contention, Noise, World
from punctual.papers.decor_nn.worker_plant import ElasticRun, ElasticTraining, Scaling, run_elastic

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
    """What one controller made of one world, over all cases."""

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
