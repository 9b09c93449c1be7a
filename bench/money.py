"""Dollars that deadlines cost under `least-cost`, on published traces that count spot machines.

One job in each window of each zone, elastic and rigid, beside Uniform Progress and bounds; twenty jobs that share a zone;
the simulated world beside the fast plays; and landings on a live market beside the simulated world. `PUNCTUAL_DATA` names the folder of the V100 traces and of measured speeds.
"""

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, log
from pathlib import Path

import numpy as np
from _common import RESULTS, Results, mean, on_record, parser, revision, write_results
from _market_simulated import simulated
from _market_windows import (
    HOUR_S,
    Task,
    Zone,
    begins,
    increasing,
    least_rigid_usd,
    least_started_usd,
    least_usd,
    ours_rigid,
    play_elastic,
    play_rigid,
    power,
    traces,
    uniform_progress,
    zone,
)
from _report import Family, Run, Section, Target, conclude_targets, grouped, page_of, report, sections_of

NAME = "money"
HERE = Path(__file__).parent / "traces"
#: Zones on which the policy's numbers were chosen; targets are about the others.
CHOSEN_ON = ("us-central1-b", "us-east-2b_v100_1", "us-east-1f_v100_1")
#: Prices of a V100 machine: spot costs 30 % (p3.2xlarge: $0.918 and $3.06).
_V100_USD_H = (0.918, 3.06)


@dataclass(frozen=True)
class Workload:
    """Jobs of one size on the zones of one set of traces.

    `asked`: size that the job was written for; `most`: with workers that come and go. `sizes`: rigid sizes to compare with.
    """

    name: str
    folder: str
    asked: int
    most: int
    work_h: float
    deadline_h: float
    startup_s: float
    sizes: tuple[int, ...]

    def zones(self) -> list[Zone]:
        folder, prices = (
            (HERE / self.folder, (None, None)) if self.folder.startswith("gcp") else (traces(), _V100_USD_H)
        )
        if folder is None:
            return []
        folder = folder if self.folder.startswith("gcp") else folder / self.folder
        return [zone(path, self.most, *prices) for path in sorted(folder.glob("*.json"))]

    def task(self, speeds: Sequence[float]) -> Task:
        speeds = tuple(speeds)
        return Task(speeds, self.work_h * HOUR_S * speeds[self.asked], self.deadline_h * HOUR_S, self.startup_s)

    def asked_usd(self, zone_: Zone) -> float:
        """Return the cost of the asked size on machines that stay."""
        return self.work_h * self.asked * zone_.certain_usd_h


_SIXTEEN, _FOUR = "availability/16-node/aws-08-27-2023", "preemption/4-node/aws-08-03-2023"
_V100 = (
    Workload("V100, 4 → 1..16, 48 h by 52 h", _SIXTEEN, 4, 16, 48, 52, 300, (4, 6, 8, 12, 16)),
    Workload("V100, 4 → 1..16, 48 h by 70 h", _SIXTEEN, 4, 16, 48, 70, 300, (3, 4, 6, 8, 12, 16)),
    Workload("V100, 2 → 1..4, 48 h by 52 h", _FOUR, 2, 4, 48, 52, 300, (2, 3, 4)),
    Workload("V100, 2 → 1..4, 48 h by 70 h", _FOUR, 2, 4, 48, 70, 300, (2, 3, 4)),
)
_H100 = Workload("H100, 8 → 1..16, 100 h by 150 h", "gcp-h100-2025", 8, 16, 100, 150, 360, (6, 8, 10, 12, 16))
#: The ceiling is the asked size.
_FLAT = (
    Workload("V100, 4 → 1..4, 48 h by 52 h", _FOUR, 4, 4, 48, 52, 300, (4,)),
    Workload("V100, 4 → 1..4, 48 h by 70 h", _FOUR, 4, 4, 48, 70, 300, (3, 4)),
    Workload("H100, 8 → 1..8, 100 h by 110 h", "gcp-h100-2025", 8, 8, 100, 110, 360, (8,)),
)
EXPONENTS = (1.0, 0.926)
#: Runs on record whose bounds, and whose costs of others, are not found again.
Kept = Sequence[Run]


