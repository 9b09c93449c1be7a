"""Measure what it costs that a training's result does not depend on its number of workers, and whether that is true.

`bench/elastic_training.md` says how. *Price*: the same programs at constant size, elastic and as a plain loop, in turns of a few
steps. *Fidelity*: 200 steps with 20 changes of the number of workers beside the same training with one worker, and two controls.
*One ulp*: never resized, but one weight of each tensor is at first the floating-point number next to what it would be. *In float64*:
resized, with 29 more binary digits; a fault in what is trained on, or with which weight, would stay.
"""

import hashlib
import json
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _agent import Agent
from _common import Results, write_results
from _report import Column, Section, Target, run, table_of

from punctual.channel import WORKERS_VARIABLE

if TYPE_CHECKING:
    from _elastic_price import Way

#: Most that the processor time of a step may grow, by kind.
PRICE_MAX = {"elastic": 0.03, "deterministic": 0.10}
LOSS_DIFFERENCE_MAX = 1e-3
#: In float64 all that is left is rounding, of 1e-16, and of the losses when they are sent, of 1e-7.
FLOAT64_DIFFERENCE_MAX = 1e-6
#: Numbers of virtual ranks; the first is what ``punctual run --workers 1..2`` chooses for a deterministic training.
N_RANKS = (2, 4, 8)
#: What is chosen where that costs nothing.
N_FUSED_RANKS = 8
N_WORKERS_MAX = 3
#: Steps before the first that counts.
N_WARM = 25
SEEDS = (0, 1, 2)
#: Draws of the weights that are moved by one ulp.
N_NUDGES = 3
PATIENCE_S = 900.0
NAME = "elastic_training"


# Price.


def ways_of(n_workers: int, n_ranks: tuple[int, ...]) -> list["Way"]:
    """The plain one first; with a micro-batch for each worker it is what is accumulated, too."""
    from _elastic_price import Way

    found = [Way("plain", n_workers), Way("elastic", n_workers, N_FUSED_RANKS, is_elastic=True)]
    for n in n_ranks:
        if n > n_workers:
            found.append(Way(f"{n} micro-batches", n_workers, n))
        found.append(Way(f"deterministic, {n} ranks", n_workers, n, is_elastic=True, deterministic=True))
    return found


def prices(name: str, n_workers: int, n_rounds: int, n_ranks: tuple[int, ...]) -> list[dict[str, Any]]:
    """A row for each way of taking steps with so many workers."""
    from _elastic_price import in_one_process

    ways = ways_of(n_workers, n_ranks)
    if n_workers == 1:
        turns = in_one_process(name, ways, N_WARM + 5 * n_rounds)[N_WARM:]
    else:
        turns = by_teams(name, ways, n_rounds)
    rows = []
    for i, way in enumerate(ways):
        row = {"program": name, "n_workers": n_workers, "way": way.name, "n_parts": way.n_parts, **price(turns, i)}
        if way.deterministic:
            i_floor = next((j for j, one in enumerate(ways) if one.n_parts == way.n_parts and not one.is_elastic), 0)
            row["over_micro_batches"] = statistics.median(turn[i][1] / turn[i_floor][1] for turn in turns)
        rows.append(row)
    return rows


def by_teams(name: str, ways: list["Way"], n_rounds: int) -> list[list[tuple[float, float]]]:
    """Seconds a step of each way, by wall and processor, in turns of a few steps."""
    from _elastic_price import Team

    teams = [Team(name, way) for way in ways]
    try:
        for team in teams:
            team.take(N_WARM)
        return [[team.take(5) for team in teams] for _ in range(n_rounds)]
    finally:
        for team in teams:
            team.end()


def price(turns: list[list[tuple[float, float]]], i: int) -> dict[str, float]:
    """Return of way `i` against way 0 medians, and the quartiles of the ratios."""
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


@dataclass(frozen=True, slots=True)
class Training:
    """One training of a program; `nudge` above 0: a draw of weights to be moved by one ulp."""

    name: str
    seed: int
    n_steps: int
    deterministic: bool = False
    is_double: bool = False
    nudge: int = 0


