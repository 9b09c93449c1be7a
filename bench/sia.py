"""Sia's saturn-1 on its mixed cluster: our policies beside what its simulator printed for its own and for Gavel's.

Sia also adapts the batch of each job (its goodput model); ours leave the batch as it was submitted, so that a job's
iterations stay what they were and only its devices change: the same comparison without batch adaptation. As in Sia's
simulator each model is slowed down to what was seen on real devices, and a start and a change of devices cost 15 to
250 s, by model. The data lie where PUNCTUAL_DATA says.
"""

import sys

from _allocator_cells import nodes, run
from _common import Results, markdown_table, parser, print_table, stamp_text, write_results
from _published import SIA_KINDS, SIA_RESTART_S, SIA_SLOWDOWN, data, fixed_batch, has_data, trace_of
from _report import Target, conclude_targets

from punctual.sim.job import SimJob
from punctual.sim.traces import TraceJob

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


HEADS = ["policy", "mean JCT, s", "makespan, s", "p99 JCT, s", "CPU s"]


def rows_of(results: Results) -> list[list[str]]:
    rows = [[name, f"{jct:,.0f}", f"{end:,.0f}", "–", f"{cpu:,.0f}"] for name, (jct, end, cpu) in PRINTED.items()]
    rows += [
        [
            name, f"{one['jct_mean_s']:,.0f}", f"{one['makespan_s']:,.0f}", f"{one['jct_p99_s']:,.0f}",
            f"{one['cpu_s']:.2f}",
        ]
        for name, one in results["runs"].items()
    ]  # fmt: skip
    return rows


def page(results: Results) -> str:
    lines = ["<!-- made by bench/sia.py -->", "", *markdown_table(HEADS, rows_of(results)), "", stamp_text(results)]
    return "\n".join([*lines, ""])


def main() -> int:
    """Simulate, print the table, say whether ours is faster than what Sia prints."""
    options = parser(__doc__ or "").parse_args()
    if not has_data():
        print("the data are not there: set PUNCTUAL_DATA")
        return 1
    names = POLICIES[:3] if options.quick else POLICIES
    found = {name: run(name, jobs(), NODES, reports=False) for name in names}
    results = write_results("sia", {"runs": found}, page, quick=options.quick)
    print_table(HEADS, rows_of(results))
    printed_s = PRINTED["Sia, with batch adaptation"][0]
    target = Target(
        f"mean JCT of {OURS}, saturn-1, to what Sia prints", printed_s, found[OURS]["jct_mean_s"], "{:,.0f} s".format
    )
    return conclude_targets([target], target, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
