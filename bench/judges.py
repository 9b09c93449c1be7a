"""The rule of `least-cost` for a rigid job in the simulators of others, beside their rules as their own code runs them.

`PUNCTUAL_SKYNOMAD` and `PUNCTUAL_FRONTIER_CS` name clones of github.com/andylizf/skynomad-artifact and
github.com/FrontierCS/Frontier-CS; bench/judges.md says how to prepare them. Nothing of them is part of this project.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import Results, json_lines, mean, on_record, parser
from _report import Family, Run, Section, Target, conclude_report, grouped, sections_of

HERE = Path(__file__).parent
_TIMEOUT_S = 600.0
_OURS, _UNIFORM = "least-cost", "Uniform Progress"


def _folder(variable: str) -> Path | None:
    return Path(os.environ[variable]).resolve() if os.environ.get(variable) else None


# SkyNomad.

#: Strategies of its package with their names here, and ours. The last knows the future.
_RULES = {
    "on_demand": "on demand",
    "rc_cr_threshold": _UNIFORM,
    "unified_cost_model_rate_ratio": "SkyNomad",
    "punctual_least_cost": _OURS,
    "multi_region_oracle_dp": "optimum",
}
#: Traces, with the work, deadlines, starts and begins of windows in hours.
_CELLS: tuple[dict[str, Any], ...] = (
    {
        "traces": "V100", "folder": "data/converted_multi_region_aligned", "work_h": 48.0, "deadlines_h": (52.0, 70.0),
        "startups_h": (0.2,), "starts_h": (240.0,),
    },
    {
        "traces": "H100", "folder": "data/converted_multi_region_aligned_h100_16_merged", "work_h": 100.0,
        "deadlines_h": (150.0,), "startups_h": (0.1,), "starts_h": (180.0,),
    },
)  # fmt: skip


def skynomad(quick: bool = False, ours: bool = False) -> list[Run]:
    """Play a job in one zone at a time; `ours`: under our rule alone."""
    folder, runs = _folder("PUNCTUAL_SKYNOMAD"), list[Run]()
    if folder is None:
        return []
    for cell in _CELLS[:1] if quick else _CELLS:
        traces = [str(path) for path in sorted((folder / cell["folder"]).glob("*/full.json"))]
        for deadline_h in cell["deadlines_h"][:1] if quick else cell["deadlines_h"]:
            for startup_h in cell["startups_h"][:1] if quick else cell["startups_h"]:
                wanted = {
                    "folder": str(folder), "rules": [name for name, rule in _RULES.items() if rule == _OURS or not (quick or ours)],
                    "traces": traces[:3] if quick else traces, "starts_h": cell["starts_h"][:2] if quick else cell["starts_h"],
                    "work_h": cell["work_h"], "deadline_h": deadline_h, "startup_h": startup_h,
                }  # fmt: skip
                job = f"{cell['traces']}, {cell['work_h']:g} h by {deadline_h:g} h, start {60 * startup_h:g} min"
                runs += [{"job": job, **played} for played in _windows(wanted)]
    return runs


def _windows(wanted: dict[str, Any]) -> list[Run]:
    command = [sys.executable, str(HERE / "_skynomad_windows.py")]
    ended = subprocess.run(command, input=json.dumps(wanted), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"SkyNomad's simulator failed: {ended.stderr[-2000:]}")
    return [{**row, "rule": _RULES[row["rule"]]} for row in json.loads(ended.stdout)]


def skynomad_section(runs: list[Run]) -> Section:
    rows, over, below, n_late = [], list[float](), list[float](), 0
    for (job,), some in grouped(runs, "job").items():
        usd = {rule: [each["usd"] for each in own] for (rule,), own in grouped(some, "rule").items()}
        sums = {rule: sum(each for each in own if each is not None) for rule, own in usd.items()}
        late = {rule: own.count(None) for rule, own in usd.items()}
        n_late += late[_OURS]
        n = len(usd[_OURS])
        if sums.get("optimum"):
            over.append(sums[_OURS] / sums["optimum"] - 1)
            below.append(1 - sums[_OURS] / sums[_UNIFORM])
        cells = [f"${sums[rule] / n:,.2f}{_late(late[rule])}" if rule in sums else "–" for rule in _RULES.values()]
        rows.append([job, str(n), *cells, *([f"{over[-1]:.1%}", f"{below[-1]:.1%}"] if over else ["–", "–"])])
    targets = [
        Target("SkyNomad's simulator: late", 0, n_late if runs else None, "{:.0f}".format),
        Target("SkyNomad's simulator: over its optimum", 0.10, mean(over), "{:.1%}".format),
        Target("SkyNomad's simulator: below Uniform Progress", 0.0, mean(below), "{:.1%}".format, at_least=True),
    ]
    heads = ("job", "windows", *_RULES.values(), "over the optimum", "below Uniform Progress")
    text = "Dollars a window. A late window counts as nothing, and is told."
    return Section("SkyNomad's simulator", heads, rows, targets, text)


def _late(n: int) -> str:
    return f" ({n} late)" if n else ""


# Frontier-CS.

#: First attempts of the models that solved it, as published beside the problem.
_PUBLISHED = ("deepseekreasoner", "gemini2.5pro", "gemini3pro", "gpt5", "gpt5.1", "gpt5.2", "grok4fastreasoning")


def frontier_cs(quick: bool = False, ours: bool = False) -> list[Run]:
    """Score the rule with each variant's evaluator, beside the published solutions, its example, and Uniform Progress."""
    folder, runs = _folder("PUNCTUAL_FRONTIER_CS"), list[Run]()
    if folder is None:
        return []
    problem, solutions = (folder / "research" / kind / "cant_be_late" for kind in ("problems", "solutions"))
    for path in sorted(problem.glob("*/evaluator.py"))[: 2 if quick else None]:
        variant = path.parent
        rules = {_OURS: HERE / "_judge_strategy.py"}
        if _folder("PUNCTUAL_SKYNOMAD") is not None and not ours:
            rules[_UNIFORM] = HERE / "_judge_uniform.py"
        if not (quick or ours):
            rules["its example"] = variant / "resources/programs/initial_greedy.py"
            rules |= {name: solutions / variant.name / f"{name}.py" for name in _PUBLISHED}
        for rule, solution in rules.items():
            runs.append({"variant": variant.name, "rule": rule, **_scored(path, solution)})
    return runs


