"""What it costs that a training's result does not depend on its number of workers, and whether that is true.

*Price*: the same programs at constant size, elastic and as a plain loop (with two workers: DistributedDataParallel),
taking turns of a few steps, so that all see the same machine; one worker and the plain loop in the same process. The ratio of a turn to the plain turn next to it counts,
in processor time of all workers: other load on the machine disturbs the wall clock, which is printed beside it.

*Fidelity*: 200 steps with an agent that is told another number of workers 20 times, at random steps, beside the same
training with one worker from start to end.
"""

import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from _common import RESULTS, commit, parser, print_table, write_results

from punctual.wire import PAGE_VARIABLE, CrewWish, Page

#: Most that the processor time of a step may grow, by kind.
PRICE_MAX = {"elastic": 0.03, "deterministic": 0.10}
LOSS_DIFFERENCE_MAX = 1e-3
N_VIRTUAL_RANKS = 8
N_WORKERS_MAX = 3
#: Steps before the first that counts.
N_WARM = 25
SEEDS = (0, 1, 2)
PATIENCE_S = 900.0


# Price.


def prices(name: str, n_workers: int, n_rounds: int) -> list[dict[str, Any]]:
    """A row for each way of taking steps with so many workers."""
    from _elastic_price import Team, Way, in_one_process

    ways = [
        Way("plain", n_workers),
        Way("elastic", n_workers, N_VIRTUAL_RANKS),
        Way("deterministic", n_workers, N_VIRTUAL_RANKS, deterministic=True),
        Way("deterministic, 2 ranks", n_workers, 2, deterministic=True),
    ]
    if n_workers == 1:
        pairs = [in_one_process(name, way, N_WARM + 5 * n_rounds)[N_WARM:] for way in ways[1:]]
        rows = [
            (ways[0], price(pairs[0], 0)),
            *((way, price(pair, 1)) for way, pair in zip(ways[1:], pairs, strict=True)),
        ]
        return [{"program": name, "n_workers": 1, "way": way.name, **found} for way, found in rows]
    teams = [Team(name, way) for way in ways]
    try:
        for team in teams:
            team.take(N_WARM)
        turns = [[team.take(5) for team in teams] for _ in range(n_rounds)]
    finally:
        for team in teams:
            team.end()
    return [{"program": name, "n_workers": n_workers, "way": way.name, **price(turns, i)} for i, way in enumerate(ways)]


def price(turns: list[list[tuple[float, float]]], i: int) -> dict[str, float]:
    """Of way `i` against way 0: medians, and the quartiles of the ratios."""
    wall = [turn[i][0] / turn[0][0] for turn in turns]
    cpu = [turn[i][1] / turn[0][1] for turn in turns]
    low, _, high = statistics.quantiles(cpu, n=4)
    return {
        "step_cpu_ms": statistics.median(turn[i][1] for turn in turns) * 1e3,
        "cpu_ratio": statistics.median(cpu),
        "cpu_ratio_low": low,
        "cpu_ratio_high": high,
        "wall_ratio": statistics.median(wall),
    }


# Fidelity.


def train(name: str, seed: int, n_steps: int, deterministic: bool, out: str, context: Any) -> None:
    """What each worker does; the first one writes down how it went."""
    import torch
    from _elastic_price import APPLICATIONS, loss_of
    from torch.utils.data import TensorDataset

    torch.manual_seed(seed)
    app = APPLICATIONS[name]
    example = app.load_example(None, seed)
    model = app.build_model(example)
    optimizer = torch.optim.AdamW(model.parameters(), lr=app.learning_rate)
    which = torch.arange(n_steps * app.n_rows_per_batch) % len(example.train)
    rows = TensorDataset(example.train.inputs[which], example.train.targets[which])
    held_out = TensorDataset(example.held_out.inputs, example.held_out.targets)
    losses, sizes = [], []
    with context.elastic(model=model, optimizer=optimizer, deterministic=deterministic) as run:
        for _ in run.epochs(1):
            for inputs, targets in run.batches(rows, global_batch_size=app.n_rows_per_batch, seed=seed):
                run.backward(loss_of(run.model, inputs, targets))
                if run.step():
                    losses.append(run.loss)
                    sizes.append(run.n_workers)
            n_right, n_targets = run.evaluate(right, held_out, batch_size=app.n_rows_per_batch)
        if run.is_first:
            weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values()))
            Path(out).write_text(
                json.dumps({
                    "losses": losses, "sizes": sizes, "accuracy": int(n_right) / int(n_targets),
                    "weights": weights.hexdigest(),
                })
            )  # fmt: skip


