"""Measure how long training stands still when its number of workers changes: `punctual.elastic` beside torchrun's elasticity.

Both train the same ten million parameters with AdamW (its fused form), one thread a worker, and go 1 -> 2 -> 3 -> 2 -> 1; they
take turns, so that both see the same machine. A stop lasts from the last step before a change to the end of the first
step after it, that step included. torchrun runs with ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``, without which its first
growth fails in torch 2.13, and saves a checkpoint every five steps. After it, many changes of a small model are made,
and the agent and the worker that stays through all of them are looked at: threads, descriptors, memory.
"""

import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from _agent import N_STEPS_BETWEEN, Agent, environment
from _common import Results, parser
from _processes import PATIENCE_S, children, rss_bytes, status_of, wait_until
from _report import Section, Target, conclude_report

PROGRAM = str(Path(__file__).with_name("_resize_training.py"))
COURSE = (2, 3, 2, 1)
STOP_S_MAX = 0.5
#: Than torchrun, of a change that adds a worker and of one that takes one away.
TIMES_LESS_MIN = 30.0
N_LEAK_RESIZES = 200
#: Resizes before the first look for leaks: libraries allocate at first use.
N_WARM_RESIZES = 20
#: What memory may grow by over all of them: the allocator's own noise is of this size.
GROWTH_MIB_MAX = 8.0
#: Of a quick run, from its begin: what has not happened by then took at least so long.
QUICK_S = 38.0


@dataclass(frozen=True)
class Change:
    """One change of size; `at_least`: it had not ended when there was no more time."""

    system: str
    before: int
    after: int
    stop_s: float
    n_steps_redone: int
    at_least: bool = False


# Our side.


class Elastic(Agent):
    """A training whose changes of size are timed."""

    def change(self, n_workers: int) -> Change:
        """Change the number of workers; return what it cost."""
        before = self.page.worker_status()
        after = self.resize(n_workers)
        redone = after.n_steps_redone - before.n_steps_redone
        return Change("punctual", before.n_workers, n_workers, after.last_stop_ns / 1e9, redone)

    def footprints(self) -> dict[str, dict[str, float]]:
        """Return those of the agent, and of the worker that has been there from the start, once all others have left."""
        wait_until(lambda: len(self.workers()) == 1)
        time.sleep(0.5)
        (first,) = self.workers()
        return {"agent": footprint(self.process.pid), "worker": footprint(first)}


def footprint(pid: int) -> dict[str, float]:
    return {
        "n_threads": int(status_of(pid)["Threads"]),
        "n_descriptors": len([*Path(f"/proc/{pid}/fd").iterdir()]),
        "memory_mib": rss_bytes(pid) / 2**20,
    }


@contextmanager
def elastic(model: str) -> Iterator[Elastic]:
    with tempfile.TemporaryDirectory() as folder:
        training = Elastic(Path(folder) / f"{model}.page", [sys.executable, PROGRAM, model])
        try:
            training.await_answer()
            yield training
        finally:
            training.close()


def our_changes(n_rounds: int) -> list[Change]:
    found = []
    with elastic("large") as training:
        for n_workers in COURSE * n_rounds:
            training.train_on()
            found.append(training.change(n_workers))
    return found


# Torchrun's side.


class StepLog:
    """The steps of a training whose first process writes them down, as `_resize_training.train_plainly` does."""

    def __init__(self, path: Path, until: float = math.inf) -> None:
        self._path, self._until = path, until
        path.touch()

    def change(self, system: str, before: int, after: int, act: Callable[[], object]) -> Change:
        """Return the change that `act` brings about: from the last step of as many workers as there are to the first of `after`."""
        n_seen = len(self._steps())
        act()
        arrived = self._await(lambda: any(n == after for _, n, _ in self._steps()[n_seen:]))
        steps = self._steps()
        i_first = next((i for i in range(n_seen, len(steps)) if steps[i][1] == after), len(steps))
        last_at, _, last_step = steps[i_first - 1]
        if not arrived:
            return Change(system, before, after, time.monotonic() - last_at, 0, at_least=True)
        first_at, _, first_step = steps[i_first]
        return Change(system, before, after, first_at - last_at, max(0, last_step - first_step + 1))

    def train_on(self, n_steps: int = N_STEPS_BETWEEN) -> bool:
        goal = len(self._steps()) + n_steps
        return self._await(lambda: len(self._steps()) >= goal)

    def _await(self, holds: Callable[[], bool]) -> bool:
        return wait_until(holds, min(PATIENCE_S, self._until - time.monotonic()))

    def _steps(self) -> list[tuple[float, int, int]]:
        """Return when each step was done, by how many, and its number."""
        lines = self._path.read_text().split("\n")[:-1]
        return [(float(at), int(n), int(step)) for at, n, step in (line.split() for line in lines)]


