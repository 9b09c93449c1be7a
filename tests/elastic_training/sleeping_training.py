"""A training whose workers fall asleep in a step: the first of them, or all."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import punctual

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context


def train(context: "Context") -> None:
    import torch

    torch.set_num_threads(1)
    who, mark = sys.argv[1], Path(sys.argv[2])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    with context.elastic(model=model, optimizer=optimizer) as run:
        for _ in run.epochs(2):
            for inputs, targets in run.batches(dataset, global_batch_size=8):
                if run.step_number == 1 and (who == "all" or not mark.exists()):
                    mark.touch()
                    time.sleep(1000)
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
        run.print("trained")
    if who == "late":
        time.sleep(4)  # longer than it would be let sleep in the loop
    sys.stdout.write("ended\n")


if __name__ == "__main__":
    punctual.elastic(train)
