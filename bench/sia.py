"""Sia's saturn-1 on its mixed cluster: our policies beside what its simulator printed for its own and for Gavel's.

Sia also adapts the batch of each job (its goodput model); ours leave the batch as it was submitted, so that a job's
iterations stay what they were and only its devices change: the same comparison without batch adaptation. As in Sia's
simulator each model is slowed down to what was seen on real devices, and a start and a change of devices cost 15 to
250 s, by model. The data lie where PUNCTUAL_DATA says.
"""

import sys
from typing import Any

from _allocator_cells import run
from _allocator_worlds import nodes
from _common import RESULTS, commit, parser, print_table, write_results
from _published import SIA_KINDS, SIA_RESTART_S, SIA_SLOWDOWN, data, fixed_batch, has_data, trace_of

from punctual.sim.job import SimJob
from punctual.traces import TraceJob

NODES = [*nodes(6, 4, "T4"), *nodes(3, 8, "2080Ti"), *nodes(2, 8, "A100")]
COUNTS = (1, 2, 4, 8, 16)
#: Mean completion time and makespan that Sia's simulator prints for its own policy and for Gavel's, and CPU seconds.
PRINTED = {"Sia, with batch adaptation": (2_092.0, 44_856.0, 729.0), "Gavel's in it": (6_473.0, 98_172.0, 99.0)}
POLICIES = (
    "promises-first:risk_sigmas=0", "promises-first", "greedy", "max-min", "optimus", "elastic-mip", "elasticflow",
    "shortest-remaining:size=smallest",
)  # fmt: skip
OURS = POLICIES[0]


def jobs() -> list[SimJob]:
    """The 160 jobs of saturn-1, each with its speed by kind of device and number of devices."""
    return [_job(one, str(one.model_name)) for one in trace_of("sia_workloads/saturn/workload-1.csv")]


def _job(one: TraceJob, model: str) -> SimJob:
    folder = data() / "profiles" / "sia" / model
    return fixed_batch(one, folder, SIA_KINDS, COUNTS, SIA_RESTART_S[model], SIA_SLOWDOWN[model])


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
