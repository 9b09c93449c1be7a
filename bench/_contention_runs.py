"""Plays the trainings of `bench/contention.py` on this machine, under Punctual or without it."""

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import _contention_training
import _regression
from _common import EXAMPLES, report_of
from _contention_jobs import (
    APPS,
    CEILING_CORES,
    CORES_PER_WORKER,
    N_EPOCHS,
    N_WORKERS_MAX,
    QUICK_APP,
    TOLERANCE_FRAC,
    Load,
)
from _processes import wait_for_daemons

PUNCTUAL = [sys.executable, "-m", "punctual"]
#: Jobs as they are without Punctual: processes that share the machine as its kernel likes.
KERNEL = "kernel"
#: How many trainings run side by side while it is measured what they cost.
_N_BESIDE, _N_BESIDE_QUICK = 6, 4
#: How long a user tries to say something to a job.
_SAY_S_MAX = 10.0
#: The rule of proportional shares with its other shortage, as a plug-in, because `--policy` takes a name.
SCALED = "proportional-scaled"
_SCALED = '''"""DECOR-NN's rule of a common factor."""
from dataclasses import dataclass
from punctual.policies.proportional import Proportional

@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled(Proportional):
    shortage: str = "scale"
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Core-seconds of an application: to start, and for one step with its share of evaluation and checkpoints."""

    startup_core_s: float
    step_core_s: float

    def n_epoch_steps(self, load: Load, *, is_elastic: bool) -> int:
        """Steps with which the load costs its work, its starts included: of an agent and workers, and after a crash."""
        n_starts = 1 + load.crashes + (N_WORKERS_MAX if is_elastic else 0)
        return max(2, round((load.work_core_s - n_starts * self.startup_core_s) / (N_EPOCHS * self.step_core_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a job.

    Attributes
    ----------
    late_frac
        By how much it missed its last deadline, as a share of it; negative: early. None: it had none, or did not land.
    used_core_s, granted_core_s
        Until it had landed; granted is None without Punctual.
    """

    name: str
    took_s: float | None  # From its submission until it had landed; None: it did not land.
    late_frac: float | None
    used_core_s: float
    granted_core_s: float | None
    n_retries: int  # How often it was started again.
    warnings: list[str] = field(default_factory=list)  # Codes of what its user was told.

    @property
    def is_on_time(self) -> bool:
        return self.late_frac is not None and self.late_frac <= TOLERANCE_FRAC

    @property
    def was_promised(self) -> bool:
        """Whether its deadline was promised, as far as its user was told; also if the promise was taken back."""
        return self.lost_promise or "not-promised" not in self.warnings

    @property
    def lost_promise(self) -> bool:
        return "promise-lost" in self.warnings


class Stage:
    """A home of its own, in which jobs are played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        site = folder / "site"
        about = site / "scaled-1.dist-info"
        about.mkdir(parents=True)
        (site / "scaled_shortage.py").write_text(_SCALED)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scaled\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[punctual.policies]\n{SCALED} = scaled_shortage:Scaled\n")
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        self.environment = os.environ | {"PUNCTUAL_HOME": str(folder / "home"), "PYTHONPATH": path}

    def program(self, load: Load, n_epoch_steps: int, *, is_elastic: bool) -> list[str]:
        if load.app == QUICK_APP:
            return [sys.executable, _regression.__file__, str(N_EPOCHS * n_epoch_steps)]
        arguments = [
            "--epochs", str(N_EPOCHS), "--steps-per-epoch", str(n_epoch_steps),
            "--threads", "1", "--checkpoint-dir", str(self.folder / load.name),
        ]  # fmt: skip
        if load.crashes:
            script = [_contention_training.__file__, str(self.folder / f"{load.name}.died"), load.app]
            return [sys.executable, *script, *arguments, "--resume"]
        elastic = ["--elastic"] if is_elastic else []
        return [sys.executable, str(EXAMPLES / f"{load.app}.py"), *arguments, *elastic]


def calibrate(*, quick: bool) -> dict[str, Profile]:
    """Return what each application costs, from short and longer runs with as many beside them as in a play.

    The same training costs more core-seconds beside six others than alone on one of two busy cores, because they share the
    caches.
    """
    few, many = (2, 20) if quick else (20, 60)
    apps = (QUICK_APP,) if quick else APPS
    n_each = _N_BESIDE_QUICK if quick else _N_BESIDE // len(apps)
    with TemporaryDirectory(prefix="punctual-contention-") as folder:
        place = Stage(Path(folder))
        costs = {n: _costs(place, apps * n_each, n) for n in (few, many)}
    profiles = {}
    for app in apps:
        step_core_s = (costs[many][app] - costs[few][app]) / (N_EPOCHS * (many - few))
        profiles[app] = Profile(startup_core_s=costs[few][app] - N_EPOCHS * few * step_core_s, step_core_s=step_core_s)
    return profiles


def _costs(place: Stage, apps: Sequence[str], n_epoch_steps: int) -> dict[str, float]:
    """CPU seconds of a training of so many steps in each epoch, by application: the mean of all that run side by side."""
    loads = [
        Load(name=f"{app}-{i}-{n_epoch_steps}", app=app, work_core_s=0.0, deadline_s=None) for i, app in enumerate(apps)
    ]
    processes = [
        subprocess.Popen(place.program(load, n_epoch_steps, is_elastic=False), stdout=subprocess.DEVNULL)
        for load in loads
    ]
    used: dict[str, list[float]] = {}
    for app, process in zip(apps, processes, strict=True):
        _, _, usage = os.wait4(process.pid, 0)
        used.setdefault(app, []).append(usage.ru_utime + usage.ru_stime)
    return {app: statistics.fmean(values) for app, values in used.items()}


def play(
    loads: Sequence[Load],
    policy: str,
    profiles: Mapping[str, Profile],
    *,
    ends_at: float | None = None,
    declare: bool = False,
) -> list[Outcome]:
    """Submit each training at its instant under a policy, or as plain processes (`KERNEL`), do to it what is to be done, and wait for all.

    After `ends_at` seconds what still runs is stopped. With `declare` each says at submission what it was made to cost (`--work`).
    """
    with TemporaryDirectory(prefix="punctual-contention-") as folder:
        place = Stage(Path(folder))
        begun = time.monotonic() + 0.2
        kind = _Job if policy == KERNEL else _Command
        jobs = [kind(load, place, policy, profiles[load.app], begun, declare=declare) for load in loads]
        threads = [threading.Thread(target=job.run) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(None if ends_at is None else max(0.0, begun + ends_at - time.monotonic()))
        for job, thread in zip(jobs, threads, strict=True):
            if thread.is_alive():
                job.stop()
            thread.join()
        wait_for_daemons(Path(folder) / "home")
        return [job.outcome() for job in jobs]


class _Job:
    """A training and what its user does, as a process of its own, which is started again by hand if it fails."""

    def __init__(self, load: Load, place: Stage, policy: str, profile: Profile, begun: float, *, declare: bool) -> None:
        self.load, self._place, self._policy, self._begun, self._declares = load, place, policy, begun, declare
        n_epoch_steps = profile.n_epoch_steps(load, is_elastic=load.elastic)
        self._program = place.program(load, n_epoch_steps, is_elastic=load.elastic and policy != KERNEL)
        self._used_core_s, self._n_retries, self._is_stopped = 0.0, -1, False

    def run(self) -> None:
        time.sleep(max(0.0, self._begun + self.load.at - time.monotonic()))
        acts = [(self.load.moved_at, self.move), (self.load.stopped_at, self.stop)]
        timers = [
            threading.Timer(max(0.0, self._begun + at - time.monotonic()), act) for at, act in acts if at is not None
        ]
        for timer in timers:
            timer.start()
        self.live()
        for timer in timers:
            timer.cancel()

    def live(self) -> None:
        begun, status = time.monotonic(), 1
        while status and not self._is_stopped:
            self._n_retries += 1
            self._process = subprocess.Popen(self._program, env=self._place.environment, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(self._process.pid, 0)
            self._used_core_s += usage.ru_utime + usage.ru_stime
        self._took_s = time.monotonic() - begun

    def move(self) -> None:
        """Do without: a process cannot be told."""

    def stop(self) -> None:
        self._is_stopped = True
        os.kill(self._process.pid, signal.SIGTERM)

    def outcome(self) -> Outcome:
        load, took_s, late_frac = self.load, None if self._is_stopped else self._took_s, None
        if took_s is not None and load.deadline_s is not None:
            late_frac = took_s / (load.deadline_s + load.moved_s) - 1.0
        return Outcome(
            name=load.name, took_s=took_s, late_frac=late_frac, used_core_s=self._used_core_s, granted_core_s=None,
            n_retries=self._n_retries,
        )  # fmt: skip


class _Command(_Job):
    """A `punctual run` of its own."""

    def live(self) -> None:
        load = self.load
        options = ["--deadline", f"{load.deadline_s:.3f}s"] if load.deadline_s else []
        options += (
            ["--workers", f"1..{N_WORKERS_MAX}", "--cores-per-worker", str(CORES_PER_WORKER)]
            if load.elastic
            else ["--cores", str(CEILING_CORES)]
        )
        options += ["--work", f"{load.work_core_s:.3f}s"] if self._declares else []
        command = [
            *PUNCTUAL, "run", "--json", "--name", load.name, "--policy", self._policy, "--weight", str(load.weight),
            "--retries", str(int(load.crashes)), *options, "--", *self._program,
        ]  # fmt: skip
        done = subprocess.run(command, env=self._place.environment, capture_output=True, text=True, check=False)
        self._report = report_of(done.stdout, done.returncode, done.stderr)

    def move(self) -> None:
        self._say("deadline", self.load.name, f"{self.load.moved_s:+.3f}s")

    def stop(self) -> None:
        self._say("stop", self.load.name)

    def _say(self, *words: str) -> None:
        """Said again while the job is not there yet: a command takes a second to begin, on a busy machine more."""
        give_up_at = time.monotonic() + _SAY_S_MAX
        while True:
            done = subprocess.run([*PUNCTUAL, *words], env=self._place.environment, capture_output=True, check=False)
            if done.returncode == 0 or time.monotonic() > give_up_at:
                return

    def outcome(self) -> Outcome:
        report = self._report
        warnings = [warning["code"] for warning in report["warnings"]]
        return Outcome(
            name=self.load.name, took_s=report["landed_s"],
            late_frac=report["deviation_frac"] if report["landed_s"] is not None else None,
            used_core_s=report["used_core_s"], granted_core_s=report["granted_core_s"], n_retries=warnings.count("retried"),
            warnings=warnings,
        )  # fmt: skip
