"""Speeds measured with workers and parameter servers, and the law that fits them."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.request.input_file import text_of
from punctual.sim.speed_laws import Served

#: (workers, servers) -> steps per second, a step being one batch of one worker.
Rates = Mapping[tuple[int, int], float]


def read_laws(path: str | Path) -> dict[str, Served]:
    """The law of each model in a table of measured speeds.

    Parameters
    ----------
    path
        A line for each measurement, written as a Python tuple: model, mode, batch, servers, workers, batches per second
        of each worker, and more that is not read. (The table published with DL2.)
    """
    return {model: fitted(rates) for model, rates in sorted(_tables(Path(path)).items())}


def fitted(rates: Rates) -> Served:
    """Fit the law of `Served` to speeds with workers and servers."""
    import numpy as np
    from scipy.optimize import nnls

    terms = np.array([[1 / w, 1.0, w / p, float(w), float(p)] for w, p in rates])
    rates_of, _ = nnls(terms * np.array(list(rates.values()))[:, None], np.ones(len(terms)))
    return Served(*map(float, rates_of))


def _tables(path: Path) -> dict[str, dict[tuple[int, int], float]]:
    rates_of: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    for model, shape, rate_sps in _entries(path):
        if rate_sps > 0:
            rates_of[model][shape] = rate_sps
    if not rates_of:
        raise InvalidSpec("a table of measured speeds must have some", "none", f"'{path}'", "Name another file.")
    return rates_of


def _entries(path: Path) -> Iterator[tuple[str, tuple[int, int], float]]:
    """Yield model, (workers, servers) and rate; the rate is 0 if a worker stood still."""
    try:
        lines = text_of(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(
            "a table of measured speeds must be a file that can be read", str(error), f"'{path}'", "Check the name."
        ) from None
    for i, line in enumerate(lines, 1):
        if line.strip():
            yield _entry(line, f"line {i} of '{path}'")


def _entry(line: str, where: str) -> tuple[str, tuple[int, int], float]:
    try:
        model, _, _, n_servers, n_workers, speeds, *_ = ast.literal_eval(line)
        shape = _count(n_workers), _count(n_servers)
        rate_sps = float(sum(speeds)) if min(speeds) > 0 else 0.0
    except (ValueError, SyntaxError, TypeError, OverflowError):
        raise InvalidSpec(
            "a line must be a measurement: (model, mode, batch, servers, workers, [speeds], ...), with one of each at least",
            line[:60], where, "Correct it or leave it out.",
        ) from None  # fmt: skip
    return str(model), shape, rate_sps


def _count(number: float) -> int:
    """Raises `ValueError` for less than one."""
    if not number >= 1:
        raise ValueError(number)
    return int(number)
