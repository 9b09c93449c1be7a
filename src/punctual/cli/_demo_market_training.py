"""The training of `punctual demo --market`: a small network whose samples take their time, on any number of workers.

``python -m punctual.cli._demo_market_training STEPS STEP_S CHECKPOINT_DIR``: one worker takes STEP_S seconds for a step; the weights
are in a file beside the folder at the end. The machines of the demonstration are processes of one machine: a sample waits in place
of computing, so that several of them are as fast together as machines would be.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import punctual

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context


def train(context: "Context") -> None:
    """Train for the steps that the command line says, with a checkpoint now and then."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.randn(48, 16), torch.randn(48, 1))
    n_steps, step_s, folder = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    with context.elastic(
        model=model, optimizer=optimizer, deterministic=True, virtual_ranks=12, checkpoint_dir=folder
    ) as run:
        for _ in run.epochs(n_steps // 4):
            for inputs, targets in run.batches(data, global_batch_size=12):
                time.sleep(step_s / 12 * len(inputs))
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
        if run.is_first:
            torch.save(model.state_dict(), Path(folder).with_name("weights"))


if __name__ == "__main__":
    punctual.elastic(train)
