"""Figures of a study; each takes axes to draw on, so that a page and a notebook share them."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from punctual.core.units import DAY_S, HOUR_S
from punctual.sim.drawing.raster import Raster, raster
from punctual.sim.stored import Curve, StoredRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

#: Distinguishable also by those who do not see red and green apart (Okabe and Ito's colours).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d1f", "#7f7f7f")
_RUNNING, _WAITING = "#0072b2", "#e69f00"

#: Lateness is drawn linearly up to so many % of the deadline, either way.
_LINEAR_PERCENT = 100.0

#: Runs by the label of their policy, seed by seed.
Runs = Mapping[str, Sequence[StoredRun]]


def overview(runs: Runs, ink: str = "#222222") -> "Figure":
    """Draw completion times, lateness if jobs have deadlines, queue and utilisation, on one sheet."""
    from matplotlib.figure import Figure

    has_deadlines = any(run.jobs["deadline_s"].count() for some in runs.values() for run in some)
    late = [lateness] if has_deadlines else []
    draws = [completion_times, *late, queue, utilisation]
    with _styled(ink):
        figure = Figure(figsize=(11, 7.2), layout="constrained")
        places = list(figure.subplots(2, 2).flat)
        for draw, axes in zip(draws, places, strict=False):
            draw(axes, runs)
            _decorate(axes, ink)
        for axes in places[len(draws) :]:
            axes.remove()
        _one_legend(figure)
    return figure


def completion_times(axes: "Axes", runs: Runs) -> None:
    """Share of the jobs that were done within a time, over all seeds."""
    shortest_s = []
    for (label, some), colour in zip(runs.items(), cycle(COLOURS), strict=False):
        values, shares = _distribution([run.jobs["jct_s"].drop_nulls().to_numpy() for run in some])
        axes.plot(values, shares, color=colour, label=label)
        # Share of the shortest jobs that is not drawn: on a logarithmic axis they would take half of it.
        shortest_s += [value for value in values[int(0.005 * len(values)) :][:1] if value > 0]
    axes.set_xscale("log")
    axes.set_xlim(left=min(shortest_s, default=None))
    axes.set(title="Job completion time", xlabel="seconds from submission (logarithmic)", ylabel="% of landed jobs")


def lateness(axes: "Axes", runs: Runs) -> None:
    """Draw the lateness of jobs against their deadlines, over all seeds."""
    latest = _LINEAR_PERCENT
    for (label, some), colour in zip(runs.items(), cycle(COLOURS), strict=False):
        values, shares = _distribution([_late_frac(run) for run in some])
        n_due = sum(run.jobs["deadline_s"].count() for run in some)
        landed_frac = sum(len(_late_frac(run)) for run in some) / max(1, n_due)  # the others are as late as can be
        shares, percent = [landed_frac * share for share in shares], [100 * value for value in values]
        latest = max([latest, *percent])
        axes.plot(percent, shares, color=colour, label=label)
    axes.axvline(0.0, color=axes.xaxis.label.get_color(), linewidth=0.8, linestyle=":")
    xlabel = "landing after the deadline, % of the deadline"
    if latest > _LINEAR_PERCENT:
        axes.set_xscale("symlog", linthresh=_LINEAR_PERCENT, subs=(2, 5))
        xlabel += f" (logarithmic from {_LINEAR_PERCENT:g} % on)"
    axes.set_xlim(-1.05 * _LINEAR_PERCENT, 1.05 * latest)
    axes.set(title="Lateness", xlabel=xlabel, ylabel="% of jobs with deadline")


def queue(axes: "Axes", runs: Runs) -> None:
    """Jobs that wait, over time, with the first seed."""
    unit_s, unit = _time_unit(runs)
    for (label, some), colour in zip(runs.items(), cycle(COLOURS), strict=False):
        _step(axes, some[0].curves["queue"], unit_s, color=colour, label=label)
    axes.set_ylim(bottom=0)
    axes.set(title=f"Queue (seed {_first(runs).seed})", xlabel=f"{unit} from the start", ylabel="jobs that wait")


def utilisation(axes: "Axes", runs: Runs) -> None:
    """Devices in use, on average over stretches of time, with the first seed."""
    unit_s, unit = _time_unit(runs)
    for (label, some), colour in zip(runs.items(), cycle(COLOURS), strict=False):
        _step(axes, averaged(some[0].curves["granted"]), unit_s, color=colour, label=label)
    capacity = _first(runs).curves["capacity"]
    _step(axes, capacity, unit_s, color=axes.xaxis.label.get_color(), linestyle=":", linewidth=0.9)
    axes.set_ylim(bottom=0)
    axes.set(title=f"Devices in use (seed {_first(runs).seed})", xlabel=f"{unit} from the start", ylabel="devices")


def money(run: StoredRun, ink: str = "#222222") -> "Figure":
    """Draw what machines of pools have cost over time, by pool, one above the other."""
    from matplotlib.figure import Figure

    course = run.facts["bill"]["course"]
    unit_s, unit = (DAY_S, "days") if course["at"] and course["at"][-1] > 4 * DAY_S else (HOUR_S, "hours")
    with _styled(ink):
        figure = Figure(figsize=(11, 3.2), layout="constrained")
        axes = figure.subplots()
        at = [instant / unit_s for instant in course["at"]]
        axes.stackplot(at, *course["by_pool"].values(), labels=list(course["by_pool"]), colors=COLOURS)
        axes.set(title=f"{run.policy}, seed {run.seed}: dollars by pool", xlabel=f"{unit} from the start", ylabel="$")
        _decorate(axes, ink)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def gantt(run: StoredRun, ink: str) -> "Figure":
    """Draw all jobs of one run over time, as an image; see `punctual.sim.drawing.raster` for its rule."""
    from matplotlib.figure import Figure

    image = _image_of(run)
    with _styled(ink):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        axes = figure.subplots()
        _paint(axes, image, n_jobs=run.jobs.height)
        axes.set_title(f"{run.policy}, seed {run.seed}: {_rows_in_words(image)}")
        _decorate(axes, ink)
        axes.grid(visible=False)
        axes.legend(handles=_patches(), loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _image_of(run: StoredRun) -> Raster:
    """Return the image of the spans in which the run's jobs existed, and in which they held something."""
    import numpy as np

    submitted_s = run.jobs["submitted_at"].to_numpy().astype(float)
    last_s = max([0.0, *run.curves["capacity"]["at"], run.curves["capacity"]["until_at"]])
    ended_s = run.jobs["ended_at"].fill_null(last_s).to_numpy()
    places = {job: i_job for i_job, job in enumerate(run.jobs["id"])}
    i_job = np.array([places[job] for job in run.segments["job"]], dtype=np.int64)
    held_from_s, held_until_s = (run.segments[name].to_numpy().astype(float) for name in ("from_at", "until_at"))
    return raster(submitted_s, np.maximum(submitted_s, ended_s), i_job, held_from_s, held_until_s)


