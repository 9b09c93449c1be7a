"""One simulation in a process of its own: `python _simulator_cases.py NAME` prints what it cost and what came out.

The reference is measured just before and just after it, in the same process. With `--digest` it prints, in place of the cost,
a hash of all messages as a journal has them and of the results: the same for two revisions that simulate the same.

Names: ``rigid/POLICY/JOBS/SEED``, ``steered/POLICY/JOBS/SEED``, ``philly/POLICY``, ``elastic/POLICY/JOBS/SEED``, ``published/INDEX``.
"""

import argparse
import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _reference import turn_s


@dataclass(frozen=True)
class Case:
    """A simulation to be made; `jobs` reads and makes its jobs."""

    jobs: Callable[[], Iterable[Any]]
    cluster: str
    policy: str
    #: What steers each job; None: nothing does, and there are no ticks.
    controller: str | None = None


def rigid(policy: str, n_jobs: str, seed: str) -> Case:
    from punctual.sim.scaling.rigid import Rigid

    return Case(lambda: _generated(int(n_jobs), int(seed), Rigid()), "64x8", policy)


def elastic(policy: str, n_jobs: str, seed: str) -> Case:
    from punctual.sim.scaling.elastic import Elastic

    return Case(lambda: _generated(int(n_jobs), int(seed), Elastic()), "64x8", policy)


def steered(policy: str, n_jobs: str, seed: str) -> Case:
    """Jobs on shares of cores with deadlines, each under the controller of a live host."""
    from punctual.sim.scaling import sim_jobs
    from punctual.sim.scaling.cores import Cores as CoreShares
    from punctual.sim.traces.deadlines import UniformSlack

    rule, slack, controller = CoreShares(most_factor=2.0), UniformSlack(low=1.5, high=3.0), "remaining-cost"
    traced = [slack.apply(job, int(seed)) for job in _traced(int(n_jobs), int(seed))]
    return Case(lambda: sim_jobs(traced, rule, seed=int(seed), controller=controller), "64x8", policy, controller)


def philly(policy: str) -> Case:
    from _published import by_rule

    from punctual.sim.scaling.rigid import Rigid

    return Case(by_rule("philly_2017/philly_jobs_pollux.csv", Rigid), "64x8", policy)


def published(index: str) -> Case:
    from _published import PUBLISHED

    one = PUBLISHED[int(index)]
    return Case(one.jobs, one.cluster, one.policy)


FAMILIES: dict[str, Callable[..., Case]] = {
    "rigid": rigid, "elastic": elastic, "steered": steered, "philly": philly, "published": published,
}  # fmt: skip


def _generated(n_jobs: int, seed: int, rule: Any) -> Iterable[Any]:
    from punctual.sim.scaling import sim_jobs

    return sim_jobs(_traced(n_jobs, seed), rule, seed=seed)


def _traced(n_jobs: int, seed: int) -> Iterable[Any]:
    from punctual.sim.traces.generators.poisson import Poisson

    return Poisson(n_jobs=n_jobs, n_devices=512, load=0.9).jobs(seed)


def run(case: Case, *listeners: Callable[[Any], None]) -> dict[str, float | None]:
    """Simulate, and what came out; also finds everything that has to be imported when it is done for the first time.

    `listeners` get each message.
    """
    from punctual import registry
    from punctual.history.cluster import ClusterHistory
    from punctual.request.cluster_file import groups_of, nodes_of
    from punctual.sim.garbage import rare_collections
    from punctual.sim.simulation import Simulation

    record = ClusterHistory()
    controllers = {} if case.controller is None else {case.controller: registry.load("controllers", case.controller)()}
    models = {"tabulated": registry.load("models", "tabulated")()}
    policy = registry.load("policies", case.policy)()
    with rare_collections():  # as in a study
        told = (record.add, *listeners)
        nodes = nodes_of(groups_of(case.cluster, "the case"))
        Simulation(case.jobs(), nodes, policy, controllers=controllers, models=models, listeners=told).run()
        row = record.summary().row()
    shown = ("n_jobs", "n_finished", "n_deadlines_met", "jct_mean_s", "makespan_s", "granted_device_frac", "n_rounds")
    return {name: row[name] for name in shown}


def digest(case: Case) -> dict[str, Any]:
    """SHA-256 of all messages of the simulation, as a journal has them, and of what came out."""
    from punctual.core.codec import encode, kind_of

    found, n_messages = hashlib.sha256(), 0

    def add(message: Any) -> None:
        nonlocal n_messages
        n_messages += 1
        found.update(f"{kind_of(message)} {encode(message)}\n".encode())

    found.update(json.dumps(run(case, add)).encode())
    return {"n_messages": n_messages, "sha256": found.hexdigest()}


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
        "python": platform.python_version(),
        "import_s": import_s,
        "run_s": run_s,
        "turn_us": each_s * 1e6,
        "turns": run_s / each_s,
        "rss_mib": peak_mib(),
        **found,
    }


def peak_mib() -> float:
    """The most memory of this program; `ru_maxrss` would count that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--digest", action="store_true", help="a hash of the messages and results in place of the cost")
    asked = parser.parse_args()
    family, *arguments = asked.name.split("/")
    case = FAMILIES[family](*arguments)
    import_all(case, family)
    print(json.dumps({"name": asked.name, **(digest(case) if asked.digest else cost(case))}))


if __name__ == "__main__":
    main()
