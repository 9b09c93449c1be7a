"""Punctual on many nodes: what a service with 200 agents costs, trainings on three Ray nodes, and a node that is lost.

*scale.* The real service (`punctual up`, journal, planner and HTTP included) has 10 to 200 agents and five jobs for each. Each agent is
a whole one behind a Unix socket of its own, but for the executor below it: its jobs only pretend to run, and all agents share one
process, which is counted by itself. A job has hours left and needs a tenth of a core. CPU is that of the service and of its planner.
A *decision* is one event that is handled, written into the journal and performed; a *plan* is what the policy makes of all jobs, from the
request to the instant at which it is handled.
Growth is the exponent p of cost ~ agents^p between the two largest sizes, after what a service with one agent and no job costs is taken
off: 1 is linear. Beside it, what a request to an agent costs the service over this channel and over Ray's.

*nodes.* Six trainings with deadlines on three real Ray nodes of this machine, each of which has half a core, by a control group in
which everything of the node is. They are played twice: as they are, and with a node that fails whole in the middle: Ray, the agent
and the trainings there are killed at once. That counts after 12 s of silence here, where a service would wait for 60 s; then there
are two nodes for the rest.

The file has not the name `ray.py`, which would hide the package of that name from everything beside it.
"""

import math
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from _common import RESULTS, commit, parser, write_results
from _deadline_tables import Target
from _scale_runs import ScaleRun, measured, quantile
from host import PERCENT, TIMES, Report
from simulator import got, limit, verdict

JOBS_PER_AGENT = 5
#: Exponents of what a cost grows with; ratio of the p99 of a decision at the two sizes.
GROWTH_LIMIT, P99_LIMIT = 1.2, 3.0
QUOTES_LIMIT_S = 2.0
EXPONENT, SECONDS = "{:.2f}".format, "{:.2f} s".format


def scale(report: Report, options: Namespace, folder: Path) -> None:
    sizes = (10, 40) if options.quick else (10, 50, 200)
    settle_s, window_s = (5.0, 8.0) if options.quick else (30.0, 60.0)
    nothing = measured(1, 0, folder / "nothing", 1.0, window_s / 2)
    runs = [measured(n, JOBS_PER_AGENT * n, folder / str(n), settle_s, window_s) for n in sizes]
    heads = [
        "agents", "jobs", "service, of a core", "planner", "agents together", "service, MB", "threads", "decisions a second",
        "p50, ms", "p99, ms", "plans", "a plan, p50, ms", "p99",
    ]  # fmt: skip
    rows = [_scale_row(run) for run in (nothing, *runs)]
    before, last = runs[-2], runs[-1]
    cpu = growth([run.cores - nothing.cores for run in (before, last)], (before, last))
    memory = growth([run.rss_mb - nothing.rss_mb for run in (before, last)], (before, last))
    size = f"from {before.n_agents} to {last.n_agents} agents"
    results = [asdict(run) for run in (nothing, *runs)]
    report.add("Many agents without training", heads, rows, results, [
        Target(f"growth of CPU time {size}, exponent", GROWTH_LIMIT, cpu, EXPONENT),
        Target(f"growth of memory {size}, exponent", GROWTH_LIMIT, memory, EXPONENT),
        Target(
            f"p99 of a decision with {last.n_agents} agents over that with {runs[0].n_agents}", P99_LIMIT,
            last.decision_p99_s / runs[0].decision_p99_s, TIMES,
        ),
    ])  # fmt: skip
    threads = [name for name, used in last.threads.items() if used >= 0.001]
    rows = [[name, *(PERCENT(run.threads.get(name, 0.0)) for run in runs)] for name in threads]
    report.add("CPU of the service by thread", ["thread", *(str(run.n_agents) for run in runs)], rows, None, [])


def growth(costs: Sequence[float], runs: Sequence[ScaleRun]) -> float:
    """p of cost ~ agents^p between two runs."""
    return math.log(costs[1] / costs[0]) / math.log(runs[1].n_agents / runs[0].n_agents)


def _scale_row(run: ScaleRun) -> list[str]:
    def ms(values: Sequence[float], frac: float) -> str:
        return f"{1e3 * quantile(values, frac):.2f}" if values else "–"

    return [
        str(run.n_agents), f"{run.n_jobs:,}", PERCENT(run.service_cores), PERCENT(run.planner_cores), PERCENT(run.agents_cores),
        f"{run.rss_mb:.1f}", str(run.n_threads), f"{len(run.decided_s) / run.window_s:.0f}", ms(run.decided_s, 0.5),
        ms(run.decided_s, 0.99), str(len(run.planned_s)), ms(run.planned_s, 0.5), ms(run.planned_s, 0.99),
    ]  # fmt: skip


def nodes(report: Report, options: Namespace, folder: Path) -> None:
    from _nodes_play import CORES, N_NODES, played, step_core_s
    from _ray_nodes import ray_nodes

    os.environ["PUNCTUAL_HOME"] = str(folder / "home")
    kinds = ("a node is lost",) if options.quick else ("fits", "a node is lost")
    with ray_nodes(N_NODES, CORES, folder) as cluster:
        each_core_s = step_core_s()
        seen = [played(kind, cluster, folder, each_core_s) for kind in kinds]
    rows = [
        [run.kind, name, run.states[name], "–" if late is None else f"{late:+.2%}", ", ".join(run.warnings[name])]
        for run in seen
        for name, late in run.late_frac.items()
    ]
    targets = []
    for run in seen:
        n_ended = sum(state == "finished" for state in run.states.values())
        targets += [
            Target(f"{run.kind}: trainings that end", 1.0, n_ended / len(run.states), PERCENT, at_least=True),
            Target(f"{run.kind}: on time", 1.0, run.n_on_time / len(run.dated), PERCENT, at_least=True),
        ]
    lost = seen[-1]
    quotes_s = max(lost.quotes_s, default=None) if lost.lost_noticed_s else None
    targets.append(Target("all quotes renewed after the loss of the node is told", QUOTES_LIMIT_S, quotes_s, SECONDS))
    heads = ["play", "training", "ended", "late by, of its deadline", "told to its user"]
    report.add("Trainings on three Ray nodes", heads, rows, [asdict(run) for run in seen], targets)


PARTS: dict[str, Callable[[Report, Namespace, Path], None]] = {"scale": scale, "nodes": nodes}


def main() -> int:
    made = parser("Punctual on many nodes.")
    made.add_argument("--part", choices=list(PARTS), action="append", help="only this one; may be given several times")
    options = made.parse_args()
    short = []
    for name in options.part or PARTS:
        report = Report()
        with tempfile.TemporaryDirectory(prefix="punctual-bench-") as folder:
            PARTS[name](report, options, Path(folder))
        file = f"ray_{name}" + ("-quick" if options.quick else "")
        write_results(file, {"commit": commit(), "load": os.getloadavg(), **report.results})
        if not options.quick:
            (RESULTS / f"{file}.md").write_text(report.markdown(), encoding="utf-8")
        short += [target for target in report.targets if target.reached is not True]
        key = report.targets[0]
        n_reached = len(report.targets) - len([target for target in report.targets if target.reached is not True])
    for target in short:
        print(f"{verdict(target)}: {target.text}: {got(target)} ({limit(target)})")
    print(f"{n_reached} of {len(report.targets)} targets reached; {key.text}: {got(key)} (target: {limit(key)})")
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