# One elastic job.


def elastic(quick: bool = False, kept: Kept = ()) -> list[Run]:
    """Play one job in each window; a run is a zone."""
    step_h = 96.0 if quick else 24.0
    workloads = (_H100, _V100[0], _V100[2]) if quick else (*_V100, _H100, *_FLAT)
    exponents = EXPONENTS[:1] if quick else EXPONENTS
    return [
        _played(workload, zone_, f"n^{exponent:g}", power(workload.most, exponent), step_h, kept)
        for workload in workloads
        for exponent in exponents
        for zone_ in workload.zones()
    ]


def measured(quick: bool = False, kept: Kept = ()) -> list[Run]:
    """Play jobs with measured speeds."""
    return [
        _played(workload, zone_, name, speeds, 96.0, kept)
        for workload in (_V100[1], _H100)
        for name, speeds in (() if quick else _measured_speeds(workload.most))
        for zone_ in workload.zones()
    ]


def _measured_speeds(most: int) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield speeds of trainings on 1 to `most` GPUs, measured at powers of two: straight lines between them, in logarithms."""
    folder = Path(os.environ.get("PUNCTUAL_DATA", "nowhere")) / "profiles/elasticflow/throughputs_A100"
    for name, batch in (("bert", 128), ("gpt2", 256), ("resnet50", 256), ("vgg16", 256), ("deepspeech2", 64)):
        if not (path := folder / f"{name}.csv").exists():
            continue
        rows = list(csv.DictReader(path.open(encoding="utf-8")))
        row = next(row for row in rows if int(row["global_batch_size"]) == batch)
        points = [(int(n), float(rate)) for n, rate in row.items() if n.isdigit() and rate and float(rate) > 0]
        rates = [0.0]
        for n in range(1, most + 1):
            (low, slow), (high, fast) = next(pair for pair in pairwise(points) if pair[0][0] <= n <= pair[1][0])
            rates.append(exp(log(slow) + (log(fast) - log(slow)) * (log(n) - log(low)) / (log(high) - log(low))))
        yield name, increasing([rate / rates[1] for rate in rates])


def _played(
    workload: Workload, zone_: Zone, scaling: str, speeds: Sequence[float], step_h: float, kept: Kept = ()
) -> Run:
    """Play all windows of a zone: the policy, the bounds, and Uniform Progress of each size; costs over that of the asked size."""
    task, full_usd = workload.task(speeds), workload.asked_usd(zone_)
    windows = list(begins(zone_, task, step_h * HOUR_S))
    ours = [play_elastic(zone_, task, i) for i in windows]
    keys = {"workload": workload.name, "scaling": scaling, "zone": zone_.name, "n_windows": len(windows)}
    others = _on_record(kept, keys, task.deadline_s / HOUR_S) or _others(workload, zone_, task, windows)
    return {
        **others, **keys, "n_late": sum(played.end_s > task.deadline_s for played in ours),
        "ours": _mean([played.usd / full_usd for played in ours]),
        "stays": _mean([played.certain_usd / full_usd for played in ours]),
    }  # fmt: skip


def _on_record(kept: Kept, keys: Run, deadline_h: float) -> Run | None:
    """Return a run on record with these keys, whose bounds and whose costs of others do not change with the policy."""
    alike = (run for run in kept if run.get("deadline_h", deadline_h) == deadline_h)
    return next((run for run in alike if keys.items() <= run.items()), None)


def _others(workload: Workload, zone_: Zone, task: Task, windows: Sequence[int]) -> Run:
    """Return what does not depend on the policy."""
    full_usd = workload.asked_usd(zone_)
    fixed: dict[int, list[float]] = {n: [] for n in workload.sizes}
    n_late_fixed = 0
    for i in windows:
        for n in workload.sizes:
            if task.work / task.speeds[n] + 2 * task.startup_s > task.deadline_s:
                fixed[n].append(inf)
                continue
            rigid = play_rigid(zone_, task, i, n, uniform_progress(zone_, task, n))
            fixed[n].append(rigid.usd / full_usd)
            n_late_fixed += rigid.end_s > task.deadline_s
    return {
        "n_late_fixed": n_late_fixed, "bound": _mean([least_usd(zone_, task, i) / full_usd for i in windows]),
        "started": _mean([least_started_usd(zone_, task, i) / full_usd for i in windows]),
        "asked": _mean(fixed[workload.asked]), "fixed": {str(n): _mean(usd) for n, usd in fixed.items() if max(usd) < inf},
    }  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return mean(values) or 0.0


def _figures(runs: Sequence[Run]) -> dict[str, float]:
    """Return the means over zones, and those of the size that is best over all of them."""
    best = min((sum(run["fixed"][n] for run in runs) / len(runs), n) for n in runs[0]["fixed"])
    means = {key: _mean([run[key] for run in runs]) for key in ("bound", "started", "ours", "stays", "asked")}
    return {**means, "best": best[0], "best_size": float(best[1]), "n_late": sum(run["n_late"] for run in runs)}


ELASTIC_HEADS = (
    "job", "speed", "zones", "windows", "UP, asked size", "UP, best size", "bound", "with starts", "least-cost",
    "of it on demand", "over the bound", "over that with starts", "below UP, asked", "below UP, best", "late",
)  # fmt: skip


def _elastic_section(name: str, runs: list[Run], targets: Sequence[Target], text: str) -> Section:
    rows = []
    for (workload, scaling), some in grouped(runs, "workload", "scaling").items():
        it = _figures(some)
        rows.append((
            workload, scaling, len(some), sum(run["n_windows"] for run in some), f"{it['asked']:.3f}",
            f"{it['best']:.3f} ({it['best_size']:.0f})", f"{it['bound']:.3f}",
            f"{it['started']:.3f}", f"{it['ours']:.3f}", f"{it['stays']:.3f}", f"{it['ours'] / it['bound'] - 1:.1%}",
            f"{it['ours'] / it['started'] - 1:.1%}", f"{1 - it['ours'] / it['asked']:.1%}", f"{1 - it['ours'] / it['best']:.1%}",
            f"{it['n_late']:.0f}",
        ))  # fmt: skip
    return Section(name, ELASTIC_HEADS, [[str(cell) for cell in row] for row in rows], targets, text)


def _over_bound(runs: Sequence[Run], key: str = "ours") -> float | None:
    """Return the mean over workloads, speeds and zones of a cost over the bound, on zones where nothing was chosen."""
    gaps = []
    for some in grouped(runs, "workload", "scaling").values():
        others = [run for run in some if run["zone"] not in CHOSEN_ON]
        gaps.append(sum(run[key] for run in others) / sum(run["bound"] for run in others) - 1)
    return mean(gaps)


def _below_best(runs: Sequence[Run], key: str = "ours") -> float | None:
    """Return the mean over workloads and speeds of what a cost is less than that of Uniform Progress at its best size."""
    others = [run for run in runs if run["zone"] not in CHOSEN_ON]
    savings = [_figures(some) for some in grouped(others, "workload", "scaling").values()]
    return mean([1 - it[key] / it["best"] for it in savings])


#: The bound with starts paid for: what a schedule that knows the future may reach.
_KNOWN = "started"
_PERCENT = "{:.1%}".format
_COUNT = "{:.0f}".format


def elastic_section(runs: list[Run]) -> Section:
    flat = [workload.name for workload in _FLAT]
    wide = [run for run in runs if run["workload"] not in flat]
    narrow = [run for run in runs if run["workload"] in flat]
    v100, h100 = ([run for run in wide if run["workload"].startswith(kind)] for kind in ("V100", "H100"))
    targets = [
        Target("elastic jobs late", 0, sum(run["n_late"] for run in runs), _COUNT),
        Target("elastic, over the dual bound", 0.10, _over_bound(wide), _PERCENT),
        Target("ceiling is the asked size, over the dual bound", 0.10, _over_bound(narrow), _PERCENT),
        Target(
            "V100, below Uniform Progress at its best size", 0.20,
            _below_best(v100), _PERCENT, at_least=True,
        ),
        Target(
            "H100, below Uniform Progress at its best size", 0.40,
            _below_best(h100), _PERCENT, at_least=True,
        ),
    ]  # fmt: skip
    reached = [
        _over_bound(wide, _KNOWN),
        _over_bound(narrow, _KNOWN),
        _below_best(v100, _KNOWN),
        _below_best(h100, _KNOWN),
    ]
    text = (
        "A schedule that pays for starts, and chooses machines once a tick, is, whatever it knows, at least {} over the dual "
        "bound ({} where the ceiling is the asked size), and at most {} (V100) and {} (H100) below Uniform Progress at its "
        "best size; on zones where nothing was chosen."
    )
    return _elastic_section("One elastic job", runs, targets, _told(text, reached))


def measured_section(runs: list[Run]) -> Section:
    targets = [
        Target("measured speeds: late", 0, sum(run["n_late"] for run in runs), _COUNT),
        Target("measured speeds, over the dual bound", 0.10, _over_bound(runs), _PERCENT),
    ]
    text = "A schedule that pays for starts is, whatever it knows, at least {} over the dual bound."
    text = _told(text, [_over_bound(runs, _KNOWN)])
    return _elastic_section("One elastic job with measured speeds", runs, targets if runs else (), text)


def _told(text: str, figures: Sequence[float | None]) -> str:
    return text.format(*("–" if figure is None else _PERCENT(figure) for figure in figures))


# One rigid job.


def rigid(quick: bool = False) -> list[Run]:
    """Play a job of one machine in one zone, beside Uniform Progress and the schedule that knows the future."""
    folder, runs = traces(), list[Run]()
    paths = sorted((folder / "availability/1-node/aws-02-15-2023").glob("*.json")) if folder else []
    for deadline_h in (52.0,) if quick else (52.0, 70.0):
        for startup_s in (180.0,) if quick else (180.0, 720.0):
            task = Task((0.0, 1.0), 48 * HOUR_S, deadline_h * HOUR_S, startup_s)
            for path in paths[:3] if quick else paths:
                zone_ = zone(path, 1, *_V100_USD_H)
                sums = dict.fromkeys(("least", "uniform", "ours"), 0.0)
                n_late = n_windows = 0
                for i in begins(zone_, task, (192 if quick else 96) * HOUR_S):
                    n_windows += 1
                    sums["least"] += least_rigid_usd(zone_, task, i, 1)
                    sums["uniform"] += play_rigid(zone_, task, i, 1, uniform_progress(zone_, task, 1)).usd
                    ours = play_rigid(zone_, task, i, 1, ours_rigid(zone_, task, i, 1))
                    sums["ours"] += ours.usd
                    n_late += ours.end_s > task.deadline_s
                runs.append({
                    "deadline_h": deadline_h, "startup_s": startup_s, "zone": zone_.name, "n_windows": n_windows,
                    "n_late": n_late, **sums,
                })  # fmt: skip
    return runs


def rigid_section(runs: list[Run]) -> Section:
    rows, gaps = [], []
    for (deadline_h, startup_s), some in grouped(runs, "deadline_h", "startup_s").items():
        least, uniform, ours = (sum(run[key] for run in some) for key in ("least", "uniform", "ours"))
        gaps.append(ours / least - 1)
        rows.append([
            f"48 h by {deadline_h:g} h", f"{startup_s / 60:g} min", str(sum(run["n_windows"] for run in some)),
            f"{uniform / least - 1:.1%}", f"{ours / least - 1:.1%}", str(sum(run["n_late"] for run in some)),
        ])  # fmt: skip
    targets = [
        Target("rigid jobs late", 0, sum(run["n_late"] for run in runs), _COUNT),
        Target("rigid, over the least with the future known", 0.10, mean(gaps), _PERCENT),
    ]
    heads = ("job", "start", "windows", "UP, over the least", "least-cost, over the least", "late")
    return Section("One rigid job in one zone", heads, rows, targets if runs else ())


# Twenty jobs.

_N_JOBS = 20


def many(quick: bool = False) -> list[Run]:
    """Play twenty jobs that share the machines of a zone, in the simulated world, beside each alone under Uniform Progress."""
    if quick:
        return []
    runs = list[Run]()
    for workload, at_h in ((_V100[0], 96.0),):
        for zone_ in workload.zones():
            tasks = [
                Task(power(4, 1.0), (12 + 4 * (k % 4)) * HOUR_S, (10 + 3 * (k % 5)) * HOUR_S, workload.startup_s)
                for k in range(_N_JOBS)
            ]
            starts_s = [3 * HOUR_S * k for k in range(_N_JOBS)]
            i = round(at_h * HOUR_S / zone_.tick_s)
            if i + round((starts_s[-1] + 24 * HOUR_S) / zone_.tick_s) >= len(zone_.counts):
                continue
            usd, n_late = simulated(zone_, tasks, i, 16, starts_s)
            alone = 0.0
            for task, start_s in zip(tasks, starts_s, strict=True):
                j = i + round(start_s / zone_.tick_s)
                rules = [n for n in (2, 3, 4) if task.work / n + 2 * task.startup_s + zone_.tick_s < task.deadline_s]
                alone += min(play_rigid(zone_, task, j, n, uniform_progress(zone_, task, n)).usd for n in rules)
            runs.append({
                "traces": workload.name.partition(",")[0], "at_h": at_h, "zone": zone_.name, "n_late": n_late, "ours": usd,
                "alone": alone, "bound": _shared_least_usd(zone_, tasks, i, starts_s),
            })  # fmt: skip
    return runs


def _shared_least_usd(zone_: Zone, tasks: Sequence[Task], i: int, starts_s: Sequence[float]) -> float:
    """Return what jobs of linear speed cost at least that share spot machines, start-ups free: a linear programme.

    Each hour of a spot machine goes to one job between its start and its deadline; the rest of the work is bought.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    per_h = round(HOUR_S / zone_.tick_s)
    first_h = [round(start_s / HOUR_S) for start_s in starts_s]
    last_h = [first + round(task.deadline_s / HOUR_S) for first, task in zip(first_h, tasks, strict=True)]
    hours = [sum(zone_.counts[i + h * per_h : i + (h + 1) * per_h]) / per_h for h in range(max(last_h))]
    pairs = [(k, h) for k in range(len(tasks)) for h in range(first_h[k], last_h[k])]
    rows = [h for _, h in pairs] + [len(hours) + k for k, _ in pairs]
    matrix = coo_matrix((np.ones(2 * len(pairs)), (rows, [*range(len(pairs))] * 2)))
    limits = [*hours, *[task.work / HOUR_S for task in tasks]]
    most = [(0.0, float(len(tasks[k].speeds) - 1)) for k, _ in pairs]
    spot_h = -linprog(-np.ones(len(pairs)), A_ub=matrix, b_ub=limits, bounds=most, method="highs").fun
    work_h = sum(task.work for task in tasks) / HOUR_S
    return zone_.certain_usd_h * work_h - (zone_.certain_usd_h - zone_.spot_usd_h) * spot_h


