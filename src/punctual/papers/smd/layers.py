"""Speed of a job with parameter servers from the times of its network's layers [smd2021], and the tables of such times."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import inf, isfinite
from pathlib import Path
from typing import Literal, get_args

from punctual.core.errors import InvalidSpec, check_above_zero
from punctual.core.speed import Shape
from punctual.request.input_file import text_of

#: Overlap of pushes and pulls with computing: not at all; each layer as soon as its gradient is ready; or that,
#: and the lowest layer first.
Overlap = Literal["sequential", "wait-free", "priority"]

#: A step with priority takes time by the square of the layers, in the worst case.
N_LAYERS_MAX = 1_000

COLUMNS = ("layer", "forward_s", "backward_s", "parameter_bytes")

_REMEDY = f"Give a table with the columns {', '.join(COLUMNS)}, as `punctual.papers.smd.layer_profile` writes it."


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """Measurements of one layer on one worker.

    Attributes
    ----------
    forward_s, backward_s
        Seconds with the batch of a whole step.
    """

    layer: str
    forward_s: float
    backward_s: float
    parameter_bytes: float  # Size of the trained parameters.


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of each layer, the first one first: forward, backward, and one transfer (push and pull are equal)."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    transfer_s: tuple[float, ...]

    @classmethod
    def of(cls, layers: Sequence[LayerProfile], bandwidth_bytes_per_s: float) -> "LayerTimes":
        """The times of measured layers with one worker, one server, and a link of this bandwidth between them."""
        return cls(
            tuple(layer.forward_s for layer in layers),
            tuple(layer.backward_s for layer in layers),
            tuple(layer.parameter_bytes / bandwidth_bytes_per_s for layer in layers),
        )

    @property
    def computing_s(self) -> float:
        """Seconds of both passes."""
        return sum(self.forward_s) + sum(self.backward_s)

    def scaled(self, forward: float, backward: float, transfer: float) -> "LayerTimes":
        """Each kind of time multiplied by a factor."""
        return LayerTimes(
            tuple([forward * time_s for time_s in self.forward_s]),
            tuple([backward * time_s for time_s in self.backward_s]),
            tuple([transfer * time_s for time_s in self.transfer_s]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredServed:
    """Workers that share a batch, and push layers to and pull them from parameter servers while others still compute.

    With w workers and p servers, forward and backward times are divided by w and transfers multiplied by w / p. A step
    takes the pipeline of these times and ``worker_s * w + server_s * p``. A shape without servers has one beside each worker.

    Attributes
    ----------
    worker_s, server_s
        Seconds of overhead for each connected worker and server.
    """

    times: LayerTimes  # Times with one worker and one server.
    overlap: Overlap = "wait-free"
    slice_s: float = 0.0  # Seconds to transfer one slice, with ``"priority"``.
    worker_s: float = 0.0
    server_s: float = 0.0
    factor: float = 1.0  # All times are multiplied by it.

    def __post_init__(self) -> None:
        times = (self.times.forward_s, self.times.backward_s, self.times.transfer_s)
        if len({len(column) for column in times}) > 1 or not 1 <= len(times[0]) <= N_LAYERS_MAX:
            raise InvalidSpec(
                f"a network must have 1 to {N_LAYERS_MAX:,} layers, each with three times",
                " ".join(str(len(column)) for column in times),
                "times of layers",
                "Give all three times of each layer.",
            )
        seconds = (*times[0], *times[1], *times[2], self.slice_s, self.worker_s, self.server_s)
        wrong = [time_s for time_s in seconds if not (isfinite(time_s) and time_s >= 0)]
        if wrong or not 0 < self.times.computing_s < inf:
            raise InvalidSpec(
                "times of layers must be finite, not negative, and some time of computing above zero",
                str(wrong[0] if wrong else self.times.computing_s),
                "times of layers",
                "Give seconds.",
            )
        if self.overlap not in get_args(Overlap):
            raise InvalidSpec(
                f"`overlap` must be one of {', '.join(get_args(Overlap))}",
                repr(self.overlap),
                "times of layers",
                "Correct it, or leave it out for its default.",
            )
        check_above_zero("times of layers", factor=self.factor)

    def rate_sps(self, shape: Shape) -> float:
        w, p = shape.n_workers, shape.n_servers or shape.n_workers
        return self.with_load_sps(w, p, w / p) if w > 0 else 0.0

    def with_load_sps(self, w: int, p: int, load: float) -> float:
        """The rate where the busiest server exchanges `load` times all parameters with workers on other nodes."""
        return 1.0 / self.step_s(w, p, load)

    def step_s(self, w: int, p: int, load: float) -> float:
        """Seconds of a step with `w` workers and `p` servers; the busiest exchanges `load` times all parameters."""
        pipeline_s = _pipeline_s(self.times, self.overlap, self.slice_s, w, load)
        return self.factor * (pipeline_s + self.worker_s * w + self.server_s * p)

    def scaled(self, factor: float) -> "LayeredServed":
        """The law with every time multiplied by `factor`."""
        return replace(self, factor=factor * self.factor)


@lru_cache(maxsize=4096)
def _pipeline_s(times: LayerTimes, overlap: Overlap, slice_s: float, w: int, load: float) -> float:
    """Return the seconds of a step without overheads; cached, because jobs of one network share it."""
    shared = times.scaled(1 / w, 1 / w, load)
    if overlap == "sequential":
        return sequential_s(shared)
    return wait_free_s(shared) if overlap == "wait-free" else priority_s(shared, slice_s)


def sequential_s(times: LayerTimes) -> float:
    """Seconds of the backward pass, all pushes, all pulls, and the forward pass, one after the other."""
    return sum(times.backward_s) + 2 * sum(times.transfer_s) + sum(times.forward_s)


def wait_free_s(times: LayerTimes) -> float:
    """Seconds of a step that pushes each layer once its gradient is ready, and pulls it once it has been pushed.

    The recursion of wait-free back-propagation, [smd2021] Lemma 1. The last layer's gradient is ready first, so the
    first layer is pulled last, and the forward pass can only start after it.
    """
    ready_s = push_s = pull_s = 0.0
    for backward_s, transfer_s in zip(reversed(times.backward_s), reversed(times.transfer_s), strict=True):
        ready_s += backward_s
        push_s = max(ready_s, push_s) + transfer_s
        pull_s = max(push_s, pull_s) + transfer_s
    return pull_s + sum(times.forward_s)


def priority_s(times: LayerTimes, slice_s: float = 0.0) -> float:
    """Seconds of a step that cuts layers in slices, and always sends a slice of the lowest layer that has one.

    Pulling a slice follows pushing it, so a layer arrives `slice_s` after its push has ended, and the forward pass
    waits for each layer by itself.
    """
    now_s = 0.0
    for forward_s, pushed_s in zip(times.forward_s, _pushed_by_priority(times), strict=True):
        now_s = max(now_s, pushed_s + slice_s) + forward_s
    return now_s


def _pushed_by_priority(times: LayerTimes) -> list[float]:
    """Instants at which each layer's push ends.

    Lower layers become ready later and go first. So a layer's push ends when the link, busy with it and with lower
    layers since it was ready, first runs out of both.
    """
    ready = list(accumulate(reversed(times.backward_s)))[::-1]
    ended = []
    for i_layer, ready_s in enumerate(ready):
        busy_s = ready_s + times.transfer_s[i_layer]
        for i_lower in reversed(range(i_layer)):
            if busy_s <= ready[i_lower]:
                break
            busy_s += times.transfer_s[i_lower]
        ended.append(busy_s)
    return ended


def read_tables(path: str | Path) -> dict[str, tuple[LayerProfile, ...]]:
    """Read the layers of each model: a file's under the empty name, a folder's ``MODEL.csv`` under MODEL."""
    if not Path(path).is_dir():
        return {"": read_table(Path(path))}
    tables = {file.stem.lower(): read_table(file) for file in sorted(Path(path).glob("*.csv"))}
    if not tables:
        raise InvalidSpec("a folder of tables of layers must hold MODEL.csv", f"none in '{path}'", f"'{path}'", _REMEDY)
    return tables


def read_table(path: Path) -> tuple[LayerProfile, ...]:
    """Read the layers of one network, the first one first; errors as in `read_tables`."""
    try:
        lines = text_of(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(
            "a table of layers must be a file that can be read", str(error), f"'{path}'", "Check the name."
        ) from None
    reader = csv.DictReader(lines)
    missing = [column for column in COLUMNS[1:] if column not in (reader.fieldnames or ())]
    if missing:
        raise InvalidSpec(
            "a table of layers must have the times and sizes of layers",
            f"no column `{missing[0]}` in '{path}'",
            f"'{path}'",
            _REMEDY,
        )
    layers = tuple(_layer(row, f"row {i_row} of '{path}'") for i_row, row in enumerate(reader, 1))
    if not 1 <= len(layers) <= N_LAYERS_MAX or not sum(layer.forward_s + layer.backward_s for layer in layers) > 0:
        raise InvalidSpec(
            f"a table of layers must have 1 to {N_LAYERS_MAX:,} rows, and times that are not all zero",
            f"{len(layers)} rows in '{path}'",
            f"'{path}'",
            _REMEDY,
        )
    return layers


def write_table(path: str | Path, layers: Sequence[LayerProfile]) -> None:
    """Write the layers of one network as a table that `read_table` reads."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([[getattr(layer, column) for column in COLUMNS] for layer in layers])


def _layer(row: Mapping[str, str | None], where: str) -> LayerProfile:
    numbers = [_number(row, column, where) for column in COLUMNS[1:]]
    return LayerProfile(row.get("layer") or "", *numbers)


def _number(row: Mapping[str, str | None], column: str, where: str) -> float:
    text = row[column]
    try:
        number = float(text or "")
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0):
        raise InvalidSpec(
            f"`{column}` must be a finite number, not negative", f"'{text or ''}' in {where}", where, _REMEDY
        )
    return number
