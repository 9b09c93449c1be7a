"""Make of the runs of `bench/deadline.py` the verdict on each target, the tables, the plot."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _common import mean
from _report import Section, Target

#: One run as `bench/deadline.py` records it.
RunRow = dict[str, Any]

OURS = "remaining-cost"
LONG_S = 120.0
#: The condition of undisturbed landings of several jobs at a time, and the deadlines by which they are told apart, seconds.
LANDINGS = "landings"
#: How many of them run side by side, and on how many cores.
N_AT_A_TIME, N_CORES = 5, 2
LANDING_RANGES_S = ((45.0, 60.0), (60.0, 75.0), (75.0, 90.0))
#: The condition of runs at the ratios of [decor2025].
PUBLISHED = "published"
#: K T_s (2 + T_s / T_i) / 4, core-seconds: decor-pi is stable for jobs of more.
DECOR_BOUND_CORE_S = 50.0 * 1.0 * (2 + 1.0 / 12.0) / 4
#: A job that needs more than this share of all CPU time until its deadline is not feasible, whoever steers it.
FULL_FRAC = 0.97


def feasible(run: RunRow) -> bool:
    """Whether the deadline could be met on the machine as it was during the run."""
    return bool(run["used_core_s"] <= FULL_FRAC * run["final_deadline_s"])


def pick(runs: Iterable[RunRow], **wanted: Any) -> list[RunRow]:
    """The runs with these values."""
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]


def in_main_table(run: RunRow, conditions: Iterable[str]) -> bool:
    return run["deadline_s"] <= LONG_S and run["condition"] in set(conditions)


def deviations(runs: Iterable[RunRow]) -> list[float]:
    return [abs(run["deviation_frac"]) for run in runs]


def on_time(runs: Sequence[RunRow]) -> float | None:
    return sum(run["deviation_frac"] <= 0 for run in runs) / len(runs) if runs else None


def targets(runs: list[RunRow], main: list[RunRow]) -> list[Target]:
    """Each figure of the claim beside what was measured; `main`: the feasible runs of the main table."""
    ours = pick(main, controller=OURS)
    small, large = by_bound(main)
    calm = pick(ours, condition="undisturbed")
    rough = [run for run in ours if run["condition"] != "undisturbed"]
    dearer = [run for run in ours if run["condition"].startswith("step cost") and run["ratio"] == 2.0]
    alone = [run for run in dearer if run["condition"].endswith("alone")]
    runs = [run for run in runs if run["condition"] != PUBLISHED]  # they have a table of their own
    long, hopeless = [run for run in runs if run["deadline_s"] > LONG_S], pick(runs, condition="infeasible")
    # A job of a shared host does not tell what the steering of it alone costs.
    steering = mean([run["controller_cpu_s"] / run["ended_s"] for run in runs if run["condition"] != LANDINGS])
    share, percent, seconds = "{:.3f}".format, "{:.1%}".format, "{:.1f} s".format
    return [
        Target("mean deviation, jobs of 45 to 90 s", 0.002, mean(deviations(ours))),
        *(target for load_frac, landed in by_load(runs).items() for target in _landing_targets(load_frac, landed)),
        Target("mean deviation, jobs of 5 min", 0.0006, mean(deviations(long))),
        Target("mean deviation over decor-pi's in the same run", 0.2, over_decor(main), share),
        Target(
            f"the same, jobs above {DECOR_BOUND_CORE_S:.0f} core-seconds, where decor-pi is stable",
            0.2,
            over_decor(large),
            share,
        ),
        Target("the same, jobs below", 0.2, over_decor(small), share),
        Target("latest landing after an undeclared rise of the step cost, 2 D, alone", 0.02, _latest(alone)),
        Target("the same, with a neighbour beside it", 0.02, _latest([run for run in dearer if run not in alone])),
        Target("on time, undisturbed", 1.0, on_time(calm), percent, at_least=True),
        Target("on time, disturbed", 0.97, on_time(rough), percent, at_least=True),
        Target("core-seconds used over the constant's, mean of undisturbed blocks", 1.03, _over(main, "used"), share),
        Target("core-seconds granted over the constant's, likewise", 1.03, _over(main, "granted"), share),
        Target(
            "impossible deadline announced after, slowest",
            5.0,
            max((_announced(run) or (float("inf"),))[0] for run in hopeless) if hopeless else None,
            seconds,
        ),
        Target("error of the earliest finish then told, mean", 0.03, mean(_announcement_errors(hopeless))),
        Target(
            "error of the earliest finish then told, largest", 0.03, max(_announcement_errors(hopeless), default=None)
        ),
        Target("CPU time of steering, share of a core", 0.005, steering),
    ]


def verdicts(runs: list[RunRow], conditions: Iterable[str]) -> list[Target]:
    """The targets, of the feasible runs of the main table and of all others."""
    return targets(runs, [run for run in runs if in_main_table(run, conditions) and feasible(run)])


def by_bound(runs: Sequence[RunRow]) -> tuple[list[RunRow], list[RunRow]]:
    """Runs of jobs below decor-pi's bound of stability, and of those above it, by what our run of the same job used."""
    names = ("app", "ratio", "condition", "deadline_s", "repeat")

    def job(run: RunRow) -> tuple[object, ...]:
        return tuple(run[name] for name in names)

    used = {job(run): run["used_core_s"] for run in pick(runs, controller=OURS)}
    known = [run for run in runs if job(run) in used]
    small = [run for run in known if used[job(run)] < DECOR_BOUND_CORE_S]
    return small, [run for run in known if run not in small]