def right(model: Any, batch: Any) -> tuple[Any, int]:
    inputs, targets = batch
    return (model(inputs).argmax(-1) == targets).sum(), targets.numel()


def trained(name: str, seed: int, n_steps: int, *, deterministic: bool, n_resizes: int = 0) -> dict[str, Any]:
    """One training under an agent, resized at random steps."""
    draw = random.Random(f"{name} {seed}")
    marks = sorted(draw.sample(range(3, n_steps - 5), n_resizes))
    n_workers = 1
    with tempfile.TemporaryDirectory() as folder:
        out, path = Path(folder) / "out", Path(folder) / "page"
        page = Page.create(str(path))
        page.wish_for(CrewWish(1, n_workers))
        arguments = [name, str(seed), str(n_steps), str(int(deterministic)), str(out)]
        process = subprocess.Popen(
            [sys.executable, __file__, "--train", *arguments],
            env={**os.environ, PAGE_VARIABLE: str(path), "OMP_NUM_THREADS": "1"},
        )
        give_up_at = time.monotonic() + PATIENCE_S
        for request, mark in enumerate(marks, start=2):
            while process.poll() is None and (page.pulse().n_steps < mark or page.crew().request < request - 1):
                time.sleep(0.005)
                assert time.monotonic() < give_up_at, f"{name}: {page.crew()}"
            n_workers = draw.choice([n for n in range(1, N_WORKERS_MAX + 1) if n != n_workers])
            page.wish_for(CrewWish(request, n_workers))
        code = process.wait(PATIENCE_S)
        assert code == 0, f"{name}: exit code {code}"
        crew = page.crew()
        page.close()
        return {**json.loads(out.read_text()), "n_resizes": crew.n_resizes, "n_steps_redone": crew.n_steps_redone}


def fidelity(name: str, n_steps: int, n_resizes: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    exact = [trained(name, 0, n_steps, deterministic=True, n_resizes=n) for n in (0, n_resizes)]
    by_seed = [trained(name, seed, n_steps, deterministic=False) for seed in seeds]
    resized = trained(name, 0, n_steps, deterministic=False, n_resizes=n_resizes)
    accuracies = [run["accuracy"] for run in by_seed]
    pairs = zip(by_seed[0]["losses"], resized["losses"], strict=True)
    return {
        "program": name,
        "n_steps": n_steps,
        "n_seeds": len(seeds),
        "n_resizes": [exact[1]["n_resizes"], resized["n_resizes"]],
        "n_steps_redone": exact[1]["n_steps_redone"] + resized["n_steps_redone"],
        "sizes_seen": sorted({*exact[1]["sizes"], *resized["sizes"]}),
        "same_bits": exact[0]["weights"] == exact[1]["weights"] and exact[0]["losses"] == exact[1]["losses"],
        "loss_difference": max(abs(other - loss) / loss for loss, other in pairs),
        "accuracy_difference": abs(resized["accuracy"] - accuracies[0]),
        "seed_spread": max(accuracies) - min(accuracies),
        "accuracy": accuracies[0],
    }


def is_faithful(row: dict[str, Any]) -> bool:
    is_in_spread = row["n_seeds"] == 1 or row["accuracy_difference"] <= row["seed_spread"]
    return bool(row["same_bits"] and is_in_spread and row["loss_difference"] <= LOSS_DIFFERENCE_MAX)


# The table.

PRICE_HEADS = ("program", "workers", "steps taken", "CPU ms a step", "CPU ratio", "quartiles", "wall ratio")
FIDELITY_HEADS = ("program", "resizes", "redone", "same bits", "loss differs", "accuracy", "differs", "seeds differ")


def price_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["program"], str(row["n_workers"]), row["way"], f"{row['step_cpu_ms']:.1f}", f"{row['cpu_ratio']:.3f}",
        f"{row['cpu_ratio_low']:.3f}–{row['cpu_ratio_high']:.3f}", f"{row['wall_ratio']:.3f}",
    ]  # fmt: skip


