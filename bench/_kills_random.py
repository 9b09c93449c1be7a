"""Random kills of everything that a job depends on, one a round: in each, two commands start a daemon at once.

A round begins without a daemon. Two commands give one job each; one process is killed at a random instant while they start, run, are
taken over, or end. When both jobs have ended and nothing runs any more, it is looked at what must hold: each job has done each step
once, none is lost, there was one daemon, no job was without steering for long, and nothing is left. A round is drawn by its number.
Those that were played are in a file, and are not played again: a run that was interrupted goes on.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread

from _common import Results, revision
from _faults import faults_of_end, faults_of_rest, faults_of_work, pid_of, send, watcher_of, words_of
from _faults_training import Job
from _processes import home, processes_of, wait_for_daemons, wait_until
from _report import Column, Section, Target, table_of

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFinished
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.daemon.runs import known_runs, messages_of

#: What is killed, and what happens meanwhile.
VICTIMS = ("daemon", "daemon and watcher", "supervisor", "planner", "job", "client")
MOMENTS = ("start", "run", "recovery", "shut-down")
JOBS = ("one", "two")
#: Longest time without steering.
UNSTEERED_S_MAX = 15.0
#: Steps of a job take some four seconds: a daemon and its planner start in less.
JOB = Job(n_steps=200, sleep_s=0.02)
#: For a job to do its first step, to be done, and for all to end; hundreds of times what it takes.
_PATIENCE_S = 180.0
#: Seconds that a round takes on two quiet cores.
ROUND_S = 10.0


@dataclass
class Round:
    """One round, and what did not hold after it."""

    number: int
    seed: int
    victim: str
    moment: str
    has_hit: bool = False
    took_s: float = 0.0
    longest_unsteered_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    @classmethod
    def drawn(cls, number: int, seed: int) -> "Round":
        """Draw a round: each victim meets each moment equally often."""
        kinds = [(victim, moment) for victim in VICTIMS for moment in MOMENTS]
        order = random.Random(f"{seed}/{number // len(kinds)}").sample(kinds, len(kinds))
        return cls(number, seed, *order[number % len(kinds)])

    def rng(self) -> random.Random:
        """Draws its instants."""
        return random.Random(f"{self.seed}/{self.number}")


class _Stage:
    """Two commands in a home of their own, and the processes of their jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.home = folder, folder / "home"
        self.n_taken: Counter[str] = Counter()
        self.daemon_pids = set[int]()
        self.clients = {
            name: self._give("run", "--quiet", "--retries", "5", "--name", name, "--", *self._command(name))
            for name in JOBS
        }
        self.killed = set[str]()
        self.longest_unsteered_s = 0.0

    def _command(self, name: str) -> list[str]:
        return JOB.command(self._folder / name)

    def _give(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen([sys.executable, "-m", "punctual", *arguments], stdout=output, stderr=output)

    def run(self) -> RunFolder:
        return run_named("daemon")

    def n_steps(self, name: str) -> int:
        file = self._folder / name / "steps"
        return sum(line.isdigit() for line in file.read_text().splitlines()) if file.exists() else 0

    def daemon_pid(self) -> int:
        """Process id of the daemon, also of one that has just begun; 0: none is there."""
        pid = self.run().daemon_pid() or next(
            (pid for pid in processes_of(self.home) if watcher_of(pid) and b"punctual.api.watcher" in words_of(pid)), 0
        )
        self.daemon_pids.update({pid} - {0})
        return pid

    def kill(self, victim: str, name: str) -> bool:
        """Kill a victim; whether it was there."""
        daemon_pid = self.daemon_pid()
        if victim == "client":
            is_there = self.clients[name].poll() is None
            self.clients[name].kill()
            self.clients[name].wait()
            self.killed.add(name)
            return is_there
        if victim.startswith("daemon"):
            watcher_pid = watcher_of(daemon_pid) if "watcher" in victim else 0
            return bool(watcher_pid and send(watcher_pid)) | bool(daemon_pid and send(daemon_pid))
        pid = (
            pid_of({"supervisor": "keeper"}.get(victim, victim), daemon_pid, self.run(), name)
            if daemon_pid or victim != "planner"
            else 0
        )
        has_hit = bool(pid) and send(pid)
        self.n_taken[name] += has_hit and victim in ("supervisor", "job")
        return has_hit

    def finish(self) -> Iterator[str]:
        """Have all jobs end; yield what keeps them from it."""
        for name, client in self.clients.items():
            try:
                code = client.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                yield f"the command of '{name}' does not end"
                client.kill()
                client.wait()
            else:
                if name not in self.killed and code:
                    yield f"the command of '{name}' has ended with {code}: {self.said()}"
        # The command of a job was killed, and with it who would have started the next daemon: the next command does.
        give_up_at = time.monotonic() + _PATIENCE_S
        while (left := self.open_jobs()) and time.monotonic() < give_up_at:
            self._give("attach", "--quiet", left[0]).wait(_PATIENCE_S)
        yield from (f"job '{name}' does not end" for name in left)
        if not wait_for_daemons(self.home):
            yield f"processes do not end: {[words_of(pid) for pid in processes_of(self.home)]}"

    def look(self) -> None:
        """Give a command that starts no daemon."""
        self._give("ps").wait(_PATIENCE_S)

    def watch(self, is_over: Event) -> None:
        """Measure for how long jobs run without a daemon."""
        steered_at = time.monotonic()
        while not is_over.wait(0.1):
            run = self.run()
            if run.is_live() or not run.supervised_jobs():
                steered_at = time.monotonic()
            self.longest_unsteered_s = max(self.longest_unsteered_s, time.monotonic() - steered_at)

    def open_jobs(self) -> list[str]:
        with suppress(InvalidSpec):  # there is no journal yet, or it is just made
            return [str(job) for run in known_runs() for job in run.open_jobs()]
        return []

    def said(self) -> str:
        return (self._folder / "output").read_text(errors="replace")[-1500:]

    def faults(self, one: Round) -> Iterator[str]:
        """Yield what does not hold once all is over."""
        if others := [run.name for run in known_runs() if run.name != "daemon"]:
            yield f"there were several daemons: {others}"
        run = self.run()
        known = {str(job) for job in run.jobs()}
        messages = messages_of(run) if known else []
        finished = {message.job for message in messages if isinstance(message, JobFinished)}
        for name in JOBS:
            if name not in known:
                # A command that was killed may not have submitted its job; a journal that begins anew has no ended ones.
                if name not in self.killed:
                    yield f"job '{name}' is lost"
                continue
            told = faults_of_work(self._folder / name, JOB, self.n_taken[name], has_finished=name in finished)
            yield from (f"job '{name}': {fault}" for fault in told)
            if any(getattr(message, "job", None) == name for message in messages):
                ends = faults_of_end(name, messages, self.n_taken[name], may_stop=False)
                yield from (f"job '{name}': {fault}" for fault in ends)
        one.longest_unsteered_s = self.longest_unsteered_s
        if one.longest_unsteered_s > UNSTEERED_S_MAX:
            yield f"without steering for {one.longest_unsteered_s:.1f} s"
        yield from faults_of_rest(self.home, run, sorted(self.daemon_pids), JOBS)


def play(one: Round) -> None:
    """Play a round."""
    begun_at, rng = time.monotonic(), one.rng()
    with home("kills", lambda: one.faults) as folder:
        stage, name = _Stage(folder), rng.choice(JOBS)

        def is_over() -> bool:
            return all(client.poll() is not None for client in stage.clients.values())

        is_watched = Event()
        watching = Thread(target=stage.watch, args=(is_watched,), daemon=True)
        watching.start()
        if one.moment == "start":
            time.sleep(rng.random() * 2.0)
        else:
            first = rng.randint(1, JOB.n_steps // 2)
            wait_until(lambda: min(map(stage.n_steps, JOBS)) >= first or is_over(), _PATIENCE_S, 0.02)
        if one.moment == "recovery":
            stage.kill(rng.choice(VICTIMS[:2]), name)
            time.sleep(rng.random() * 2.0)
        elif one.moment == "shut-down":
            wait_until(lambda: stage.n_steps(name) >= JOB.n_steps or is_over(), _PATIENCE_S, 0.005)
            time.sleep(rng.random() ** 3 * 0.6)  # most of them end at once

        def hit() -> bool:
            one.has_hit = stage.kill(one.victim, name)
            return one.has_hit or is_over()

        wait_until(hit, _PATIENCE_S, 0.02)  # a daemon may have to start before it has what is to be killed
        one.faults += stage.finish()
        is_watched.set()
        watching.join()
        if "watcher" in one.victim:  # killed as they ended, they leave their files and groups to the next command
            stage.look()
        if not one.faults:
            one.faults += stage.faults(one)
    one.took_s = time.monotonic() - begun_at


def play_rounds(n_rounds: int, seed: int, minutes: float, only: int | None = None, log: Path | None = None) -> Results:
    """Play the rounds that the log does not have yet, for so many minutes at most; return all that were played."""
    log = log or Path(tempfile.gettempdir()) / f"punctual-kills-{revision() or 'unknown'}-{seed}.jsonl"
    played = [Round(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    numbers = {each.number for each in played} if only is None else set[int]()
    wanted = [number for number in (range(n_rounds) if only is None else [only]) if number not in numbers]
    left_s = f"about {len(wanted) * ROUND_S / 60:.0f} minutes on two quiet cores"
    print(f"{len(wanted)} of {n_rounds} rounds to play, {left_s}; {log}", file=sys.stderr, flush=True)
    give_up_at = time.monotonic() + 60.0 * minutes
    for number in wanted:
        if time.monotonic() > give_up_at:
            break
        one = Round.drawn(number, seed)
        play(one)
        played.append(one)
        with log.open("a") as file:
            file.write(json.dumps(asdict(one)) + "\n")
        print(json.dumps(asdict(one)), file=sys.stderr, flush=True)
    for one in played:
        if one.faults:
            print(f"round {one.number} ({one.victim}, {one.moment}):", *one.faults, sep="\n  ")
    return {"n_rounds": n_rounds if only is None else 1, "runs": [asdict(one) for one in played]}


def sections(results: Results) -> list[Section]:
    runs = [{**run, "n_faults": len(run["faults"])} for run in results["runs"]]
    columns = [
        Column("rounds", "number", str, len),
        Column("something was killed in", "has_hit", str, sum),
        Column("faults", "n_faults", str, sum),
        Column("longest without steering (s)", "longest_unsteered_s", "{:.1f}".format, max),
        Column("took (s)", "took_s", "{:.0f}".format),
    ]
    n_missed, n_held = sum(not run["has_hit"] for run in runs), sum(not run["faults"] for run in runs)
    text = f"rounds of {results['n_rounds']} after which all held, {n_missed} of them without a victim"
    longest_s = max((run["longest_unsteered_s"] for run in runs), default=0.0)
    targets = [
        Target(text, results["n_rounds"], n_held, "{:.0f}".format, at_least=True),
        Target("longest time without steering (s)", UNSTEERED_S_MAX, longest_s, "{:.1f}".format),
    ]
    return [Section("Random kills", *table_of(runs, {"killed": "victim", "amid": "moment"}, columns), targets)]
