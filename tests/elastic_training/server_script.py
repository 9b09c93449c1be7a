"""The training of `server_training`, loaded by workers alone: the process that looks after them needs no torch."""

from importlib import import_module

import punctual


def train(context: object) -> None:
    import_module("server_training").train(context)  # beside this script, whose folder Python searches first


if __name__ == "__main__":
    punctual.elastic(train)
