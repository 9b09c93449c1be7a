"""A deterministic training whose weights, at its end, are in a file. It goes slowly until there is another file.

Arguments: the folder of both, and the number of steps.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import punctual

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context

SLOW_S = float(os.environ.get("SLOW_S", "0.4"))
#: Of the hidden layer: larger than what is sent at once to other workers.
WIDTH = int(os.environ.get("WIDTH", "800"))


def train(context: "Context") -> None:
    import torch

    torch.set_num_threads(1)
    folder, n_steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, WIDTH), torch.nn.Dropout(0.5), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    seen = set()
    with context.elastic(
        model=model, optimizer=optimizer, deterministic=True, virtual_ranks=4, checkpoint_dir=str(folder / "kept")
    ) as run:
        for _ in run.epochs(n_steps // 4):
            for inputs, targets in run.batches(data, global_batch_size=16):
                run.backward((run.model(inputs) - targets).square().mean())
                if run.step() and not (folder / "fast").exists():
                    time.sleep(SLOW_S)
                seen.add(run.n_workers)
        if run.is_first:
            torch.save({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "weights.new")
            (folder / "weights.new").rename(folder / "weights")
            (folder / "seen").write_text(" ".join(map(str, sorted(seen))))


if __name__ == "__main__":
    punctual.elastic(train)
    sys.stdout.write("the script goes on after the training\n")
