"""A training with checkpoints that tells its steps, to be finished, or left and gone on with."""

import sys

import torch

import punctual


def train(context: "punctual.client.elastic.context.Context") -> None:
    torch.set_num_threads(1)
    folder, n_steps, finish_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = torch.utils.data.TensorDataset(torch.ones(16, 4), torch.ones(16, 1))
    with context.elastic(model=model, optimizer=optimizer, checkpoint_dir=folder, checkpoint_every_s=1000.0) as run:
        run.print("begins at", run.step_number)
        for _ in run.epochs(n_steps // 2):
            for inputs, targets in run.batches(dataset, global_batch_size=8):
                run.backward((run.model(inputs) - targets).square().mean())
                if run.step() and run.step_number == finish_at:
                    run.finish()
                    if sys.argv[4:]:
                        break
        run.print("ends at", run.step_number, run.finished)


if __name__ == "__main__":
    punctual.elastic(train)
