"""Kill -9 at every kind of message: is a job lost, run twice, or anything left?

In a round a daemon (below: the host), with its policy in a worker process, runs the small jobs of a scenario, see `_faults_scenarios.py`.
In `pauses` there are five under `earliest-deadline`: two with checkpoints that end by themselves (one of them does not end on
SIGTERM in a fifth of the rounds), one that is stopped by its user, one that fails, and one that is submitted later and for which
the others are paused. In `contention` there are seven or eight under `promises-first`, for whose deadlines two cores are
enough in sum, but not for what all want at the same time. They come one after another; one has its deadline tightened, one is
stopped, one crashes and is retried from its checkpoint, one has no deadline, and in every fourth round one is elastic by workers.

When a message of a given kind comes for the n-th time, the host stands still: before the message is in the journal
(*unwritten*), when it is there and nothing has been done about it (*written*), or after (*performed*). Then processes
get SIGKILL: the host, a keeper, a guard, the policy's process, a job, or several of them in any order; in `contention` the host is
always one of them. A host that was killed is resumed from its journal, which may be killed again; its users say again what
they had said.

The kinds are all events and commands that there are; the ones that `contention` cannot have are named with it. In rounds of
`pauses` about a warning, or the loss of a node, the host posts it itself (jobs of a node
then count as lost), and in those about grants that fail it finds no room for the first page: neither can be had otherwise.

When all is over it must hold that

* the journal tells one end of each job that was submitted, nothing about it afterwards, and the end that it would have had undisturbed
  (a job that may not be retried may also have failed with its process);
* each job that finished did every step, and each of its processes went on from the last checkpoint; the elastic one has the
  weights of the undisturbed round;
* no two processes of a job were there at once, no job was started again but for a process that was killed or has crashed, and
  none after its end;
* a deadline was moved once, and no promise was forgotten: each holds until its job ends, its deadline is moved or has come, or the
  job is told that it is lost;
* there is no process left, no control group, and with it no quota, no page, no file of a live run, and no file that only
  an open job needs.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import _faults_host
from _common import Results
from _faults import Part, conclude_parts, faults_of_rest, faults_of_work, page_of, parser_of, pid_of, send
from _faults_host import RUN
from _faults_journal import faults_of_job, faults_of_promises, n_promises_of
from _faults_scenarios import KINDS, MOMENTS, SCENARIOS, Round, drawn
from _faults_training import FINAL
from _processes import home

from punctual.core.ids import JobId
from punctual.core.lifecycle import end_state, ended_by
from punctual.core.protocols import Message
from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.daemon.runs import messages_of

#: A host whose jobs do nothing for so long hangs.
PATIENCE_S = 120.0
_POLL_INTERVAL_S = 0.5


class Place:
    """A home of its own, with the jobs of a round."""

    def __init__(self, folder: Path, round_: Round, popen: "type[subprocess.Popen[bytes]]") -> None:
        self._round, self.folder, self._popen = round_, folder, popen
        self.environment = {**os.environ, HOME_VARIABLE: str(folder / "home")}
        self.run: RunFolder = run_named(RUN)
        self.host_pids: list[int] = []
        self._rng = random.Random(round_.seed)
        self.n_taken: Counter[str] = Counter()
        self.output = folder / "output"

    def play(self) -> None:
        """Run hosts until one ends by itself."""
        second = self._rng.random() < 0.3
        plans = [(self._round.kind, self._round.nth, self._round.moment, self._round.victims)]
        if self._round.kind == "SteeringResumed":  # there must be one
            plans.insert(0, ("JobStarted", 2, "performed", ("host",)))
        elif second and self._round.kind:
            kinds = SCENARIOS[self._round.scenario].kinds
            plans.append((self._rng.choice(kinds), 1, self._rng.choice(MOMENTS), ("host",)))
        while True:
            kind, nth, moment, victims = plans.pop(0) if plans else ("", 0, "", ())
            code = self._host(kind, nth, moment, victims)
            if code != -signal.SIGKILL:
                break
        if code:
            self._round.faults.append(f"a host ended with {code}: {self.output.read_text(errors='replace')[-3000:]}")

    def _host(self, kind: str, nth: int, moment: str, victims: Sequence[str]) -> int:
        told = {
            "kind": kind, "nth": nth, "moment": moment, "folder": str(self.folder), "round": asdict(self._round),
            "resumes": bool(self.host_pids), "sweeps": self._rng.random() < 0.5,
        }  # fmt: skip
        command = [sys.executable, _faults_host.__file__, json.dumps(told)]
        with self.output.open("ab") as output:
            process = self._popen(
                command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self.host_pids.append(process.pid)
        self._round.n_hosts += 1
        begun_at = time.time()
        try:
            while not select.select([process.stdout], [], [], _POLL_INTERVAL_S)[0] and self._goes_on(begun_at):
                pass
            line = process.stdout.readline() if self._goes_on(begun_at) else b""
            if line:
                self._kill(process.pid, json.loads(line)["job"], list(victims))
                with suppress(BrokenPipeError):
                    process.stdin.write(b"\n")
                    process.stdin.flush()
            while self._goes_on(begun_at):
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_INTERVAL_S)
            process.send_signal(signal.SIGABRT)  # it says where it stands
            return process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _goes_on(self, begun_at: float) -> bool:
        """Whether a host that began at that wall time was seen to work: to begin, or its jobs to do steps or to end."""
        files = [self.run.state_dir / "run.json"]
        files += [file for job in self._round.jobs() for file in (self.folder / job).glob("*")]
        files += [file for job in self._round.jobs() for file in self.run.state_dir.glob(f"{job}.*")]
        seen_at = begun_at
        for file in files:
            with suppress(OSError):
                seen_at = max(seen_at, file.stat().st_mtime)
        return time.time() < seen_at + PATIENCE_S

    def _kill(self, host: int, job: str | None, victims: list[str]) -> None:
        self._rng.shuffle(victims)
        kept = [str(name) for name in self.run.kept_jobs()]
        name = job if job in kept else next(iter(kept), "")
        pids = [pid_of(victim, host, self.run, name or "") for victim in victims]  # before the first of them is gone
        for victim, pid in zip(victims, pids, strict=True):
            if pid and send(pid):
                self._round.n_killed += 1
                self.n_taken[name or ""] += victim in ("keeper", "job")

    # What must hold.

    def check(self) -> None:
        faults = self._round.faults
        messages = messages_of(self.run) if self.run.journal.exists() else []
        accepted = self.folder / "submitted"
        names = accepted.read_text().split() if accepted.exists() else []
        faults += [f"job '{name}': {fault}" for name in names for fault in self._faults_of(name, messages)]
        if (
            self._round.n_hosts == 1
        ):  # the next host may find that all others have ended, and end before it submits the rest
            faults += [f"job '{name}': was never submitted" for name in self._round.jobs() if name not in names]
        faults += faults_of_promises(messages)
        faults += faults_of_rest(self.folder / "home", self.run, self.host_pids, self._round.jobs())
        if not self._round.kind:
            told = {
                *(type(message).__name__ for message in messages),
                "SteeringResumed",
                *SCENARIOS[self._round.scenario].without,
            }
            faults += [f"{kind}: neither seen nor named as missing" for kind in KINDS if kind not in told]
            faults += [] if n_promises_of(messages) else ["no promise was made"]

    def _faults_of(self, name: str, messages: list[Message]) -> Iterator[str]:
        job = self._round.jobs()[name]
        yield from faults_of_job(name, job, messages, self.n_taken[name] + self._is_node_lost())
        end = next((end_state(message) for message in reversed(messages) if ended_by(message) == name), None)
        has_finished = end == "finished"
        recorded = self.run.jobs().get(JobId(name))
        if recorded != end:
            yield f"recorded as {recorded}, in the journal {end}"
        yield from faults_of_work(
            self.folder / name, job, self.n_taken[name], has_finished=has_finished, is_node_lost=self._is_node_lost()
        )
        if job.workers and has_finished:
            finals = {line for line in self.run.log(JobId(name)).read_text().splitlines() if line.startswith(FINAL)}
            self._round.final = min(finals, default="")
            if len(finals) != 1 or self._round.final.split()[1] != str(job.n_steps):
                yield f"ended with {finals}"

    def _is_node_lost(self) -> bool:
        return (self.folder / "node-lost").exists()


def played(round_: Round, popen: "type[subprocess.Popen[bytes]]" = subprocess.Popen) -> Round:
    """Play the round, with hosts that `popen` starts, and write down what does not hold."""
    begun = time.monotonic()
    with home("host-kills", lambda: round_.faults) as folder:
        place = Place(folder, round_, popen)
        place.play()
        place.check()
    round_.took_s = time.monotonic() - begun
    return round_


def undisturbed(name: str) -> Round:
    """The round with all jobs of a scenario in which nothing is killed."""
    return Round("", 0, "", (), actuator="auto", seed=0, scenario=name, has_rare=True)


def _told(round_: Round) -> Round:
    print(json.dumps(asdict(round_)), file=sys.stderr, flush=True)
    return round_


def measured(name: str, options: Namespace) -> Results:
    """Play rounds of a scenario, and first the one in which nothing is killed, with which their ends are compared."""
    scenario, victims = SCENARIOS[name], options.victims and tuple(options.victims.split(","))
    n_rounds = scenario.n_quick if options.quick else options.rounds
    rounds = [
        round_
        for round_ in drawn(name, options.seed, None if options.kind or victims else n_rounds)
        if options.kind in (None, round_.kind) and victims in (None, round_.victims)
    ]
    reference = None if options.quick or not scenario.rare_n > 1 else _told(played(undisturbed(name)))
    results = [_told(played(round_)) for round_ in rounds[:n_rounds]]
    for round_ in results:
        if reference is not None and round_.final and round_.final != reference.final:
            round_.faults.append(f"the weights are {round_.final}, and undisturbed {reference.final}")
    part = {"seed": options.seed, "rounds": [asdict(r) for r in results]}
    return part if reference is None else {**part, "undisturbed": asdict(reference)}


def rows_of(rounds: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return by kind of message rounds, processes killed, takeovers, rounds with a fault, and seconds a round."""
    rows = []
    for kind in KINDS:
        of_kind = [round_ for round_ in rounds if round_["kind"] == kind]
        rows.append({
            "kind": kind, "n_rounds": len(of_kind), "n_killed": sum(round_["n_killed"] for round_ in of_kind),
            "n_resumed": sum(round_["n_hosts"] - 1 for round_ in of_kind),
            "n_without_kill": sum(not round_["n_killed"] for round_ in of_kind),
            "n_faulty": sum(bool(round_["faults"]) for round_ in of_kind),
            "round_s": sum(round_["took_s"] for round_ in of_kind) / max(1, len(of_kind)),
        })  # fmt: skip
    return rows


