"""Faults that come over a live service: is a job lost, run twice, or a word that was given forgotten? `bench/host.md` says what must hold.

A session is a service (`punctual up`) in a home of its own on a small disk, with its users, who ask over HTTP and write down what the
service has acknowledged. Over it come random faults, one after another, also while users are asking: SIGKILL and SIGSTOP for the
service, the policy's process, a keeper or a job; SIGKILL for the service at a message of a given kind, before it is in the journal
(*unwritten*), when it is there and nothing has been done about it (*written*), or after (*performed*), and for some of its helpers as
well; a disk without room; a store where nothing can be opened for writing; a wall clock that steps by an hour or a day. After each a
service is started again where it has ended, and all that must hold is looked at.

Each fault is drawn by its number: ``--seed 0 --fault 17`` repeats the 17th alone.
"""

import json
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from _common import Results, parser
from _faults import (
    ROUNDING_CORES,
    faults_of_end,
    faults_of_grants,
    faults_of_promises,
    faults_of_rest,
    faults_of_work,
    pid_of,
    send,
)
from _faults_service import ANCHOR, MOMENTS, N_OPEN, PATIENCE_S, LiveService, Users, code_of, small_disk
from _faults_training import MOVED
from _processes import home, wait_until
from _report import Column, Section, Target, conclude_targets, report, table_of

from punctual.client.client import ServiceFailed
from punctual.core.events import JobFinished
from punctual.daemon.runs import messages_of

#: So many faults; and in one session.
N_FAULTS, N_QUICK, N_SESSION = 300, 10, 10
VICTIMS = ("service", "planner", "keeper", "job")
#: Messages that come while users ask; others come only where faults bring them about.
MESSAGES = (
    "JobSubmitted", "JobStarted", "ProgressReported", "PhaseReported", "LossReported", "JobFinished", "JobFailed", "GrantApplied",
    "SpecChanged", "StopRequested", "PauseRequested", "ResumeRequested", "SteeringResumed", "PlanProposed", "TimerFired",
    "LaunchJob", "ResizeJob", "StopJob", "RequestPlan", "WarnUser",
)  # fmt: skip
KINDS = (
    *(f"kill {who}" for who in VICTIMS), *(f"stop {who}" for who in VICTIMS), "full disk", "read-only store", "clock",
    *(f"at {message}" for message in MESSAGES),
)  # fmt: skip
#: Those that die with a service that was killed at a message.
_ALSO = ((), (), ("keeper",), ("job",), ("planner", "keeper"), ("planner", "job"))
#: How long somebody is stopped, in seconds: longer than the lease of a job.
_STOPPED_S = (4.5, 7.0)
#: How long one of the jobs may take to have processes, and a message to come.
_START_S_MAX, _MESSAGE_S_MAX = 5.0, 6.0
#: Between two questions whether something holds.
_PAUSE_S = 0.05
COUNT = "{:.0f}".format


@dataclass
class Fault:
    """One fault, and what did not hold after it."""

    number: int
    seed: int
    kind: str
    restarts: bool = False  # Whether the service is killed or replaced, where the fault itself does not say.
    has_hit: bool = False  # Whether there was what it was meant for.
    n_acknowledged: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def rng(self) -> random.Random:
        """Draws what is done in it."""
        return random.Random(f"{self.seed}/{self.number}")


def drawn(seed: int, n_faults: int) -> list[Fault]:
    """As many of each kind as can be, in a random order."""
    order: list[str] = []
    while len(order) < n_faults:
        rng = random.Random(f"{seed}/kinds/{len(order)}")
        order += rng.sample(KINDS, len(KINDS))
    return [
        Fault(i, seed, order[i], restarts=random.Random(f"{seed}/restart/{i}").random() < 0.5) for i in range(n_faults)
    ]


