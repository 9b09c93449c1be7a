"""Measure what the service answers in time: reads with many jobs on the board, submissions, quotes, and what reads do to control.

`bench/service.md` says how. Blocks of reads, of as many requests to an empty route, and of nothing alternate; so do submissions
and bare inserts, quotes and decisions. The lateness of a tick is read from the service's journal.
"""

import asyncio
import http.client
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from _common import Results
from _report import Column, Section, Target, run, table_of
from _service_load import LiveService, Server, durable, insert, latencies_s, quantile
from tests.plants.contended_cores import Contention, CoreLoad, simulate

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.events import TimerFired
from punctual.core.plan import Plan
from punctual.core.quoting import quote
from punctual.journal.sqlite import About

READS_LIMIT, QUOTE_LIMIT, SUBMIT_LIMIT = 10.0, 3.0, 3.0
N_TRAININGS = 8
TIMES = "{:.2f}x".format

TRAINING = """
import time, punctual
print("begun " * 1000, flush=True)
for _ in punctual.track(range(1_000_000)):
    time.sleep(0.05)
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amounts to be measured."""

    n_jobs: int
    n_rounds: int
    block_s: float
    n_submissions: int
    n_quoted: int
    n_snapshots: int
    reads_per_s: float = 200.0


FULL = Sizes(n_jobs=500, n_rounds=5, block_s=12.0, n_submissions=60, n_quoted=12, n_snapshots=3)
QUICK = Sizes(n_jobs=120, n_rounds=1, block_s=4.0, n_submissions=10, n_quoted=4, n_snapshots=1)


class Service(LiveService):
    """A service with a few trainings, and jobs that wait for one of them."""

    def __init__(self, home: Path, n_jobs: int) -> None:
        super().__init__(home)
        self.names = [self.submit() for _ in range(N_TRAININGS)]
        self.names += [self.submit(after=self.names[0]) for _ in range(n_jobs - N_TRAININGS)]

    def submit(self, after: str | None = None) -> str:
        """A training with a deadline in 20 min, or one that waits."""
        more = {} if after is None else {"after": [after]}
        return self.give([sys.executable, "-c", TRAINING], deadline="20m", cores="0.05..0.2", **more)

    def reads(self) -> list[bytes]:
        """Return a request of each kind, of some jobs."""
        paths = ["/v1/jobs", "/v1/jobs?limit=500", "/v1/cluster", "/v1/metrics"]
        for name in (*self.names[:2], self.names[-1]):
            paths += [f"/v1/jobs/{name}", f"/v1/jobs/{name}/why"]
        whole = [self.server.request("GET", path) for path in paths]
        logs = [f"/v1/jobs/{name}/logs" for name in self.names[:2]]
        return [*whole, *(self.server.request("GET", path, headers={"Range": "bytes=0-4095"}) for path in logs)]

    def last_sequence(self) -> int:
        with self.run.read_journal() as journal:
            return journal.last_sequence

    def lateness_s(self, first: int) -> list[float]:
        """Return the lateness of each tick from message number `first` on."""
        with self.run.read_journal() as journal:
            messages = (message for _, message in journal.read_from(first, About(kinds=("TimerFired",))))
            return [each.late_s for each in messages if isinstance(each, TimerFired) and each.timer.kind == "tick"]


@contextmanager
def service(home: Path, n_jobs: int) -> Iterator[Service]:
    """Ended, with its jobs, when this is left."""
    live = Service(home, n_jobs)
    try:
        yield live
    finally:
        live.end()


@contextmanager
def empty_server(folder: Path, n_body_bytes: int) -> Iterator[Server]:
    port_file = folder / "port"
    script = Path(__file__).with_name("_service_load.py")
    process = subprocess.Popen([sys.executable, script, port_file, folder / "empty.db", str(n_body_bytes)])
    try:
        while not (port_file.exists() and port_file.read_text()):
            time.sleep(0.05)
        time.sleep(1.0)
        yield Server(int(port_file.read_text()))
    finally:
        process.terminate()
        process.wait(30)


# Reads, and control beside them.


