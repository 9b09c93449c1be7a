"""Sia's saturn-1 on its mixed cluster: our policies beside what its simulator printed for its own and for Gavel's.

Sia also adapts the batch of each job (its goodput model); ours leave the batch as it was submitted, so that a job's
iterations stay what they were and only its devices change: the same comparison without batch adaptation. A start and a
change of devices cost 30 s each. The data lie where PUNCTUAL_DATA says.
"""

import sys
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any

from _allocator_cells import run
from _allocator_worlds import nodes
from _common import RESULTS, commit, parser, print_table, write_results
from _published import SIA_KINDS, data, has_data, iteration_s, iterations_of, trace_of

from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.sim.job import SimJob
from punctual.sim.truth import ByDevice, Constant, Measured, Truth
from punctual.traces import TraceJob

NODES = [*nodes(6, 4, "T4"), *nodes(3, 8, "2080Ti"), *nodes(2, 8, "A100")]
COUNTS = (1, 2, 4, 8, 16)
RESTART_S = 30.0
#: Mean completion time and makespan that Sia's simulator prints for its own policy and for Gavel's, and CPU seconds.
PRINTED = {"Sia, with batch adaptation": (2_092.0, 44_856.0, 729.0), "Gavel's in it": (6_473.0, 98_172.0, 99.0)}
POLICIES = (
    "promises-first:caution=0", "promises-first", "greedy", "max-min", "optimus", "elastic-mip", "elasticflow",
    "shortest-remaining:size=smallest",
)  # fmt: skip
OURS = POLICIES[0]


def jobs() -> list[SimJob]:
    """The 160 jobs of saturn-1, each with its speed by kind of device and number of devices."""
    profiles = data() / "profiles" / "sia"
    return [_job(one, profiles / str(one.model_name)) for one in trace_of("sia_workloads/saturn/workload-1.csv")]


def _job(one: TraceJob, folder: Path) -> SimJob:
    batch = one.batch_size or 1
    rates = {kind: _rates(folder, kind, batch) for kind in SIA_KINDS}
    rates = {kind: found for kind, found in rates.items() if found}
    slowest = min(rate for found in rates.values() for rate in found.values())
    truth = ByDevice({kind: Measured(found) for kind, found in rates.items()}, Constant(slowest))
    work_steps = iterations_of(folder, batch)
    spec = JobSpec(
        id=JobId(one.id), worker=Resources(gpus=1), counts=COUNTS, floor=Resources(gpus=1),
        ceiling=Resources(gpus=COUNTS[-1]), work_steps=work_steps, startup_s=RESTART_S, resize_cost_s=RESTART_S,
        preemptible=True, controller=None, model="tabulated", profile=tuple(_seen(truth, rates)),
    )  # fmt: skip
    return SimJob(one.submitted_at, spec, truth, work_steps)


def _rates(folder: Path, kind: str, batch: int) -> dict[tuple[int, int], float]:
    """Iterations a second at the submitted global batch, by (devices, nodes); none where the kind was not measured."""
    cluster, per_node = SIA_KINDS[kind]
    if not (folder / f"placements{cluster}.csv").exists():
        return {}
    shapes = [(n, ceil(n / per_node)) for n in COUNTS if n <= batch]
    return {(n, n_nodes): 1.0 / iteration_s(folder, cluster, n, n_nodes, batch / n) for n, n_nodes in shapes}


def _seen(truth: Truth, rates: dict[str, dict[tuple[int, int], float]]) -> Iterable[SeenRate]:
    for kind, found in rates.items():
        for n, n_nodes in found:
            shape = Shape(n_workers=n, n_nodes=n_nodes, device=kind)
            yield SeenRate(shape=shape, rate_sps=truth.rate_sps(shape))


def main() -> int:
    """Simulate, print the table, say whether ours is faster than what Sia prints."""
    options = parser(__doc__ or "").parse_args()
    if not has_data():
        print("the data are not there: set PUNCTUAL_DATA")
        return 1
    found: dict[str, dict[str, Any]] = {
        name: run(name, jobs(), NODES, reports=False) for name in (POLICIES[:3] if options.quick else POLICIES)
    }
    rows = [[name, f"{jct:,.0f}", f"{end:,.0f}", "–", f"{cpu:,.0f}"] for name, (jct, end, cpu) in PRINTED.items()]
    rows += [
        [
            name,
            f"{one['jct_mean_s']:,.0f}",
            f"{one['makespan_s']:,.0f}",
            f"{one['jct_p99_s']:,.0f}",
            f"{one['cpu_s']:.2f}",
        ]
        for name, one in found.items()
    ]
    heads = ["policy", "mean JCT, s", "makespan, s", "p99 JCT, s", "CPU s"]
    print_table(heads, rows)
    if not options.quick:
        write_results("sia", {"commit": commit(), "printed": PRINTED, "runs": found})
        lines = [heads, ["---", *["--:"] * 4], *rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        (RESULTS / "sia.md").write_text(f"<!-- made by bench/sia.py -->\n\n{text}\n")
    jct_s, printed_s = found[OURS]["jct_mean_s"], PRINTED["Sia, with batch adaptation"][0]
    print(f"mean JCT of {OURS}, saturn-1: {jct_s:,.0f} s (Sia prints {printed_s:,.0f} s)")
    return int(jct_s > printed_s)


if __name__ == "__main__":
    sys.exit(main())
