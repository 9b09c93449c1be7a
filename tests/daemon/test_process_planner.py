"""A policy in a worker process: whatever happens to it, there is a plan, and nothing of it is left."""

import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.daemon import policies_that_fail
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.cluster import Node, Snapshot
from punctual.core.commands import RequestPlan, SetTimer, WarnUser
from punctual.core.events import JobSubmitted, Message, NodeJoined, PlanProposed, TimerFired
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.pools import Pool, PoolSpec
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve
from punctual.daemon import planner as planner_module
from punctual.daemon.host_state import new_scheduler
from punctual.daemon.planner import ProcessPlanner, SwitchingPlanner
from punctual.estimators.speed.all_reduce import AllReduce

JOB, NODE = JobId("job"), NodeId("node")


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed distribution of policies, on the path of the processes that are started."""
    site = tmp_path / "site"
    about = site / "policies_that_fail-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(policies_that_fail.__file__, site)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: policies-that-fail\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        "[punctual.policies]\ngood = policies_that_fail:Good\nfailing = policies_that_fail:Failing\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
    return site


class Bench:
    """A planner of a policy that fails for as long as there is a file."""

    def __init__(self, folder: Path, how: str, limit_s: float = PATIENCE_S) -> None:
        self.trouble = folder / "trouble"
        self.planner = ProcessPlanner("failing", {"how": how, "where": str(self.trouble)}, limit_s=limit_s)
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.n_asked = 0

    def ask(self) -> PlanProposed:
        self.n_asked += 1
        self.planner.request(snapshot(self.n_asked), self.answers.put)
        answer = self.answers.get(timeout=PATIENCE_S)
        assert isinstance(answer, PlanProposed)
        assert answer.revision == self.n_asked
        return answer

    def ask_until(self, suffices: Callable[[PlanProposed], bool]) -> PlanProposed:
        return wait_until(self.ask, suffices)

    def pid(self) -> int:
        return int(self.trouble.with_suffix(".pid").read_text())


@pytest.fixture
def make_bench(distribution: Path, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(how: str = "raise", limit_s: float = PATIENCE_S) -> Bench:
        benches.append(Bench(tmp_path, how, limit_s))
        return benches[-1]

    yield make
    for bench in benches:
        bench.planner.close()


def snapshot(revision: int, carry: object = None) -> Snapshot:
    spec = JobSpec(id=JOB, ceiling=Resources(2.0), floor=Resources(0.1), worker=Resources(1.0), model="all-reduce")
    model = AllReduce()
    view = JobView(
        spec=spec, status="running", submitted_at=0.0, done_steps=1.0, demand=Resources(1.0), granted={},
        curve=RateCurve(model, model.init(spec)),
    )  # fmt: skip
    return Snapshot.of(1.0, [Node(NODE, Resources(2.0))], [view], revision=revision, carry=carry)


def is_good(answer: PlanProposed) -> bool:
    """Whether it is the policy's own: the one that stands in for it gives reasons."""
    return answer.plan is not None and not answer.plan.reasons and not answer.cause


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: is_gone(pid))


