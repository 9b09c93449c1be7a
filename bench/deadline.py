"""Does a training land on its deadline? Three applications, four controllers, five kinds of disturbance, for real.

`bench/deadline.md` says how. A *block* is one application at one ratio of deadline to fastest time under one condition; the four
controllers run it one after the other, in an order drawn per block. Blocks are drawn in an order that covers all combinations as
evenly as possible, so a run that is cut off is still balanced. Each lane is one CPU; with `--lanes 2` each block is the other's
noisy neighbour. In `--part landings` a job that only sleeps keeps the daemon there, so no start of one falls into a landing.

Every run is written to `bench/results/deadline.json` when it ends. A run of a part replaces what
the file has of it and keeps the rest; `--resume` keeps those of this revision, too, and goes on after the last one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import _common
import _deadline_tables
from _common import EXAMPLES
from _processes import home
from _report import Section, Target, conclude_report, conclude_targets

NAME = "deadline"
PUNCTUAL = [sys.executable, "-m", "punctual"]

APPS = ("vision", "language", "speech")
#: bench/_printing.py, which knows nothing of Punctual.
PRINTING = "printing"
RATIOS = (1.3, 1.5, 2.0, 4.0)
OURS = "remaining-cost"
CONTROLLERS = (OURS, "proportional-integral", "decor-pi", "constant")
#: Conditions, and the ratios at which the deadline can still be met under them.
CONDITIONS = {
    "undisturbed": RATIOS,
    "CPU hog for a third": RATIOS,
    "deadline to 0.8 D at 30 %": (1.5, 2.0, 4.0),
    "deadline to 1.5 D at 30 %": RATIOS,
    "step cost x1.8 half-way": (2.0, 4.0),
    "step cost x1.8 half-way, alone": (2.0,),
}
#: Runs one at a time, the other CPU idle: with a neighbour the job may be infeasible by what the neighbour costs it.
ALONE = "step cost x1.8 half-way, alone"
#: A fraction chosen beforehand cannot follow what changes later: it misses by the size of the change.
CONSTANT_CONDITIONS = ("undisturbed", "CPU hog for a third")
#: What steers a job where something is missing: the right to set quotas, or a script that can be changed.
BY_PACING, BY_OUTPUT = "pacing alone", "read from output, quota alone"
#: Of `--part landings`: so many at each share of the machine that those side by side want together.
LANDINGS, N_AT_A_TIME, DEADLINES_S = _deadline_tables.LANDINGS, _deadline_tables.N_AT_A_TIME, (45.0, 90.0)
N_LANDINGS, LOADS_FRAC = 50, (0.6, 0.8)
#: Of `--part published`: the ratios of [decor2025], and the fastest time of the jobs.
PUBLISHED, PUBLISHED_RATIOS, PUBLISHED_S = _deadline_tables.PUBLISHED, (1.0, 1.5, 1.8), 100.0
PARTS = ("main", LANDINGS, "infeasible", "alone", "lacking", PUBLISHED)
#: Of the main table, which all controllers run: what is played in 40 minutes.
N_BLOCKS = 24
N_EPOCHS = 4
#: Of the jobs of the main table.
DEADLINE_S = 45.0
#: The floor is decor-pi's: past 99 % of the steps it keeps its last demand, and with less it can hang there. Where it does not
#: run, jobs have no floor that could bring them to their end early.
CORES, CORES_WITHOUT_FLOOR = "0.1..1", "0..1"
CHANGE_AT_FRAC = 0.3
TARGET_FRAC = 0.002


@dataclass(frozen=True)
class Cell:
    """One run to be made. `deadline_s` is the one given at the start."""

    app: str
    ratio: float
    condition: str
    controller: str
    deadline_s: float
    repeat: int = 0


@dataclass(frozen=True)
class Profile:
    """Cost of an application at full speed, from two calibration runs: start-up, and one step with its share of
    evaluation and checkpoints."""

    startup_s: float
    step_s: float

    def n_epoch_steps(self, fastest_s: float) -> int:
        """Steps per epoch with which the fastest run takes `fastest_s`."""
        return max(2, round((fastest_s - self.startup_s) / (N_EPOCHS * self.step_s)))

    def fastest_s(self, n_epoch_steps: int) -> float:
        return self.startup_s + N_EPOCHS * n_epoch_steps * self.step_s


@dataclass(frozen=True)
class Work:
    """A block with the deadline it runs under and the controllers that run it."""

    block: tuple[str, float, str]
    deadline_s: float
    repeat: int = 0
    controllers: tuple[str, ...] = CONTROLLERS


class Lane:
    """One CPU, or the whole machine (`cpu` None), on which runs are made, one at a time."""

    def __init__(self, cpu: int | None, home: Path) -> None:
        self.cpu = cpu
        self._home = home
        self._busy = threading.Lock()

    def run(self, cell: Cell, n_epoch_steps: int, *, cores: str = CORES) -> dict[str, object]:
        """Make one run; what its report says. Waits for the lane."""
        with self._busy:
            return self._run(cell, n_epoch_steps, cores)

    def _run(self, cell: Cell, n_epoch_steps: int, cores: str) -> dict[str, object]:
        name = f"bench-{self.cpu}-{time.monotonic_ns()}"
        with tempfile.TemporaryDirectory(dir=self._home) as folder:
            controller = "decor-pi" if cell.controller == "constant" else cell.controller
            command = [
                *self._bound(), *PUNCTUAL, "run", "--json", "--name", name, "--cores", cores,
                "--controller", controller, *_options_of(cell), "--", *self._program(cell, n_epoch_steps, folder),
            ]  # fmt: skip
            begun = time.monotonic()
            job = subprocess.Popen(
                command, env=self._environment(cell), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            stop = threading.Event()
            disturber = threading.Thread(target=self._disturb, args=(cell, name, begun, stop))
            disturber.start()
            output, _ = job.communicate()
            stop.set()
            disturber.join()
        if job.returncode:
            raise RuntimeError(f"exit code {job.returncode}: {output[-2000:]}")
        return _common.report_of(output, job.returncode)

    def _bound(self) -> list[str]:
        return [] if self.cpu is None else ["taskset", "-c", str(self.cpu)]

    def _program(self, cell: Cell, n_epoch_steps: int, folder: str) -> list[str]:
        if cell.app == PRINTING:
            return [sys.executable, str(Path(__file__).with_name("_printing.py")), str(n_epoch_steps * N_EPOCHS)]
        program = [
            sys.executable, str(EXAMPLES / f"{cell.app}.py"), "--epochs", str(N_EPOCHS),
            "--steps-per-epoch", str(n_epoch_steps), "--threads", "1", "--checkpoint-dir", folder,
        ]  # fmt: skip
        if cell.condition.startswith("step cost"):
            program += ["--step-cost-factor", "1.8", "--step-cost-change-at", "0.5"]
        return program

    def _environment(self, cell: Cell) -> dict[str, str]:
        # A daemon has one actuator for all of its jobs.
        home = self._home / "pacing" if cell.condition == BY_PACING else self._home
        return os.environ | {"PUNCTUAL_HOME": str(home)}

    def _disturb(self, cell: Cell, name: str, begun: float, stop: threading.Event) -> None:
        if cell.condition.startswith("CPU hog"):
            self._hog(begun + cell.deadline_s / 3, begun + 2 * cell.deadline_s / 3, stop)
        elif cell.condition.startswith("deadline to"):
            factor = float(cell.condition.split()[2])
            change_s = (factor - 1.0) * cell.deadline_s
            if not stop.wait(begun + CHANGE_AT_FRAC * cell.deadline_s - time.monotonic()):
                change = [*PUNCTUAL, "deadline", name, f"{change_s:+.3f}s"]
                subprocess.run(change, env=self._environment(cell), stdout=subprocess.DEVNULL, check=True)

    def _hog(self, from_at: float, until_at: float, stop: threading.Event) -> None:
        if stop.wait(from_at - time.monotonic()):
            return
        hog = subprocess.Popen([*self._bound(), sys.executable, "-c", "while True: pass"])
        try:
            stop.wait(until_at - time.monotonic())
        finally:
            hog.send_signal(signal.SIGKILL)
            hog.wait()


def _options_of(cell: Cell) -> list[str]:
    options = ["--deadline", f"{cell.deadline_s:.3f}s"] if cell.deadline_s else []
    if cell.condition == BY_PACING:
        options += ["--actuator", "pacing"]
    if cell.app == PRINTING:
        options += ["--progress-regex", "auto"]
    return options


def calibrate(lane: Lane, app: str, few: int = 20, many: int = 100) -> Profile:
    """Return what steps cost: the difference of a short and a longer run at full speed, after one that has read all files."""
    cell = Cell(app, 0.0, "undisturbed", "decor-pi", 0.0)
    lane.run(cell, few)
    landed = {n: float(str(lane.run(cell, n)["landed_s"])) for n in (few, many)}
    step_s = (landed[many] - landed[few]) / (N_EPOCHS * (many - few))
    return Profile(startup_s=landed[few] - N_EPOCHS * few * step_s, step_s=step_s)


def blocks() -> list[tuple[str, float, str]]:
    """All combinations, in an order of which every prefix is about balanced over apps, ratios and conditions."""
    rng = random.Random(0)
    paired = {name: ratios for name, ratios in CONDITIONS.items() if name != ALONE}
    left = [(app, ratio, name) for name, ratios in paired.items() for ratio in ratios for app in APPS]
    rng.shuffle(left)
    done: list[tuple[str, float, str]] = []
    while left:
        counts = [sum(1 for other in done if other[i] == block[i]) for block in left for i in range(3)]
        loads = [sum(counts[k * 3 : k * 3 + 3]) for k in range(len(left))]
        done.append(left.pop(loads.index(min(loads))))
    return done


def run_block(lane: Lane, work: Work, profile: Profile) -> Iterator[dict[str, object]]:
    """The block's runs, the controllers in an order drawn for it."""
    app, ratio, condition = work.block
    n_epoch_steps = profile.n_epoch_steps(work.deadline_s / ratio)
    drawn = random.Random(f"{work.block} {work.repeat}")
    for controller in drawn.sample(work.controllers, len(work.controllers)):
        cell = Cell(app, ratio, condition, controller, work.deadline_s, work.repeat)
        cores = CORES_WITHOUT_FLOOR if condition in (BY_PACING, BY_OUTPUT) else CORES
        if (
            controller == "constant"
        ):  # what a user would choose who had profiled the job: all its work, evenly until the deadline
            fraction = min(1.0, profile.fastest_s(n_epoch_steps) / work.deadline_s)
            cores = f"{fraction:.4f}..{fraction:.4f}"
        report = lane.run(cell, n_epoch_steps, cores=cores)
        yield {**asdict(cell), **_kept(report), "cpu": lane.cpu, "n_epoch_steps": n_epoch_steps}


