"""Measure how well speed models predict our own trainings: fitted on six measured shapes, compared in all others.

Trainings with parameter servers, synchronous and asynchronous, and with an all-reduce over gloo run with different
numbers of workers and servers, each process with the same share of a core. All shapes are measured in turns, several
times, and the geometric mean over the passes counts: what slows a whole pass down is the same for all shapes, and what is
left differs either way, because a group's share comes in slices. Two sets of four passes agree better by it than by
their fastest passes. Of each table six shapes are shown to a model, drawn at random many times, and the error of the
time of a step in the others is averaged: |predicted - measured| / measured. The models have their default parameters.
"""

import math
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from _common import Results, conclude, on_record, parser
from _report import Section, Target, conclude_targets, page_of, report
from _speed_runs import (
    ALL_REDUCE,
    ASYNCHRONOUS,
    GLOBAL_BATCH,
    LOCAL_BATCH,
    N_LAYERS,
    SYNCHRONOUS,
    WIDTH,
    Effort,
    all_reduce_sps,
    parameter_server_sps,
    quotas,
)

from punctual.core.speed import Shape

# What is imported here each process of a training imports again: the models, with scipy, come later.

TARGET_PERCENT = 10.0
CORES_EACH = 0.1

Measure = Callable[[Shape], float]
#: Kind -> shape -> the rate in each pass, in steps a second.
Rates = dict[str, dict[Shape, list[float]]]
#: The models that the target is for.
COUNTED = ("parameter-server", "all-reduce")


@dataclass(frozen=True, slots=True)
class Plan:
    """Shapes of each kind to be measured, and how; nothing is begun that would begin after `budget_s`."""

    shapes: dict[str, list[Shape]]
    effort: Effort
    n_passes: int
    budget_s: float = math.inf


def grid(n_workers: range, n_servers: range) -> list[Shape]:
    return [Shape(n_workers=w, n_servers=p) for w in n_workers for p in n_servers]


def ring(n_workers: range) -> list[Shape]:
    return [Shape(n_workers=n) for n in n_workers]


FULL = Plan(
    {
        SYNCHRONOUS: grid(range(1, 7), range(1, 4)),
        ASYNCHRONOUS: grid(range(1, 7), range(1, 4)),
        ALL_REDUCE: ring(range(1, 10)),
    },
    Effort(CORES_EACH, watch_s=1.2, n_steps_min=10), n_passes=5,
)  # fmt: skip
QUICK = Plan(
    {ALL_REDUCE: ring(range(1, 9)), SYNCHRONOUS: grid(range(1, 5), range(1, 3))},
    Effort(CORES_EACH, watch_s=0.6, n_steps_min=6), n_passes=1, budget_s=34.0,
)  # fmt: skip


def measured(plan: Plan) -> Rates:
    rates: Rates = {kind: defaultdict(list) for kind in plan.shapes}
    until = time.monotonic() + plan.budget_s
    with quotas(CORES_EACH) as limits:
        measures: dict[str, Measure] = {
            SYNCHRONOUS: lambda shape: parameter_server_sps(
                shape.n_workers, shape.n_servers, limits, plan.effort, is_synchronous=True
            ),
            ASYNCHRONOUS: lambda shape: parameter_server_sps(
                shape.n_workers, shape.n_servers, limits, plan.effort, is_synchronous=False
            ),
            ALL_REDUCE: lambda shape: all_reduce_sps(shape.n_workers, limits, plan.effort),
        }
        for i_pass in range(plan.n_passes):
            runs = [(kind, shape) for kind, shapes in plan.shapes.items() for shape in shapes]
            if plan.n_passes > 1:
                random.Random(i_pass).shuffle(runs)
            for kind, shape in runs:
                if time.monotonic() < until:
                    rates[kind][shape].append(measures[kind](shape))
    return rates


def repeats_percent(rates: dict[Shape, list[float]]) -> float:
    """Return how far one pass lies from the mean, on average."""
    means = {shape: statistics.geometric_mean(found) for shape, found in rates.items()}
    return 100 * statistics.fmean(abs(one / means[shape] - 1) for shape, found in rates.items() for one in found)


def recorded() -> Rates:
    """The rates of the passes before, as they were written."""
    rates: Rates = defaultdict(dict)
    for row in on_record("speed_models")["rates"]:
        rates[row["training"]][Shape(n_workers=row["n_workers"], n_servers=row["n_servers"])] = row["rates_sps"]
    return rates