def many_section(runs: list[Run]) -> Section:
    rows = [
        [
            f"{run['traces']}, {run['zone']}, from hour {run['at_h']:g}", f"${run['alone']:,.0f}", f"${run['bound']:,.0f}",
            f"${run['ours']:,.0f}", f"{run['ours'] / run['bound'] - 1:.1%}", f"{1 - run['ours'] / run['alone']:.1%}",
            str(run["n_late"]),
        ]
        for run in runs
    ]  # fmt: skip
    gaps = [run["ours"] / run["bound"] - 1 for run in runs]
    targets = [
        Target("late of twenty jobs that share a zone", 0, sum(run["n_late"] for run in runs), _COUNT),
        Target("twenty jobs, over the bound", 0.15, mean(gaps), _PERCENT),
    ]
    heads = ("zone", "each alone, UP at its best size", "bound", "least-cost", "over the bound", "below UP", "late")
    return Section("Twenty jobs that share a zone's spot machines", heads, rows, targets if runs else ())


# What a deadline costs.

#: Deadlines of the picture, in hours: with 16 machines the work takes 54 h.
_CURVE_H = (64.0, 80.0, 100.0, 120.0, 150.0, 180.0)


def curve(quick: bool = False, kept: Kept = ()) -> list[Run]:
    """Play the H100 job with other deadlines; a run is a zone and a deadline."""
    runs = list[Run]()
    for deadline_h in _CURVE_H[1::3] if quick else _CURVE_H:
        workload = replace(_H100, deadline_h=deadline_h, sizes=(4, 6, 8, 10, 12, 14, 16))
        speeds = power(workload.most, EXPONENTS[1])
        task, zones = workload.task(speeds), workload.zones()
        # The fewest machines that stay and are in time; none is taken away.
        n = next(n for n in range(1, len(speeds)) if task.work / speeds[n] + task.startup_s <= task.deadline_s)
        stays_usd_h = n * (task.work / speeds[n] + task.startup_s) / HOUR_S
        for zone_ in zones[:1] if quick else zones:
            run = _played(workload, zone_, f"n^{EXPONENTS[1]:g}", speeds, 96.0 if quick else 48.0, kept)
            on_demand = stays_usd_h * zone_.certain_usd_h / workload.asked_usd(zone_)
            runs.append({**run, "deadline_h": deadline_h, "on_demand": on_demand})
    return runs