class Session:
    """A service and its users, from its start until nothing of it is left."""

    def __init__(self, folder: Path, seed: int) -> None:
        actuator = random.Random(f"{seed}/actuator").choice(("auto", "pacing"))
        self._service = LiveService(folder, actuator)
        self._users = Users(folder)
        self._folder = folder
        self.n_taken: Counter[str] = Counter()

    def begin(self) -> None:
        """Start the service, with the job that is there all the time."""
        if why := self._service.start():
            raise RuntimeError(why)
        self._users.submit(ANCHOR)

    # A fault.

    def play(self, fault: Fault) -> None:
        """Have the fault come, the service work again, and see what holds."""
        begun, rng = time.monotonic(), fault.rng()
        n_before = sum(wish.is_acknowledged for wish in self._users.wishes)
        for i in range(N_OPEN - len(self._users.open_jobs())):
            self._users.submit(f"job-{fault.number}-{i}")
        jobs = self._users.open_jobs()
        for _ in range(rng.randint(1, 2)):
            self._users.act(rng, jobs)
        asking = threading.Thread(target=self._ask_on, args=(random.Random(rng.random()), jobs, rng.randint(1, 3)))
        asking.start()
        time.sleep(rng.random() * 0.4)
        fault.faults += self._suffered(fault, rng, self._chosen(rng, jobs))
        if not self._service.is_there() and (why := self._service.start()):
            fault.faults.append(f"the service does not start: {why}")
        asking.join()
        fault.n_acknowledged = sum(wish.is_acknowledged for wish in self._users.wishes) - n_before
        if not fault.faults:
            fault.faults += self._look()
        fault.took_s = time.monotonic() - begun

    def _chosen(self, rng: random.Random, jobs: Sequence[str]) -> str:
        """One that has processes, if there is any."""
        order = rng.sample(jobs, len(jobs))

        def alive() -> list[str]:
            return [job for job in order if self._pid_of("job", job)]

        wait_until(alive, _START_S_MAX, _PAUSE_S)
        return next(iter(alive()), order[0])

    def _pid_of(self, victim: str, job: str) -> int:
        return pid_of(victim, self._service.process.pid, self._service.run, job)

    def _ask_on(self, rng: random.Random, jobs: Sequence[str], n_times: int) -> None:
        for _ in range(n_times):
            self._users.act(rng, jobs)

    def _suffered(self, fault: Fault, rng: random.Random, job: str) -> Iterator[str]:
        what, _, victim = fault.kind.partition(" ")
        fault.has_hit = True
        if what == "kill":
            fault.has_hit = self._kill(victim, job)
        elif what == "at":
            fault.has_hit = self._kill_at(victim, fault, job)
        elif what == "stop":
            yield from self._stop(fault, victim, job, rng.uniform(*_STOPPED_S))
        elif fault.kind == "full disk":
            with self._service.full_disk():
                time.sleep(rng.uniform(0.5, 3.0))
        elif fault.kind == "read-only store":
            yield from self._close_store(fault, rng.uniform(0.5, 3.0))
        else:
            self._service.step_clock(rng.choice((-86400, -3600, 3600, 86400)))
            time.sleep(rng.uniform(1.0, 2.5))
            if fault.restarts:
                self._service.kill()

    def _kill(self, victim: str, job: str) -> bool:
        pid = self._pid_of(victim, job)
        if victim == "service":
            self._service.kill()
        elif not pid or not send(pid, signal.SIGKILL):
            return False
        self.n_taken[job] += victim in ("keeper", "job")
        return True

    def _kill_at(self, message: str, fault: Fault, job: str) -> bool:
        """Have the service die at a message, and helpers with it; whether one came."""
        rng = random.Random(f"{fault.seed}/{fault.number}/at")
        self._service.kill_at(message, rng.choice(MOMENTS))
        if message in ("JobSubmitted", "LaunchJob", "JobStarted"):
            self._users.submit(f"job-{fault.number}-at")
        if message == "SteeringResumed":  # the next service says so
            self._service.kill()
            self._service.start()
        give_up_at = time.monotonic() + _MESSAGE_S_MAX
        while self._service.is_there() and time.monotonic() < give_up_at:
            self._users.act(rng, [job])
            time.sleep(_PAUSE_S)
        has_hit = not self._service.is_there()
        self._service.kill_at("", "")
        if has_hit:
            also = list(rng.choice(_ALSO))
            rng.shuffle(also)
            for victim, pid in [(victim, self._pid_of(victim, job)) for victim in also]:
                self.n_taken[job] += bool(pid) and send(pid) and victim in ("keeper", "job")
        return has_hit

    def _stop(self, fault: Fault, victim: str, job: str, for_s: float) -> Iterator[str]:
        pid = self._pid_of(victim, job)
        fault.has_hit = bool(pid) and send(pid, signal.SIGSTOP)
        if not fault.has_hit:
            return
        time.sleep(for_s)
        if victim != "service" or not fault.restarts:
            send(pid, signal.SIGCONT)
            return
        why, before = self._service.replace()
        before.send_signal(signal.SIGCONT)
        if why:
            yield f"none took the place of a service that was stopped: {why}"
        elif (code := code_of(before)) not in (1, -signal.SIGKILL):  # killed: it was stopped while it wrote the journal
            before.kill()
            before.wait()
            yield f"a service that was replaced ended with {code}"

    def _close_store(self, fault: Fault, for_s: float) -> Iterator[str]:
        with self._service.read_only_store():
            if not fault.restarts:
                time.sleep(for_s)
                return
            self._service.kill()
            why = self._service.start()
            if why is None:
                yield "the service started where it could not write"
            elif "Traceback" in why or "to do: " not in why:
                yield f"a store that is read only is told as {why}"

    # What must hold.

    def _look(self) -> Iterator[str]:
        if not _awaited(self._answers):
            yield f"the service does not answer: {self._service.said()}"
            return
        known = {job.name for job in self._users.client.jobs()}
        missing = [name for name in self._users.jobs if self._users.was_submitted(name) and name not in known]
        yield from (f"job '{name}' is lost" for name in missing)
        messages, quotas = messages_of(self._service.run), self._service.quotas_cores
        yield from self._users.faults(messages)
        yield from self._faults_of_work()
        yield from faults_of_promises(messages)
        yield from faults_of_grants(messages, self._capacity_cores())
        for name in self._users.paused():
            if not _awaited(lambda name=name: self._stands_still(name)):  # type: ignore[misc]
                yield f"job '{name}' was paused, and is {self._users.client.show(name).state}"
        if not _awaited(lambda: sum(quotas().values()) <= self._capacity_cores() + ROUNDING_CORES):
            states = {job.name: job.state for job in self._users.client.jobs() if job.ended is None}
            yield f"quotas of {sum(quotas().values()):.2f} cores: {quotas()}, of {states}"

    def _answers(self) -> bool:
        with suppress(ServiceFailed):
            self._users.client.jobs()
            return True
        return False

    def _stands_still(self, name: str) -> bool:
        job = self._users.client.show(name)
        is_over = job.ended is not None or job.landed is not None or self._users.was_stopped(name)
        return is_over or job.state in ("paused", "queued")

    def _capacity_cores(self) -> float:
        return self._users.client.cluster().capacity.cores or 0.0

    def _faults_of_work(self, has_finished: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
        for name, job in self._users.jobs.items():
            faults = faults_of_work(self._folder / name, job, self.n_taken[name], has_finished=has_finished(name))
            yield from (f"job '{name}': {fault}" for fault in faults)

    # The end.

    def end(self) -> Iterator[str]:
        """Have all jobs end, and the service; what does not hold then."""
        if not self._service.is_there():
            self._service.start()
        if self._service.is_there():
            yield from self._ended()
        if why := self._service.end():
            yield f"{why}: {self._service.said()}"
        self._service.close()
        yield from faults_of_rest(self._service.home, self._service.run, self._service.pids, self._users.jobs)

    def keep_state(self) -> None:
        """Copy what the small disk and the store have to where it stays, to be looked into."""
        shutil.copytree(self._service.home.resolve() / "state", self._folder / "state", dirs_exist_ok=True)
        (self._folder / "messages").write_text("".join(f"{message}\n" for message in messages_of(self._service.run)))

    def _ended(self) -> Iterator[str]:
        (self._folder / ANCHOR).mkdir(exist_ok=True)
        (self._folder / ANCHOR / MOVED).touch()
        if not _awaited(self._all_ended):
            states = {job.name: job.state for job in self._users.client.jobs() if job.ended is None}
            yield f"these do not end: {states}"
        messages = messages_of(self._service.run)
        yield from self._users.faults(messages)
        for name in filter(self._users.was_submitted, self._users.jobs):
            faults = faults_of_end(name, messages, self.n_taken[name], may_stop=self._users.was_stopped(name))
            yield from (f"job '{name}': {fault}" for fault in faults)
        finished = {message.job for message in messages if isinstance(message, JobFinished)}
        yield from self._faults_of_work(finished.__contains__)

    def _all_ended(self) -> bool:
        with suppress(ServiceFailed):
            jobs = self._users.client.jobs()
            for job in jobs:
                self._users.let_go(job)
            return all(job.ended is not None for job in jobs)
        return False


def played(faults: Sequence[Fault]) -> list[str]:
    """Play the faults in one session, until after one something does not hold, which is written into it; what did not hold at the end."""
    at_end: list[str] = []
    has_faults = lambda: at_end or any(fault.faults for fault in faults)  # noqa: E731
    with ExitStack() as places:
        folder = places.enter_context(home("service-faults", has_faults))
        if any(fault.kind in ("full disk", "read-only store") for fault in faults):
            places.enter_context(small_disk(folder))
        session = Session(folder, faults[0].number + faults[0].seed)
        try:
            session.begin()
            for fault in faults:
                session.play(fault)
                print(json.dumps(asdict(fault)), file=sys.stderr, flush=True)
                if fault.faults:
                    break
        finally:
            at_end += session.end()
            if has_faults():
                session.keep_state()
    return at_end


def _awaited(holds: Callable[[], object]) -> bool:
    return wait_until(holds, PATIENCE_S, _PAUSE_S)


def measured(faults: Sequence[Fault]) -> Results:
    """Play faults in sessions of some each."""
    left, ends = list(faults), []
    while left:
        ends.append(played(left[:N_SESSION]))
        left = [fault for fault in left if not fault.took_s]
    return {"sessions": ends, "faults": [asdict(fault) for fault in faults]}


def sections(results: Results) -> list[Section]:
    faults = [{**one, "is_faulty": bool(one["faults"]), "missed": not one["has_hit"]} for one in results["faults"]]
    columns = [
        Column("came", "kind", str, len), Column("without a victim", "missed", str, sum),
        Column("acknowledged requests", "n_acknowledged", str, sum),
        Column("after which something did not hold", "is_faulty", str, sum), Column("s each", "took_s", "{:.1f}".format, fmean),
    ]  # fmt: skip
    n_right, n_clean = sum(not fault["is_faulty"] for fault in faults), sum(not end for end in results["sessions"])
    n_asked = sum(fault["n_acknowledged"] for fault in faults)
    heads, rows = table_of(faults, {"fault": "kind"}, columns)
    rows.sort(key=lambda row: KINDS.index(row[0]))
    return [Section("Faults over a service", heads, rows, [
        Target(
            f"faults of {len(faults)} without a job lost, run twice or forgotten, {n_asked} acknowledged requests", len(faults),
            n_right, COUNT, at_least=True,
        ),
        Target(
            f"sessions of {len(results['sessions'])} after which nothing is left", len(results["sessions"]), n_clean, COUNT,
            at_least=True,
        ),
    ])]  # fmt: skip


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--fault", type=int, help="this one alone, by its number")
    options = made.parse_args()
    is_quick, n_faults = options.quick or options.fault is not None, N_QUICK if options.quick else N_FAULTS
    faults = drawn(options.seed, max(n_faults, (options.fault or 0) + 1))
    results = measured([fault for fault in faults if options.fault in (None, fault.number)])
    targets = report("service_faults", results, sections, quick=is_quick)
    for what in [*(fault["faults"] for fault in results["faults"]), *results["sessions"]]:
        print(*what, sep="\n", end="\n" * bool(what))
    return conclude_targets(targets, targets[0], quick=is_quick)


if __name__ == "__main__":
    sys.exit(main())
