"""Plot of a run as a picture. Matplotlib is imported only for drawing."""

import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from punctual.cli._errors import check_can_write
from punctual.cli._words import visible
from punctual.core.errors import InvalidSpec
from punctual.distribution import install_command, missing_modules
from punctual.history.run import Point, RunSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".html", ".png")
_INK = "#222222"

_PROGRESS, _GRANT, _USAGE, _DEADLINE = "#1f9d55", "#2b7de9", "#f08c2e", "#d6336c"


def check_can_plot(path: Path, option: str = "--report", *, n_jobs: int = 1) -> None:
    """Refuse a plot that could not be drawn at the end, before anything is started.

    * `option`: the one that `path` was given with.
    * `n_jobs`: number of jobs to be drawn: several only fit on a page.

    Raises `InvalidSpec`: the file's kind is unknown, it cannot be written, or it is a picture and Matplotlib is not
    installed.
    """
    where = f"`{option} {path}`"
    check_can_write(path, where, "a report", "a page or a picture", SUFFIXES)
    if n_jobs > 1 and path.suffix != ".html":
        raise InvalidSpec(
            "a report on several jobs must be a page", f"{n_jobs} jobs", where, "Give a name ending in .html."
        )
    if path.suffix == ".png" and missing_modules("report"):
        raise InvalidSpec(
            "a picture of a run needs Matplotlib", "an installation without it", where,
            f"Install it (`{install_command('report')}`), or give a name ending in .html.",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DrawnRun:
    """Contents of a run's plot, in seconds since the start of the command; `landed_s` None: it did not land."""

    series: RunSeries
    landed_s: float | None
    ended_s: float


def save(path: Path, run: DrawnRun, title: str, texts: Sequence[str] = ()) -> None:
    """Write the picture of a run, with `texts` as paragraphs below; raises `OSError` if `path` cannot be written."""
    figure = _draw(run, title, texts)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box is drawn for it
        figure.savefig(path, dpi=150, facecolor="white")


def _draw(run: DrawnRun, title: str, texts: Sequence[str]) -> "Figure":
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    styles: dict[Any, Any] = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK
    )
    with rc_context({**styles, "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        n_plots = 3 if run.series.workers else 2
        # Characters of the text below the plots that fit in a line, and most lines of it.
        lines = [line for text in texts for line in textwrap.wrap(visible(text), 130, max_lines=4, placeholder=" …")]
        figure = Figure(figsize=(9, 3 + 1.2 * n_plots + 0.16 * len(lines)), layout="constrained")
        axes = figure.subplots(n_plots, 1, sharex=True, height_ratios=(3, 2, 1)[:n_plots])
        _draw_progress(axes[0], run)
        _draw_cores(axes[1], run)
        if run.series.workers:
            _draw_workers(axes[2], run)
        axes[-1].set_xlabel("seconds since the start of the command")
        axes[-1].set_xlim(
            0, 1.03 * max([run.ended_s, *(deadline_s for _, deadline_s in run.series.deadlines)], default=1.0)
        )
        if title:
            figure.suptitle(title)
        if lines:  # a dollar sign in a command is no formula
            figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, parse_math=False)
    return figure


def _draw_progress(axes: "Axes", run: DrawnRun) -> None:
    curves = run.series
    axes.plot(*_columns(curves.progress, 100.0), color=_PROGRESS, linewidth=2, label="progress")
    for i_line, line in enumerate(curves.lines, start=1):
        label = "straight line to the deadline" if i_line == len(curves.lines) else None
        seconds, percent = [line.from_s, line.until_s], [100 * line.from_frac, 100 * line.until_frac]
        axes.plot(seconds, percent, color=_INK, linewidth=1, linestyle="--", alpha=0.6, label=label)
    for i_deadline, (_, deadline_s) in enumerate(curves.deadlines):
        last = i_deadline == len(curves.deadlines) - 1
        style = "-" if last else ":"
        label = "deadline" if last else "deadline before the change"
        axes.axvline(deadline_s, color=_DEADLINE, linewidth=1.2, linestyle=style, label=label)
    if run.landed_s is not None:
        axes.plot([run.landed_s], [100.0], "o", color=_PROGRESS, markersize=7, label="landed", clip_on=False)
    axes.set_ylabel("steps done (%)")
    axes.set_ylim(0, 104)
    _decorate(axes)


def _draw_cores(axes: "Axes", run: DrawnRun) -> None:
    curves = run.series
    most_cores = max((cores for _, cores in curves.grant), default=1.0)
    usage_s, usage = _columns(curves.usage)
    axes.plot(usage_s, usage, color=_USAGE, linewidth=1.2, alpha=0.9, label="usage")
    held = list(curves.grant)
    while held and not held[-1][1]:  # it is drawn up to its end
        held.pop()
    grant = [*held, (run.ended_s, held[-1][1])] if held else []
    axes.step(*_columns(grant), where="post", color=_GRANT, linewidth=2, label="grant")
    for _, deadline_s in curves.deadlines[-1:]:
        axes.axvline(deadline_s, color=_DEADLINE, linewidth=1.2)
    axes.axhline(most_cores, color=_INK, linewidth=0.8, linestyle=":", alpha=0.6, label="largest grant")
    axes.set_ylim(0, 1.1 * max([most_cores, *usage]))
    axes.set_ylabel("cores")
    _decorate(axes)


def _draw_workers(axes: "Axes", run: DrawnRun) -> None:
    workers = run.series.workers
    held = [*workers, (run.ended_s, workers[-1][1])]
    axes.step(*_columns(held), where="post", color=_GRANT, linewidth=2, label="workers")
    axes.set_ylim(0, 1.2 * max(count for _, count in held) + 0.1)
    axes.locator_params(axis="y", integer=True)
    axes.set_ylabel("workers")
    _decorate(axes)


def _decorate(axes: "Axes") -> None:
    axes.grid(visible=True, color=_INK, alpha=0.12, linewidth=0.8)
    axes.patch.set_alpha(0)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def _columns(points: Sequence[Point], factor: float = 1.0) -> tuple[list[float], list[float]]:
    return [at for at, _ in points], [factor * value for _, value in points]