def together(one: Rates, other: Rates) -> Rates:
    """The passes of both."""
    return {kind: {shape: one[kind][shape] + found for shape, found in other[kind].items()} for kind in other}


def result(rates: Rates, plan: Plan) -> dict[str, Any]:
    from _speed_fits import MODELS, N_DRAWS, N_POINTS, judged, table

    rates = {kind: found for kind, found in rates.items() if len(found) > N_POINTS}  # others have none to be foretold
    n_passes = max((len(passes) for found in rates.values() for passes in found.values()), default=0)
    return {
        "setting": {
            "cores_each": CORES_EACH, "n_parameters": N_LAYERS * WIDTH * (WIDTH + 1), "global_batch": GLOBAL_BATCH,
            "local_batch_asynchronous": LOCAL_BATCH, "n_passes": n_passes,
            "watch_s": plan.effort.watch_s,
            "n_points": N_POINTS, "n_draws": N_DRAWS, "target_percent": TARGET_PERCENT,
        },
        "models": [
            {"training": kind, "model": name, **judged(model, table(kind, found)), "repeats_percent": repeats_percent(found)}
            for kind, found in rates.items()
            for name, model in MODELS[kind].items()
        ],
        "rates": [
            {"training": kind, **{key: asdict(shape)[key] for key in ("n_workers", "n_servers")}, "rates_sps": found}
            for kind, by_shape in rates.items()
            for shape, found in sorted(by_shape.items(), key=lambda item: (item[0].n_workers, item[0].n_servers))
        ],
    }  # fmt: skip


def sections(found: Results) -> list[Section]:
    """Return each table that is printed and written; targets stand with the first."""
    models = [
        [
            row["training"], row["model"], f"{row['mean_percent']:.1f}", f"{row['worst_tenth_percent']:.1f}",
            f"{row['spread_out_percent']:.1f}", f"{100 * row['within_2_std']:.0f} %", f"{row['repeats_percent']:.1f}",
        ]
        for row in found["models"]
    ]  # fmt: skip
    rates = [
        [row["training"], row["n_workers"], row["n_servers"] or "-", *_rate_cells(row["rates_sps"])]
        for row in found["rates"]
    ]
    return [
        Section(
            "Mean relative error of a step's time, in percent, from six shapes",
            ["training", "model", "random", "worst tenth", "spread out", "within 2 std", "repeats"], models,
            targets(found),
        ),
        Section(
            "Measured steps per second (asynchronous: of all workers together)",
            ["training", "workers", "servers", "mean", "fastest pass", "slowest"], rates,
        ),
    ]  # fmt: skip


def _rate_cells(rates: list[float]) -> list[str]:
    return [f"{one:.2f}" for one in (statistics.geometric_mean(rates), max(rates), min(rates))]


def targets(found: Results) -> list[Target]:
    return [
        Target(f"{row['training']} from 6 points", TARGET_PERCENT, row["mean_percent"], "{:.1f} %".format)
        for row in found["models"]
        if row["model"] in COUNTED
    ]


def page(results: Results) -> str:
    setting = results["setting"]
    how = (
        f"{setting['n_parameters']:,} parameters; global batch {setting['global_batch']}, "
        f"asynchronous {setting['local_batch_asynchronous']} each; {setting['cores_each']} cores for each worker and each "
        f"server; {setting['n_passes']} passes of {setting['watch_s']} s each, their mean counts. Six shapes are shown to "
        f"the model, drawn {setting['n_draws']} times; *spread out* chooses them beforehand."
    )
    return page_of(sections(results), results, "", how)


def main() -> int:
    command = parser("Errors of the speed models on our own trainings.")
    command.add_argument("--more", action="store_true", help="add passes to those on record, which count all")
    options = command.parse_args()
    plan = QUICK if options.quick else FULL
    try:
        rates = measured(plan)
    except (OSError, TypeError) as error:
        print(f"no control group that CPU quotas may be written to: not run ({error})")
        return 0
    found = result(together(recorded(), rates) if options.more and not options.quick else rates, plan)
    reached = report("speed_models", found, sections, page, quick=options.quick)
    if not reached:
        return conclude("speed models on our own trainings", ["too few shapes were measured"])
    return conclude_targets(reached, reached[0], quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
