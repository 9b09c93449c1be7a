"""Trainings on a GPU: landing, sharing by turns, workers that share it, what goes wrong there.

Where there is no GPU a device that is none stands in: what is then shown is all but the physics. Each part has a limit of time
of its own, and says what was missing if it fails.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from _agent import Agent
from _common import Results, conclude, json_lines, markdown_table, parser, print_table, stamp_text, write_results
from _processes import descendants_of, wait_for_daemons, wait_until

PROGRAM = str(Path(__file__).with_name("_gpu_training.py"))

#: How far from its deadline a training may land that has the device alone, and one that shares it, as shares of the deadline;
#: or within the first margin of the controller, seconds, which is more of a short deadline.
ALONE_FRAC_MAX, SHARED_FRAC_MAX = 0.002, 0.005
MARGIN_S = 0.06
#: What turns may cost over the same work one after the other.
TURNS_FRAC_MAX = 0.03
STEP_S = 0.02


@dataclass
class Part:
    """One part of the benchmark: whether it came out as it should (None: told, not judged), and what was found."""

    name: str
    is_met: bool | None
    text: str
    found: dict[str, Any] = field(default_factory=dict)


@dataclass
class Bench:
    """Runs trainings on one kind of device, in a home of its own; `scale` is a factor of all amounts of work."""

    kind: str
    folder: Path
    scale: float
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def close(self) -> None:
        """End what still runs, because something else has failed."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
                process.communicate()
        wait_for_daemons(self.folder / "home")

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of a command."""
        own = {"PUNCTUAL_HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "1"}
        if self.kind == "stand-in":
            own |= {
                "PUNCTUAL_DEVICE_FOLDER": str(self.folder / "dev"),
                "PUNCTUAL_STAND_IN": str(self.folder / "device"),
            }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PUNCTUAL_")}
        return {**inherited, **own, **more}

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start a Python program."""
        process = subprocess.Popen(
            [sys.executable, *arguments], env=self.environment(**more), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.started.append(process)
        return process

    def job(self, options: Sequence[str], *program: str, **more: str) -> subprocess.Popen[str]:
        """Start a training under the command."""
        command = ["-m", "punctual", "run", "--json", *options, "--", sys.executable, PROGRAM, *program]
        return self.start(*command, **more)

    def train(self, work_s: float, *more: str) -> list[str]:
        """The program of a training that takes the device `work_s` seconds."""
        step = self.step
        return ["train", self.kind, step.work, str(round(self.scale * work_s / step.step_s)), *more]

    @cached_property
    def step(self) -> "Step":
        """A step of about `STEP_S`, measured with nothing else on the device."""
        begun = time.monotonic()
        found = json_lines(_output_of(self.start(PROGRAM, "calibrate", self.kind, str(STEP_S)), 90.0))[-1]
        ready_s = time.monotonic() - begun - float(found["took_s"])
        return Step(str(found["work"]), float(found["step_s"]), ready_s)


@dataclass(frozen=True)
class Step:
    """A step of a training: its work as the program is told it, what it takes alone, and the time from a start to the first one."""

    work: str
    step_s: float
    ready_s: float

    @property
    def startup_s(self) -> float:
        """Seconds that a command needs until its training's first step, with room."""
        return 1.5 * self.ready_s + 4.0


def _output_of(process: subprocess.Popen[str], limit_s: float) -> str:
    """Return what a process writes until its end; raises `RuntimeError` if that is no success, or is not in time."""
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        process.kill()
        process.communicate()
        raise RuntimeError(f"no end within {limit_s:.0f} s") from None
    if process.returncode:
        raise RuntimeError(f"status {process.returncode}: {output.strip()[-400:]}")
    return output


def _report_of(process: subprocess.Popen[str], limit_s: float = 90.0) -> dict[str, Any]:
    return json_lines(_output_of(process, limit_s))[-1]


def _deviations(reports: Sequence[dict[str, Any]]) -> list[float]:
    """Return how late each landed, as a share of its deadline; below zero: early."""
    return [report["deviation_s"] / report["deadline_s"] for report in reports]


def _have_landed(reports: Sequence[dict[str, Any]], most_frac: float) -> bool:
    """Whether all are in time, and early by no more than that share of the deadline or the margin."""
    return all(-max(most_frac * one["deadline_s"], MARGIN_S) <= one["deviation_s"] <= 0.0 for one in reports)


# The parts.


def lands(bench: Bench) -> Part:
    """Trainings alone on the device land: one that asks for each loss, and one that does not."""
    rows = []
    for more in ([], ["--wait"]):
        deadline_s = bench.step.startup_s + 1.6 * 8.0 * bench.scale
        job = bench.job(["--deadline", f"{deadline_s:.1f}s"], *bench.train(8.0, *more))
        rows.append(_report_of(job))
    found = _deviations(rows)
    is_met = _have_landed(rows, ALONE_FRAC_MAX)
    facts = {
        "step_s": bench.step.step_s,
        "ready_s": bench.step.ready_s,
        "deviation_frac": found,
        "device": rows[0]["device"],
    }
    return Part("landing", is_met, f"{_percent(found)} of the deadline (at most {ALONE_FRAC_MAX:.1%} early)", facts)


def shares(bench: Bench) -> Part:
    """Two, then three trainings share the device, each on its deadline."""
    startup_s = bench.step.startup_s
    reports: dict[str, list[dict[str, Any]]] = {}
    for parts in (("0.5", "0.4"), ("0.4", "0.3", "0.3")):
        jobs = []
        for i, part in enumerate(parts):
            # As much work as the part of the device does in two thirds of the time.
            deadline_s = startup_s + (9.0 + 2.0 * i) * bench.scale
            work_s = 0.66 * float(part) * (deadline_s - startup_s) / bench.scale
            more = ["--wait"] if i % 2 else []
            options = ["--deadline", f"{deadline_s:.1f}s", "--gpus", part]
            jobs.append(bench.job(options, *bench.train(work_s, *more)))
        reports[str(len(parts))] = [_report_of(job) for job in jobs]
    every = [report for each_of in reports.values() for report in each_of]
    found = _deviations(every)
    facts = {
        "deviation_frac": {n: _deviations(each_of) for n, each_of in reports.items()},
        "device": {n: [report["device"] for report in each_of] for n, each_of in reports.items()},
    }
    text = f"{_percent(found)} of the deadline (at most {SHARED_FRAC_MAX:.1%} early)"
    return Part("sharing", _have_landed(every, SHARED_FRAC_MAX), text, facts)


def turns_cost(bench: Bench) -> Part:
    """Two trainings at full speed that share the device by turns, against one after the other, and without turns."""
    ways = ("alone", "by turns", "at once", "without Punctual") * (1 if bench.scale < 1.0 else 2)
    seconds, costs = _costs_of(bench, ways)
    spread = max(seconds["alone"]) / min(seconds["alone"]) - 1.0
    text = f"{costs['by turns']:+.1%} by turns (at most {TURNS_FRAC_MAX:.0%}), {costs['at once']:+.1%} at once"
    text += f"; without Punctual {costs['without Punctual']:+.1%}; spread {spread:.1%}"
    return Part("cost of turns", costs["by turns"] <= TURNS_FRAC_MAX, text, {"seconds": seconds, "cost_frac": costs})


def turns_cost_narrow(bench: Bench) -> Part:
    """Measure turns of trainings that do not fill the device, which turns cannot serve well: told, not judged."""
    if bench.kind != "cuda":
        return Part("cost of turns, device not filled", None, "only on a GPU")
    narrow = Bench("cuda-narrow", bench.folder, bench.scale, bench.started)
    seconds, costs = _costs_of(narrow, ("alone", "by turns", "at once"))
    text = f"{costs['by turns']:+.1%} by turns, {costs['at once']:+.1%} at once: told, not judged"
    return Part("cost of turns, device not filled", None, text, {"seconds": seconds, "cost_frac": costs})


def _costs_of(bench: Bench, ways: Sequence[str]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds a training in each way, and how much more on average than alone, as a share."""
    seconds: dict[str, list[float]] = {}
    for name in ways:
        seconds.setdefault(name, []).append(_together(bench, name))
    alone_s = statistics.mean(seconds["alone"])
    return seconds, {name: statistics.mean(found) / alone_s - 1.0 for name, found in seconds.items()}


def _together(bench: Bench, name: str) -> float:
    """Seconds a training from the common begin of those that run in this way to the end of the last."""
    n_jobs = 2 if name in ("by turns", "at once") else 1
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        ready = Path(folder)
        program = bench.train(4.0, "--ready", folder)
        if name == "without Punctual":
            jobs = [bench.start(PROGRAM, *program)]
        else:
            jobs = [bench.job(["--gpus", "0.5"] * (name == "by turns"), *program) for _ in range(n_jobs)]
        wait_until(lambda: len([*ready.iterdir()]) == n_jobs or any(job.poll() is not None for job in jobs), 60.0)
        (ready / "go").touch()
        outputs = [_output_of(job, 60.0) for job in jobs]
    return max(found["wall_s"] for output in outputs for found in json_lines(output) if "trained" in found) / n_jobs


def workers_share(bench: Bench) -> Part:
    """Workers on one device: the same bits for any number of them and after a kill, and what a change stops."""
    with ThreadPoolExecutor(3) as together:
        found = together.map(partial(_bits, bench), (1, 2, 2), (False, False, True))
    bits = dict(zip(("1", "2", "2, killed"), found, strict=True))
    stops = _stops(bench)
    is_met = len(set(bits.values())) == 1
    stopped = ", ".join(f"{each:.2f} s ({name})" for name, each in stops.items())
    text = f"bits {'equal' if is_met else 'DIFFER'} for 1, 2 and 2 workers with one killed; stopped {stopped}"
    return Part("workers on one device", is_met, text, {"bits": bits, "stops_s": stops})


def _bits(bench: Bench, n_workers: int, kills: bool) -> int:
    """The sum of the bits of the weights in the end."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        folder = Path(name)
        options = ["--workers", f"{n_workers}..{n_workers}", "--cores-per-worker", "0.4", "--alone"]
        job = bench.job(options, "elastic", bench.kind, name)
        wait_until(lambda: (folder / "begun").exists() or job.poll() is not None, 60.0)
        if kills:
            os.kill(max(descendants_of(job.pid)), signal.SIGKILL)
        (folder / "go").touch()
        output = _output_of(job, 60.0)
    return next(int(found["bits"]) for found in json_lines(output) if "bits" in found)


def _stops(bench: Bench) -> dict[str, float]:
    """Seconds from the last step before a change of the number of workers to the end of the first after it."""
    device = "cuda" if bench.kind == "cuda" else "cpu"
    script = str(Path(__file__).with_name("_resize_training.py"))
    training = Agent(bench.folder / "resized.page", [sys.executable, script, "large", device])
    found: dict[str, list[float]] = {}
    try:
        training.await_answer()
        for n_workers in (2, 1, 2, 1):
            training.train_on()
            before = training.page.worker_status().n_workers
            stop_s = training.resize(n_workers).last_stop_ns / 1e9
            found.setdefault(f"{before} to {n_workers}", []).append(stop_s)
    finally:
        training.close()
        (bench.folder / "resized.page").unlink()
    return {name: max(stops) for name, stops in found.items()}


def sees(bench: Bench) -> Part:
    """Jobs are shown the devices that the command may use, and no others."""
    text = "import os, punctual; print('shown', os.environ.get('CUDA_VISIBLE_DEVICES'), *punctual.track(['']))"
    command = ["-m", "punctual", "run", "--gpus", "0.5", "--", sys.executable, "-c", text]
    shown = _output_of(bench.start(*command, CUDA_VISIBLE_DEVICES="0"), 60.0)
    hidden = bench.start(*command, CUDA_VISIBLE_DEVICES="-1")
    refused, _ = hidden.communicate(timeout=60.0)
    is_met = "shown 0" in shown and hidden.returncode == 2 and "GPU" in refused
    has_mig = "MIG" in _said("nvidia-smi", "-L")
    facts = {"shown": shown, "hidden": [hidden.returncode, refused.strip()], "has_mig": has_mig}
    text = f"one of one shown: {'shown 0' in shown}; status {hidden.returncode} where none is; MIG: {has_mig}"
    return Part("devices shown", is_met, text, facts)


def runs_out_of_memory(bench: Bench) -> Part:
    """Have one of two trainings that share the device ask for too much memory: it fails alone, and says why."""
    deadline_s = bench.step.startup_s + 8.0 * bench.scale
    options = ["--deadline", f"{deadline_s:.1f}s", "--gpus", "0.5"]
    good = bench.job(options, *bench.train(3.5))
    greedy = bench.job(options, *bench.train(3.5, "--bytes", str(2**42)))
    output, _ = greedy.communicate(timeout=90.0)
    failed, landed = json_lines(output)[-1], _report_of(good)
    (late,) = _deviations([landed])
    is_met = failed["status"] == "failed" and "memory" in failed["cause"] and _have_landed([landed], SHARED_FRAC_MAX)
    text = f"one failed ({failed['cause'][:90]}), the other landed {_percent([late])}"
    return Part("out of memory", is_met, text, {"cause": failed["cause"], "deviation_frac": late})


PARTS: dict[str, Callable[[Bench], Part]] = {
    "landing": lands, "sharing": shares, "turns": turns_cost, "turns-narrow": turns_cost_narrow, "workers": workers_share, "shown": sees,
    "memory": runs_out_of_memory,
}  # fmt: skip
#: Those that do not disturb each other on a device; the others have it alone.
_BESIDE = ("workers", "shown", "memory")


def _attempt(name: str, bench: Bench) -> Part:
    begun = time.monotonic()
    try:
        part = PARTS[name](bench)
    except Exception as error:  # noqa: BLE001 -- a part that fails is told, and the others are measured
        part = Part(name, False, f"not measured: {type(error).__name__}: {error}")
    part.found["took_s"] = time.monotonic() - begun
    print(f"{part.name}: {part.text} [{part.found['took_s']:.0f} s]", flush=True)
    return part


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20.0, check=False).stdout
    except OSError:
        return ""


def _percent(shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * each:+.2f}" for each in shares) + " %"


def has_gpu() -> bool:
    """Whether torch can use one; asked in another process, because this one forks."""
    return _said(sys.executable, "-c", "import torch; print(torch.cuda.is_available())").strip() == "True"


def main() -> int:
    options = parser("Trainings on a GPU, or on a device that stands in for one.")
    options.add_argument("--only-gpu", action="store_true", help="measure nothing where there is no GPU")
    chosen = options.parse_args()
    kind = "cuda" if has_gpu() else "stand-in"
    if chosen.only_gpu and kind != "cuda":
        print("not run: there is no GPU")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(kind, Path(folder), 0.4 if chosen.quick and kind == "stand-in" else 1.0)
        (bench.folder / "dev").mkdir()
        (bench.folder / "dev" / "nvidia0").touch()
        try:
            parts = [_attempt(name, bench) for name in PARTS if name not in _BESIDE]
            with ThreadPoolExecutor(2) as together:
                parts += together.map(lambda name: _attempt(name, bench), _BESIDE)
        finally:
            bench.close()
    print_table(("part", "", ""), [(part.name, VERDICTS[part.is_met], part.text) for part in parts])
    about = _said("nvidia-smi", "--query-gpu=name,driver_version,mig.mode.current", "--format=csv,noheader").strip()
    results = {
        "device": about or "stand-in", "kind": kind,
        "parts": {part.name: {"is_met": part.is_met, "text": part.text, **part.found} for part in parts},
    }  # fmt: skip
    write_results(f"gpu-{kind}", results, page if kind == "cuda" else None, quick=chosen.quick)
    judged = [part for part in parts if part.is_met is not None]
    short = [part for part in judged if not part.is_met]
    return conclude(
        f"{len(judged) - len(short)} of {len(judged)} parts on {about or 'a stand-in device'}",
        [f"{part.name}: {part.text}" for part in short],
    )


VERDICTS = {True: "met", False: "SHORT", None: "told"}


def page(results: Results) -> str:
    rows = [
        [name, VERDICTS[part["is_met"]], "; ".join([part["text"], *([part["note"]] if "note" in part else [])])]
        for name, part in results["parts"].items()
    ]
    lines = markdown_table(("part", "", ""), rows)
    return "\n".join([*lines, "", f"Measured on {results['device']}. {stamp_text(results)}", ""])


if __name__ == "__main__":
    sys.exit(main())
