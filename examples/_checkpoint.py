"""A checkpoint in one file, which is either the old one or the new one, whenever the machine stops."""

import os
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

_NAME = "checkpoint.pt"


def save(folder: Path, model: nn.Module, optimiser: Optimizer, n_steps: int) -> None:
    """Replace the checkpoint in `folder` by one made after `n_steps` steps."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "n_steps": n_steps,
        "random": torch.get_rng_state(),
    }
    new = folder / f"{_NAME}.new"
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / _NAME)


def load(folder: Path, model: nn.Module, optimiser: Optimizer) -> int:
    """Take over the checkpoint in `folder`; the steps done when it was made, 0 if there is none."""
    path = folder / _NAME
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    torch.set_rng_state(state["random"])
    return int(state["n_steps"])
