"""Measured trainings whose batch grows with their devices: times of steps, and the progress of each.

A larger batch uses more devices well, but a step of it is worth less than the same samples in small ones. How much less
depends on the noise of the gradient, which changes during training [pollux2021]. Progress is therefore counted in steps
of the smallest batch; the number of them that some devices do in a second is their goodput.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING

from punctual.core.errors import InvalidSpec
from punctual.sim.measured import table_rows
from punctual.sim.speed_laws import MeasuredTruth, SpeedLaw, measured_on

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

#: Clusters on which step times were measured, and the kind of their devices; the later of two replaces the earlier.
_KINDS = {
    "": "",
    "-aws": "T4",
    "-azure": "V100",
    "-dgx": "A100",
    "-dgx-ext": "A100",
    "-quad": "RTX6000",
    "-rtx": "2080Ti",
}
#: Number of batches to try, from the least to the largest by equal factors.
_N_BATCHES = 50
#: Batches are whole numbers, and their quotients are not.
_ROUNDING = 1e-8

#: (devices, nodes)
Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Curve:
    """One training with one batch, epoch by epoch.

    Attributes
    ----------
    noise
        Square of the gradient's norm and variance of the smallest batch's gradient, in each epoch.
    """

    progress: tuple[float, ...]  # Progress at the end of each epoch, in steps of the smallest batch.
    noise: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of a step in one shape, by the batch of one device, ascending: seconds in all, and of exchange."""

    batches: tuple[float, ...]
    step_s: tuple[float, ...]
    exchange_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AdaptiveTraining:
    """All measurements of one model."""

    curves: Mapping[int, Curve]  # Curves by the batch of all devices together.
    times: Mapping[str, Mapping[Shape, StepTimes]]  # Times by kind of device and shape.
    devices_per_node: Mapping[str, int]  # Largest number measured on one node, by kind of device.

    @property
    def n_epochs(self) -> int:
        """Number of epochs of the shortest curve."""
        return min(len(curve.progress) for curve in self.curves.values())

    @property
    def epoch_steps(self) -> list[float]:
        """Return the progress in each epoch: the least of all curves at its end counts."""
        ends = [min(curve.progress[i] for curve in self.curves.values()) for i in range(self.n_epochs)]
        return [end - begin for begin, end in zip([0.0, *ends], ends, strict=False)]

    def goodputs(self, kind: str, device_batch_max: float = inf) -> dict[Shape, tuple[float, ...]]:
        """Steps of the smallest batch in a second, in each epoch, in each shape in which it runs.

        Each epoch has the batch with which it is fastest. With as few nodes as a number of devices fits on, where that
        was not measured, it is as fast as with the nearest number of nodes.

        Parameters
        ----------
        device_batch_max
            More samples than that do not fit on a device; a larger batch is worked off in several rounds.
        """
        measured = self.times[kind]
        least_batch = min(times.batches[0] for times in measured.values())
        tables = {
            shape: goodputs
            for shape, times in measured.items()
            if (goodputs := self._goodputs(times, shape[0], least_batch, device_batch_max))
        }
        return _with_fewest_nodes(tables, self.devices_per_node[kind])

    def _goodputs(self, times: StepTimes, n: int, least_batch: float, device_batch_max: float) -> tuple[float, ...]:
        import numpy as np

        smallest, largest = min(self.curves), max(self.curves)
        least, most = max(smallest, least_batch * n), min(times.batches[-1], device_batch_max)
        if least > largest or most < times.batches[0]:
            return ()
        per_device = np.geomspace(least, largest, _N_BATCHES) / n
        rounds = np.ceil(per_device / most - _ROUNDING)
        if n == 1:  # the noise cannot be told from a single gradient
            rounds = np.where(per_device > smallest + _ROUNDING, np.maximum(rounds, 2), rounds)
        local = np.minimum(np.ceil(per_device / rounds - _ROUNDING), largest // (n * rounds))
        batches = local * rounds * n
        runs = (local >= times.batches[0]) & (local <= most) & (batches >= smallest)
        if not runs.any():
            return ()
        step_s = np.interp(local, times.batches, times.step_s)
        exchange_s = np.interp(local, times.batches, times.exchange_s)
        took_s = step_s + (rounds - 1) * (step_s - exchange_s)
        best: list[float] = (self._gains(batches) / took_s)[:, runs].max(axis=1).tolist()
        return tuple(best)

    def _gains(self, batches: "FloatArray") -> "FloatArray":
        """Return the worth of a step of each batch in steps of the smallest one, shape (n_epochs, n_batches)."""
        import numpy as np

        sizes = sorted(self.curves)
        noise = np.array([self.curves[size].noise[: self.n_epochs] for size in sizes])
        square, variance = (
            np.array([np.interp(batches, sizes, epoch) for epoch in noise[:, :, i].T]) for i in range(2)
        )
        left = variance / (batches / sizes[0]) + square
        return np.where(left > 0, (variance + square) / np.where(left > 0, left, 1.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSpeed:
    """Speed of one model, in steps of the smallest batch.

    Attributes
    ----------
    average
        By kind of device: in one shape from beginning to end the training takes what all its epochs take together.
    """

    work_steps: float  # Steps of the whole training.
    average: Mapping[str, MeasuredTruth]
    phases: tuple[tuple[float, SpeedLaw], ...]  # Start of each epoch, and the speed in it.


class AdaptiveTables:
    """The trainings in a folder.

    ``MODEL/validation-BATCH.csv`` has the curve of each batch, a row for an epoch; ``MODEL/placements[-CLUSTER].csv`` and
    ``MODEL/scalability[-CLUSTER].csv`` have the times of steps.
    """

    def __init__(self, folder: str | Path) -> None:
        read = {path.name.lower(): _training(path) for path in sorted(Path(folder).glob("*/")) if path.is_dir()}
        #: By model.
        self.trainings = {model: training for model, training in read.items() if training.curves and training.times}
        self._speeds: dict[tuple[str, float], AdaptiveSpeed] = {}
        if not self.trainings:
            raise InvalidSpec(
                "a folder of trainings must hold curves and step times", "none", f"'{folder}'",
                "Name a folder with MODEL/validation-BATCH.csv and MODEL/placements.csv in it.",
            )  # fmt: skip

    def speed(self, model: str, device_batch_max: float = inf) -> AdaptiveSpeed:
        """Return the speed of `model`; cached."""
        key = model, device_batch_max
        if key not in self._speeds:
            self._speeds[key] = _speed(self.trainings[model], device_batch_max)
        return self._speeds[key]


def _speed(training: AdaptiveTraining, device_batch_max: float) -> AdaptiveSpeed:
    steps = training.epoch_steps
    tables = {kind: training.goodputs(kind, device_batch_max) for kind in training.times}
    goodputs = {kind: table for kind, table in tables.items() if table}
    begins = accumulate(steps[:-1], initial=0.0)
    return AdaptiveSpeed(
        work_steps=sum(steps),
        average={
            kind: MeasuredTruth({shape: _average(steps, rates) for shape, rates in table.items()})
            for kind, table in goodputs.items()
        },
        phases=tuple((begin, _in_epoch(goodputs, i)) for i, begin in enumerate(begins)) if goodputs else (),
    )


def _in_epoch(goodputs: Mapping[str, Mapping[Shape, Sequence[float]]], i: int) -> SpeedLaw:
    return measured_on(
        {kind: MeasuredTruth({shape: rates[i] for shape, rates in table.items()}) for kind, table in goodputs.items()}
    )


def _average(steps: Sequence[float], rates: Sequence[float]) -> float:
    """The rate at which all steps together take as long as one after the other."""
    return sum(steps) / sum(n / rate for n, rate in zip(steps, rates, strict=True))


def _with_fewest_nodes(
    tables: Mapping[Shape, tuple[float, ...]], devices_per_node: int
) -> dict[Shape, tuple[float, ...]]:
    filled = dict(tables)
    for n in {n for n, _ in tables}:
        fewest = ceil(n / devices_per_node)
        nodes = min((on for count, on in tables if count == n), key=lambda on: (abs(on - fewest), on))
        filled.setdefault((n, fewest), tables[n, nodes])
    return filled


def _training(folder: Path) -> AdaptiveTraining:
    curves = {int(path.stem.partition("-")[2]): _curve(path) for path in folder.glob("validation-*.csv")}
    times: dict[str, Mapping[Shape, StepTimes]] = {}
    devices_per_node: dict[str, int] = {}
    for cluster, kind in _KINDS.items():
        placed = _rows(folder / f"placements{cluster}.csv", "placement")
        table = _step_times([*placed, *_rows(folder / f"scalability{cluster}.csv", "num_replicas", "num_nodes")])
        if placed and table:
            times[kind] = table
            devices_per_node[kind] = max(int(digit) for row in placed for digit in row["placement"])
    return AdaptiveTraining(
        {batch: curve for batch, curve in curves.items() if curve.progress}, times, devices_per_node
    )


def _curve(path: Path) -> Curve:
    rows = list(table_rows(path, {"progress", "grad_sqr", "grad_var"}))
    noise = tuple((float(row["grad_sqr"]), float(row["grad_var"])) for row in rows)
    return Curve(tuple(float(row["progress"]) for row in rows), noise)


def _rows(path: Path, *columns: str) -> list[dict[str, str]]:
    """Return the rows of a table of step times; empty without such a table."""
    return list(table_rows(path, {*columns, "local_bsz", "step_time", "sync_time"})) if path.exists() else []


def _step_times(rows: Iterable[Mapping[str, str]]) -> dict[Shape, StepTimes]:
    """Means over all placements of the same shape."""
    tables: dict[Shape, dict[float, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        digits = [int(digit) for digit in row.get("placement", "")]
        shape = (sum(digits), len(digits)) if digits else (int(row["num_replicas"]), int(row["num_nodes"]))
        if float(row["step_time"]) > 0:
            tables[shape][float(row["local_bsz"])].append((float(row["step_time"]), float(row["sync_time"])))
    return {shape: _means(batches) for shape, batches in tables.items()}


def _means(batches: Mapping[float, list[tuple[float, float]]]) -> StepTimes:
    ascending = sorted(batches)
    step_s, exchange_s = (
        tuple(sum(times[i] for times in batches[batch]) / len(batches[batch]) for batch in ascending) for i in range(2)
    )
    return StepTimes(tuple(ascending), step_s, exchange_s)