def train(wanted: Training, out: str, context: Any) -> None:
    """Train in each worker; the first one writes down how it went."""
    import torch
    from _elastic_price import APPLICATIONS, loss_of
    from torch.utils.data import TensorDataset

    torch.set_default_dtype(torch.float64 if wanted.is_double else torch.float32)
    torch.manual_seed(wanted.seed)
    app = APPLICATIONS[wanted.name]
    example = app.load_example(None, wanted.seed)
    model = app.build_model(example)
    nudge(model, wanted.nudge)
    optimizer = torch.optim.AdamW(model.parameters(), lr=app.learning_rate)
    which = torch.arange(wanted.n_steps * app.n_rows_per_batch) % len(example.train)
    rows = TensorDataset(of_default_type(example.train.inputs[which]), example.train.targets[which])
    held_out = TensorDataset(of_default_type(example.held_out.inputs), example.held_out.targets)
    losses, sizes = [], []
    with context.elastic(model=model, optimizer=optimizer, deterministic=wanted.deterministic) as loop:
        for _ in loop.epochs(1):
            for inputs, targets in loop.batches(rows, global_batch_size=app.n_rows_per_batch, seed=wanted.seed):
                loop.backward(loss_of(loop.model, inputs, targets))
                if loop.step():
                    losses.append(loop.loss)
                    sizes.append(loop.n_workers)
            n_right, n_targets = loop.evaluate(right, held_out, batch_size=app.n_rows_per_batch)
        if loop.is_first:
            weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values()))
            Path(out).write_text(
                json.dumps({
                    "losses": losses, "sizes": sizes, "accuracy": int(n_right) / int(n_targets),
                    "weights": weights.hexdigest(),
                })
            )  # fmt: skip


def of_default_type(tensor: Any) -> Any:
    import torch

    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


def nudge(model: Any, i_draw: int) -> None:
    """Move one weight of each tensor to the next floating-point number; which one is drawn. 0: leave all."""
    import torch

    if i_draw:
        draw = torch.Generator().manual_seed(i_draw)
        for param in model.parameters():
            flat = param.data.view(-1)
            i = int(torch.randint(len(flat), (), generator=draw))
            flat[i] = torch.nextafter(flat[i], torch.tensor(torch.inf))


def right(model: Any, batch: Any) -> tuple[Any, int]:
    inputs, targets = batch
    return (model(inputs).argmax(-1) == targets).sum(), targets.numel()


def trained(wanted: Training, n_resizes: int = 0) -> dict[str, Any]:
    """One training under an agent, resized at random steps."""
    name, n_steps = wanted.name, wanted.n_steps
    draw = random.Random(f"{name} {wanted.seed}")
    marks = sorted(draw.sample(range(3, n_steps - 5), n_resizes))
    n_workers = 1
    with tempfile.TemporaryDirectory() as folder:
        out, path = Path(folder) / "out", Path(folder) / "page"
        agent = Agent(
            path, [sys.executable, __file__, "--train", json.dumps(asdict(wanted)), str(out)],
            variables={WORKERS_VARIABLE: str(N_WORKERS_MAX)},
        )  # fmt: skip
        page, process, give_up_at = agent.page, agent.process, time.monotonic() + PATIENCE_S
        for mark in marks:
            while process.poll() is None and (
                page.progress().n_steps < mark or page.worker_status().request < agent.n_targets
            ):
                time.sleep(0.005)
                assert time.monotonic() < give_up_at, f"{name}: {page.worker_status()}"
            n_workers = draw.choice([n for n in range(1, N_WORKERS_MAX + 1) if n != n_workers])
            agent.send_target(n_workers)
        code = process.wait(PATIENCE_S)
        assert code == 0, f"{name}: exit code {code}"
        status = page.worker_status()
        agent.close()
        return {**json.loads(out.read_text()), "n_resizes": status.n_resizes, "n_steps_redone": status.n_steps_redone}


def fidelity(name: str, n_steps: int, n_resizes: int, seeds: tuple[int, ...], n_nudges: int) -> dict[str, Any]:
    """A row; without nudges there are no controls."""
    wanted = [
        *((Training(name, 0, n_steps, deterministic=True), n) for n in (0, n_resizes)),
        (Training(name, 0, n_steps), n_resizes),
        *((Training(name, seed, n_steps), 0) for seed in seeds),
        *((Training(name, 0, n_steps, nudge=i), 0) for i in range(1, n_nudges + 1)),
        *((Training(name, 0, n_steps, is_double=True), n) for n in (0, n_resizes) if n_nudges),
    ]
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(trained, *zip(*wanted, strict=True)))
    (exact, exact_resized, resized), rest = runs[:3], iter(runs[3:])
    by_seed = list(islice(rest, len(seeds)))
    nudged, doubles = list(islice(rest, n_nudges)), list(rest)
    accuracies = [run["accuracy"] for run in by_seed]
    changed = [exact_resized, resized, *doubles[1:]]
    return {
        "program": name,
        "n_steps": n_steps,
        "n_seeds": len(seeds),
        "n_resizes": [run["n_resizes"] for run in changed],
        "n_steps_redone": sum(run["n_steps_redone"] for run in changed),
        "sizes_seen": sorted({size for run in changed for size in run["sizes"]}),
        "same_bits": exact["weights"] == exact_resized["weights"] and exact["losses"] == exact_resized["losses"],
        "loss_difference": apart(by_seed[0], resized),
        "ulp_differences": [apart(by_seed[0], run) for run in nudged],
        "float64_difference": apart(*doubles) if doubles else None,
        "accuracy_difference": abs(resized["accuracy"] - accuracies[0]),
        "seed_spread": max(accuracies) - min(accuracies),
        "accuracy": accuracies[0],
    }


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest relative difference of a step's loss."""
    return max(abs(mine - loss) / loss for loss, mine in zip(one["losses"], other["losses"], strict=True))