def over_decor(runs: Sequence[RunRow]) -> float | None:
    """Our mean deviation over that of decor-pi."""
    ours, decor = (mean(deviations(pick(runs, controller=name))) for name in (OURS, "decor-pi"))
    return ours / decor if ours is not None and decor else None


def _latest(runs: Sequence[RunRow]) -> float | None:
    return max((run["deviation_frac"] for run in runs), default=None)


def _over(main: list[RunRow], kind: str) -> float | None:
    """Our core-seconds over those of the constant fraction in the same undisturbed block."""
    name = f"{kind}_core_s"
    calm = pick(main, condition="undisturbed")
    constant = {(run["app"], run["ratio"]): run[name] for run in pick(calm, controller="constant")}
    ours = [(run[name], constant.get((run["app"], run["ratio"]))) for run in pick(calm, controller=OURS)]
    return mean([mine / its for mine, its in ours if its is not None])


def _announced(run: RunRow) -> tuple[float, float] | None:
    """Return when the run was told to be infeasible, and the earliest finish told then; seconds since its start."""
    for warning in run["warnings"]:
        if warning["code"] == "infeasible":
            # Results of earlier versions have instants of the machine's clock.
            at_s = warning["at_s"] if "at_s" in warning else warning["at"] - run["submitted_at"]
            return at_s, warning["facts"]["earliest_finish_s"]
    return None


def _announcement_errors(runs: Sequence[RunRow]) -> list[float]:
    told = [(_announced(run), run["landed_s"]) for run in runs]
    return [abs(one[1] / landed_s - 1) for one, landed_s in told if one]


def sections(
    runs: list[RunRow], conditions: dict[str, tuple[float, ...]], controllers: Sequence[str], lacking: Sequence[str]
) -> list[Section]:
    """The verdict and the tables."""
    table = [run for run in runs if in_main_table(run, conditions)]
    main = [run for run in table if feasible(run)]
    landings, published = pick(runs, condition=LANDINGS), pick(runs, condition=PUBLISHED)
    others = [run for run in runs if not in_main_table(run, conditions) and run not in [*landings, *published]]
    full = [run for run in table if not feasible(run)]
    by_name = sorted(controllers, key=lambda name: (name != OURS, name))
    revisions = "; ".join(f"{name} at {_revisions(pick(table, controller=name))}" for name in by_name)
    text = (
        f"Revisions measured here ({len(table)} runs): {revisions}. Cells: mean of |finish - D| / D over the applications, ± its "
        "standard deviation, then the signed value furthest from zero; in brackets runs on time of all. *D / fastest* is what was "
        "aimed at; *D / used* is the final deadline over the core-seconds that remaining-cost's runs used: what the ratio was on "
        "the machine as it was."
    )
    if full:
        text += (
            " Left out, because the job used more than 97 % of all CPU time until its deadline, whoever steered it: "
        )
        text += "; ".join(f"{run['app']}, {run['condition']}, {run['ratio']:g}: {run['controller']} {run['deviation_frac']:+.2%}" for run in full) + "."  # fmt: skip
    cells = Section(
        "Every cell",
        ["condition", "D / fastest", "D / used", *controllers],
        _cells(main, conditions, controllers),
        text=text,
    )
    found = [replace(cells, targets=verdicts(runs, conditions)), _split(main, controllers)]
    found += [_published(published)] if published else []
    found += [_landings(load_frac, landed) for load_frac, landed in by_load(landings).items()]
    others = sorted(others, key=lambda run: (run["condition"], run["app"], run["ratio"]))
    return [*found, *([_others(others, lacking)] if others else [])]


