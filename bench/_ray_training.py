"""The regression of `_contention_regression.py` with a checkpoint twice a second at most: ``STEPS FILE``."""

import sys
import time
from pathlib import Path

from _contention_regression import Regression

import punctual

_BETWEEN_S = 0.5


def main(n_steps: int, checkpoint: Path) -> None:
    regression, start, saved_at = Regression(), 0, time.monotonic()
    if checkpoint.exists():
        first, *weights = checkpoint.read_text().split()
        start, regression.weights[:] = int(first), [float(word) for word in weights]
    for i in punctual.track(range(start, n_steps), total_steps=n_steps, start_step=start):
        regression.step()
        if time.monotonic() > saved_at + _BETWEEN_S:
            saved_at = time.monotonic()
            written = checkpoint.with_suffix(".new")
            written.write_text(" ".join(map(repr, [i + 1, *map(float, regression.weights)])))
            written.replace(checkpoint)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