def fidelity_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["program"], "/".join(map(str, row["n_resizes"])), str(row["n_steps_redone"]),
        "yes" if row["same_bits"] else "NO", f"{row['loss_difference']:.1e}", f"{row['accuracy']:.4f}",
        f"{row['accuracy_difference']:.4f}", f"{row['seed_spread']:.4f}",
    ]  # fmt: skip


def markdown(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> int:
    options = parser(__doc__.splitlines()[0])
    options.add_argument(
        "--only", choices=("price", "fidelity"), help="measure one part; the other is as it was written"
    )
    options.add_argument("--programs", nargs="+", choices=("vision", "language", "speech"), help="default: all")
    options.add_argument("--train", nargs=5, help="internal")
    chosen = options.parse_args()
    if chosen.train:
        return run_training(*chosen.train)
    names = chosen.programs or (["vision"] if chosen.quick else ["vision", "language", "speech"])
    written = RESULTS / f"{file_name(is_quick=chosen.quick)}.json"
    found = json.loads(written.read_text()) if chosen.only and written.exists() else {"price": [], "fidelity": []}
    for name in names:
        if chosen.only != "fidelity":
            n_rounds = 6 if chosen.quick else 40
            put(found["price"], name, [row for n in (1, 2) for row in prices(name, n, n_rounds)])
        if chosen.only != "price":
            row = fidelity(name, 50, 5, SEEDS[:1]) if chosen.quick else fidelity(name, 200, 20, SEEDS)
            put(found["fidelity"], name, [row])
        write_results(written.stem, {**found, "commit": commit()})
    print_table(PRICE_HEADS, [price_cells(row) for row in found["price"]])
    print()
    print_table(FIDELITY_HEADS, [fidelity_cells(row) for row in found["fidelity"]])
    return conclude(found["price"], found["fidelity"], is_quick=chosen.quick)


def put(rows: list[dict[str, Any]], name: str, new: list[dict[str, Any]]) -> None:
    """Replace the rows of a program."""
    rows[:] = [row for row in rows if row["program"] != name] + new


def file_name(*, is_quick: bool) -> str:
    return "elastic_training-quick" if is_quick else "elastic_training"


def conclude(price_rows: list[dict[str, Any]], fidelity_rows: list[dict[str, Any]], *, is_quick: bool) -> int:
    if not is_quick:
        tables = [
            markdown(PRICE_HEADS, [price_cells(row) for row in price_rows]),
            markdown(FIDELITY_HEADS, [fidelity_cells(row) for row in fidelity_rows]),
        ]
        (RESULTS / "elastic_training.md").write_text(
            "<!-- made by bench/elastic_training.py -->\n\n" + "\n".join(tables)
        )
    worst = {
        way: max([row["cpu_ratio"] - 1 for row in price_rows if row["way"] == way], default=0.0) for way in PRICE_MAX
    }
    n_faithful = sum(is_faithful(row) for row in fidelity_rows)
    is_met = n_faithful == len(fidelity_rows) and all(worst[way] <= limit for way, limit in PRICE_MAX.items())
    said = ", ".join(f"{way} {worst[way]:+.1%} (target: at most {limit:+.0%})" for way, limit in PRICE_MAX.items())
    print(
        f"worst price: {said}; {n_faithful} of {len(fidelity_rows)} programs faithful (target: all): {'met' if is_met else 'SHORT'}"
    )
    return 0 if is_met else 1


def run_training(name: str, seed: str, n_steps: str, deterministic: str, out: str) -> int:
    import punctual

    punctual.elastic(partial(train, name, int(seed), int(n_steps), bool(int(deterministic)), out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