def reads(sizes: Sizes, live: Service, empty: Server) -> dict[str, list[dict[str, list[float]]]]:
    nothing = [empty.request("GET", "/empty")]
    blocks: dict[str, list[dict[str, list[float]]]] = {"reads": [], "empty route": [], "nothing": []}
    time.sleep(5.0 if sizes == FULL else 2.0)  # the last of the submitted trainings start
    for seed in range(sizes.n_rounds):
        for name in Random(seed).sample(sorted(blocks), len(blocks)):
            first = live.last_sequence() + 1
            server, requests = (live.server, live.reads()) if name == "reads" else (empty, nothing)
            if name == "nothing":
                time.sleep(sizes.block_s)
                found: list[float] = []
            else:
                found = asyncio.run(latencies_s(server, requests, sizes.reads_per_s, sizes.block_s, seed))
            time.sleep(1.0)
            blocks[name].append({"latency_s": found, "late_s": live.lateness_s(first)})
    return blocks


def _reads_section(blocks: dict[str, list[dict[str, list[float]]]], sizes: Sizes) -> Section:
    rows = [
        {"block": name, **part, "p99_s": quantile(part["latency_s"], 0.99) if part["latency_s"] else None}
        for name, parts in blocks.items()
        for part in parts
    ]
    columns = [
        Column("requests", "latency_s", "{:,}".format, lambda parts: sum(map(len, parts))),
        Column("p50, ms", "latency_s", str, _quantile_ms(0.5)), Column("p99, ms", "latency_s", str, _quantile_ms(0.99)),
        Column("p99 of each round", "p99_s", str, lambda each: f"{1e3 * min(each):.1f} to {1e3 * max(each):.1f}"),
        Column("ticks", "late_s", str, lambda parts: sum(map(len, parts))),
        Column("late by, ms: median", "late_s", str, _quantile_ms(0.5)), Column("95 %", "late_s", str, _quantile_ms(0.95)),
        Column("most", "late_s", str, _quantile_ms(1.0)),
    ]  # fmt: skip
    p99s = {
        name: [quantile(part["latency_s"], 0.99) for part in parts]
        for name, parts in blocks.items()
        if name != "nothing"
    }
    ratios = [ours / theirs for ours, theirs in zip(p99s["reads"], p99s["empty route"], strict=True)]
    ratio = statistics.median(ratios)
    spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
    with_reads, without = ([late for part in blocks[name] for late in part["late_s"]] for name in ("reads", "nothing"))
    text = f"{sizes.reads_per_s:.0f} reads a second, {sizes.n_jobs} jobs: p99 over the empty route's ({spread})"
    return Section("Reads, and control beside them", *table_of(rows, {"block": "block"}, columns), [
        Target(text, READS_LIMIT, ratio, TIMES),
        Target(
            "ticks beside them: 95 % late by at most so much more than without, of a tick of 0.5 s",
            0.05, (quantile(with_reads, 0.95) - quantile(without, 0.95)) / 0.5, "{:.1%}".format,
        ),
    ])  # fmt: skip


def _quantile_ms(frac: float) -> Callable[[Sequence[list[float]]], str]:
    """Return what shows a quantile of all parts together; a dash where they are empty."""

    def shown(parts: Sequence[list[float]]) -> str:
        values = [value for part in parts for value in part]
        return f"{1e3 * quantile(values, frac):.2f}" if values else "–"

    return shown


# Submissions.


def submissions(sizes: Sizes, live: Service, empty: Server, folder: Path, n_body_bytes: int) -> dict[str, list[float]]:
    live.caller.close()  # the service ends one that is idle for long
    connection, text = durable(folder / "bare.db"), "x" * n_body_bytes
    route = http.client.HTTPConnection("127.0.0.1", empty.port, timeout=60)

    def submitted() -> None:
        live.submit(after=live.names[0])

    def inserted() -> None:
        insert(connection, text)

    def inserted_behind_route() -> None:
        route.request("POST", "/insert", "{}", {"Content-Type": "application/json"})
        route.getresponse().read()

    kinds = {"submission": submitted, "bare insert": inserted, "insert behind an empty route": inserted_behind_route}
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for i in range(sizes.n_submissions):
        for name in Random(i).sample(sorted(kinds), len(kinds)):
            begun = time.perf_counter()
            kinds[name]()
            taken[name].append(time.perf_counter() - begun)
            time.sleep(0.05)  # what a submission starts beside its answer is over
    return taken


def _submissions_section(taken: dict[str, list[float]], n_jobs: int) -> Section:
    medians = {name: statistics.median(values) for name, values in taken.items()}
    rows = [
        [name, str(len(values)), *(f"{1e3 * quantile(values, frac):.2f}" for frac in (0.05, 0.5, 0.95)),
         TIMES(medians[name] / medians["bare insert"])]
        for name, values in taken.items()
    ]  # fmt: skip
    heads = ["what", "times", "5 %, ms", "median", "95 %", "over a bare insert"]
    return Section("Submissions", heads, rows, [
        Target(f"a submission over {what}, {n_jobs} jobs", SUBMIT_LIMIT, medians["submission"] / medians[kind], TIMES)
        for what, kind in (
            ("a bare durable insert", "bare insert"),
            ("such an insert behind an empty route", "insert behind an empty route"),
        )
    ])  # fmt: skip


