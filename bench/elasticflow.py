"""Measure what ElasticFlow's simulator costs, beside ours on the same traces under the nearest policy, both ways of counting.

*Work*: CPU seconds (user and system) from when all imports are done: reading the trace, making the jobs, simulating, and what
each writes about it. *Whole process*: the start of Python and the imports as well. The two programs take turns on one machine,
and each count takes the best run of each, in turns of the reference that is measured beside it (`_reference.py`).

Their program is not part of this project: PUNCTUAL_ELASTICFLOW is a checkout of github.com/pkusys/ElasticFlow, `make` run in its
folder `ElasticFlow/scheduler`, and PUNCTUAL_ELASTICFLOW_PYTHON names interpreters with its requirements, separated by colons:
3.8, which it asks for, and ours, so that both run on the same. Ours does not run on 3.8. What is and what is not the same in the
two simulations is told by `bench/simulator.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from _common import Results, parser
from _published import PUBLISHED, has_data
from _reference import turn_s
from _report import Run, Section, Target, conclude_report
from simulator import TIMES, repeated

SCRIPT = Path(__file__).with_name("_elasticflow.py")
#: How many times less than theirs the work of ours is to cost, on the same Python.
TIMES_LEAST = 20.0


def measured(folder: Path, pythons: Sequence[str], n_rounds: int) -> list[Run]:
    """Theirs under each Python, in turns with ours, the reference beside it."""
    runs: list[Run] = []
    for _, (i, one), python in product(range(n_rounds), enumerate(PUBLISHED), (*pythons, None)):
        if one.command is None:
            continue
        if python is None:
            runs += [{**run, "against": one.name, "whose": "ours"} for run in repeated(f"published/{i}", 1)]
            continue
        before_s = turn_s()
        with TemporaryDirectory() as logs:
            command = [python, str(SCRIPT), logs, *one.command]
            place = folder / "ElasticFlow/scheduler"
            output = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        each_s = (before_s + turn_s()) / 2
        runs.append({**found, "turn_us": each_s * 1e6, "against": one.name, "whose": "theirs"})
        print(
            f"{one.name} on Python {found['python']}: {found['import_s']:.2f} + {found['run_s']:.2f} CPU s", flush=True
        )
    return runs


#: How CPU time is counted: the work alone, or the whole process, start of Python and imports included.
COUNTED: dict[str, Callable[[Run], float]] = {
    "work": lambda run: float(run["run_s"]), "whole process": lambda run: float(run["import_s"] + run["run_s"]),
}  # fmt: skip
HEADS = [
    "trace: policy", "Python, theirs", "ours", *(f"{how}: {head}" for how in COUNTED for head in ("theirs, CPU s", "ours", "times less")),
]  # fmt: skip


def _against_section(runs: list[Run]) -> Section:
    """Both ways of counting; the best run of each, in turns of the reference, so that a neighbour counts for neither."""
    rows, targets = [], []
    for name in dict.fromkeys(run["against"] for run in runs):
        ours = [run for run in runs if run["whose"] == "ours" and run["against"] == name]
        theirs = [run for run in runs if run["whose"] == "theirs" and run["against"] == name]
        our_python = ours[0]["python"]
        for python in dict.fromkeys(run["python"] for run in theirs):
            row = [name.removeprefix("ElasticFlow, "), python, our_python]
            for how, cost_s in COUNTED.items():
                their_best, our_best = (
                    _best(some, cost_s) for some in ([run for run in theirs if run["python"] == python], ours)
                )
                ratio = _in_turns(their_best, cost_s) / _in_turns(our_best, cost_s)
                row += [f"{cost_s(their_best):.2f}", f"{cost_s(our_best):.2f}", TIMES(ratio)]
                if how == "work" and python.split(".")[:2] == our_python.split(".")[:2]:
                    targets.append(
                        Target(f"CPU time of the work against {name}", TIMES_LEAST, ratio, TIMES, at_least=True)
                    )
            rows.append(row)
    return Section("ElasticFlow's simulator: what it costs", HEADS, rows, targets)


def _in_turns(run: Run, cost_s: Callable[[Run], float]) -> float:
    return cost_s(run) / run["turn_us"] * 1e6


def _best(runs: list[Run], cost_s: Callable[[Run], float]) -> Run:
    return min(runs, key=lambda run: _in_turns(run, cost_s))


def sections(results: Results) -> list[Section]:
    return [_against_section(results["runs"])]


def main() -> int:
    options = parser(__doc__ or "").parse_args()
    folder = os.environ.get("PUNCTUAL_ELASTICFLOW")
    if not folder or not has_data():
        print("not run: PUNCTUAL_ELASTICFLOW and PUNCTUAL_DATA are to name its checkout and the folder of the traces")
        return 0
    pythons = os.environ.get("PUNCTUAL_ELASTICFLOW_PYTHON", sys.executable).split(":")
    runs = measured(Path(folder), pythons, 1 if options.quick else 3)
    return conclude_report("elasticflow", {"runs": runs}, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