def _split(main: Sequence[RunRow], controllers: Sequence[str]) -> Section:
    rows = []
    for name, runs in zip(("below", "above"), by_bound(main), strict=True):
        ratio = over_decor(runs)
        rows.append([name, *_by_controller(runs, controllers), "" if ratio is None else f"{ratio:.2f}"])
    text = (
        f"decor-pi is stable for jobs of more than {DECOR_BOUND_CORE_S:.0f} core-seconds only; what a job needs is what {OURS} used "
        f"for it. Cells as above; the last column is the mean deviation of {OURS} over that of decor-pi."
    )
    return Section("By the size of the job", ["jobs", *controllers, "ratio"], rows, text=text)


def _published(runs: Sequence[RunRow]) -> Section:
    rows = []
    # Who has held all that it may from the start to the end cannot have been any faster.
    for ratio, is_at_ceiling in sorted({(run["ratio"], run["n_resizes"] == 0) for run in runs}):
        cell = [run for run in pick(runs, ratio=ratio) if (run["n_resizes"] == 0) == is_at_ceiling]
        used = [run["used_core_s"] for run in cell]
        label = f"{ratio:g}{', at its ceiling throughout' if is_at_ceiling else ''}"
        rows.append([label, f"{min(used):.0f} to {max(used):.0f}", *_by_controller(cell, (OURS, "decor-pi"))])
    apps = ", ".join(sorted({run["app"] for run in runs}))
    text = f"{len(runs)} runs of {apps} at revision {_revisions(runs)}. Cells as above."
    return Section("At the ratios of [decor2025]", ["D / fastest", "core-seconds", OURS, "decor-pi"], rows, text=text)


def _revisions(runs: Sequence[RunRow]) -> str:
    return ", ".join(sorted({run.get("revision", "unknown") for run in runs})) or "none"


def by_load(runs: Iterable[RunRow]) -> dict[float, list[RunRow]]:
    """The undisturbed landings, by the share of the machine that those side by side want together, as calibrated; the least first."""
    loads: dict[float, list[RunRow]] = {}
    for run in sorted(pick(runs, condition=LANDINGS), key=lambda run: -run["ratio"]):
        loads.setdefault(N_AT_A_TIME / (N_CORES * run["ratio"]), []).append(run)
    return loads


def _landing_targets(load_frac: float, runs: Sequence[RunRow]) -> list[Target]:
    n_late = sum(run["deviation_frac"] > 0 for run in runs)
    want = f"{len(runs)} undisturbed jobs of 45 to 90 s, five at a time, that want {load_frac:.0%} of the machine"
    return [
        Target(f"mean deviation, {want}", 0.0005, mean(deviations(runs))),
        Target("late ones of these", 0, n_late, "{:.0f}".format),
    ]


def _landings(load_frac: float, runs: Sequence[RunRow]) -> Section:
    used = sum(run["used_core_s"] for run in runs) / sum(run["landed_s"] for run in runs)
    rows = []
    for low_s, high_s in (*LANDING_RANGES_S, (0.0, float("inf"))):
        within = [run for run in runs if low_s <= run["deadline_s"] < high_s or run["deadline_s"] == high_s == 90.0]
        if within:
            signed, found = [run["deviation_frac"] for run in within], deviations(within)
            rows.append([
                "**all**" if low_s == 0.0 else f"{low_s:g} to {high_s:g} s", str(len(within)), f"{statistics.fmean(found):.3%}",
                f"{statistics.stdev(found):.3%}" if len(found) > 1 else "", f"{min(signed):+.3%}", f"{max(signed):+.3%}",
                str(sum(each > 0 for each in signed)),
            ])  # fmt: skip
    heads = ["D", "landings", "mean of abs(finish - D) / D", "standard deviation", "earliest", "latest", "late"]
    text = f"{len(runs)} runs of {OURS} at revision {_revisions(runs)}; each used {used:.2f} cores on average."
    return Section(
        f"Undisturbed landings, five at a time, that want {load_frac:.0%} of the machine", heads, rows, text=text
    )


