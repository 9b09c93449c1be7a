"""What is killed: a small training with BatchNorm and dropout, bit for bit reproducible. ``EPOCHS CHECKPOINT_DIR [PAUSE_S]``."""

import sys
import time
import zlib

import torch
from torch import nn
from torch.utils.data import TensorDataset

import punctual


def train(context: object) -> None:
    pause_s = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    torch.manual_seed(0)
    inputs = torch.randn(960, 16)
    dataset = TensorDataset(inputs, inputs[:, :4].argmax(1))
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    with context.elastic(  # type: ignore[attr-defined]
        model=model, optimizer=optimizer, deterministic=True, virtual_ranks=4, checkpoint_dir=sys.argv[2],
        checkpoint_every_s=0.5,
    ) as run:  # fmt: skip
        for _ in run.epochs(int(sys.argv[1])):
            for batch, targets in run.batches(dataset, global_batch_size=32, seed=0):
                time.sleep(pause_s)
                run.backward(nn.functional.cross_entropy(run.model(batch), targets))
                run.step()
        state = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
        run.print("final", run.step_number, zlib.crc32(state))


if __name__ == "__main__":
    punctual.elastic(train)
