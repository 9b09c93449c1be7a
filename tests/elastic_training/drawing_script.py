"""A script that draws numbers without a seed, and numbers the elements of a set; torch is not needed for that."""

import random
import sys

import punctual

DRAWN, LETTERS = random.random(), list({"a", "b", "c", "d", "e", "f", "g"})


def train(context: object) -> None:
    sys.stdout.write(f"{DRAWN} {random.random()} {' '.join(LETTERS)}\n")


if __name__ == "__main__":
    punctual.elastic(train)