class Torchrun:
    """Agents of torchrun, one a worker; the log of its steps."""

    def __init__(self, folder: Path, until: float) -> None:
        self.log = StepLog(folder / "log", until)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes=1:3", "--nproc-per-node=1", "--max-restarts=100",
            "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench",
            "--rdzv-conf=last_call_timeout=1", "--monitor-interval=0.1",
            PROGRAM, "torchrun", str(folder / "log"), str(folder / "checkpoint"),
        ]  # fmt: skip
        self._agents: list[subprocess.Popen[bytes]] = []
        self._grow()

    def _grow(self) -> None:
        more = environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self._agents.append(
            subprocess.Popen(self._command, env=more, stderr=subprocess.DEVNULL, start_new_session=True)
        )

    def resize(self, n_workers: int) -> Change:
        """One more worker, or one less."""
        before = len(self._agents)
        act = self._grow if n_workers > before else self._shrink
        return self.log.change("torchrun", before, n_workers, act)

    def _shrink(self) -> None:
        self._agents.pop().send_signal(signal.SIGTERM)

    def close(self) -> None:
        """An agent that is killed leaves its workers, which have a session of their own."""
        workers = [pid for agent in self._agents for pid in children(agent.pid)]
        for agent in self._agents:
            agent.kill()
            agent.wait()
        for pid in workers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def torchrun_changes(course: tuple[int, ...], until: float = math.inf) -> list[Change]:
    """Return the changes made before the time `until`; the last one may have been under way."""
    found: list[Change] = []
    with tempfile.TemporaryDirectory() as folder:
        training = Torchrun(Path(folder), until)
        try:
            for n_workers in course:
                if not training.log.train_on():
                    break
                found.append(training.resize(n_workers))
        finally:
            training.close()
    return found


# Leaks.


def leaks(n_resizes: int) -> dict[str, dict[str, float]]:
    """Return what each of agent and worker has more after `n_resizes` than before."""
    with elastic("small") as training:
        for n_workers in (2, 1) * (N_WARM_RESIZES // 2):
            training.resize(n_workers)
        before = training.footprints()
        for n_workers in (2, 1) * (n_resizes // 2):
            training.resize(n_workers)
        after = training.footprints()
    return {who: {key: after[who][key] - before[who][key] for key in before[who]} for who in before}


def has_leak(grown: dict[str, dict[str, float]]) -> bool:
    return any(
        one["n_threads"] > 0 or one["n_descriptors"] > 0 or one["memory_mib"] > GROWTH_MIB_MAX for one in grown.values()
    )


# Results.


def medians(changes: list[Change]) -> dict[str, float]:
    systems = sorted({change.system for change in changes})
    return {one: statistics.median(change.stop_s for change in changes if change.system == one) for one in systems}


def times_less(changes: list[Change], *, grows: bool) -> float | None:
    """Torchrun's median stop over ours, in the changes that both have made that add a worker, or take one away."""
    theirs = {(one.before, one.after) for one in changes if one.system == "torchrun"}
    both = [one for one in changes if (one.before, one.after) in theirs and (one.after > one.before) is grows]
    found = medians(both)
    return found["torchrun"] / found["punctual"] if found else None


def rows_of(changes: list[Change]) -> list[list[str]]:
    rows = []
    for before, after in ((1, 2), (2, 3), (3, 2), (2, 1)):
        row = [f"{before} -> {after}"]
        for system in ("punctual", "torchrun"):
            stops = [one for one in changes if (one.system, one.before, one.after) == (system, before, after)]
            times = sorted(one.stop_s for one in stops)
            open_end = ">= " if any(one.at_least for one in stops) else ""
            row.append(f"{open_end}{statistics.median(times):.2f} ({times[0]:.2f}-{times[-1]:.2f})" if times else "-")
            row.append(str(sum(one.n_steps_redone for one in stops)) if stops else "-")
        rows.append(row)
    return rows


HEADS = ("change", "punctual, s stopped", "steps redone", "torchrun, s stopped", "steps redone")


def targets(changes: list[Change], grown: dict[str, dict[str, float]]) -> list[Target]:
    n_redone = sum(change.n_steps_redone for change in changes if change.system == "punctual")
    found = [
        Target("stop, median", STOP_S_MAX, medians(changes)["punctual"], "{:.2f} s".format),
        Target("steps redone", 0, n_redone, "{:.0f}".format),
    ]
    # One of torchrun's changes, that of a quick run, or one that has not ended, is no figure to be judged by.
    if sum(one.system == "torchrun" for one in changes) > 1:
        found += [
            Target(f"torchrun's stop over ours, {text}", TIMES_LESS_MIN, times_less(changes, grows=grows), "{:.0f}x".format, at_least=True)
            for text, grows in (("growing", True), ("shrinking", False))
        ]  # fmt: skip
    if grown:
        found.append(
            Target(
                "processes with a leak", 0, sum(has_leak({who: more}) for who, more in grown.items()), "{:.0f}".format
            )
        )
    return found


def changes_of(results: Results) -> list[Change]:
    return [Change(**one) for one in results["changes"]]


def sections(results: Results) -> list[Section]:
    changes, grown = changes_of(results), results["grown"]
    text = "Median, least and most seconds from the last step before a change to the end of the first after it."
    found = [Section("Changes", HEADS, rows_of(changes), targets(changes, grown), text)]
    cells = [[who, *(f"{n:+.1f}" for n in one.values())] for who, one in grown.items()]
    left = f"What {N_LEAK_RESIZES} changes of a small model between one and two workers left behind"
    return [*found, *([Section(left, ("process", "threads", "descriptors", "memory, MiB"), cells)] if cells else [])]


def main() -> int:
    options = parser("Training stopped by a change of its number of workers.").parse_args()
    changes: list[Change] = []
    grown: dict[str, dict[str, float]] = {}
    if options.quick:
        until = time.monotonic() + QUICK_S
        changes += our_changes(1)
        changes += torchrun_changes(COURSE[:1], until)
    else:
        for i_round in range(3):
            changes += our_changes(2)
            changes += torchrun_changes(COURSE)
            print(f"round {i_round + 1} of 3: {medians(changes)}", flush=True)
        grown = leaks(N_LEAK_RESIZES)
    results = {"changes": [asdict(one) for one in changes], "grown": grown}
    return conclude_report("resize", results, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
