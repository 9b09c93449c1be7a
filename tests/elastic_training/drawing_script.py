"""A script that draws numbers without a seed, of torch too where it is loaded, and numbers the elements of a set."""

import random
import sys
from typing import Any

import punctual

TORCH: Any = sys.modules.get("torch")
DRAWN_BY_TORCH = None if TORCH is None else TORCH.rand(()).item()
DRAWN, LETTERS = random.random(), list({"a", "b", "c", "d", "e", "f", "g"})


def train(context: object) -> None:
    sys.stdout.write(f"{DRAWN} {random.random()} {DRAWN_BY_TORCH} {' '.join(LETTERS)}\n")


if __name__ == "__main__":
    punctual.elastic(train)
