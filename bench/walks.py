"""Measure how much code is walked through, counted: what a job on one machine needs, what a tick calls, what a start calls.

*Reach*: modules that the imports of a module lead to, read from the source, and their lines. *Walks*: calls of functions of
Punctual between two events of the scheduler, in all threads of one process, with all work that happens beside:

* a tick: from a report of progress to the end of the change of the quota that it led to, in the daemon, the median of a job's ticks;
* a start: from a submission that has come to the daemon to the event that the job's process has started;
* a command: from the first call of `punctual run` to the answer to its submission, of a daemon that there is;
* a simulated launch: from the first call of a simulation of a trace's rows to the first event that a job has started.

Targets are those of the design. With `--quick` the same: it takes seconds. With `--print WALK` the calls of a walk, as a tree for
each thread: what to read first.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from _common import Results, parser
from _processes import PATIENCE_S, home, wait_until
from _report import Section, Target, conclude_report
from tests.architecture.source import PACKAGE, modules, reachable

from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_options import HostOptions
from punctual.daemon.sharing import daemon_run

SOURCE = PACKAGE.parent
#: What needs a module -> that module.
REACHES = {
    "a daemon": "punctual.api.watcher",
    "`punctual run`": "punctual.cli.run",
    "a simulation": "punctual.sim.simulation",
    "`punctual.track`": "punctual.tracking.track",
}
WALKS = ("a tick", "a start", "a command", "a simulated launch")
COUNT = "{:,.0f}".format
#: Key -> the most: lines, or calls and files.
TARGETS = {
    "lines of a daemon": 25_000, "calls of a tick": 400, "files of a tick": 30, "calls of a start": 700,
    "files of a start": 40,
}  # fmt: skip

TRACE = """
import collections, json, os, sys, threading
ROOT, out = sys.argv[1], sys.argv[2]
calls, marks, depths = [], [], collections.Counter()
def profile(frame, event, _):
    code = frame.f_code
    file = code.co_filename
    if event == "call" and code.co_flags & 1 and file.startswith(ROOT):  # a function, not a module or class being made
        thread = threading.get_ident()
        calls.append((file[len(ROOT) + 1:], f"{code.co_firstlineno} {code.co_qualname}", thread, depths[thread]))
        depths[thread] += 1
    elif event == "return" and code.co_flags & 1 and file.startswith(ROOT):
        depths[threading.get_ident()] -= 1
    if event == "call" and code.co_name == "submit_for_client" and file.endswith("daemon/host.py"):
        marks.append((len(calls), "submission", "begin"))
    if event == "return" and code.co_name == "submit" and file.endswith("daemon/control_client.py"):
        marks.append((len(calls), "submission", "end"))
    if code.co_name == "handle" and file.endswith("core/scheduler.py"):
        kind = type(frame.f_locals.get("event")).__name__
        if event == "call":
            marks.append((len(calls), kind, "begin"))
        elif event == "return":
            marks.append((len(calls), kind, "end"))
def tell():
    sys.setprofile(None)
    threading.setprofile(None)
    with open(out, "w") as file:
        json.dump({"calls": calls, "marks": marks}, file)
del sys.argv[1:3]
threading.setprofile(profile)
sys.setprofile(profile)
try:
    if sys.argv[1] == "simulate":
        from itertools import islice
        from punctual import registry
        from punctual.request.cluster_file import groups_of, nodes_of
        from punctual.sim.scaling import sim_jobs
        from punctual.sim.scaling.elastic import Elastic
        from punctual.sim.simulation import Simulation
        from punctual.sim.traces.generators.poisson import Poisson
        jobs = sim_jobs(islice(Poisson(n_jobs=3).jobs(0), 3), Elastic())
        models = {"tabulated": registry.load("models", "tabulated")()}
        policy = registry.load("policies", "promises-first")()
        Simulation(jobs, nodes_of(groups_of("1x8", "the case")), policy, models=models).run()
    elif sys.argv[1] == "daemon":
        from punctual.api.daemon_process import main
        main(sys.argv[2], lambda run: None)
    else:
        from punctual.cli import main
        main()
except SystemExit:
    pass
finally:
    tell()
"""
#: Steps of 20 ms of one core, for some eight seconds on half of it.
TRAINING = """
import time, punctual
for _ in punctual.track(range(200)):
    end = time.process_time() + 0.02
    while time.process_time() < end: pass
"""
RUN = ("run", "--deadline", "8s", "--cores", "1", "--quiet", "--name", "walk", "--")
#: Options of the daemon.
OPTIONS = HostOptions(actuator="pacing", shared=True)

#: File, line with name of the function, thread, and number of calls of Punctual that it is inside of.
Call = tuple[str, str, int, int]
#: Number of calls before it, kind of what is marked, and its begin or end.
Mark = tuple[int, str, str]
Walk = tuple[list[Call], list[Mark]]


def reach(graph: dict[str, set[str]], start: str) -> list[str]:
    """Return the modules that the imports of `start` lead to, itself included, packages' own files left out."""
    return sorted((reachable(graph, start) | {start}) - {"punctual"})


