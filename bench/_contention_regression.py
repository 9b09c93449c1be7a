"""A training that starts at once: logistic regression with mini-batches, in NumPy. ``STEPS``, the number of steps."""

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np

import punctual

_N_ROWS, _N_FEATURES, _N_BATCHES_PER_STEP = 512, 256, 60
_LEARNING_RATE = 0.1


class Regression:
    """The training, step by step."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        truth = self._random.normal(size=_N_FEATURES)
        self._inputs = self._random.normal(size=(_N_ROWS, _N_FEATURES))
        self._classes = (self._inputs @ truth > 0).astype(float)
        self.weights = np.zeros(_N_FEATURES)

    def step(self) -> None:
        inputs, classes = self._inputs, self._classes
        for _ in range(_N_BATCHES_PER_STEP):
            chosen = self._random.integers(_N_ROWS, size=_N_ROWS // 2)
            probabilities = 1.0 / (1.0 + np.exp(-inputs[chosen] @ self.weights))
            self.weights -= _LEARNING_RATE * inputs[chosen].T @ (probabilities - classes[chosen]) / len(chosen)


def main(n_steps: int) -> None:
    regression = Regression()
    for _ in punctual.track(range(n_steps), total_steps=n_steps):
        regression.step()


if __name__ == "__main__":
    main(int(sys.argv[1]))
