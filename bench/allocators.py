"""Our allocator against all others: completion time, waiting and deadlines at once, and the published simulators' traces.

Each cell is one simulation of one policy on one setting (trace, load, restart cost, error of the declared speeds, seed).
Cells that are there already and were made with the same code of the policies are kept with `--resume`; `--bounds` only computes
what nobody can exceed, for the settings that have no bound yet. The data lie where PUNCTUAL_DATA says; without them only the generated jobs are compared.
"""

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _allocator_cells import OUTSIDE, WORLDS, Setting, available, deadline_bound, folder, jobs_of, nodes, run, verdict
from _allocator_tables import markdown, show
from _common import RESULTS, Results, parser, revision, revisions, stamp, stamp_text, write_results
from _jct_bound import jct_bound_s
from _reference import in_turns

from punctual import registry

OURS = "promises-first"
#: With exact knowledge of all speeds nothing need be held back for errors.
OURS_OUTSIDE = "promises-first:risk_sigmas=0"
#: Not for jobs that are made of workers, or slower than a study can wait for.
LEFT_OUT = {"proportional"}
#: Rigid policies also with the smallest number of workers, so that they are not judged by their size alone.
EXTRA = ("shortest-remaining:size=smallest", "earliest-deadline:size=smallest")
LOADS = (0.8, 1.0, 1.2, 1.5, 3.0)
#: Share of settings with load up to 1.2 in which ours must do well in all three respects.
TARGET_FRAC = 0.9


def policies() -> list[str]:
    """Return all registered policies, ours included."""
    return [name for name in registry.names("policies") if name not in LEFT_OUT] + list(EXTRA)


def settings(worlds: list[str], seeds: int) -> list[Setting]:
    """Every load; every restart cost and error at two of the loads."""
    varied = [(load, 30.0, 0.0) for load in LOADS]
    varied += [(load, restart_s, 0.0) for load, restart_s in product((1.0, 1.2), (0.5, 60.0))]
    varied += [(load, 30.0, error) for load, error in product((1.0, 1.2), (0.1, 0.5))]
    # What matters most comes first, in case there is no time for all.
    return [Setting(world, *one, seed) for seed in range(seeds) for one in varied for world in worlds]


def cell(setting: Setting, policy: str, n_jobs: int) -> tuple[str, str, dict[str, Any]]:
    """One simulation; a policy that fails is noted, not hidden."""
    world = WORLDS[setting.world]
    jobs = jobs_of(setting, folder(), n_jobs)
    if policy == "bound":
        n_devices = world.n_nodes * world.devices_per_node
        return setting.key, policy, {"n": deadline_bound(jobs, n_devices), "jct_s": jct_bound_s(jobs, n_devices)}
    try:
        return setting.key, policy, run(policy, jobs, nodes(world.n_nodes, world.devices_per_node))
    except Exception as error:  # noqa: BLE001 -- of somebody's policy: the others are still compared
        return setting.key, policy, {"failed": f"{type(error).__name__}: {error}"[:200]}


def outside_cell(name: str, policy: str) -> tuple[str, str, dict[str, Any]]:
    """One published trace."""
    one, data = OUTSIDE[name], folder()
    if data is None:
        return name, policy, {}
    found = run(policy, one.jobs(data), nodes(one.n_nodes, one.devices_per_node), reports=False)
    return name, policy, {**found, **in_turns(turns=found["cpu_s"])}


def main() -> int:
    """Run what is missing, write the tables, say whether the targets are reached."""
    options = _options()
    out = RESULTS / f"allocators{'-quick' if options.quick else ''}.json"
    kept = json.loads(out.read_text()) if (options.resume or options.bounds) and out.exists() else {}
    if kept.get("n_jobs") != options.jobs:  # slices of another length are other settings
        kept = {}
    cells: dict[str, dict[str, Any]] = kept.get("cells", {})
    outside: dict[str, dict[str, Any]] = kept.get("outside", {})
    # A bound does not depend on the policies: cells stay those of the revision that made them.
    options.stamp = kept["stamp"] if kept and options.bounds else stamp()
    if kept and not options.bounds and set(revisions(kept)) != {revision()}:
        options.stamp["cells_kept_of"] = kept["stamp"]
    begun_s = time.monotonic()
    worlds = ["modelarts-like"] if options.quick else [w for w in options.worlds or available(folder()) if w in WORLDS]
    names = _QUICK if options.quick else options.policies or policies()
    wanted = settings(worlds, options.seeds)
    if options.bounds:
        names = []
    if options.quick:
        wanted = [one for one in wanted if one.load in (1.0, 1.2) and one.restart_s == 30 and not one.error]
    _fill(
        cells,
        [(one, name, options.jobs) for one in wanted for name in (*names, "bound")],
        options,
        begun_s,
        outside,
        out,
    )
    if folder() is not None and not options.bounds and not options.policies:
        outside_names = ["elasticVpollux_e", "195job", "cluster10"] if options.quick else list(OUTSIDE)
        for name in outside_names:
            for policy in (
                [OURS_OUTSIDE] if options.quick else [OURS_OUTSIDE, f"{OURS_OUTSIDE},work=early", OURS, "greedy"]
            ):
                if policy not in outside.get(name, {}):
                    outside.setdefault(name, {})[policy] = _tried(name, policy)
    return _report(out, cells, outside, options, time.monotonic() - begun_s)


