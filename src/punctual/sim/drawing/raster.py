"""A Gantt chart of any number of jobs, as an image.

The rule: jobs in order of submission from top to bottom; each row of the image stands for equally many of them, each
column for an equal stretch of time. A pixel says which share of its jobs' time in that stretch was spent holding
something (running, starting or moving), and which share waiting: submitted, not ended, and holding nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raster:
    """Shares of time, rows × columns.

    Attributes
    ----------
    n_jobs_per_row
        The last row may stand for fewer.
    from_s, until_s
        Left and right edge.
    """

    running_frac: "Floats"
    waiting_frac: "Floats"
    n_jobs_per_row: int
    from_s: float
    until_s: float


def raster(
    submitted_s: "Floats",
    ended_s: "Floats",
    i_job: "Integers",
    held_from_s: "Floats",
    held_until_s: "Floats",
    *,
    n_rows_max: int = 240,
    n_columns: int = 480,
) -> Raster:
    """The image of jobs, numbered in order of submission; cost grows with jobs and segments, not with the image times them.

    Parameters
    ----------
    submitted_s, ended_s
        Job i existed from ``submitted_s[i]`` to ``ended_s[i]``.
    i_job, held_from_s, held_until_s
        Job ``i_job[k]`` held something from ``held_from_s[k]`` to ``held_until_s[k]``.
    n_rows_max, n_columns
        Most rows; columns.
    """
    import numpy as np

    n_jobs = len(submitted_s)
    n_jobs_per_row = max(1, -(-n_jobs // n_rows_max))
    n_rows = max(1, -(-n_jobs // n_jobs_per_row))
    from_s, until_s = float(submitted_s.min(initial=np.inf)), float(ended_s.max(initial=-np.inf))
    if not until_s > from_s:
        from_s, until_s = (from_s, from_s + 1.0) if np.isfinite(from_s) else (0.0, 1.0)
    scale = n_columns / (until_s - from_s)
    shape = (n_rows, n_columns)
    i_row = np.arange(n_jobs) // n_jobs_per_row
    there = _covered(i_row, (submitted_s - from_s) * scale, (ended_s - from_s) * scale, shape)
    held = _covered(i_row[i_job], (held_from_s - from_s) * scale, (held_until_s - from_s) * scale, shape)
    n_in_row = np.bincount(i_row, minlength=n_rows).reshape(-1, 1).clip(min=1)
    return Raster(
        running_frac=held / n_in_row, waiting_frac=(there - held).clip(min=0.0) / n_in_row,
        n_jobs_per_row=n_jobs_per_row, from_s=from_s, until_s=until_s,
    )  # fmt: skip


def _covered(i_row: "Integers", begun: "Floats", ended: "Floats", shape: tuple[int, int]) -> "Floats":
    """Return how much of each column the stretches from `begun` to `ended` (in columns) cover, summed by row."""
    import numpy as np

    # Each edge changes what all later columns get: by a fraction in its own column, by the rest in the next one.
    changes = np.zeros((shape[0], shape[1] + 2))
    for edges, sign in ((begun, 1.0), (ended, -1.0)):
        edges = edges.clip(0.0, shape[1])  # noqa: PLW2901 -- the same edges, within the image
        column = np.floor(edges).astype(np.int64)
        rest = edges - column
        np.add.at(changes, (i_row, column), sign * (1.0 - rest))
        np.add.at(changes, (i_row, column + 1), sign * rest)
    return changes.cumsum(axis=1)[:, : shape[1]]
