"""Our allocator against all others: completion time, waiting and deadlines at once.

Each cell is one simulation of one policy on one setting (trace, load, restart cost, error of the declared speeds, seed), or
what nobody can exceed on it. Cells that are there already are kept with `--resume`, and what was not measured is told by revision.
The data lie where PUNCTUAL_DATA says; without them only the generated jobs are compared.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import exp, log
from multiprocessing import get_context
from statistics import fmean, geometric_mean, median
from typing import Any

from _allocator_cells import WORLDS, Setting, available, deadline_bound, folder, jobs_of, nodes, run, verdict
from _common import Results, on_record, parser, revision, revisions, stamp, write_results
from _jct_bound import jct_bound_s
from _report import Section, Target, conclude_report

from punctual import registry

NAME = "allocators"
OURS = "promises-first"
#: Not for jobs that are made of workers, or slower than a study can wait for.
LEFT_OUT = {"proportional"}
#: Rigid policies also with the smallest number of workers, so that they are not judged by their size alone.
EXTRA = ("shortest-remaining:size=smallest", "earliest-deadline:size=smallest")
QUICK = (OURS, "greedy", "max-min", "shortest-remaining:size=smallest")
LOADS = (0.8, 1.0, 1.2, 1.5, 3.0)
#: Jobs in each slice of a trace.
N_JOBS = 500
#: Share of settings with load up to 1.2 in which ours must do well in all three respects.
TARGET_FRAC = 0.9

#: By setting and policy; a setting's `bound` is what nobody can exceed.
Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]
Verdicts = Mapping[str, Mapping[str, Any]]


# What is measured.


def settings(worlds: Sequence[str], n_seeds: int) -> list[Setting]:
    """Every load; every restart cost and error at two of the loads. What matters most comes first."""
    varied = [(load, 30.0, 0.0) for load in LOADS]
    varied += [(load, restart_s, 0.0) for load, restart_s in product((1.0, 1.2), (0.5, 60.0))]
    varied += [(load, 30.0, error) for load, error in product((1.0, 1.2), (0.1, 0.5))]
    return [Setting(world, *one, seed) for seed in range(n_seeds) for one in varied for world in worlds]


def cell(setting: Setting, policy: str) -> dict[str, Any]:
    """One simulation of a setting; a policy that fails is noted, not hidden."""
    try:
        world, jobs = WORLDS[setting.world], jobs_of(setting, folder(), N_JOBS)
        if policy == "bound":
            n_devices = world.n_nodes * world.devices_per_node
            return {"n": deadline_bound(jobs, n_devices), "jct_s": jct_bound_s(jobs, n_devices)}
        return run(policy, jobs, nodes(world.n_nodes, world.devices_per_node))
    except Exception as error:  # noqa: BLE001 -- of somebody's policy: the others are still compared
        return {"failed": f"{type(error).__name__}: {error}"[:200]}


def fill(results: Results, wanted: Sequence[tuple[Setting, str]], *, quick: bool) -> None:
    """Make the cells that are missing; results are written now and then."""
    cells = results["cells"]
    missing = [(setting, policy) for setting, policy in wanted if policy not in cells.get(setting.key, {})]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(cell, setting, policy) for setting, policy in missing]
        for i, ((setting, policy), done) in enumerate(zip(missing, waiting, strict=True), 1):
            cells.setdefault(setting.key, {})[policy] = done.result()
            if i % 200 == 0:
                print(f"{i} of {len(waiting)} cells", file=sys.stderr, flush=True)
                write_results(NAME, results, quick=quick)


def main() -> int:
    """Run what is missing, write the tables, say whether the targets are reached."""
    made = parser(__doc__ or "")
    made.add_argument("--resume", action="store_true", help="keep the cells that are there")
    made.add_argument("--seeds", type=int, default=1)
    options = made.parse_args()
    kept = on_record(NAME) if options.resume and not options.quick else {}
    results: Results = {"n_jobs": N_JOBS, "cells": {}, **kept, "stamp": stamp()}
    if kept and set(revisions(kept)) != {revision()}:
        results["stamp"]["cells_kept_of"] = kept["stamp"]
    begun_s, quick = time.monotonic(), options.quick
    registered = [name for name in registry.names("policies") if name not in LEFT_OUT]
    names = QUICK if quick else (*registered, *EXTRA)
    wanted = settings(["modelarts-like"] if quick else available(folder()), options.seeds)
    if quick:
        wanted = [one for one in wanted if one.load in (1.0, 1.2) and one.restart_s == 30 and not one.error]
    fill(results, [(one, name) for one in wanted for name in (*names, "bound")], quick=quick)
    print(f"{time.monotonic() - begun_s:.0f} s")
    return conclude_report(NAME, results, sections, quick=quick, key=3)


# What it comes to.


def verdicts_of(cells: Cells) -> dict[str, dict[str, Any]]:
    verdicts = {}
    for key, row in cells.items():
        bound = row.get("bound", {})
        valid = {name: one for name, one in row.items() if name != "bound" and one.get("jct_mean_s")}
        if "n" in bound and OURS in valid and len(valid) > 1:
            verdicts[key] = verdict(valid, OURS, bound)
    return verdicts


def targets_of(cells: Cells, verdicts: Verdicts) -> list[Target]:
    fair = [one for key, one in verdicts.items() if float(key.split("/")[1]) <= 1.2 and one["jct"] is not None]
    respects = {**{name: (name,) for name in ("jct", "wait", "met")}, "all three at once": ("jct", "wait", "met")}
    found = [
        Target(
            f"{len(fair)} settings up to load 1.2 with enough: {text}", TARGET_FRAC,
            fmean(all(one[name] for name in names) for one in fair) if fair else None, "{:.2f}".format, at_least=True,
        )
        for text, names in respects.items()
    ]  # fmt: skip
    over = [one["met_frac"] for key, one in verdicts.items() if float(key.split("/")[1]) > 1.2]
    if over:
        text = "overload: on time over the bound, least of all"
        found.append(Target(text, 0.95, min(over), "{:.3f}".format, at_least=True))
    for error, least in (("0", 1.0), ("0.1", 0.99)):
        promised = [
            row[OURS] for key, row in cells.items() if key.split("/")[3] == error and "n_promised" in row.get(OURS, {})
        ]
        if n := sum(one["n_promised"] for one in promised):
            kept = 1 - sum(one["n_broken"] for one in promised) / n
            found.append(Target(f"promises kept, error {error}", least, kept, "{:.4f}".format, at_least=True))
    for what, key in (("CPU time of a decision", "cpu_s"), ("decisions for each job", "n_rounds")):
        policy, most = most_over_median(cells, key)
        found.append(Target(f"{what}, most over the median of its policy: {policy}", 10.0, most, "{:.1f}".format))
    return found


def most_over_median(cells: Cells, key: str) -> tuple[str, float]:
    """Return which policy has the simulation that costs most beside the median of its own; `cpu_s` counts for each decision."""
    costs: dict[str, list[float]] = {}
    for row in cells.values():
        for policy, one in row.items():
            if policy != "bound" and one.get("n_rounds") and one.get("n_finished"):
                n = one["n_rounds"] if key == "cpu_s" else one["n_finished"]
                costs.setdefault(policy, []).append(one[key] / n)
    ratios = {policy: max(own) / median(own) for policy, own in costs.items()}
    return max(ratios.items(), key=lambda pair: pair[1], default=("–", 0.0))


def sections(results: Results) -> list[Section]:
    cells = results["cells"]
    verdicts = verdicts_of(cells)
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for key, one in verdicts.items():
        groups.setdefault(tuple(key.split("/")[:-1]), []).append(one)
    heads = ["trace", "load", "restart s", "error"]
    respects = {
        "waiting_s": ("wait s", ".0f"), "best_waiting_s": ("least wait of the others s", ".0f"),
        "met_frac": ("met / bound", ".3f"), "best_met_frac": ("best met of the others / bound", ".3f"),
    }  # fmt: skip
    rows = [
        [*group, *(f"{fmean(one[name] for one in own):{shown}}" for name, (_, shown) in respects.items())]
        for group, own in groups.items()
    ]
    return [
        _by_load(cells, targets_of(cells, verdicts)), _distances(groups, heads),
        Section("Queueing and deadlines, setting by setting", [*heads, *(head for head, _ in respects.values())], rows),
        _promises(cells),
    ]  # fmt: skip


def _by_load(cells: Cells, targets: Sequence[Target]) -> Section:
    groups: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for key, row in cells.items():
        _, load, restart, error, _ = key.split("/")
        mine = row.get(OURS, {})
        if restart != "30" or error != "0" or not mine.get("jct_mean_s") or "bound" not in row:
            continue
        bound = max(1, row["bound"].get("n") or 1)
        for name, one in row.items():
            if one.get("jct_mean_s"):
                groups.setdefault((name, load), []).append((
                    one["jct_mean_s"] / mine["jct_mean_s"], one["jct_p99_s"] / mine["jct_p99_s"],
                    one["waiting_mean_s"] or 0.0, one["n_deadlines_met"] / bound,
                ))  # fmt: skip
    loads = sorted({load for _, load in groups}, key=float)
    rows = []
    for name in _ours_first({name for name, _ in groups}):
        found = [[*zip(*groups.get((name, load), []), strict=True)] for load in loads]
        rows.append([
            f"**{name}**" if name == OURS else name,
            *(
                f"{exp(fmean(map(log, one[0]))):.2f} ({exp(fmean(map(log, one[1]))):.2f}), {fmean(one[2]):.0f} s, {fmean(one[3]):.3f}"
                if one else "–"
                for one in found
            ),
        ])  # fmt: skip
    text = (
        "Mean JCT and (in brackets) p99 as multiples of ours; mean waiting (all time holding nothing) in s; deadlines met as a "
        "share of the bound."
    )
    heads = ["policy", *(f"load {load}" for load in loads)]
    return Section("By load (restart 30 s, speeds known)", heads, rows, targets, text)


def _ours_first(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != OURS, name))


def _distances(groups: Mapping[tuple[str, ...], list[Mapping[str, Any]]], heads: Sequence[str]) -> Section:
    """Every policy in every setting that has a bound; the nearest of each setting is in bold type."""
    seen = {
        group: found
        for group, own in groups.items()
        if (found := [one["distances"] for one in own if one["distances"]])
    }
    names = _ours_first({name for found in seen.values() for one in found for name in one})
    rows = []
    for group, found in seen.items():
        by_name = {name: [one[name] for one in found if name in one] for name in names}
        means = {name: geometric_mean(values) for name, values in by_name.items() if values}
        least = min(means.values()) * 1.005
        shown = {name: f"**{mean:.2f}**" if mean <= least else f"{mean:.2f}" for name, mean in means.items()}
        by_seed = ", ".join(f"{one[OURS]:.2f}" for one in found if OURS in one)
        rows.append([*group, by_seed, *(shown.get(name, "–") for name in names)])
    text = (
        "Mean completion time over a time that nobody can go below, not even with knowledge of the future: 1 cannot be "
        "passed, and need not be possible. Policies that declined jobs are left out of a setting. Where there are several seeds, "
        f"{OURS} is told for each of them, and all policies with their geometric mean."
    )
    all_heads = [*heads, f"{OURS}, by seed", *names]
    return Section("Mean completion time over its bound, setting by setting", all_heads, rows, text=text)


def _promises(cells: Cells) -> Section:
    counts: dict[tuple[str, str], list[int]] = {}
    for key, row in cells.items():
        if "n_promised" in row.get(OURS, {}):
            _, load, _, error, _ = key.split("/")
            found = counts.setdefault((load, error), [0, 0])
            found[:] = [found[0] + row[OURS]["n_promised"], found[1] + row[OURS]["n_broken"]]
    rows = [
        [load, error, str(n), str(broken), f"{100 * (1 - broken / max(1, n)):.2f} %"]
        for (load, error), (n, broken) in sorted(counts.items())
    ]
    return Section("Promises", ["load", "error", "promised", "broken", "kept"], rows)


if __name__ == "__main__":
    sys.exit(main())
