"""The tables of bench/allocators.py, for people."""

from collections import defaultdict
from collections.abc import Mapping
from math import exp, log
from statistics import median
from typing import Any

from _allocator_cells import OUTSIDE
from _common import conclude, print_table
from _reference import TURNS

Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]
Verdicts = Mapping[str, Mapping[str, Any]]


def markdown(cells: Cells, verdicts: Verdicts, outside: Cells, ours: str) -> str:
    """All tables."""
    parts = [
        "<!-- made by bench/allocators.py -->", "### By load (restart 30 s, speeds known)", _by_load(cells, ours),
        "### Mean completion time over its bound, setting by setting", _distance_table(verdicts, ours),
        "### Queueing and deadlines, setting by setting", _verdict_table(verdicts),
        "### Promises", _promise_table(cells, ours), "### Published simulators' own traces", _outside_table(outside),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _grid(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] + ["--:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _by_load(cells: Cells, ours: str) -> str:
    """Geometric mean of JCT relative to ours, mean waiting (all time holding nothing), share of the bound met, by policy and load."""
    groups: dict[tuple[str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    for key, row in cells.items():
        _, load, restart, error, _ = key.split("/")
        mine = row.get(ours, {})
        if restart != "30" or error != "0" or not mine.get("jct_mean_s") or "bound" not in row:
            continue
        bound = max(1, row.get("bound", {}).get("n") or 1)
        for name, one in row.items():
            if one.get("jct_mean_s"):
                values = (
                    one["jct_mean_s"] / mine["jct_mean_s"], one["jct_p99_s"] / mine["jct_p99_s"],
                    one["waiting_mean_s"] or 0.0, one["n_deadlines_met"] / bound,
                )  # fmt: skip
                groups[name, load].append(values)
    loads = sorted({load for _, load in groups}, key=float)
    lines: list[list[str]] = []
    for name in sorted({name for name, _ in groups}, key=lambda name: (name != ours, name)):
        found = [groups.get((name, load)) for load in loads]
        lines.append([f"**{name}**" if name == ours else name, *(_cell(one) if one else "–" for one in found)])
    text = "Mean JCT and (in brackets) p99 as multiples of ours; mean waiting (all time holding nothing) in s; deadlines met as a share of the bound."
    return text + "\n\n" + _grid(["policy", *(f"load {load}" for load in loads)], lines)


def _cell(found: list[tuple[float, float, float, float]]) -> str:
    jct, p99 = (exp(sum(log(one[i]) for one in found) / len(found)) for i in (0, 1))
    waiting, met = (sum(one[i] for one in found) / len(found) for i in (2, 3))
    return f"{jct:.2f} ({p99:.2f}), {waiting:.0f} s, {met:.3f}"


def groups_of(verdicts: Verdicts) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    """Verdicts of all seeds of a setting together."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for key, one in verdicts.items():
        groups[tuple(key.split("/")[:-1])].append(one)
    return groups


def _distance_table(verdicts: Verdicts, ours: str) -> str:
    """Every policy in every setting that has a bound; the nearest of each setting is in bold type."""
    groups = {group: found for group, found in groups_of(verdicts).items() if any(one["distances"] for one in found)}
    names = sorted(
        {name for one in verdicts.values() for name in one["distances"]}, key=lambda name: (name != ours, name)
    )
    rows = []
    for group, verdicts_of in groups.items():
        found = [one["distances"] for one in verdicts_of if one["distances"]]
        means = {name: _geometric([one[name] for one in found if name in one]) for name in names}
        least = min(mean for mean in means.values() if mean is not None)
        by_seed = ", ".join(f"{one[ours]:.2f}" for one in found if ours in one)
        rows.append([*group, by_seed, *(_distance(means[name], least) for name in names)])
    text = (
        "Mean completion time over a time that nobody can go below, not even with knowledge of the future: 1 cannot be "
        "passed, and need not be possible. Policies that declined jobs are left out of a setting. Where there are several seeds, "
        f"{ours} is told for each of them, and all policies with their geometric mean."
    )
    return text + "\n\n" + _grid(["trace", "load", "restart s", "error", f"{ours}, by seed", *names], rows)


def _geometric(values: list[float]) -> float | None:
    return exp(sum(map(log, values)) / len(values)) if values else None


def _distance(mean: float | None, least: float) -> str:
    if mean is None:
        return "–"
    return f"**{mean:.2f}**" if mean <= least * 1.005 else f"{mean:.2f}"


def _verdict_table(verdicts: Verdicts) -> str:
    rows = []
    for group, found in groups_of(verdicts).items():
        n = len(found)
        rows.append([*group, *(f"{sum(one[name] for one in found) / n:{shown}}" for name, shown in _RESPECTS.items())])
    return _grid(["trace", "load", "restart s", "error", *map(_head, _RESPECTS)], rows)


#: What a verdict says beside distances, and how it is shown.
_RESPECTS = {"waiting_s": ".0f", "best_waiting_s": ".0f", "met_frac": ".3f", "best_met_frac": ".3f"}


def _head(respect: str) -> str:
    return {
        "waiting_s": "wait s", "best_waiting_s": "least wait of the others s", "met_frac": "met / bound",
        "best_met_frac": "best met of the others / bound",
    }[respect]  # fmt: skip


def _promise_table(cells: Cells, ours: str) -> str:
    groups: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for key, row in cells.items():
        if ours in row and "n_promised" in row[ours]:
            _, load, _, error, _ = key.split("/")
            groups[load, error][0] += row[ours]["n_promised"]
            groups[load, error][1] += row[ours]["n_broken"]
    rows = [
        [load, error, str(n), str(broken), f"{100 * (1 - broken / max(1, n)):.2f} %"]
        for (load, error), (n, broken) in sorted(groups.items())
    ]
    return _grid(["load", "error", "promised", "broken", "kept"], rows)


def _outside_table(outside: Cells) -> str:
    rows = []
    for name, row in outside.items():
        for policy, one in row.items():
            if one.get("jct_mean_s"):
                printed = OUTSIDE[name]
                rows.append(
                    [name, policy, f"{one['n_deadlines_met']} of {printed.n_jobs}", f"{printed.printed} ({printed.made_by})",
                     f"{one['jct_mean_s']:.0f}", f"{one['makespan_s']:.0f}", f"{one['cpu_s']:.1f}"]
                )  # fmt: skip
    return _grid(["trace", "policy", "met", "printed", "mean JCT s", "makespan s", "CPU s"], rows)


def show(
    cells: Cells, verdicts: Verdicts, outside: Cells, ours: str, ours_outside: str, target: float, took_s: float
) -> int:  # fmt: skip
    """Key figures beside their targets; 1 if one is short."""
    fair = {key: one for key, one in verdicts.items() if float(key.split("/")[1]) <= 1.2 and one["jct"] is not None}
    rows: list[tuple[str, str, str, bool]] = []
    for respect in ("jct", "wait", "met"):
        share = sum(bool(one[respect]) for one in fair.values()) / max(1, len(fair))
        rows.append((f"settings up to load 1.2 with enough: {respect}", f"{share:.2f}", f"{target}", share >= target))
    won = [bool(one["jct"] and one["wait"] and one["met"]) for one in fair.values()]
    share = sum(won) / max(1, len(won))
    rows.append(("settings with enough in all three at once", f"{share:.2f}", f"{target}", share >= target))
    over = [one["met_frac"] for key, one in verdicts.items() if float(key.split("/")[1]) > 1.2]
    if over:
        rows.append(("overload: on time over the bound, least of all", f"{min(over):.3f}", "0.95", min(over) >= 0.95))
    for error, least in (("0", 1.0), ("0.1", 0.99)):
        kept = _kept_frac(cells, ours, error)
        if kept is not None:
            rows.append((f"promises kept, error {error}", f"{kept:.4f}", f"{least}", kept >= least))
    for name, row in outside.items():
        one = row.get(ours_outside, {})
        if one.get("jct_mean_s"):
            met, printed = one["n_deadlines_met"], OUTSIDE[name].printed
            rows.append((f"{name}: deadlines met", str(met), f"> {printed}", met > printed))
            if name == "cluster01" and "turns" in one:
                rows.append(
                    (f"{name}: turns of the reference", TURNS(one["turns"]), "<= 30,000,000", one["turns"] <= 30e6)
                )
    for what, key in (("CPU time of a decision", "cpu_s"), ("decisions for each job", "n_rounds")):
        policy, most = most_over_median(cells, key)
        rows.append((f"{what}, most over the median of its policy: {policy}", f"{most:.1f}", "<= 10", most <= 10))
    print_table(
        ["", "is", "target", ""], [[what, got, goal, "ok" if fine else "SHORT"] for what, got, goal, fine in rows]
    )
    figures = f"{len(fair)} settings in {took_s:.0f} s; enough in all three respects at once {share:.2f} (target: at least {target})"
    return conclude(figures, [f"{what}: {got} ({goal})" for what, got, goal, fine in rows if not fine])


def most_over_median(cells: Cells, key: str) -> tuple[str, float]:
    """Return which policy has the simulation that costs most beside the median of its own; `cpu_s` counts for each decision."""
    costs: dict[str, list[float]] = defaultdict(list)
    for row in cells.values():
        for policy, one in row.items():
            if policy != "bound" and one.get("n_rounds") and one.get("n_finished"):
                costs[policy].append(one[key] / (one["n_rounds"] if key == "cpu_s" else one["n_finished"]))
    ratios = {policy: max(own) / median(own) for policy, own in costs.items()}
    return max(ratios.items(), key=lambda pair: pair[1], default=("–", 0.0))


def _kept_frac(cells: Cells, ours: str, error: str) -> float | None:
    found = [
        row[ours] for key, row in cells.items() if key.split("/")[3] == error and "n_promised" in row.get(ours, {})
    ]
    n = sum(one["n_promised"] for one in found)
    return None if not n else 1 - sum(one["n_broken"] for one in found) / n
