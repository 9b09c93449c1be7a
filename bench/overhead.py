"""Measure what the client costs a training: a step, and its import.

Each repetition is a process of its own. In it the tracked and the bare loop take turns, so that both see the same machine, and
the difference of their medians counts. Targets are turns of the reference (`_reference.py`), which is measured in the same
process afterwards.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import Results
from _report import Section, Target, run

from punctual.channel import BLOCK_VARIABLE, Directives, SharedBlock

#: Most it may cost: key -> (what it is, turns of the reference).
TARGETS = {
    "alone": ("a step, script not run by Punctual", 0.25),
    "linked": ("a step, run by Punctual", 2.5),
    "paced": ("a step, paced but behind the line", 2.5),
    "import": ("import punctual", 25_000.0),
    "client": ("import punctual and load its client", 25_000.0),
}
#: Said by a process before it ends: what it has found, and microseconds of a turn.
SAY = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from _reference import turn_s
print(json.dumps([found, turn_s() * 1e6]))
"""

LOOPS = """
import statistics, time
import punctual

N = 20_000
def seconds(loop):
    begun = time.process_time()
    for _ in loop:
        pass
    return time.process_time() - begun
pairs = [(seconds(range(N)), seconds(punctual.track(range(N), total_steps=1_000_000))) for _ in range(15)]
bare, tracked = (statistics.median(column) for column in zip(*pairs))
found = (tracked - bare) / N * 1e6
"""

IMPORT = """
import sys, time
begun = time.process_time()
import punctual
imported = time.process_time()
punctual.track
ended = time.process_time()
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"numpy", "torch"})
found = [(imported - begun) * 1e6, (ended - begun) * 1e6, len(heavy)]
"""


def answer(code: str, page: Path | None = None) -> tuple[Any, float]:
    """Return what a new process finds, and microseconds of a turn of the reference in it."""
    environment = {name: value for name, value in os.environ.items() if name != BLOCK_VARIABLE}
    if page:
        environment[BLOCK_VARIABLE] = str(page)
    output = subprocess.run(
        [sys.executable, "-c", code + SAY], env=environment, check=True, capture_output=True, text=True
    ).stdout
    found, turn_us = json.loads(output)
    return found, turn_us


def linked(*, pacing: bool) -> tuple[float, float]:
    """Microseconds of a step with a page; the pacing line lies in the past, so that nothing waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page"
        page = SharedBlock.create(str(path))
        page.send(Directives(pacing=pacing, end_ns=time.monotonic_ns(), end_work=1e6, ns_per_step=1.0))
        found = answer(LOOPS, path)
        page.close()
    return found


def repetition() -> dict[str, float]:
    (import_us, client_us, n_heavy), turn_us = answer(IMPORT)
    steps = {"alone": answer(LOOPS), "linked": linked(pacing=False), "paced": linked(pacing=True)}
    found = {**steps, "import": (import_us, turn_us), "client": (client_us, turn_us)}
    micros = {f"{key}_us": cost_us for key, (cost_us, _) in found.items()}
    turns = {key: cost_us / each_us for key, (cost_us, each_us) in found.items()}
    return {**turns, **micros, "n_heavy": n_heavy, "turn_us": turn_us}


def measured(*, quick: bool) -> Results:
    return {"runs": [repetition() for _ in range(3 if quick else 15)]}


def sections(results: Results) -> list[Section]:
    runs = results["runs"]
    rows, targets = [], []
    for key, (what, limit) in TARGETS.items():
        turns, us = [one[key] for one in runs], statistics.median(one[f"{key}_us"] for one in runs)
        middle = statistics.median(turns)
        rows.append([what, *(f"{value:,.3g}" for value in (middle, min(turns), max(turns))), f"{us:,.2f}"])
        targets.append(Target(f"{what}, median", limit, middle, "{:,.3g} turns".format))
    n_heavy = max(one["n_heavy"] for one in runs)
    targets.append(Target("of numpy and torch loaded by it", 0, n_heavy, "{:.0f}".format))
    return [Section("What a training pays", ["cost of", "turns, median", "least", "most", "µs, median"], rows, targets)]


if __name__ == "__main__":
    sys.exit(run("overhead", __doc__, measured, sections, key=1))
