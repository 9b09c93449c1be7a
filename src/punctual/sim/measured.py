"""Tables of measured speeds, as they were published: which model, which batch, how many devices, how fast."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.sim.speed_laws import MeasuredTruth

#: Clusters on which the placement tables were measured, and the kind of their devices.
_KINDS = {"": "", "aws": "T4", "azure": "V100", "dgx": "A100", "quad": "RTX6000", "rtx": "2080Ti"}

#: (workers, nodes) -> steps per second.
Rates = dict[tuple[int, int], float]


@dataclass(frozen=True, slots=True)
class SpeedTables:
    """The tables of a folder, by model and batch.

    Two layouts are read:

    - ``MODEL.csv`` with a row for each global batch, a column for each number of devices, and steps per second in
      them. A step is one global batch, however many devices share it. Blank or 0: it does not run.
    - ``MODEL/placements[-CLUSTER].csv`` with a row for each placement (``"44"``: four devices on each of two nodes)
      and batch of one device, and the seconds of a step. A step is one batch of one device, so that n devices do n at
      a time.

    Attributes
    ----------
    rates
        Rates by model, batch and kind of device.
    """

    rates: Mapping[str, Mapping[int, Mapping[str, MeasuredTruth]]]

    @classmethod
    def read(cls, folder: str | Path, devices_per_node: int = 8) -> "SpeedTables":
        """The tables in `folder`.

        Parameters
        ----------
        devices_per_node
            Of the cluster that the first layout was measured on, which does not say how many nodes there were.

        Raises
        ------
        InvalidSpec
            There are none.
        """
        tables: dict[str, dict[int, dict[str, Rates]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
        for model, batch, kind, shape, rate_sps in _entries(Path(folder), devices_per_node):
            tables[model][batch][kind][shape] = rate_sps
        if not tables:
            raise InvalidSpec(
                "a folder of measured speeds must hold tables", "none", f"'{folder}'",
                "Name a folder with MODEL.csv or MODEL/placements.csv in it.",
            )  # fmt: skip
        return cls(
            {
                model: {
                    batch: {kind: MeasuredTruth(rates) for kind, rates in kinds.items()}
                    for batch, kinds in rows.items()
                }
                for model, rows in tables.items()
            }
        )

    def of(self, model: str, batch: int | None) -> Mapping[str, MeasuredTruth]:
        """The tables of `model` by kind of device, for the measured batch nearest to `batch` (None: the smallest)."""
        rows = self.rates[model]
        wanted = batch or min(rows)
        return rows[min(rows, key=lambda size: (abs(log(size / wanted)), size))]


_Entry = tuple[str, int, str, tuple[int, int], float]


def _entries(folder: Path, devices_per_node: int) -> Iterator[_Entry]:
    for path in sorted(folder.glob("*.csv")):
        yield from _batch_rows(path, devices_per_node)
    for path in sorted(folder.glob("*/placements*.csv")):
        _, _, cluster = path.stem.partition("-")
        if cluster in _KINDS:
            yield from _placement_rows(path, _KINDS[cluster])


def _batch_rows(path: Path, devices_per_node: int) -> Iterator[_Entry]:
    for row in table_rows(path, {"global_batch_size"}):
        batch = int(row.pop("global_batch_size"))
        for count, text in row.items():
            rate_sps, n = float(text or 0.0), int(count)
            if rate_sps > 0:
                yield path.stem.lower(), batch, "", (n, ceil(n / devices_per_node)), rate_sps


def _placement_rows(path: Path, kind: str) -> Iterator[_Entry]:
    for row in table_rows(path, {"placement", "local_bsz", "step_time"}):
        counts = [int(digit) for digit in row["placement"]]
        step_s = float(row["step_time"])
        if step_s > 0:
            shape = (sum(counts), len(counts))
            yield path.parent.name.lower(), int(row["local_bsz"]), kind, shape, sum(counts) / step_s


def table_rows(path: Path, columns: set[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a table, with columns in any order; none of a file that is another kind of table."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if columns <= set(reader.fieldnames or ()):
            yield from reader