def test_the_policy_plans_in_another_process(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    answer = bench.ask()
    assert answer.plan is not None
    assert answer.plan.grants == {JOB: {NODE: Resources(1.0)}}
    assert answer.cause == ""
    assert bench.pid() != os.getpid()


def test_a_worker_that_cannot_be_started_is_told_and_started_once_it_can_be(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_room(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as full:
        full.setattr(planner_module, "_PolicyProcess", has_no_room)
        bench = make_bench()
        answer = bench.ask()
        assert answer.plan is not None
        assert "could not be started: Resource temporarily unavailable; 'proportional' planned" in answer.cause
    bench.ask_until(is_good)


def test_the_scheduler_of_a_live_host_takes_a_plan_that_does_not_come_as_lost() -> None:
    told: list[Message] = []
    scheduler = new_scheduler()
    scheduler.handle(NodeJoined(at=0.0, node=NODE, capacity=Resources(2.0)))
    told += scheduler.handle(JobSubmitted(at=0.0, spec=JobSpec(id=JOB, ceiling=Resources(1.0))))
    (timer,) = [message for message in told if isinstance(message, SetTimer) and message.timer.kind == "plan-answer"]
    assert math.isfinite(timer.fire_at)
    told += scheduler.handle(TimerFired(at=timer.fire_at, timer=timer.timer))
    assert [message.reason.code for message in told if isinstance(message, WarnUser)] == ["plan-lost"]
    assert sum(isinstance(message, RequestPlan) for message in told) == 2


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "failed: ZeroDivisionError: no shares"),
        ("text", "failed: it returned str, not a plan"),
        ("none", "failed: it returned NoneType, not a plan"),
        ("stale", "gave no plan of revision"),
        ("carry", "failed: TypeError: a journal cannot keep object"),
        ("grants", "gave a wrong answer"),
        ("leave", "ended: exit code 3"),
        ("crash", "ended: killed by signal 11"),
    ],
)
def test_another_policy_plans_where_it_fails_and_the_plan_says_so(
    how: str, said: str, make_bench: Callable[..., Bench]
) -> None:
    bench = make_bench(how)
    bench.trouble.touch()
    answer = bench.ask()
    assert answer.plan is not None
    assert answer.plan.grants[JOB]
    assert said in answer.cause
    assert "'proportional' planned instead" in answer.cause
    bench.trouble.unlink()
    bench.ask_until(is_good)


