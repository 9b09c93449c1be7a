"""One simulation in a process of its own: `python _simulator_cases.py NAME` prints what it cost and what came out.

The reference is measured just before and just after it, in the same process.

Names: ``rigid/POLICY/JOBS/SEED``, ``philly/POLICY``, ``elastic/POLICY/JOBS/SEED``, ``published/INDEX``.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from _processes import status_of
from _reference import turn_s


@dataclass(frozen=True)
class Case:
    """A simulation to be made; `jobs` reads and makes its jobs."""

    jobs: Callable[[], Iterable[Any]]
    cluster: str
    policy: str


def rigid(policy: str, n_jobs: str, seed: str) -> Case:
    from punctual.sim.scaling.rigid import Rigid

    return Case(lambda: _generated(int(n_jobs), int(seed), Rigid()), "64x8", policy)


def elastic(policy: str, n_jobs: str, seed: str) -> Case:
    from punctual.sim.scaling.elastic import Elastic

    return Case(lambda: _generated(int(n_jobs), int(seed), Elastic()), "64x8", policy)


def philly(policy: str) -> Case:
    from _published import by_rule

    from punctual.sim.scaling.rigid import Rigid

    return Case(by_rule("philly_2017/philly_jobs_pollux.csv", Rigid), "64x8", policy)


def published(index: str) -> Case:
    from _published import PUBLISHED

    one = PUBLISHED[int(index)]
    return Case(one.jobs, one.cluster, one.policy)


FAMILIES: dict[str, Callable[..., Case]] = {
    "rigid": rigid, "elastic": elastic, "philly": philly, "published": published,
}  # fmt: skip


def _generated(n_jobs: int, seed: int, rule: Any) -> Iterable[Any]:
    from punctual.sim.scaling import sim_jobs

    return sim_jobs(_traced(n_jobs, seed), rule, seed=seed)


def _traced(n_jobs: int, seed: int) -> Iterable[Any]:
    from punctual.sim.traces.generators.poisson import Poisson

    return Poisson(n_jobs=n_jobs, n_devices=512, load=0.9).jobs(seed)


def run(case: Case) -> dict[str, float | None]:
    """Simulate, and what came out; also finds everything that has to be imported when it is done for the first time."""
    from punctual import registry
    from punctual.history.cluster import ClusterHistory
    from punctual.request.cluster_file import groups_of, nodes_of
    from punctual.sim.garbage import rare_collections
    from punctual.sim.simulation import Simulation

    record, policy = ClusterHistory(), registry.load("policies", case.policy)()
    models = {"tabulated": registry.load("models", "tabulated")()}
    with rare_collections():  # as in a study
        nodes = nodes_of(groups_of(case.cluster, "the case"))
        Simulation(case.jobs(), nodes, policy, models=models, listeners=(record.add,)).run()
        row = record.summary().row()
    shown = ("n_jobs", "n_finished", "n_deadlines_met", "jct_mean_s", "makespan_s", "granted_device_frac", "n_rounds")
    return {name: row[name] for name in shown}


def import_all(case: Case, family: str) -> None:
    """Simulate a job or two on the same parts, and find the readers of traces: after it everything is imported."""
    from punctual import registry
    from punctual.sim.traces.trace import FAMILY

    for name in registry.names(FAMILY):
        registry.load(FAMILY, name)
    few = FAMILIES["elastic" if family == "elastic" else "rigid"]("fifo", "2", "0")
    run(replace(few, policy=case.policy))


def cost(case: Case) -> dict[str, Any]:
    """Return what the simulation costs in this process, and what came out."""
    import_s, before_s = time.process_time(), turn_s()
    begun_s = time.process_time()
    found = run(case)
    run_s = time.process_time() - begun_s
    each_s = (before_s + turn_s()) / 2
    return {
        "python": platform.python_version(), "import_s": import_s, "run_s": run_s, "turn_us": each_s * 1e6,
        "turns": run_s / each_s, "rss_mib": peak_mib(), **found,
    }  # fmt: skip


def peak_mib() -> float:
    """The most memory of this program; `ru_maxrss` would count that of the process that started it."""
    return int(status_of()["VmHWM"].split()[0]) / 1024


def main(name: str) -> None:
    family, *arguments = name.split("/")
    case = FAMILIES[family](*arguments)
    import_all(case, family)
    print(json.dumps({"name": name, **cost(case)}))


if __name__ == "__main__":
    main(sys.argv[1])
