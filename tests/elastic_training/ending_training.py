"""A training with checkpoints that tells its steps, to be finished, or left and gone on with.

Only workers load torch, which takes seconds: the process that looks after them needs none.
"""

import sys
from typing import TYPE_CHECKING

import punctual

if TYPE_CHECKING:
    from punctual.elastic_training.context import Context


def train(context: "Context") -> None:
    import torch

    torch.set_num_threads(1)
    folder, n_steps, finish_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    dataset = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    with context.elastic(
        model=model,
        optimizer=optimizer,
        checkpoint_dir=folder,
        checkpoint_every_s=1000.0,
        deterministic=True,
        virtual_ranks=2,
    ) as run:
        run.print("begins at", run.step_number)
        for _ in run.epochs(n_steps // 2):
            for inputs, targets in run.batches(dataset, global_batch_size=8):
                run.backward((run.model(inputs) - targets).square().mean())
                if run.step() and run.step_number == finish_at:
                    run.finish()
                    if sys.argv[4:]:
                        break
        run.print("ends at", run.step_number, run.finished)
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        run.print("with", *(number.hex() for number in weights.tolist()))


if __name__ == "__main__":
    punctual.elastic(train)