def test_a_policy_that_hangs_is_replaced(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("hang", limit_s=1.0)
    bench.ask_until(is_good)
    pid = bench.pid()
    bench.trouble.touch()
    answer = bench.ask()
    assert answer.plan is not None
    assert "took more than 1 s; 'proportional' planned instead" in answer.cause
    assert is_gone(pid)
    bench.trouble.unlink()
    bench.ask_until(is_good)
    assert bench.pid() != pid


def test_while_there_is_no_worker_nobody_waits_for_one(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("leave")
    bench.trouble.touch()
    first = bench.ask()
    assert "exit code 3" in first.cause
    second = bench.ask()
    assert second.cause  # at once: the pause has only begun, or the new worker has failed like the first
    assert second.plan is not None


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.1, 0.5])
def test_a_worker_may_be_killed_at_any_time(delay_s: float, make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    if delay_s:
        time.sleep(delay_s)
        bench.ask_until(is_good)
    worker = bench.planner._worker
    while worker is None:  # the planner's thread is about to start it
        time.sleep(0.001)
        worker = bench.planner._worker
    worker.kill()
    assert bench.ask().plan is not None
    bench.ask_until(is_good)


def test_a_stopped_worker_is_too_late_as_a_hanging_one_is(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(limit_s=1.0)
    bench.ask_until(is_good)
    os.kill(bench.pid(), signal.SIGSTOP)
    assert "took more than 1 s" in bench.ask().cause
    bench.ask_until(is_good)


def test_a_policy_that_cannot_be_made_is_named(distribution: Path) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    with closing(ProcessPlanner("good", {"unknown": 1}, limit_s=PATIENCE_S)) as planner:
        planner.request(snapshot(1), answers.put)
        answer = answers.get(timeout=PATIENCE_S)
    assert answer.plan is not None
    assert "could not be made: TypeError" in answer.cause


def test_what_cannot_be_sent_is_planned_by_the_other_policy(make_bench: Callable[..., Bench]) -> None:
    class Local:
        """No other process can import it."""

    bench = make_bench()
    view = snapshot(1).jobs[0]
    strange = Snapshot.of(1.0, [Node(NODE, Resources(2.0))], [view], revision=1, carry=Local())
    bench.planner.request(strange, bench.answers.put)
    answer = bench.answers.get(timeout=PATIENCE_S)
    assert answer.plan is not None
    assert "cannot be told what there is" in answer.cause
    bench.ask_until(is_good)


def test_of_requests_that_wait_only_the_newest_is_answered(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("hang", limit_s=1.0)
    bench.trouble.touch()
    for revision in range(1, 6):
        bench.planner.request(snapshot(revision), bench.answers.put)
    revisions: list[int] = []
    while not revisions or revisions[-1] < 5:
        revisions.append(bench.answers.get(timeout=PATIENCE_S).revision)
    assert revisions == sorted(revisions)


def of_two_jobs(revision: int, carry: object = None) -> Snapshot:
    view = snapshot(1).jobs[0]
    views = [replace(view, spec=replace(view.spec, id=JobId(name))) for name in ("job", "other")]
    return Snapshot.of(1.0, [Node(NODE, Resources(2.0))], views, revision=revision, carry=carry)


def test_what_a_policy_has_promised_outlives_the_plans_of_another_one(distribution: Path, tmp_path: Path) -> None:
    """The other one stands in while there is a single job, while the worker starts, and where it fails."""
    promises: object = {"cores": {"promised": {"job": 60.0}}}
    answers: SimpleQueue[Any] = SimpleQueue()
    bench = Bench(tmp_path, "raise")
    bench.trouble.touch()
    try:
        with closing(SwitchingPlanner("good")) as planner:
            planner.request(snapshot(1, promises), answers.put)
            planner.request(of_two_jobs(2, promises), answers.put)
            bench.planner.request(snapshot(3, promises), answers.put)
            for _ in range(3):
                answer = answers.get(timeout=PATIENCE_S)
                assert isinstance(answer, PlanProposed)
                assert answer.plan is not None
                assert answer.plan.carry == promises
    finally:
        bench.planner.close()


def test_a_single_job_needs_no_worker_and_several_get_one(distribution: Path) -> None:
    """While it starts the plans are those of a single job, and ask for others soon; nobody is warned of that."""
    answers: SimpleQueue[Any] = SimpleQueue()

    def ask(snapshot: Snapshot) -> PlanProposed:
        planner.request(snapshot, answers.put)
        answer = answers.get(timeout=PATIENCE_S)
        assert isinstance(answer, PlanProposed)
        assert answer.plan is not None
        assert not answer.cause
        return answer

    with closing(SwitchingPlanner("good")) as planner:
        alone = ask(snapshot(1))
        assert alone.plan is not None
        assert alone.plan.ask_again_at is None
        assert planner._together is None
        first = ask(of_two_jobs(2))
        assert first.plan is not None
        assert first.plan.ask_again_at == 1.5
        wait_until(lambda: ask(of_two_jobs(3)), is_good)
        assert not is_good(ask(snapshot(4)))
        pool = Pool(spec=PoolSpec(name="spot", capacity=Resources(2.0)), price_usd_h=1.0, obtainable=1)
        assert is_good(ask(replace(snapshot(5), pools=(pool,)))), (
            "where machines are asked for it is the policy's to do so"
        )


def test_nothing_is_left_after_the_end(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.ask_until(is_good)
    pid = bench.pid()
    bench.planner.close()
    assert is_gone(pid)
    bench.planner.close()


HOST = """
import time
from queue import SimpleQueue
from punctual.daemon.planner import ProcessPlanner
from tests.daemon.test_process_planner import snapshot
planner = ProcessPlanner("failing", {{"how": "hang", "where": {where!r}}}, limit_s=3600.0)
planner.request(snapshot(1), SimpleQueue().put)
time.sleep(3600.0)
"""


@pytest.mark.parametrize("hangs", [True, False])
def test_it_ends_with_a_host_that_is_killed(hangs: bool, distribution: Path, tmp_path: Path) -> None:
    trouble = tmp_path / "trouble"
    if hangs:
        trouble.touch()
    program = HOST.format(where=str(trouble))
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], root])}
    host = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        written = trouble.with_suffix(".pid")
        pid = int(wait_until(lambda: written.exists() and written.read_text()))
        assert not is_gone(pid)
    finally:
        host.kill()
        host.wait()
    wait_until_gone(pid)
