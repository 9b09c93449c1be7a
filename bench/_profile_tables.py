"""The measured speed tables below PUNCTUAL_DATA/profiles, each as jobs with the shapes and speeds that were measured."""

import ast
import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path

from _published import data, has_data

from punctual.core.speed import SeenRate, Shape

#: Workers on a node in the tables that give only the number of devices.
PER_NODE = {"throughputs_A100": 8, "throughputs_T4": 4}
#: Times of the table that were calculated, not measured, are left out.
CALCULATED = {"gpt_pmp"}


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """All that was measured of one job: one neural network with one batch size on one kind of device."""

    table: str
    network: str
    variant: str
    seen: tuple[SeenRate, ...]


def folder() -> Path | None:
    """The folder of profiles; None if there is none."""
    path = data() / "profiles"
    return path if has_data() and path.is_dir() else None


def elasticflow(profiles: Path) -> Iterator[MeasuredJob]:
    """Constant global batch; the columns are numbers of devices, packed on as few nodes as possible."""
    for kind, per_node in PER_NODE.items():
        for path in sorted((profiles / "elasticflow" / kind).glob("*.csv")):
            for row in csv.DictReader(path.open()):
                batch = row.pop("global_batch_size")
                seen = [
                    _seen(int(n), ceil(int(n) / per_node), float(speed or 0)) for n, speed in row.items()
                ]  # fmt: skip
                yield _job(f"elasticflow {kind[12:]}", path.stem, batch, seen)


def pollux(profiles: Path) -> Iterator[MeasuredJob]:
    """Constant batch of a worker; a step of all workers takes as long as the table says."""
    for network in sorted((profiles / "pollux_osdi21").iterdir()):
        yield from _placed("pollux T4", network, "")


def sia(profiles: Path) -> Iterator[MeasuredJob]:
    """Like Pollux, for six kinds of nodes."""
    for network in sorted((profiles / "sia").iterdir()):
        if network.name not in CALCULATED:
            for path in sorted(network.glob("placements-*.csv")):
                kind = path.stem.removeprefix("placements")
                yield from _placed(f"sia {kind[1:]}", network, kind)


def dl2(profiles: Path) -> Iterator[MeasuredJob]:
    """Synchronous training with parameter servers; the speed is the batches per second of all workers together.

    A run in which a worker stood still is left out.
    """
    networks: dict[str, list[SeenRate]] = defaultdict(list)
    for line in (profiles / "dl2" / "config_speed.txt").read_text().splitlines():
        if line.strip():
            network, _, _, n_servers, n_workers, speeds, *_ = ast.literal_eval(line)
            shape = Shape(n_workers=n_workers, n_servers=n_servers)
            networks[network].append(SeenRate(shape=shape, rate_sps=sum(speeds) if min(speeds) > 0 else 0.0))
    for network, seen in networks.items():
        yield _job("dl2", network, "", seen)


def synergy(profiles: Path) -> Iterator[MeasuredJob]:
    """One device, so many CPU cores, as much memory as there is; the speed is relative."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader((profiles / "synergy" / "cpu_mem_sensitivity.csv").open()):
        rows[row["set"], row["model"]].append(row)
    for (group, network), cells in rows.items():
        most = max(float(cell["mem_gb_per_gpu"]) for cell in cells)
        seen = [
            SeenRate(shape=Shape(cores=float(cell["cpu_cores_per_gpu"])), rate_sps=float(cell["norm_throughput"]))
            for cell in cells
            if float(cell["mem_gb_per_gpu"]) == most
        ]
        yield _job(f"synergy {group}", network, "", seen)


def _placed(table: str, network: Path, kind: str) -> Iterator[MeasuredJob]:
    by_batch: dict[str, list[SeenRate]] = defaultdict(list)
    for name in ("placements", "scalability"):
        for row in csv.DictReader((network / f"{name}{kind}.csv").open()):
            by_batch[row["local_bsz"]].append(_seen(*_workers_and_nodes(row), 1 / float(row["step_time"])))
    for batch, seen in by_batch.items():
        yield _job(table, network.name, batch, seen)


def _workers_and_nodes(row: dict[str, str]) -> tuple[int, int]:
    digits = row.get("placement")
    if digits is not None:
        return sum(map(int, digits)), len(digits)
    return int(row["num_replicas"]), int(row["num_nodes"])


def _seen(n_workers: int, n_nodes: int, rate_sps: float) -> SeenRate:
    return SeenRate(shape=Shape(n_workers=n_workers, n_nodes=n_nodes), rate_sps=rate_sps)


def _job(table: str, network: str, variant: str, seen: Iterable[SeenRate]) -> MeasuredJob:
    measured = (one for one in seen if isfinite(one.rate_sps) and one.rate_sps > 0)
    return MeasuredJob(table, network, variant, tuple(measured))
