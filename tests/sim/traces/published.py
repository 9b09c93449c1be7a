"""The published traces on this machine, and reading them in a second, plain way."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Folder with published traces and profiles, which are not part of the project.
DATA = Path(os.environ.get("PUNCTUAL_DATA", ""), "traces")

#: Files -> their format.
PUBLISHED = {
    "philly_2017/*.csv": "philly-csv",
    "microsoft_itp_2021/*/*.csv": "itp",
    "elasticflow_repo/*.csv": "elasticflow",
    "pollux_workloads/*/*.csv": "pollux",
    "sia_workloads/*/*.csv": "pollux",
    "gavel_traces/physical_cluster/*.trace": "gavel",
    "shockwave_traces/*.trace": "shockwave",
    "chronus_philly_slo/*.csv": "chronus",
    "hydra_pai_deadlines/*.csv": "hydra",
    "muri_philly/*.csv": "muri",
    "rubick_workloads/*.csv": "rubick",
    "arena_eurosys26/*.csv": "arena",
}

#: Series of measured iteration times and table headers: no jobs.
NO_JOBS = {"alibaba_gpu_v2020"}

#: Formats whose files have no header, with the names used here for their columns.
HEADERLESS = {"gavel": 10, "shockwave": 12}


def folder() -> Path:
    """Where the traces lie; skips the test where they do not."""
    if not os.environ.get("PUNCTUAL_DATA") or not DATA.is_dir():
        pytest.skip("PUNCTUAL_DATA names no folder with published traces")
    return DATA


def files() -> list[tuple[str, str]]:
    """Published files, relative to their folder, with their formats."""
    if not os.environ.get("PUNCTUAL_DATA"):
        return []
    found = [(path, name) for pattern, name in PUBLISHED.items() for path in sorted(DATA.glob(pattern))]
    return [(str(path.relative_to(DATA)), name) for path, name in found]


def plain_rows(path: Path, name: str) -> Iterator[dict[str, str]]:
    """The rows of a file by the plainest of means: no cell of any of these files is quoted."""
    separator = "\t" if name in HEADERLESS else ","
    lines = [line.split(separator) for line in path.read_text(encoding="utf-8").splitlines() if line]
    header = [str(i) for i in range(HEADERLESS[name])] if name in HEADERLESS else lines.pop(0)
    return (dict(zip(header, cells, strict=True)) for cells in lines)