def cells_of(part: dict[str, Any]) -> list[list[str]]:
    """The table of a scenario."""
    rows = [row for row in rows_of(part["rounds"]) if row["n_rounds"]]
    return [[*(str(cell) for cell in list(row.values())[:-1]), f"{row['round_s']:.1f}"] for row in rows]


def _all_rounds(part: Results) -> list[dict[str, Any]]:
    return [*part["rounds"], *([{**part["undisturbed"], "kind": "undisturbed"}] if "undisturbed" in part else [])]


def _short(part: Results) -> list[str]:
    return [f"{round_['kind']}: {fault}" for round_ in _all_rounds(part) for fault in round_["faults"]]


def figure(parts: dict[str, Results]) -> str:
    """Return the key figure of each scenario beside its target."""
    found = []
    for name, part in parts.items():
        rows, rounds = rows_of(part["rounds"]), _all_rounds(part)
        found.append(
            f"kill -9 in `{name}`: {sum(not round_['faults'] for round_ in rounds)} of {len(rounds)} rounds without a fault "
            f"(target: all), {sum(row['n_killed'] for row in rows)} processes killed at "
            f"{sum(bool(row['n_killed']) for row in rows)} of {sum(bool(row['n_rounds']) for row in rows)} kinds of messages"
        )
    return "; ".join(found)