# Quotes.


class Watched:
    """A policy that keeps the last snapshot on which so many jobs ran."""

    def __init__(self, n_jobs: int) -> None:
        self.policy, self._n_jobs = registry.load("policies", "promises-first")(), n_jobs
        self.snapshot: Snapshot | None = None

    def allocate(self, snapshot: Snapshot) -> Plan:
        if sum(view.work is not None for view in snapshot.holding) >= self._n_jobs:
            self.snapshot = snapshot
        plan: Plan = self.policy.allocate(snapshot)
        return plan


def quotes(sizes: Sizes) -> list[dict[str, Any]]:
    n_jobs, results = 100 if sizes == FULL else 30, []
    for seed in range(sizes.n_snapshots):
        random = Random(seed)
        loads = [
            CoreLoad(core_s=random.uniform(40, 120), deadline_s=random.uniform(300, 900), ceiling_cores=1.0)
            for _ in range(n_jobs)
        ]
        watched = Watched(n_jobs)
        simulate(Contention(cores=0.5 * n_jobs, loads=loads), watched)
        assert watched.snapshot is not None, "no snapshot with all jobs running"
        for kind, factor in (("a deadline that can be kept", 1.2), ("one that cannot", 0.05)):
            one = _quoted(watched.policy, watched.snapshot, factor, sizes.n_quoted, random)
            results.append({"n_jobs": n_jobs, "seed": seed, "kind": kind, **one})
    return results


def _quotes_section(results: list[dict[str, Any]]) -> Section:
    medians = [statistics.median(one["ratios"]) for one in results]
    rows = [
        [
            f"{one['n_jobs']} jobs, seed {one['seed']}: {one['kind']}", f"{1e3 * one['decision_s']:.1f}",
            f"{1e3 * one['quote_s']:.1f}", TIMES(middle), f"{min(one['ratios']):.2f} to {max(one['ratios']):.2f}",
        ]
        for one, middle in zip(results, medians, strict=True)
    ]  # fmt: skip
    heads = ["snapshot", "a decision, CPU ms", "a quote", "ratio, median", "spread"]
    text = f"a quote with {results[0]['n_jobs']} jobs that run over a decision, worst median"
    return Section("Quotes", heads, rows, [Target(text, QUOTE_LIMIT, max(medians), TIMES)])


def _quoted(policy: Any, snapshot: Snapshot, factor: float, n_quoted: int, random: Random) -> dict[str, Any]:
    """Quotes for running jobs with so many times the time that they have left, in turns with decisions."""
    decisions, taken = [], []
    for view in random.sample(list(snapshot.holding), n_quoted):
        assert view.deadline_at is not None
        left_s = max(view.deadline_at - snapshot.at, 1.0)
        moved = view.with_deadline(snapshot.at + factor * left_s - view.submitted_at)
        begun = time.process_time()
        policy.allocate(snapshot)
        middle = time.process_time()
        quote(policy, snapshot, moved)
        decisions.append(middle - begun)
        taken.append(time.process_time() - middle)
    ratios = [ours / theirs for ours, theirs in zip(taken, decisions, strict=True)]
    return {"decision_s": statistics.median(decisions), "quote_s": statistics.median(taken), "ratios": ratios}


def sections(results: Results) -> list[Section]:
    sizes = Sizes(**results["sizes"])
    return [
        _reads_section(results["reads"], sizes), _submissions_section(results["submissions"], sizes.n_jobs),
        _quotes_section(results["quotes"]),
    ]  # fmt: skip


def measured(*, quick: bool) -> Results:
    sizes = QUICK if quick else FULL
    results: Results = {"sizes": asdict(sizes)}
    with tempfile.TemporaryDirectory(prefix="punctual-bench-") as name:
        folder, n_body_bytes = Path(name), len(TRAINING) + 600
        with empty_server(folder, n_body_bytes) as empty, service(folder / "home", sizes.n_jobs) as live:
            results["reads"] = reads(sizes, live, empty)
            results["submissions"] = submissions(sizes, live, empty, folder, n_body_bytes)
    results["quotes"] = quotes(sizes)
    return results


if __name__ == "__main__":
    sys.exit(run("service", __doc__, measured, sections))