def is_faithful(row: dict[str, Any]) -> bool:
    """Whether both are the same training: to the bit, by the end of it, and, but for rounding, in each step."""
    is_in_spread = row["n_seeds"] == 1 or row["accuracy_difference"] <= row["seed_spread"]
    return bool(row["same_bits"] and is_in_spread and (row["float64_difference"] or 0.0) <= FLOAT64_DIFFERENCE_MAX)


# The tables.


def measured(*, quick: bool) -> Results:
    n_rounds, n_ranks = (6, N_RANKS[:1]) if quick else (20, N_RANKS)
    found: Results = {"price": [], "fidelity": []}
    for name in ("vision",) if quick else ("vision", "language", "speech"):
        found["price"] += [row for n in (1, 2) for row in prices(name, n, n_rounds, n_ranks)]
        row = fidelity(name, 40, 4, SEEDS[:1], 0) if quick else fidelity(name, 200, 20, SEEDS, N_NUDGES)
        found["fidelity"].append(row)
        write_results(NAME, found, quick=quick)
    return found


def sections(results: Results) -> list[Section]:
    price = [
        {**row, "quartiles": f"{row['cpu_ratio_low']:.3f}–{row['cpu_ratio_high']:.3f}"} for row in results["price"]
    ]
    columns = [
        Column("CPU ms a step", "step_cpu_ms", "{:.1f}".format), Column("CPU ratio", "cpu_ratio", SHARE), Column("quartiles", "quartiles", of=max),
        Column("wall ratio", "wall_ratio", SHARE), Column("over micro-batches", "over_micro_batches", SHARE),
    ]  # fmt: skip
    labels = {"program": "program", "workers": "n_workers", "steps taken": "way"}
    fidelity_columns = [
        Column("resizes", "n_resizes", lambda each: "/".join(map(str, each)), max), Column("redone", "n_steps_redone"),
        Column("same bits", "same_bits", lambda same: "yes" if same else "NO", all), Column("loss differs", "loss_difference", TINY),
        Column("one ulp", "ulp_differences", lambda ulp: f"{min(ulp):.1e}–{max(ulp):.1e}" if ulp else "", max),
        Column("in float64", "float64_difference", TINY), Column("accuracy", "accuracy", "{:.4f}".format),
        Column("differs", "accuracy_difference", "{:.4f}".format), Column("seeds differ", "seed_spread", "{:.4f}".format),
    ]  # fmt: skip
    return [
        Section("Price", *table_of(price, labels, columns), targets_of(results)),
        Section("Fidelity", *table_of(results["fidelity"], {"program": "program"}, fidelity_columns)),
    ]


SHARE, TINY = "{:.3f}".format, "{:.1e}".format


def targets_of(results: Results) -> list[Target]:
    counted = {"elastic": "elastic", "deterministic": f"deterministic, {N_RANKS[0]} ranks"}
    rows, n_rows = results["fidelity"], len(results["fidelity"])
    n_close = sum(row["loss_difference"] <= LOSS_DIFFERENCE_MAX for row in rows)
    return [
        *(
            Target(
                f"worst price, {way}", PRICE_MAX[kind],
                max([row["cpu_ratio"] - 1 for row in results["price"] if row["way"] == way], default=None), "{:+.1%}".format,
            )
            for kind, way in counted.items()
        ),
        Target(f"programs of {n_rows} that are faithful", n_rows, sum(map(is_faithful, rows)), "{:.0f}".format, at_least=True),
        Target(f"programs with losses within {LOSS_DIFFERENCE_MAX:.0e}", n_rows, n_close, "{:.0f}".format, at_least=True),
    ]  # fmt: skip


def run_training(wanted: str, out: str) -> None:
    import punctual

    punctual.elastic(partial(train, Training(**json.loads(wanted)), out))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:  # what `trained` starts
        run_training(*sys.argv[2:])
    else:
        sys.exit(run(NAME, __doc__, measured, sections))