def _scored(evaluator: Path, solution: Path) -> Run:
    """Return a rule's score and mean cost; None: a window was late, or it failed."""
    ended = subprocess.run(
        [sys.executable, str(evaluator), "--solution", str(solution)], capture_output=True, text=True, check=False,
        timeout=_TIMEOUT_S, env={**os.environ, "CBL_LOG_LEVEL": "CRITICAL", "EVALUATOR_MAX_WORKERS": "1"},
    )  # fmt: skip
    told = json_lines(ended.stdout)
    if not told or told[-1].get("od_anchor") is None:
        return {"score": None, "usd": None, "n_windows": None}
    return {"score": told[-1]["score_unbounded"], "usd": told[-1]["avg_cost"], "n_windows": told[-1]["scenario_count"]}


def frontier_cs_section(runs: list[Run]) -> Section:
    rows, means = [], dict[str, list[float]]()
    for (variant,), some in grouped(runs, "variant").items():
        scores = {each["rule"]: each["score"] for each in some}
        published = [scores[name] for name in _PUBLISHED if scores.get(name) is not None]
        best = max(published, default=None)
        named = {**{rule: scores.get(rule) for rule in (_OURS, _UNIFORM, "its example")}, "best": best}
        known = {name: score for name, score in named.items() if score is not None}
        if len(known) == len(named):
            for name, score in known.items():
                means.setdefault(name, []).append(score)
        n = next((each["n_windows"] for each in some if each["n_windows"]), 0)
        rows.append([
            variant.replace("_availability", "").replace("_deadline", "").replace("_overhead", " overhead").replace("_", ", "),
            f"{n:.0f}", *(_score(score) for score in named.values()), f"{len(published)} of {len(_PUBLISHED)}",
        ])  # fmt: skip
    if means:
        rows.append(["mean", "", *(_score(mean(means[name])) for name in means), ""])
    n_failed = sum(each["score"] is None for each in runs if each["rule"] == _OURS) if runs else None
    targets = [
        Target("Frontier-CS: variants that failed or were late", 0, n_failed, "{:.0f}".format),
        Target("Frontier-CS: mean score over that of Uniform Progress", 0.0, _over(means, _UNIFORM), "{:.1f}".format, at_least=True),
        Target("Frontier-CS: mean score over the best published", 0.0, _over(means, "best"), "{:.1f}".format, at_least=True),
    ]  # fmt: skip
    heads = ("variant", "windows", _OURS, _UNIFORM, "its example", "best published", "published that are in time")
    text = "Scores: 0 costs as much as on demand without a start, 100 as spot alone; a window that is late fails the variant."
    return Section("Frontier-CS, cant_be_late", heads, rows, targets, text)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.1f}"


def _over(means: dict[str, list[float]], other: str) -> float | None:
    ours, theirs = mean(means.get(_OURS, [])), mean(means.get(other, []))
    return None if ours is None or theirs is None else ours - theirs


FAMILIES = (Family(skynomad, skynomad_section), Family(frontier_cs, frontier_cs_section))


def sections(results: Results) -> list[Section]:
    return sections_of(FAMILIES, results)


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--part", choices=[family.name for family in FAMILIES], help="measure this alone")
    made.add_argument(
        "--ours", action="store_true", help="measure our rule again; what others cost does not change with it"
    )
    options = made.parse_args()
    runs = {} if options.quick else on_record("judges").get("runs", {})
    for family in FAMILIES:
        before = runs.get(family.name, [])
        if options.part not in (None, family.name):
            runs[family.name] = before
            continue
        others = [each for each in before if each["rule"] != _OURS] if options.ours else []
        runs[family.name] = [*family.measure(options.quick, options.ours), *others]
    return conclude_report("judges", {"runs": runs}, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
