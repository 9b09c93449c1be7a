"""Measure what it costs that nobody else can reach the workers of an elastic job: a step, and a change of size.

Two trainings of the same program: one connected as always, by memory and sockets from the agent; the other by gloo and a
store on TCP over loopback (`_open_group`), which any user of the machine can reach. Both live through the whole run and
take turns; who does not have the turn waits. A turn: from one worker to two, steps of two, and back to one. The ratio of
a turn to the other's turn beside it counts, so that both see the same machine.

A change lasts from the last step before it to the end of the first step after it, that step included. When a worker
joins, the state of the training, weights and AdamW's moments, is sent to it.
"""

import mmap
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _agent import Agent
from _common import Results, conclude, markdown_table, parser, print_table, stamp_text, write_results

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context

#: Most that a step or a change may take, as a multiple of what it takes with open connections.
RATIO_MAX = 1.05
WAYS = ("private", "open")
#: Widths of the layers.
MODELS = {"0.2 MB": (512, 32, 10), "12 MB": (512, 1024, 448, 10), "120 MB": (512, 2048, 4096, 128, 10)}
#: Steps of two workers that count in a turn, and those before them.
N_STEPS = {"0.2 MB": 200, "12 MB": 60, "120 MB": 20}
N_WARM = 3
#: How often a training that does not have the turn looks whether it has.
_POLL_INTERVAL_S = 0.002


@dataclass(frozen=True, slots=True)
class Turn:
    """Figures of one training in its turn; steps are those of two workers."""

    size: str
    way: str
    i_round: int
    step_s: float
    growth_s: float
    shrinkage_s: float


# In the training.


def train(size: str, port: int, gate_path: str, log_path: str, context: "Context") -> None:
    """Train while the gate is open; the first worker writes down of how many each step was, and what it took.

    Parameters
    ----------
    port
        Of the store of open connections; 0: they are private.
    """
    import torch
    from _resize_training import GLOBAL_BATCH_SIZE, dataset, model_of
    from torch import nn

    if port:
        from _open_group import OpenGroup

        from punctual.elastic_training import member

        OpenGroup.port, member.WorkerGroup = port, OpenGroup  # type: ignore[misc]
    with Path(gate_path).open("r+b") as file:
        gate = mmap.mmap(file.fileno(), 1)
    torch.manual_seed(0)
    model = model_of(MODELS[size])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with context.elastic(model=model, optimizer=optimizer) as run, Path(log_path).open("a", buffering=1) as log:
        for _epoch in run.epochs(1_000_000):
            begun_s = time.perf_counter()
            for inputs, targets in run.batches(dataset(), global_batch_size=GLOBAL_BATCH_SIZE, seed=0):
                run.backward(nn.functional.cross_entropy(run.model(inputs), targets))
                run.step()
                if run.is_first:
                    log.write(f"{run.n_workers} {time.perf_counter() - begun_s}\n")
                while gate[0] == 0:
                    time.sleep(_POLL_INTERVAL_S)
                begun_s = time.perf_counter()


# Beside it.


class Gated:
    """A training that goes on only while it has the turn."""

    def __init__(self, folder: Path, size: str, way: str, port: int, n_steps: int) -> None:
        self._size, self._way, self._n_steps = size, way, n_steps
        gate, self._log = folder / "gate", folder / "log"
        gate.write_bytes(b"\1")
        self._log.touch()
        with gate.open("r+b") as file:
            self._gate = mmap.mmap(file.fileno(), 1)
        arguments = (size, str(port if way == "open" else 0), str(gate), str(self._log))
        self._training = Agent(folder / "page", [sys.executable, __file__, "--train", *arguments])
        self._training.await_answer()
        self._training.train_on()
        self._gate[0] = 0

    def turn(self, i_round: int) -> Turn:
        self._gate[0] = 1
        growth_s = self._training.resize(2).last_stop_ns / 1e9
        n_before = len(self._steps())
        self._training.train_on(N_WARM + self._n_steps)
        steps_s = self._steps()[n_before + N_WARM :]
        shrinkage_s = self._training.resize(1).last_stop_ns / 1e9
        self._training.train_on(1)
        self._gate[0] = 0
        return Turn(self._size, self._way, i_round, statistics.median(steps_s), growth_s, shrinkage_s)

    def _steps(self) -> list[float]:
        """Seconds of each step of two workers."""
        lines = self._log.read_text().split("\n")[:-1]
        return [float(took_s) for n_workers, took_s in map(str.split, lines) if n_workers == "2"]

    def close(self) -> None:
        self._training.close()