def _kept(report: dict[str, object]) -> dict[str, object]:
    names = (
        "deviation_frac", "deviation_s", "landed_s", "used_core_s", "granted_core_s", "n_resizes", "warnings",
        "controller_cpu_s", "command_cpu_s", "actuator", "submitted_at", "ended_s",
    )  # fmt: skip
    kept = {name: report.get(name) for name in names}
    return kept | {"final_deadline_s": report.get("deadline_s")}


class Record:
    """All runs made so far, on disk after each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.content: dict[str, Any] = {"runs": [], "profiles": {}, **_common.on_record(NAME)}
        self.content.pop("stamp", None)

    def drop(self, parts: Sequence[str], but_of: str | None) -> None:
        """Forget the runs of these parts, but for those of a revision."""
        self.content["runs"] = [
            run for run in self.content["runs"] if part_of(run) not in parts or run["revision"] == but_of
        ]

    def missing(self, work: Work) -> Work:
        """The work with those of its controllers that have not run it."""
        names = ("app", "ratio", "condition", "deadline_s", "repeat")
        key = (*work.block, work.deadline_s, work.repeat)
        made = {run["controller"] for run in self.content["runs"] if tuple(run[name] for name in names) == key}
        return replace(work, controllers=tuple(name for name in work.controllers if name not in made))

    def add(self, kind: str, one: dict[str, object]) -> None:
        with self._lock:
            self.content.setdefault(kind, []).append(one | {"revision": _common.revision()})
            self.save()

    def save(self) -> None:
        _common.write_results(NAME, self.content)


def part_of(run: dict[str, object]) -> str:
    """The part in which a run was made."""
    condition = str(run["condition"])
    if condition in (BY_PACING, BY_OUTPUT):
        return "lacking"
    return {ALONE: "alone", "infeasible": "infeasible", LANDINGS: LANDINGS, PUBLISHED: PUBLISHED}.get(condition, "main")


def hopeless(deadline_s: float) -> list[Work]:
    """Deadlines of 0.8 times the fastest time. They run one at a time: what is tested is a forecast, and a neighbour
    that comes and goes changes the truth after it was told."""
    return [Work((app, 0.8, "infeasible"), deadline_s, i, (OURS,)) for i in range(2) for app in APPS]


def main_part() -> list[Work]:
    """The blocks of the main table, with the jobs of five minutes spread between them."""
    works = [Work(block, DEADLINE_S, 0, _controllers_under(block[2])) for block in blocks()[:N_BLOCKS]]
    for i, app in enumerate(APPS):
        works.insert(3 + 7 * i, Work((app, 2.0, "undisturbed"), 300.0, 0, (OURS,)))
    return works


def _controllers_under(condition: str) -> tuple[str, ...]:
    return tuple(name for name in CONTROLLERS if name != "constant" or condition in CONSTANT_CONDITIONS)


def lacking() -> list[Work]:
    """Return the runs without the right to set quotas, and those of a script that cannot be changed."""
    return [
        Work((app, ratio, condition), DEADLINE_S, 0, (OURS,))
        for ratio in (1.5, 2.0, 4.0)
        for app, condition in (("vision", BY_PACING), (PRINTING, BY_OUTPUT))
    ]


def landings() -> list[Work]:
    """Undisturbed trainings, each of which wants its part of the load."""
    drawn = random.Random(0)
    deadlines_s = [round(drawn.uniform(*DEADLINES_S), 1) for _ in range(N_LANDINGS)]
    ratios = [round(N_AT_A_TIME / (load_frac * _deadline_tables.N_CORES), 3) for load_frac in LOADS_FRAC]
    return [
        Work((APPS[i % len(APPS)], ratio, LANDINGS), deadline_s, i, (OURS,))
        for ratio in ratios
        for i, deadline_s in enumerate(deadlines_s)
    ]


def published(fastest_s: float) -> list[Work]:
    """The ratios of the source, on jobs of so many core-seconds."""
    return [
        Work((app, ratio, PUBLISHED), ratio * fastest_s, 0, (OURS, "decor-pi"))
        for ratio in PUBLISHED_RATIOS
        for app in APPS
    ]


@contextmanager
def shared_daemon(home: Path) -> Iterator[None]:
    """A job that only sleeps, so that one daemon is there for all others until the end."""
    environment, name = os.environ | {"PUNCTUAL_HOME": str(home)}, "bench-daemon"
    command = [*PUNCTUAL, "run", "--json", "--name", name, "--cores", "0.05..0.05", "--", "sleep", "infinity"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        assert job.stdout is not None
        job.stdout.readline()  # what is written first says that it runs
        threading.Thread(target=job.stdout.read, daemon=True).start()
        try:
            yield
        finally:
            subprocess.run([*PUNCTUAL, "stop", name], env=environment, stdout=subprocess.DEVNULL, check=False)


def carry_out(works: list[Work], lanes: list[Lane], profiles: dict[str, Profile], record: Record) -> None:
    """Work through the list on all lanes until it is at its end."""
    queue = iter([work for work in map(record.missing, works) if work.controllers])
    lock = threading.Lock()

    def drive(lane: Lane) -> None:
        while True:
            with lock:
                work = next(queue, None)
            if work is None:
                return
            try:
                for run in run_block(lane, work, profiles[work.block[0]]):
                    record.add("runs", run)
                    print(_line(run), flush=True)
            except RuntimeError as failed:  # the run is on record with what it said
                record.add("failures", {"block": work.block, "why": str(failed)})
                print(f"failed: {work.block}: {failed}", flush=True)

    with ThreadPoolExecutor(len(lanes)) as pool:
        for done in [pool.submit(drive, lane) for lane in lanes]:
            done.result()


def _line(run: dict[str, object]) -> str:
    deviation = float(str(run["deviation_frac"]))
    return (
        f"{run['app']:9} {run['ratio']:4} {run['condition']:26} {run['controller']:22} {deviation:+8.3%}"
        f"  used {run['used_core_s']:6.2f} granted {run['granted_core_s']:6.2f} resizes {run['n_resizes']}"
    )


def main() -> int:
    made = _common.parser("Does a training land on its deadline? See the head of this file.")
    made.add_argument("--part", choices=PARTS, help="only this part")
    made.add_argument("--lanes", type=int, default=1, help="CPUs used, one run on each at a time")
    made.add_argument("--resume", action="store_true", help="keep the runs of this revision and make the others")
    options = made.parse_args()
    with home("punctual-bench") as folder:
        place = folder / "home"
        place.mkdir(mode=0o700)
        n_lanes = 2 if options.quick else options.lanes
        lanes = [Lane(cpu, place) for cpu in sorted(os.sched_getaffinity(0))[:n_lanes]]
        if options.quick:
            return quick(lanes)
        full(lanes, place, options)
    results = _common.on_record(NAME)
    _deadline_tables.plot(results["runs"], CONDITIONS, CONTROLLERS, _common.RESULTS / f"{NAME}.png")
    return conclude_report(NAME, results, sections, quick=False)


def sections(results: _common.Results) -> list[Section]:
    return _deadline_tables.sections(results["runs"], CONDITIONS, CONTROLLERS, (BY_PACING, BY_OUTPUT))


def full(lanes: list[Lane], home: Path, options: argparse.Namespace) -> None:
    record, parts = Record(), (options.part,) if options.part else PARTS
    record.drop(parts, _common.revision() if options.resume else None)
    with ThreadPoolExecutor(len(lanes)) as pool:
        apps = (*APPS, PRINTING) if "lacking" in parts else APPS
        profiles = dict(zip(apps, pool.map(calibrate, itertools.cycle(lanes), apps), strict=True))
    record.content["profiles"] |= {app: asdict(profile) for app, profile in profiles.items()}
    record.save()
    side_by_side = [Lane(None, home) for _ in range(N_AT_A_TIME)]
    alone = [Work((app, 2.0, ALONE), DEADLINE_S, 0, _controllers_under(ALONE)) for app in APPS]
    all_works: dict[str, tuple[list[Work], list[Lane]]] = {
        "infeasible": (hopeless(40.0), lanes[:1]), "alone": (alone, lanes[:1]), "main": (main_part(), lanes),
        "lacking": (lacking(), lanes), PUBLISHED: (published(PUBLISHED_S), lanes[:1]),
        LANDINGS: (landings(), side_by_side),
    }  # fmt: skip
    for part in parts:
        with shared_daemon(home) if part == LANDINGS else nullcontext():
            carry_out(*all_works[part], profiles, record)


def quick(lanes: list[Lane]) -> int:
    """One short job under two controllers, side by side where there are two CPUs."""
    deadline_s = 30.0
    profile = calibrate(lanes[0], "vision", 10, 50)
    works = [("remaining-cost",), ("decor-pi",)]

    def one(i: int) -> dict[str, object]:
        lane = lanes[i % len(lanes)]
        return next(run_block(lane, Work(("vision", 2.0, "undisturbed"), deadline_s, 0, works[i]), profile))

    with ThreadPoolExecutor(len(lanes)) as pool:
        ours, theirs = pool.map(one, range(2))
    for run in (ours, theirs):
        print(_line(run))
    _common.write_results(NAME, {"runs": [ours, theirs]}, quick=True)
    deviation_frac = abs(float(str(ours["deviation_frac"])))
    target = Target("remaining-cost: |finish - D| / D", TARGET_FRAC, deviation_frac)
    return conclude_targets([target], target, quick=True)


if __name__ == "__main__":
    sys.exit(main())