def _paint(axes: "Axes", image: Raster, n_jobs: int) -> "AxesImage":
    import numpy as np
    from matplotlib.colors import to_rgb

    running, waiting = image.running_frac[..., None].clip(0, 1), image.waiting_frac[..., None].clip(0, 1)
    both = (running + waiting).clip(1e-9)
    colour = (running * np.array(to_rgb(_RUNNING)) + waiting * np.array(to_rgb(_WAITING))) / both
    # The square root lets a thin line of a single job among many be seen.
    pixels = np.concatenate([colour, np.sqrt(both.clip(0, 1))], axis=-1)
    unit_s, unit = _unit(image.until_s - image.from_s)
    extent = (image.from_s / unit_s, image.until_s / unit_s, n_jobs, 0)
    axes.set(xlabel=f"{unit} from the start", ylabel="jobs in order of submission")
    return axes.imshow(pixels, aspect="auto", interpolation="nearest", extent=extent)


def _rows_in_words(image: Raster) -> str:
    return "a row is a job" if image.n_jobs_per_row == 1 else f"a row is {image.n_jobs_per_row:,} jobs"


def _patches() -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=_RUNNING, label="holds devices"), Patch(color=_WAITING, label="waits")]


def _styled(ink: str) -> Any:
    from matplotlib import rc_context

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    plain = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "axes.titlesize": 11}
    styles: Any = {**dict.fromkeys(inked, ink), **plain}
    return rc_context(styles)


def _decorate(axes: "Axes", ink: str) -> None:
    axes.grid(visible=True, color=ink, alpha=0.12, linewidth=0.8)
    axes.patch.set_alpha(0)


def _one_legend(figure: "Figure") -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(5, max(1, len(labels))), frameon=False)


def _distribution(parts: Sequence[Any]) -> tuple[Any, Any]:
    """Quantiles of all values together, and the percentage that lies below each."""
    import numpy as np

    values = np.concatenate(parts) if parts else np.array([])
    if not len(values):
        return [], []
    # A curve of a distribution is drawn through so many of its quantiles.
    shares = np.linspace(0.0, 1.0, min(400, len(values) + 1))
    return np.quantile(values, shares), 100 * shares


def _late_frac(run: StoredRun) -> Any:
    landed = run.jobs.drop_nulls(["jct_s", "deadline_s"])
    return (landed["jct_s"] / landed["deadline_s"] - 1.0).to_numpy()


def _step(axes: "Axes", curve: Curve, unit_s: float, **style: Any) -> None:
    at = [instant / unit_s for instant in [*curve["at"], curve["until_at"]]]
    mean = [*curve["mean"], *curve["mean"][-1:]] if curve["mean"] else [0.0]
    axes.step(at, mean, where="post", linewidth=style.pop("linewidth", 1.2), **style)


def averaged(curve: Curve, n_stretches: int = 100) -> Curve:
    """Return the course as means over equal stretches of time, since faster changes would hide all else."""
    import numpy as np

    if len(curve["at"]) <= n_stretches:
        return curve
    at = np.array([*curve["at"], curve["until_at"]])
    area = np.concatenate([[0.0], np.cumsum(np.diff(at) * np.array(curve["mean"]))])
    edges = np.linspace(at[0], at[-1], n_stretches + 1)
    mean = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    return {"at": edges[:-1].tolist(), "mean": mean.tolist(), "until_at": at[-1]}


def _time_unit(runs: Runs) -> tuple[float, str]:
    return _unit(max(some[0].curves["queue"]["until_at"] for some in runs.values()))


def _unit(span_s: float) -> tuple[float, str]:
    if span_s > 4 * DAY_S:
        return DAY_S, "days"
    return (HOUR_S, "hours") if span_s > 2 * HOUR_S else (60.0, "minutes")


def _first(runs: Runs) -> StoredRun:
    return next(iter(runs.values()))[0]