def turns_of(size: str, n_rounds: int, n_steps: int) -> list[Turn]:
    """Turns of `n_steps`; in every other round the other one is first."""
    from torch import distributed

    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    found: list[Turn] = []
    with tempfile.TemporaryDirectory() as folder:
        trainings = []
        try:
            for way in WAYS:
                path = Path(folder) / way
                path.mkdir()
                trainings.append(Gated(path, size, way, store.port, n_steps))
            for training in trainings:  # the first change loads what later ones have
                training.turn(-1)
            for i_round in range(n_rounds):
                found += [one.turn(i_round) for one in (trainings if i_round % 2 == 0 else reversed(trainings))]
        finally:
            for training in trainings:
                training.close()
    return found


# Results.

MEASURES: dict[str, Callable[[Turn], float]] = {
    "step of two workers": lambda turn: turn.step_s,
    "change from 1 to 2": lambda turn: turn.growth_s,
    "change from 2 to 1": lambda turn: turn.shrinkage_s,
}


def row_of(turns: Sequence[Turn], size: str, what: str) -> dict[str, Any]:
    """Medians over the rounds, and the ratios of the two turns of each round."""
    measure = MEASURES[what]
    private, open_ = (
        [measure(turn) for turn in sorted(turns, key=lambda turn: turn.i_round) if (turn.size, turn.way) == (size, way)]
        for way in WAYS
    )
    ratios = sorted(mine / theirs for mine, theirs in zip(private, open_, strict=True))
    low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "size": size, "what": what, "private_ms": statistics.median(private) * 1e3,
        "open_ms": statistics.median(open_) * 1e3, "ratio": ratio, "ratio_low": low, "ratio_high": high,
        "n_rounds": len(ratios),
    }  # fmt: skip


HEADS = ("state", "what", "private, ms", "open, ms", "ratio", "quartiles")


def cells(row: dict[str, Any]) -> list[str]:
    return [
        row["size"], row["what"], f"{row['private_ms']:.1f}", f"{row['open_ms']:.1f}", f"{row['ratio']:.2f}",
        f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}",
    ]  # fmt: skip


def rows_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    sizes = dict.fromkeys(turn.size for turn in turns)
    return [row_of(turns, size, what) for size in sizes for what in MEASURES]


def last_line(rows: Sequence[dict[str, Any]]) -> str:
    """The key figure beside its target."""
    worst = max(rows, key=lambda row: row["ratio"])
    return (
        f"private over open, the largest of {len(rows)} medians: {worst['ratio']:.2f}, {worst['what']} with "
        f"{worst['size']} (target: at most {RATIO_MAX})"
    )


def page(results: Results) -> str:
    rows = rows_of([Turn(**turn) for turn in results["turns"]])
    lines = ["<!-- made by bench/private_store.py -->", "", f"{last_line(rows)}.", ""]
    lines += [*markdown_table(HEADS, [cells(row) for row in rows]), ""]
    lines.append(
        f"Medians of {rows[0]['n_rounds']} rounds; ratios are of the two turns of a round. {stamp_text(results)}"
    )
    return "\n".join([*lines, ""])


def main() -> int:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, help="[default: 15; quick: 2]")
    options.add_argument("--sizes", nargs="+", choices=list(MODELS), default=list(MODELS), help="default: all")
    options.add_argument("--train", nargs=4, metavar=("SIZE", "PORT", "GATE", "LOG"), help="internal")
    chosen = options.parse_args()
    if chosen.train:
        import punctual

        size, port, gate_path, log_path = chosen.train
        punctual.elastic(partial(train, size, int(port), gate_path, log_path))
        return 0
    n_rounds = chosen.rounds or (2 if chosen.quick else 15)
    turns: list[Turn] = []
    for size in chosen.sizes:
        turns += turns_of(size, n_rounds, N_STEPS[size] // (4 if chosen.quick else 1))
        print_table(HEADS, [cells(row_of(turns, size, what)) for what in MEASURES])
    write_results("private_store", {"turns": [asdict(turn) for turn in turns]}, page, quick=chosen.quick)
    rows = rows_of(turns)
    short = [f"{row['what']} with {row['size']}: {row['ratio']:.2f}" for row in rows if row["ratio"] > RATIO_MAX]
    return conclude(last_line(rows), short)


if __name__ == "__main__":
    sys.exit(main())