_QUICK = [OURS, "greedy", "max-min", "shortest-remaining:size=smallest"]


def _tried(name: str, policy: str) -> dict[str, Any]:
    try:
        return outside_cell(name, policy)[2]
    except Exception as error:  # noqa: BLE001 -- as in `cell`
        return {"failed": f"{type(error).__name__}: {error}"[:200]}


def _options() -> Any:
    made = parser(__doc__ or "")
    made.add_argument("--resume", action="store_true", help="keep the cells that are there")
    made.add_argument("--bounds", action="store_true", help="only the bounds that are missing; keep the cells")
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--jobs", type=int, default=500, help="in each slice of a trace")
    made.add_argument("--processes", type=int, default=2)
    made.add_argument("--worlds", nargs="*", help="only these")
    made.add_argument("--policies", nargs="*", help="only these; their cells that are there are made again")
    made.add_argument("--limit", type=float, default=1e9, help="seconds after which no new cell is begun")
    return made.parse_args()


def _fill(
    cells: dict[str, dict[str, Any]],
    wanted: list[Any],
    options: Any,
    begun_s: float,
    outside: dict[str, Any],
    out: Path,
) -> None:
    """Run the cells that are missing; results are written now and then."""
    again = options.policies or ()
    missing = [
        (one, name, n) for one, name, n in wanted if name in again or not _is_there(cells.get(one.key, {}), name)
    ]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_cell_in_time, one, name, n, begun_s + options.limit) for one, name, n in missing]
        for i, done in enumerate(waiting, 1):
            found = done.result()
            if found is not None:
                key, name, numbers = found
                cells.setdefault(key, {})[name] = numbers
            if i % 200 == 0:
                print(f"{i} of {len(waiting)} cells, {time.monotonic() - begun_s:.0f} s", file=sys.stderr, flush=True)
                _write(cells, outside, out, options)


def _is_there(row: dict[str, Any], name: str) -> bool:
    return "jct_s" in row.get("bound", {}) if name == "bound" else name in row


def _cell_in_time(setting: Setting, policy: str, n_jobs: int, until_s: float) -> tuple[str, str, dict[str, Any]] | None:
    return cell(setting, policy, n_jobs) if time.monotonic() < until_s else None


def _write(cells: dict[str, Any], outside: dict[str, Any], out: Path, options: Any) -> None:
    found = {"stamp": options.stamp, "n_jobs": options.jobs, "cells": cells, "outside": outside}
    write_results(out.stem, found)


def _report(out: Path, cells: dict[str, Any], outside: dict[str, Any], options: Any, took_s: float) -> int:
    _write(cells, outside, out, options)
    if "-quick" not in out.stem:
        out.with_suffix(".md").write_text(page(json.loads(out.read_text())))
    return show(cells, verdicts_of(cells), outside, OURS, OURS_OUTSIDE, TARGET_FRAC, took_s)


def verdicts_of(cells: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    verdicts = {}
    for key, row in cells.items():
        bound = row.get("bound", {})
        valid = {name: one for name, one in row.items() if name != "bound" and one.get("jct_mean_s")}
        if "n" in bound and OURS in valid and len(valid) > 1:
            verdicts[key] = verdict(valid, OURS, bound)
    return verdicts


def page(results: Results) -> str:
    cells = results["cells"]
    return f"{markdown(cells, verdicts_of(cells), results['outside'], OURS)}\n{stamp_text(results)}\n"


if __name__ == "__main__":
    sys.exit(main())
