"""What the client costs a training: microseconds a step, and the time of its import.

Each repetition is a process of its own. In it the tracked and the bare loop take turns, so that both see the same
machine, and the difference of their medians counts. Other load on the machine makes the numbers larger, never smaller.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import parser, print_table, write_results

from punctual.wire import PAGE_VARIABLE, Directives, Page

#: Most it may cost: key -> (what it is, limit, unit).
TARGETS = {
    "alone_us": ("a step, script not run by Punctual", 0.5, "us"),
    "linked_us": ("a step, run by Punctual", 5.0, "us"),
    "paced_us": ("a step, paced but behind the line", 5.0, "us"),
    "import_ms": ("import punctual", 50.0, "ms"),
    "client_ms": ("import punctual and load its client", 50.0, "ms"),
}

LOOPS = """
import statistics, time
import punctual

N = 20_000
def seconds(loop):
    begun = time.perf_counter()
    for _ in loop:
        pass
    return time.perf_counter() - begun
pairs = [(seconds(range(N)), seconds(punctual.track(range(N), total_steps=1_000_000))) for _ in range(15)]
bare, tracked = (statistics.median(column) for column in zip(*pairs))
print((tracked - bare) / N * 1e6)
"""

IMPORT = """
import sys, time
begun = time.perf_counter()
import punctual
imported = time.perf_counter()
punctual.track
ended = time.perf_counter()
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"numpy", "torch"})
print([(imported - begun) * 1e3, (ended - begun) * 1e3, len(heavy)])
"""


def answer(code: str, page: Path | None = None) -> str:
    """What a new process prints."""
    environment = {name: value for name, value in os.environ.items() if name != PAGE_VARIABLE}
    if page:
        environment[PAGE_VARIABLE] = str(page)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout


def linked_us(*, pacing: bool) -> float:
    """Cost of a step with a page; the pacing line lies in the past, so that nothing waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page"
        page = Page.create(str(path))
        page.send(Directives(pacing=pacing, end_ns=time.monotonic_ns(), end_work=1e6, ns_per_step=1.0))
        cost_us = float(answer(LOOPS, path))
        page.close()
    return cost_us


def repetition() -> dict[str, float]:
    import_ms, client_ms, n_heavy = json.loads(answer(IMPORT))
    return {
        "alone_us": float(answer(LOOPS)),
        "linked_us": linked_us(pacing=False),
        "paced_us": linked_us(pacing=True),
        "import_ms": import_ms,
        "client_ms": client_ms,
        "n_heavy": n_heavy,
    }


def main() -> int:
    options = parser("Cost of the client in a training process.").parse_args()
    runs = [repetition() for _ in range(3 if options.quick else 15)]
    found = {key: statistics.median(run[key] for run in runs) for key in TARGETS}
    rows = [
        (what, f"{found[key]:.2f}", f"{min(r[key] for r in runs):.2f}", f"{max(r[key] for r in runs):.2f}", limit, unit)
        for key, (what, limit, unit) in TARGETS.items()
    ]
    print_table(("cost of", "median", "min", "max", "limit", "unit"), rows)
    n_heavy = max(run["n_heavy"] for run in runs)
    write_results(
        "overhead-quick" if options.quick else "overhead",
        {"median": found, "runs": runs, "limits": {key: TARGETS[key][1] for key in TARGETS}},
    )
    is_met = not n_heavy and all(found[key] <= TARGETS[key][1] for key in TARGETS)
    print(
        f"{found['linked_us']:.1f} us a step (target: at most 5), import {found['import_ms']:.1f} ms (target: below 50), "
        f"numpy or torch loaded: {'yes' if n_heavy else 'no'} (target: no): {'met' if is_met else 'SHORT'}"
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
