"""An elastic training for `bench/elastic_deadline.py`: as long as it is told to be, with evaluations and all."""

import argparse
from typing import Any

import torch
from torch import nn

import punctual

N_ROWS, N_INPUTS, N_CLASSES = 4096, 64, 10
#: So large that what a step computes outweighs what its workers tell each other.
BATCH_SIZE = 512


class Blobs(torch.utils.data.Dataset):
    """Points around ten centres; a long epoch goes through them several times."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self.n_rows = n_rows
        generator = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(N_CLASSES, (N_ROWS,), generator=generator)
        centres = torch.randn(N_CLASSES, N_INPUTS, generator=torch.Generator().manual_seed(0))
        self.inputs = centres[self.targets] + torch.randn(N_ROWS, N_INPUTS, generator=generator)

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[i % N_ROWS], self.targets[i % N_ROWS]


def n_right(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[int, int]:
    inputs, targets = batch
    return int((model(inputs).argmax(-1) == targets).sum()), len(targets)


def train(context: Any) -> None:
    options = _options()
    torch.manual_seed(0)
    width = options.width
    model = nn.Sequential(
        nn.Linear(N_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, N_CLASSES)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_rows, held_out = Blobs(BATCH_SIZE * options.steps, 1), Blobs(1024, 2)
    with context.elastic(model=model, optimizer=optimizer) as run:
        for _ in run.epochs(options.epochs):
            for inputs, targets in run.batches(train_rows, global_batch_size=BATCH_SIZE, seed=0):
                run.backward(nn.functional.cross_entropy(run.model(inputs), targets))
                run.step()
            right, n_rows = run.evaluate(n_right, held_out, batch_size=128)
            run.print(f"accuracy {right / n_rows:.3f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100, help="a epoch")
    parser.add_argument("--width", type=int, default=512)
    return parser.parse_args()


if __name__ == "__main__":
    punctual.elastic(train)