def _curves(runs: Sequence[Run]) -> list[dict[str, float]]:
    """Return the means over zones for each deadline."""
    return [
        {"deadline_h": deadline_h, "on_demand": _mean([run["on_demand"] for run in some]), **_figures(some)}
        for (deadline_h,), some in grouped(runs, "deadline_h").items()
    ]


def curve_section(runs: list[Run]) -> Section:
    rows = [
        [f"{it['deadline_h']:g} h", f"{it['on_demand']:.3f}", f"{it['best']:.3f} ({it['best_size']:.0f})",
         f"{it['ours']:.3f}", f"{it['bound']:.3f}", f"{it['n_late']:.0f}"]
        for it in _curves(runs)
    ]  # fmt: skip
    targets = [Target("late, at any deadline of the picture", 0, sum(run["n_late"] for run in runs), _COUNT)]
    heads = ("deadline", "on demand", "UP, best size", "least-cost", "bound", "late")
    text = f"The H100 job of 100 h on 8 machines, speed n^{EXPONENTS[1]:g}; costs as shares of that on demand."
    return Section("What a deadline costs", heads, rows, targets if runs else (), text)


def draw_curve(runs: Sequence[Run], path: Path) -> None:
    """Draw cost against deadline."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    points = _curves(runs)
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for key, label, colour, line in (
        ("on_demand", "on demand, fewest machines that are in time", "#7f7f7f", "-"),
        ("best", "Uniform Progress, at the size that is best afterwards", "#e69f00", "-"),
        ("ours", "least-cost", "#0072b2", "-"),
        ("bound", "bound: no schedule costs less, with the future known", "#222222", ":"),
    ):
        at, usd = [it["deadline_h"] for it in points], [100 * it[key] for it in points]
        axes.plot(at, usd, line, color=colour, marker="o" if line == "-" else "", ms=4, label=label)
    axes.set(xlabel="deadline, hours from the start", ylabel="cost, % of 8 machines on demand")
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd", lw=0.6)
    axes.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1.0, 0.88))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


# The simulated world.


def agreement(quick: bool = False) -> list[Run]:
    """Play some windows in the simulated world too, with the price of progress found at each tick as there."""
    runs = list[Run]()
    for workload in (_H100,) if quick else (_H100, *_V100[::2], _FLAT[0]):
        for exponent in EXPONENTS[:1] if quick else EXPONENTS:
            task = workload.task(power(workload.most, exponent))
            for zone_ in workload.zones()[: 1 if quick else 3]:
                middle = list(begins(zone_, task, 24 * HOUR_S))
                i = middle[len(middle) // 2]
                usd, n_late = simulated(zone_, [task], i, workload.most)
                runs.append({"ratio": usd / play_elastic(zone_, task, i, price_every_s=0.0).usd - 1, "n_late": n_late})
    return runs


def agreement_section(runs: list[Run]) -> Section:
    ratios = [run["ratio"] for run in runs]
    most = max((abs(ratio) for ratio in ratios), default=0.0)
    rows = [[str(len(runs)), f"{_mean(ratios):.2%}", f"{most:.2%}", str(sum(run["n_late"] for run in runs))]]
    targets = [
        Target("the bill of the simulated world beside the fast play, largest difference", 0.02, most, "{:.2%}".format)
    ]
    heads = ("windows", "difference on average", "largest", "late")
    return Section(
        "The same in the simulated world, with the scheduler and the policy as a plug-in", heads, rows, targets
    )


# Live.

#: Landings of which one machine is taken away without notice, and which are not in the comparison of bills: each fifth.
_KILLS_EVERY = 5


def live(quick: bool = False, kept: Sequence[Run] = (), n_landings: int = 10, pace: float = 600.0) -> list[Run]:
    """Land on a market of Ray nodes of this machine, and play each landing again in the simulated world.

    `kept`: runs on record. Those of this revision count, and the runs on disk are written after each landing.
    """
    if quick:
        return []
    import tempfile

    from _market_live import landed, simulated_usd, trained_alone

    from punctual.cli._demo_market import Scene

    # Of 6 zones and 6 windows of 60 h each, one with 30 changes of the count, machines of both markets, and a bill that
    # depends little on the start-up (6 % more for 20 s in place of 12 s; in others it is up to six times as much).
    scene = Scene(
        trace=HERE / "gcp-h100-2025/us-east4-b.json",
        speed=pace,
        start_s=216 * HOUR_S,
        deadline_s=60 * HOUR_S,
        work_h=66.0,
        n_steps=220,
        notice_s=8.0,
    )
    runs = [run for run in kept if run.get("revision") == revision()]
    with tempfile.TemporaryDirectory() as folder:
        alone = trained_alone(scene, Path(folder))
        for k in range(len(runs), n_landings):
            kills = k % _KILLS_EVERY == _KILLS_EVERY - 1
            run: Run = {"pace": pace, "kills": kills, "revision": revision()}
            try:
                one = landed(scene, alone, kills=kills)
            except AssertionError as error:  # it counts as late
                run["failed"] = str(error)[-2000:]
            else:
                run |= {
                    **one.as_dict(),
                    "declared_usd": simulated_usd(scene)[0],
                    "measured_usd": simulated_usd(scene, one.startups_s, one.launch_s, one.change_s)[0],
                    "rates_usd": simulated_usd(scene, one.startups_s, one.launch_s, one.change_s, one.rates_sps)[0],
                }
            runs.append(run)
            on_disk = on_record(NAME)
            write_results(NAME, {"runs": {**on_disk["runs"], "live": runs}}, page)
            sys.stderr.write(f"landing {k + 1} of {n_landings}: {run.get('failed') or f'${one.usd:.0f}'}\n")
    return runs


def live_section(runs: list[Run]) -> Section:
    landings = [run for run in runs if "failed" not in run]
    rows = [
        [
            f"{run['pace']:g}", f"{run['left_s'] / HOUR_S:.1f} h", str(run["n_machines"]),
            f"{_startup_s(run):.1f} s", f"{run['launch_s']:.1f} s", f"{run['change_s']:.1f} s" if "change_s" in run else "–",
            f"{run['n_noticed']} / {run['n_unnoticed']}", f"{run['n_redone']:g}", "yes" if run["has_same_weights"] else "NO",
            "yes" if run.get("beside") else "no", f"${run['usd']:,.0f}", f"${run['measured_usd']:,.0f}",
            f"${run['rates_usd']:,.0f}", f"${run['declared_usd']:,.0f}", f"{run['load']:.1f}",
        ]
        for run in landings
    ]  # fmt: skip
    noticed = [run for run in landings if not run["kills"]]
    # Earlier ones did not measure what a change of machines takes; bills of others are those of a machine that was not quiet.
    billed = [run for run in noticed if "change_s" in run and not run.get("beside")]
    killed = [run for run in landings if run["kills"]]
    n_late = sum("failed" in run or run["left_s"] < 0 for run in runs)
    targets = [
        Target(f"late of {len(runs)} live landings", 0, n_late, _COUNT),
        Target("steps lost with noticed machines", 0, max((run["n_redone"] for run in noticed), default=None), _COUNT),
        Target("steps lost with one machine that had no notice", 1, max((run["n_redone"] for run in killed), default=None), _COUNT),
        Target("live landings with other weights", 0, sum(not run["has_same_weights"] for run in landings), _COUNT),
        Target(f"bill of {len(billed)} of them beside the simulated one with the starts, changes and speeds they had", 0.02, _apart(billed, "rates_usd"), _PERCENT),
        Target("the same beside the simulated one with the declared start", 0.02, _apart(billed, "declared_usd"), _PERCENT),
    ]  # fmt: skip
    heads = (
        "pace", "early", "machines", "their start", "the job's", "a change", "lost with / without notice", "steps redone",
        "same weights", "beside other work", "bill", "simulated, real starts and changes", "and real speeds", "simulated as declared", "load",
    )  # fmt: skip
    return Section("Live, on Ray nodes of one machine", heads, rows, targets if runs else ())


def _startup_s(run: Run) -> float:
    return _mean([startup_s for of_pool in run["startups_s"].values() for startup_s in of_pool])


def _apart(runs: Sequence[Run], key: str) -> float | None:
    """Return how far the mean live bill is from the mean simulated one."""
    return abs(_mean([run["usd"] for run in runs]) / _mean([run[key] for run in runs]) - 1) if runs else None


FAMILIES = (
    Family(elastic, elastic_section),
    Family(measured, measured_section),
    Family(rigid, rigid_section),
    Family(curve, curve_section),
    Family(many, many_section),
    Family(agreement, agreement_section),
    Family(live, live_section),
)

#: Parts that can keep what others cost.
_OTHERS_KEPT = ("elastic", "measured", "curve")


def _sections(results: Results) -> list[Section]:
    return sections_of(FAMILIES, results)


def page(results: Results) -> str:
    """Return bench/results/money.md."""
    return page_of(_sections(results), results)


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument(
        "--part", action="append", choices=[family.name for family in FAMILIES], help="measure these alone"
    )
    made.add_argument(
        "--landings",
        type=int,
        default=10,
        help="of the part `live`, six minutes each at its pace; those of this revision on record count",
    )
    made.add_argument(
        "--pace", type=float, default=600.0, help="seconds of the trace that pass in a second of the part `live`"
    )
    made.add_argument("--ours", action="store_true", help="play our policy alone; bounds and costs of others are kept")
    options = made.parse_args()
    runs = {} if options.quick else on_record(NAME).get("runs", {})
    runs = {family.name: runs.get(family.name, []) for family in FAMILIES}
    for family in FAMILIES:
        if not options.part or family.name in options.part:
            more: tuple[object, ...] = (runs["live"], options.landings, options.pace) if family.name == "live" else ()
            if options.ours and family.name in _OTHERS_KEPT:
                more = (runs[family.name],)
            measured_now = family.measure(options.quick, *more)
            runs[family.name] = [{**run, "revision": revision()} for run in measured_now]
    if runs["curve"] and not options.quick:
        draw_curve(runs["curve"], RESULTS / "money.png")
    targets = report(NAME, {"runs": runs}, _sections, page, quick=options.quick)
    return conclude_targets(targets, targets[1], quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
