"""A training that starts at once: logistic regression with mini-batches, in NumPy. ``STEPS [CHECKPOINT]``, a file.

Each step takes the same CPU time: a look compares rules, not what the trainings happen to cost.
"""

import os
import sys
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np

import punctual

_N_ROWS, _N_FEATURES = 512, 256
#: CPU seconds of a step.
_STEP_CORE_S = 0.04
_LEARNING_RATE = 0.1
#: Seconds between two checkpoints, at least.
_BETWEEN_S = 0.5


class Regression:
    """The training, step by step."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        truth = self._random.normal(size=_N_FEATURES)
        self._inputs = self._random.normal(size=(_N_ROWS, _N_FEATURES))
        self._classes = (self._inputs @ truth > 0).astype(float)
        self.weights = np.zeros(_N_FEATURES)
        #: An array made for each batch would cost four times as much as to learn from it, in page faults.
        self._batch = np.empty((_N_ROWS // 2, _N_FEATURES))

    def step(self) -> None:
        """Learn for the CPU time of a step, however fast the machine is just now."""
        until_s = time.process_time() + _STEP_CORE_S
        while time.process_time() < until_s:
            chosen = self._random.integers(_N_ROWS, size=_N_ROWS // 2)
            inputs = np.take(self._inputs, chosen, axis=0, out=self._batch, mode="clip")
            probabilities = 1.0 / (1.0 + np.exp(-inputs @ self.weights))
            self.weights -= _LEARNING_RATE * (probabilities - self._classes[chosen]) @ inputs / len(chosen)


def main(n_steps: int, checkpoint: Path | None = None) -> None:
    """Train; with `checkpoint` from where it was left, saving twice a second at most."""
    regression, start, saved_at = Regression(), 0, time.monotonic()
    if checkpoint is not None and checkpoint.exists():
        first, *weights = checkpoint.read_text().split()
        start, regression.weights[:] = int(first), [float(word) for word in weights]
    for i in punctual.track(range(start, n_steps), total_steps=n_steps, start_step=start):
        regression.step()
        if checkpoint is not None and time.monotonic() > saved_at + _BETWEEN_S:
            saved_at = time.monotonic()
            written = checkpoint.with_suffix(".new")
            written.write_text(" ".join(map(repr, [i + 1, *map(float, regression.weights)])))
            written.replace(checkpoint)


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(Path, sys.argv[2:]))
