"""A finished run on disk: a folder named by its key, which is complete or absent.

``run.json`` has its inputs and results, ``jobs.parquet`` a row for each job, ``segments.parquet`` a row for
each stretch of time in which a job held the same devices, ``decisions.parquet`` a row for each command about what a job
holds, with its reason.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from punctual.core.errors import InvalidSpec
from punctual.history.cluster import ClusterHistory, Segment
from punctual.history.decisions import Decision, Gaps
from punctual.history.job import JobRecord

if TYPE_CHECKING:
    import polars as pl

#: A curve to draw: ``at``, instants in seconds; ``mean``, that from each to the next; ``until_at``, the end.
Curve = Mapping[str, Any]


@dataclass(frozen=True)
class StoredRun:
    """Run of one policy on one seed's jobs.

    Attributes
    ----------
    facts
        The contents of ``run.json``.
    """

    folder: Path
    facts: Mapping[str, Any]

    @property
    def key(self) -> str:
        return str(self.facts["key"])

    @property
    def policy(self) -> str:
        """The policy's label."""
        return str(self.facts["policy"])

    @property
    def seed(self) -> int:
        return int(self.facts["seed"])

    @property
    def summary(self) -> Mapping[str, float | None]:
        """All measures by name: ``jct_s.mean``."""
        summary: Mapping[str, float | None] = self.facts["summary"]
        return summary

    @property
    def curves(self) -> Mapping[str, Curve]:
        """Courses over time: ``queue``, ``granted``, ``capacity``."""
        curves: Mapping[str, Curve] = self.facts["curves"]
        return curves

    @cached_property
    def jobs(self) -> "pl.DataFrame":
        """A row for each job, in order of submission."""
        return _table(self.folder / "jobs.parquet")

    @property
    def gaps(self) -> Gaps:
        """Proven gaps of the plans."""
        return Gaps(**self.facts["plans"])

    @cached_property
    def decisions(self) -> "pl.DataFrame":
        """A row for each launch, resize, pause and rejection, with its reason, in order of time."""
        return _table(self.folder / "decisions.parquet")

    @cached_property
    def segments(self) -> "pl.DataFrame":
        """A row for each stretch in which a job held the same devices."""
        return _table(self.folder / "segments.parquet")


def read_run(folder: Path, label: str | None = None) -> StoredRun | None:
    """Return the run in `folder`; None if it has none. `label`: the policy's, which may be another than when it was done."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidSpec(
            "a run's record must be JSON", str(error), f"'{folder / 'run.json'}'",
            "Remove the folder; the run is then done again.",
        ) from None  # fmt: skip
    return StoredRun(folder, facts if label is None else {**facts, "policy": label})


def runs_in(study: Path) -> list[StoredRun]:
    """The runs of the last study in a folder.

    Raises
    ------
    InvalidSpec
        There is none.
    """
    try:
        index = json.loads((study / "study.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InvalidSpec(
            "a folder must hold the results of a study", "no readable `study.json`", f"'{study}'",
            "Give the folder that was the `--out` of `punctual simulate`.",
        ) from None  # fmt: skip
    runs = (read_run(study / "runs" / entry["key"], entry["policy"]) for entry in index["runs"])
    return [run for run in runs if run is not None]


def write_run(folder: Path, facts: Mapping[str, Any], history: ClusterHistory, token: str) -> None:
    """Put a run into `folder`, all of it or nothing.

    Parameters
    ----------
    history
        One with details.
    token
        Mark of unfinished folders, by which `clear` removes them.
    """
    with _new_folder(folder, token) as new:
        table_of(JobRecord, history.jobs()).write_parquet(new / "jobs.parquet")
        table_of(Segment, history.segments()).write_parquet(new / "segments.parquet")
        table_of(Decision, history.decisions).write_parquet(new / "decisions.parquet")
        (new / "run.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def clear(runs: Path, token: str) -> None:
    """Remove unfinished runs of `token`."""
    for path in runs.glob(f".{token}-*"):
        shutil.rmtree(path, ignore_errors=True)


def table_of(kind: type, rows: Sequence[Any]) -> "pl.DataFrame":
    """A column for each field of the dataclass `kind`, of its declared type also where all values are None."""
    import polars as pl

    types = {float: pl.Float64, int: pl.Int64, bool: pl.Boolean}
    schema = {name: types.get(_plain_type(hint), pl.String) for name, hint in get_type_hints(kind).items()}
    columns = {name: [getattr(row, name) for row in rows] for name in schema}
    return pl.DataFrame(columns, schema=schema, strict=False)


def _plain_type(hint: Any) -> Any:
    """``float`` of ``float | None``."""
    return next((entry for entry in get_args(hint) if entry in (float, int, bool)), hint)


@contextmanager
def _new_folder(folder: Path, token: str) -> Iterator[Path]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{token}-", dir=folder.parent))
    try:
        yield new
        new.chmod(0o755)
        try:
            new.rename(folder)
        except OSError:
            # Another process may have finished the same run meanwhile: its result is as good.
            if read_run(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _table(path: Path) -> "pl.DataFrame":
    import polars as pl

    return pl.read_parquet(path)