def _notes(name: str, part: Results) -> list[str]:
    without = [f"`{kind}` ({why})" for kind, why in SCENARIOS[name].without.items()]
    notes = [f"Kinds that `{name}` does not have: {'; '.join(without)}."] if without else []
    if "undisturbed" in part:
        n_rare = sum(round_["has_rare"] for round_ in part["rounds"])
        rare = ", ".join(f"`{job}`" for job, row in SCENARIOS[name].jobs.items() if row.is_rare)
        notes.append(f"{n_rare} rounds, and one in which nothing is killed, have {rare} too.")
    return notes


HEADS = (
    "message", "rounds", "processes killed", "hosts resumed", "rounds without a kill", "rounds with a fault", "s/round"
)  # fmt: skip
PARTS = {
    name: Part(partial(measured, name), HEADS, cells_of, _short, partial(_notes, name)) for name in SCENARIOS
}  # fmt: skip


def page(results: Results) -> str:
    return page_of(PARTS, results, figure)


def main() -> int:
    made = parser_of(__doc__ or "", PARTS)
    made.add_argument("--rounds", type=int, help="so many of a scenario; none: every kind with every victims")
    made.add_argument("--kind", choices=KINDS, help="this kind alone")
    made.add_argument("--victims", help="these alone: `host`, or `host,keeper`")
    return conclude_parts("host_kills", PARTS, made.parse_args(), figure, page)


if __name__ == "__main__":
    sys.exit(main())