def n_lines(module: str) -> int:
    file = SOURCE.joinpath(*module.split("."))
    path = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    return len(path.read_text(encoding="utf-8").splitlines())


class Traced:
    """A command, a daemon or a simulation in a fresh process, whose calls are counted."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out = folder / f"{words[0]}.json"
        command = [sys.executable, "-c", TRACE, str(SOURCE / "punctual"), str(self._out), *words]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def walk(self) -> Walk:
        """Calls, and marks in them, once it has ended."""
        self._process.wait(PATIENCE_S)
        found: dict[str, Any] = json.loads(self._out.read_text())
        return [tuple(call) for call in found["calls"]], [tuple(mark) for mark in found["marks"]]


def ticks(calls: list[Call], marks: list[Mark]) -> list[list[Call]]:
    """Each walk from a report of progress to the end of the change of the quota that it led to, the shortest first."""
    found, begun = [], None
    for at, kind, part in marks:
        if kind == "ProgressReported" and part == "begin":
            begun = at
        elif kind == "GrantApplied" and part == "end" and begun is not None:
            found.append(calls[begun:at])
            begun = None
    return sorted(found, key=len)


def until(calls: list[Call], marks: list[Mark], kind: str, since: str | None = None) -> list[Call]:
    """Return the calls before the first mark of this kind, from the first one of kind `since` on."""
    begun = 0 if since is None else next(at for at, other, _ in marks if other == since)
    return calls[begun : next(at for at, other, _ in marks if other == kind)]


def tree(calls: list[Call]) -> list[str]:
    """Return the lines of a walk, thread by thread."""
    least = {thread: min(depth for *_, other, depth in calls if other == thread) for _, _, thread, _ in calls}
    lines = []
    for number, thread in enumerate(least):
        lines.append(f"thread {number}")
        lines += [
            f"  {'  ' * (depth - least[thread])}{file}:{name}" for file, name, own, depth in calls if own == thread
        ]
    return lines


def measured(printed: str | None = None) -> Results:
    """Count all walks; print the calls of one."""
    all_modules = {module.name: module for module in modules()}
    graph = {
        name: {found.target for found in module.imports()} & all_modules.keys() for name, module in all_modules.items()
    }
    reaches = {name: reach(graph, module) for name, module in REACHES.items()}
    with home("walks") as folder:
        daemon = Traced(folder, "daemon", DaemonRequest(options=OPTIONS).command()[-1])
        wait_until(daemon_run)
        command = Traced(folder, *RUN, sys.executable, "-c", TRAINING).walk()
        simulation = Traced(folder, "simulate").walk()
        live = daemon.walk()
    changes = ticks(*live)
    if not changes:
        raise RuntimeError("no tick of the job has changed its quota: the machine is too busy, or the job has failed")
    walks = {
        "a tick": changes[len(changes) // 2],
        "a start": until(*live, "JobStarted", since="submission"),
        "a command": until(*command, "submission"),
        "a simulated launch": until(*simulation, "JobStarted"),
    }
    for line in tree(walks[printed]) if printed is not None else ():
        print(line)
    return {
        "reach": {
            name: {"modules": len(reached), "lines": sum(map(n_lines, reached))} for name, reached in reaches.items()
        },
        "walks": {
            name: {"calls": len(walk), "files": len({file for file, *_ in walk})} for name, walk in walks.items()
        },
    }


def sections(results: Results) -> list[Section]:
    reaches, walks = results["reach"], results["walks"]
    figures = {
        "lines of a daemon": reaches["a daemon"]["lines"],
        **{f"{what} of {walk}": walks[walk][what] for walk in ("a tick", "a start") for what in ("calls", "files")},
    }
    return [
        Section(
            "Reach", ["reach", "modules", "lines"],
            [[name, COUNT(one["modules"]), COUNT(one["lines"])] for name, one in reaches.items()],
            [Target(key, most, figures[key], COUNT) for key, most in TARGETS.items()],
        ),
        Section(
            "Walks", ["walk", "calls", "files"],
            [[name, COUNT(one["calls"]), COUNT(one["files"])] for name, one in walks.items()],
        ),
    ]  # fmt: skip


def main() -> int:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--print", metavar="WALK", choices=WALKS, help=f"print the calls of {', '.join(WALKS)}")
    given = arguments.parse_args()
    return conclude_report("walks", measured(given.print), sections, quick=given.quick, key=1)


if __name__ == "__main__":
    sys.exit(main())