def _cells(main: list[RunRow], conditions: dict[str, tuple[float, ...]], controllers: Sequence[str]) -> list[list[str]]:
    rows = []
    for condition, ratio in ((condition, ratio) for condition, ratios in conditions.items() for ratio in ratios):
        cell = pick(main, condition=condition, ratio=ratio)
        ours = pick(cell, controller=OURS)
        real = mean([run["final_deadline_s"] / run["used_core_s"] for run in ours])
        rows.append(
            [condition, f"{ratio:g}", "" if real is None else f"{real:.2f}", *_by_controller(cell, controllers)]
        )
    by_controller = [pick(main, controller=controller) for controller in controllers]
    resizes = [mean([run["n_resizes"] for run in mine]) for mine in by_controller]
    granted = [mean([run["granted_core_s"] / run["used_core_s"] for run in mine]) for mine in by_controller]
    return [
        *rows, ["**all**", "", "", *_by_controller(main, controllers)],
        ["resizes per run", "", "", *("" if n is None else f"{n:.1f}" for n in resizes)],
        ["granted / used", "", "", *("" if n is None else f"{n:.3f}" for n in granted)],
    ]  # fmt: skip


def _by_controller(runs: Sequence[RunRow], controllers: Sequence[str]) -> list[str]:
    """A cell for each controller: deviation, its spread, the furthest, and how many are on time."""
    cells = []
    for mine in (pick(runs, controller=controller) for controller in controllers):
        found, signed = deviations(mine), [run["deviation_frac"] for run in mine]
        spread = f" ± {statistics.stdev(found):.2%}" if len(found) > 1 else ""
        on_time = sum(each <= 0 for each in signed)
        cells.append(
            f"{statistics.fmean(found):.3%}{spread}, {max(signed, key=abs):+.2%} ({on_time}/{len(mine)})"
            if mine
            else ""
        )
    return cells


def _others(runs: Sequence[RunRow], lacking: Sequence[str]) -> Section:
    names = {"undisturbed": "five minutes", "infeasible": "impossible deadline"} | {name: name for name in lacking}
    rows = []
    for run in runs:
        told = _announced(run)
        rows.append([
            names[run["condition"]], run["app"], f"{run['ratio']:g}", f"{run['final_deadline_s']:.0f} s",
            f"{run['deviation_frac']:+.3%}", str(run["n_resizes"]),
            *((f"{told[0]:.1f} s", f"{told[1] / run['landed_s']:.3f}") if told else ("", "")),
        ])  # fmt: skip
    heads = [
        "what",
        "application",
        "D / fastest",
        "D",
        "deviation",
        "resizes",
        "told after",
        "earliest finish told / true",
    ]
    return Section("Other runs of remaining-cost", heads, rows, text=f"At revision {_revisions(runs)}.")


def plot(runs: list[RunRow], conditions: Iterable[str], controllers: Sequence[str], path: Path) -> None:
    """Every feasible run of the main table as a point: how far from its deadline it landed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    main = [run for run in runs if in_main_table(run, conditions) and feasible(run)]
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    for i, controller in enumerate(reversed(controllers)):
        mine = pick(main, controller=controller)
        for k, run in enumerate(mine):
            late = run["deviation_frac"] > 0
            height = i + 0.6 * ((k * 0.618034) % 1.0 - 0.5)
            colour = "#c8442b" if late else "#2a6f97"
            axes.plot(max(abs(run["deviation_frac"]), 1e-5) * 100, height, "o", ms=4, alpha=0.7, color=colour, mew=0)
        average = mean(deviations(mine))
        if average is not None:
            axes.plot([average * 100] * 2, [i - 0.36, i + 0.36], color="black", lw=1.5)
            axes.annotate(f"{average:.2%}", (average * 100, i + 0.37), ha="center", va="bottom", fontsize=8)
    axes.axvline(1.75, color="grey", lw=1, ls=":")
    axes.annotate("1.75 %: [decor2025]", (1.75, -0.62), fontsize=7, color="grey", ha="left")
    axes.set_xscale("log")
    axes.set_ylim(-0.7, len(controllers) - 0.3)
    axes.set_yticks(range(len(controllers)), list(reversed(controllers)))
    axes.set_xlabel("|landing - deadline|, % of the deadline (blue: on time, red: late; bar: mean)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
