"""The parts of an agent, each by itself."""

import errno
import fcntl
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import PATIENCE_S, wait_until

from punctual.channel import N_DEVICES_MAX, SharedBlock, WorkerTarget
from punctual.elastic_training import agent, node_workers
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.elastic_stats import ElasticStats
from punctual.elastic_training.forkserver import Forkserver, ScriptOrigin
from punctual.elastic_training.heartbeat_board import Heartbeat, HeartbeatBoard
from punctual.elastic_training.membership import Membership
from punctual.elastic_training.node_workers import LocalWorkers
from punctual.elastic_training.worker_pool import Worker, WorkerPool, WorkerState, hung, late
from punctual.elastic_training.worker_spawner import WorkerSpawner

sleeping_ticks = LocalWorkers.sleeping_ticks
HANG_NS = 1000
NOW_NS = 1_000_000
MEMBERSHIP = {
    "generation": 3,
    "rank": 0,
    "n_workers": 1,
    "source": 0,
    "lacking": (),
    "i_device": None,
}


@pytest.fixture
def board() -> Iterator[HeartbeatBoard]:
    made = HeartbeatBoard.create()
    yield made
    made.close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[SharedBlock]:
    made = SharedBlock.create(str(tmp_path / "page"))
    yield made
    made.close()


def member(
    board: HeartbeatBoard, i_slot: int, state: WorkerState, *, age_ns: int, waiting: bool, pid: int = 0
) -> Worker:
    board.show(i_slot, 7, waiting, NOW_NS - age_ns)
    return Worker(i_slot + 1, i_slot, node_of(board), since_ns=0, pid=pid, state=state)


def node_of(board: HeartbeatBoard | None = None) -> Any:
    """A node, as far as it is only looked at."""
    return SimpleNamespace(board=board, is_stopped=LocalWorkers.is_stopped, sleeping_ticks=sleeping_ticks)


def found(board: HeartbeatBoard, *members: Worker) -> list[int]:
    """Slots of those that are taken to hang."""
    return [one.i_slot for one in hung(members, NOW_NS, HANG_NS)]


LONG, SHORT = 2 * HANG_NS, HANG_NS // 2


def test_the_board_keeps_workers_apart(board: HeartbeatBoard) -> None:
    board.show(0, 5, True, 11)
    board.show(1, 6, False, 12)
    board.generation_wanted = 4
    other = HeartbeatBoard(os.dup(board.fd))
    assert (other.heartbeat(0), other.heartbeat(1)) == (
        Heartbeat(5, True, 11, stepped_ns=11), Heartbeat(6, False, 12, stepped_ns=12),
    )  # fmt: skip
    assert other.generation_wanted == 4
    other.close()
    board.excuse(0, True)
    assert board.heartbeat(0).excused
    assert not board.heartbeat(1).excused
    board.wipe(0)
    assert board.heartbeat(0) == Heartbeat(0, False, 0, False)


def test_who_keeps_the_others_waiting_hangs(board: HeartbeatBoard) -> None:
    patient = member(board, 0, "training", age_ns=LONG, waiting=True)
    still = member(board, 1, "training", age_ns=LONG, waiting=False)
    assert found(board, patient, still) == [1]


def test_nobody_hangs_while_nobody_waits(board: HeartbeatBoard) -> None:
    assert found(board, *(member(board, i, "training", age_ns=LONG, waiting=False) for i in (0, 1))) == []


def test_nobody_hangs_while_the_last_one_still_moves(board: HeartbeatBoard) -> None:
    patient = member(board, 0, "training", age_ns=LONG, waiting=True)
    busy = member(board, 1, "training", age_ns=SHORT, waiting=False)
    assert found(board, patient, busy) == []


def test_who_does_not_join_when_the_others_have_hangs(board: HeartbeatBoard) -> None:
    joined = member(board, 0, "ready", age_ns=LONG, waiting=True)
    still = member(board, 1, "training", age_ns=LONG, waiting=False)
    assert found(board, joined, still) == [1]


def test_who_keeps_the_others_waiting_on_purpose_does_not_hang(board: HeartbeatBoard) -> None:
    patient = member(board, 0, "training", age_ns=LONG, waiting=True)
    busy = member(board, 1, "training", age_ns=LONG, waiting=False)
    board.excuse(1, True)
    assert found(board, patient, busy) == []
    assert found(board, patient, busy, member(board, 2, "training", age_ns=LONG, waiting=False)) == [2]
    board.excuse(1, False)
    assert found(board, patient, busy) == [1]


@pytest.fixture
def asleep() -> Iterator["subprocess.Popen[bytes]"]:
    made = subprocess.Popen(["sleep", "100"])
    wait_until(lambda: Path(f"/proc/{made.pid}/comm").read_text() == "sleep\n")
    wait_until(lambda: sleeping_ticks(made.pid), lambda ticks: ticks is not None)
    yield made
    made.kill()
    made.wait()


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def test_who_was_stopped_from_outside_has_no_excuse(board: HeartbeatBoard, asleep: "subprocess.Popen[bytes]") -> None:
    patient = member(board, 0, "training", age_ns=LONG, waiting=True)
    busy = member(board, 1, "training", age_ns=LONG, waiting=False, pid=asleep.pid)
    board.excuse(1, True)
    assert found(board, patient, busy) == []
    stop(asleep)
    assert found(board, patient, busy) == [1]


@pytest.mark.parametrize("waiting", [True, False])
def test_who_was_stopped_from_outside_hangs_also_alone(
    board: HeartbeatBoard, asleep: "subprocess.Popen[bytes]", waiting: bool
) -> None:
    alone = member(board, 0, "training", age_ns=LONG, waiting=waiting, pid=asleep.pid)
    assert found(board, alone) == []
    stop(asleep)
    assert found(board, alone) == [0]
    assert found(board, member(board, 0, "training", age_ns=SHORT, waiting=waiting, pid=asleep.pid)) == []


def test_who_sleeps_hangs_also_alone_when_it_has_slept_for_half_as_long_again(
    board: HeartbeatBoard, asleep: "subprocess.Popen[bytes]"
) -> None:
    alone = member(board, 0, "training", age_ns=LONG, waiting=False, pid=asleep.pid)
    looks = [NOW_NS, NOW_NS + HANG_NS // 2 - 1, NOW_NS + HANG_NS // 2]
    assert [hung([alone], now_ns, HANG_NS) for now_ns in looks] == [[], [], [alone]]
    board.excuse(0, True)
    assert hung([alone], looks[-1], HANG_NS) == []
    board.excuse(0, False)
    board.show(0, 7, False, looks[-1])  # a sign of life
    assert [hung([alone], now_ns + 2 * HANG_NS, HANG_NS) for now_ns in looks] == [[], [], [alone]]


def test_of_several_that_all_sleep_one_is_taken(board: HeartbeatBoard, asleep: "subprocess.Popen[bytes]") -> None:
    both = [member(board, i, "training", age_ns=LONG, waiting=False, pid=asleep.pid) for i in (0, 1)]
    assert [hung(both, NOW_NS + after_ns, HANG_NS) for after_ns in (0, HANG_NS)] == [[], both[1:]]
    board.excuse(0, True)  # the other may wait for it by means of its own
    assert [hung(both, NOW_NS + after_ns, HANG_NS) for after_ns in (0, HANG_NS)] == [[], []]


def test_who_works_or_has_somebody_work_does_not_sleep(asleep: "subprocess.Popen[bytes]") -> None:
    assert sleeping_ticks(asleep.pid) is not None
    for command in ("while :; do :; done", "(while :; do :; done) & wait"):
        with subprocess.Popen(["sh", "-c", command], start_new_session=True) as busy:
            try:
                wait_until(partial(sleeping_ticks, busy.pid), lambda ticks: ticks is None)
            finally:
                os.killpg(busy.pid, signal.SIGKILL)
    stop(asleep)
    assert sleeping_ticks(asleep.pid) is None
    assert sleeping_ticks(0) is None


def test_a_newcomer_that_was_stopped_is_late_sooner(board: HeartbeatBoard, asleep: "subprocess.Popen[bytes]") -> None:
    newcomer = member(board, 0, "starting", age_ns=LONG, waiting=False, pid=asleep.pid)
    start_s_max = 2 * NOW_NS / 1e9
    assert late([newcomer], NOW_NS, start_s_max, HANG_NS) == []
    assert late([newcomer], 3 * NOW_NS, start_s_max, HANG_NS) == [newcomer]
    stop(asleep)
    assert late([newcomer], NOW_NS, start_s_max, HANG_NS) == [newcomer]
    newcomer.become("ready", 0)
    assert late([newcomer], 3 * NOW_NS, start_s_max, HANG_NS) == []


def test_of_all_that_wait_one_is_taken(board: HeartbeatBoard) -> None:
    assert found(board, *(member(board, i, "training", age_ns=LONG, waiting=True) for i in (0, 1, 2))) == [2]


def test_who_waits_to_leave_does_not_hang(board: HeartbeatBoard) -> None:
    assert found(board, *(member(board, i, "ready", age_ns=LONG, waiting=True) for i in (0, 1))) == []
    assert found(board, *(member(board, i, "done", age_ns=LONG, waiting=False) for i in (0, 1))) == []
    assert found(board, member(board, 0, "training", age_ns=LONG, waiting=True)) == []


def test_a_stop_is_measured_from_the_last_step_to_the_first(page: SharedBlock) -> None:
    stats = ElasticStats(page.publish_workers, 42)
    stats.form(1, 1, resizes=False, after_fault=False)
    stats.resume(1, 500)
    assert page.worker_status().last_stop_ns == 0  # a start is no stop
    stats.stop(10, 1000)
    stats.form(2, 2, resizes=True, after_fault=False)
    stats.resume(11, 1300)
    stats.resume(11, 1400)  # the second worker
    status = page.worker_status()
    assert (status.agent_pid, status.generation, status.n_workers, status.n_resizes) == (42, 2, 2, 1)
    assert (status.last_stop_ns, status.longest_stop_ns, status.n_steps_redone) == (300, 300, 0)


def test_what_a_fault_has_cost(page: SharedBlock) -> None:
    stats = ElasticStats(page.publish_workers, 42)
    stats.form(1, 2, resizes=False, after_fault=False)
    stats.resume(1, 500)
    stats.stop(10, 1000)
    stats.lose(serves=False)
    assert (page.worker_status().n_workers, page.worker_status().n_workers_lost) == (1, 1)
    stats.stop(10, 1010)
    stats.form(2, 1, resizes=False, after_fault=True)
    stats.resume(11, 1500)
    assert (page.worker_status().last_stop_ns, page.worker_status().n_steps_redone, page.worker_status().n_resizes) == (
        490,
        1,
        0,
    )
    stats.stop(20, 3000)  # the last one: training goes on from a checkpoint of step 15
    stats.form(3, 1, resizes=False, after_fault=True)
    stats.resume(16, 9000)
    assert (page.worker_status().longest_stop_ns, page.worker_status().n_steps_redone) == (6000, 1 + 5 + 1)
    stats.stop(17, 9500)  # before it is where it had been
    stats.form(4, 1, resizes=False, after_fault=True)
    stats.resume(18, 9600)
    assert page.worker_status().n_steps_redone == 1 + 6 + 1


def test_a_target_is_answered_once(page: SharedBlock) -> None:
    stats = ElasticStats(page.publish_workers, 42)
    stats.answer(7, "no room")
    assert (page.worker_status().request, page.worker_status().cause, stats.request) == (7, "no room", 7)
    stats.answer(8)
    assert (page.worker_status().request, page.worker_status().cause) == (8, "")


class Talk:
    """An agent at one end of a link, a worker at the other."""

    def __init__(self, board: HeartbeatBoard) -> None:
        self.agent, self._worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.settimeout(10)
        self.link = SocketAgentClient(self._worker, board, 1)

    def answer(self, **words: Any) -> None:
        self.agent.send(json.dumps(words).encode())

    def heard(self) -> dict[str, Any]:
        words: dict[str, Any] = json.loads(self.agent.recv(65_536))
        return words

    def is_silent(self) -> bool:
        self.agent.setblocking(False)
        try:
            self.agent.recv(65_536)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        self.agent.close()
        self._worker.close()


@pytest.fixture
def talk(board: HeartbeatBoard) -> Iterator[Talk]:
    made = Talk(board)
    yield made
    made.close()


def test_a_worker_joins_and_tells_of_its_first_step(talk: Talk, board: HeartbeatBoard) -> None:
    talk.answer(membership=MEMBERSHIP, n_steps=40, n_peers=0)
    assert talk.link.join(n_steps=0) == Membership(**MEMBERSHIP)  # type: ignore[arg-type]
    assert talk.heard() == {
        "said": "join", "n_steps": 0, "progress": None, "after_fault": False, "has_state": True, "stepped_ns": 0,
    }  # fmt: skip
    talk.link.stamp(40, waiting=True)  # what it has from the source, and no step of its own
    assert board.heartbeat(1).waiting
    talk.link.stamp(41, waiting=False)
    talk.link.stamp(42, waiting=False)
    first = talk.heard()
    assert (first["said"], first["n_steps"]) == ("stepped", 41)
    assert talk.is_silent()
    assert board.heartbeat(1).n_steps == 42


def test_a_worker_that_resumed_tells_of_the_step_after_it(talk: Talk) -> None:
    talk.answer(membership={**MEMBERSHIP, "source": -1}, n_steps=0, n_peers=0)
    talk.link.join(n_steps=0)
    talk.heard()
    talk.link.stamp(15, waiting=True)
    talk.link.stamp(16, waiting=False)
    assert talk.heard()["n_steps"] == 16


def test_a_worker_that_is_not_needed_gets_no_roster(talk: Talk) -> None:
    talk.answer(membership=None)
    assert talk.link.join(n_steps=9, after_fault=True) is None
    assert talk.heard()["after_fault"]


def test_after_an_excuse_it_counts_anew_how_long_a_worker_stands_still(talk: Talk, board: HeartbeatBoard) -> None:
    talk.link.stamp(7, waiting=False)
    before = board.heartbeat(1)
    with talk.link.excused():
        with talk.link.excused():
            assert board.heartbeat(1) == replace(before, excused=True)
        assert board.heartbeat(1) == replace(before, excused=True)
    after = board.heartbeat(1)
    assert (after.n_steps, after.waiting, after.excused) == (7, False, False)
    assert after.stamp_ns > before.stamp_ns


def test_an_end_is_told_once_and_waits_for_the_others(talk: Talk) -> None:
    talk.answer(membership=None)
    talk.link.finish()
    talk.link.leave(3)
    assert talk.heard() == {"said": "finished"}
    assert talk.is_silent()


def test_the_training_function_must_have_a_name() -> None:
    with pytest.raises(ValueError, match="must be found by its name in another process"):
        WorkerSpawner(lambda link: None, 0)


HEARD_BYTES = 65_536
JOIN = {"said": "join", "n_steps": 0, "progress": None, "after_fault": False, "has_state": True, "stepped_ns": 0}
#: Of what no process has the number.
NO_PID = 2**22
#: Seconds after which agents end a worker that stands still; a quarter of it without a look counts as a pause of the job.
HANG_S = 0.6


class PlayedSpawner:
    """The forkserver and all workers of an agent, played by the test."""

    def __init__(self, board_fd: int) -> None:
        self.control, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.board = HeartbeatBoard(os.dup(board_fd))
        #: The workers' ends of their connections, in the order of their start, and the newest of each slot.
        self.forked: list[socket.socket] = []
        self.workers: dict[int, socket.socket] = {}
        self.killed: list[int] = []
        self.dies_when_killed = True

    # What the agent asks of it.

    def receive(self) -> dict[str, Any]:
        words: dict[str, Any] = json.loads(self.control.recv(HEARD_BYTES))
        return words

    def fork(self, i_slot: int, *, serves: bool = False) -> socket.socket:
        connection, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other_end.settimeout(PATIENCE_S)
        self.workers[i_slot] = other_end
        self.forked.append(other_end)
        return connection

    def kill(self, pid: int) -> None:
        self.killed.append(pid - NO_PID)
        if self.dies_when_killed:
            self.end(pid - NO_PID, -signal.SIGKILL)

    def close(self) -> None:
        self.board.close()
        for end in (self.control, self._own, *self.forked):
            end.close()

    # What a test has it say.

    def say(self, **words: Any) -> None:
        self._own.send(json.dumps(words).encode())

    def begin(self, i_slot: int) -> None:
        self.say(said="forked", slot=i_slot, pid=NO_PID + i_slot)
        self.say_as(i_slot, **JOIN)

    def end(self, i_slot: int, code: int) -> None:
        self.say(said="ended", slot=i_slot, code=code)

    def say_as(self, i_slot: int, **words: Any) -> None:
        """Speak for a worker; returns when the agent has read it."""
        worker, n_bytes = self.workers[i_slot], array("i", [0])
        worker.send(json.dumps(words).encode())

        def is_read() -> bool:
            fcntl.ioctl(worker, termios.TIOCOUTQ, n_bytes)
            return not n_bytes[0]

        wait_until(is_read)

    def hear_as(self, i_slot: int) -> dict[str, Any]:
        """The agent's next words to a worker."""
        words: dict[str, Any] = json.loads(self.workers[i_slot].recv(HEARD_BYTES))
        return words


class Training:
    """An agent that runs, whose workers and servers the test plays."""

    def __init__(self, spawner: PlayedSpawner, exit_code: Future[int]) -> None:
        self.spawner = spawner
        self._exit_code = exit_code

    @property
    def goes_on(self) -> bool:
        return not self._exit_code.done()

    def begin(self, *slots: int) -> None:
        """Have all of these workers join, and become members."""
        for i_slot in slots:
            wait_until(lambda i_slot=i_slot: i_slot in self.spawner.workers)  # type: ignore[misc]
            self.spawner.begin(i_slot)
        assert all("membership" in self.spawner.hear_as(i_slot) for i_slot in slots)

    def ended(self) -> int:
        """The exit code, once the agent has ended."""
        return self._exit_code.result(PATIENCE_S)


Begin = Callable[..., AbstractContextManager[Training]]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, page: SharedBlock) -> Begin:
    """Runs an agent that wants so many workers and servers."""

    @contextmanager
    def begun(n_workers: int, n_servers: int = 0, hang_s: float = PATIENCE_S) -> Iterator[Training]:
        page.send_worker_target(WorkerTarget(1, n_workers, 0, n_servers))
        made: list[PlayedSpawner] = []

        def spawner_of(_train: object, board_fd: int) -> PlayedSpawner:
            made.append(PlayedSpawner(board_fd))
            return made[0]

        monkeypatch.setattr(node_workers, "WorkerSpawner", spawner_of)
        with ThreadPoolExecutor(1) as thread, agent.Agent(print, page, hang_s=hang_s) as running:
            exit_code = thread.submit(running.run)
            try:
                yield Training(made[0], exit_code)
            finally:
                made[0].say(said="failed", trace="the test ends\n")
                exit_code.result(PATIENCE_S)

    return begun


def test_a_worker_that_is_lost_when_another_has_ended_is_no_success(
    training: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(2) as made:
        made.begin(0, 1)
        made.spawner.say_as(1, said="finished")
        made.spawner.end(0, -signal.SIGKILL)
        assert made.spawner.hear_as(1) == {"membership": None}
        made.spawner.end(1, 0)
        assert made.ended() == 128 + signal.SIGKILL
    assert f"got an end by SIGKILL for worker 1 (process {NO_PID})" in capsys.readouterr().err


def test_a_worker_that_stands_still_when_another_has_ended_is_no_success(
    training: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(2, hang_s=HANG_S) as made:
        made.begin(0, 1)
        made.spawner.board.show(0, 1, False, time.monotonic_ns() + 10**12)  # it moves, however slow this machine is
        made.spawner.say_as(1, said="finished")
        time.sleep(1.5 * HANG_S)
        assert (made.spawner.killed, made.goes_on) == ([], True)
        made.spawner.board.show(0, 2, False, time.monotonic_ns())
        made.spawner.hear_as(1)
        made.spawner.end(1, 0)
        assert made.ended() == 1
        assert made.spawner.killed == [0]
    assert "into a `run.phase`" in capsys.readouterr().err


def test_after_a_stop_a_worker_is_let_be_while_it_is_excused(training: Begin) -> None:
    with training(3, hang_s=HANG_S) as made:
        made.begin(0, 1, 2)
        for i_slot in (0, 2):
            made.spawner.board.excuse(i_slot, True)
        made.spawner.say_as(1, said="left", code=143)
        time.sleep(1.5 * HANG_S)
        assert (made.spawner.killed, made.goes_on) == ([], True)
        made.spawner.say_as(2, said="failed", trace="")
        for i_slot in (1, 2):
            made.spawner.hear_as(i_slot)
            made.spawner.end(i_slot, 0)
        assert made.ended() == 143
        assert made.spawner.killed == [0]


def test_a_worker_that_has_lost_its_servers_and_is_being_ended_is_no_newcomer(
    page: SharedBlock, training: Begin
) -> None:
    with training(2, 1) as made:
        made.begin(0, 1, 2)
        made.spawner.dies_when_killed = False
        made.spawner.end(0, -signal.SIGKILL)  # told before the other has noticed
        wait_until(lambda: made.spawner.killed == [1, 2])
        made.spawner.say_as(1, **{**JOIN, "after_fault": True, "has_state": False})
        killed = made.spawner.workers.pop(1)
        for i_slot in (1, 2):
            made.spawner.end(i_slot, -signal.SIGKILL)
        wait_until(lambda: len(made.spawner.forked) == 6)
        assert not killed.recv(1), "nothing was answered"
        made.begin(0, 1, 2)
        status = wait_until(page.worker_status, lambda status: status.n_workers == 2)
        assert (status.n_servers, status.n_workers_lost, made.spawner.killed) == (1, 1, [1, 2])


class TalkingForkserver:
    """A forkserver, and the agent's end of what they talk through."""

    def __init__(self) -> None:
        self.control, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        origin: Any = None
        self._thread = threading.Thread(target=Forkserver(self._own, origin, print).serve)
        self._thread.start()

    def said(self) -> dict[str, Any]:
        words: dict[str, Any] = json.loads(self.control.recv(65_536))
        return words

    def fork(self, i_slot: int, connection: socket.socket) -> None:
        """Request a worker."""
        request = json.dumps({"fork": i_slot, "serves": False}).encode()
        socket.send_fds(self.control, [request], [connection.fileno()])

    def close(self) -> None:
        self.control.close()
        self._thread.join()
        self._own.close()


@pytest.fixture
def forks() -> Iterator[TalkingForkserver]:
    made = TalkingForkserver()
    yield made
    made.close()


@pytest.mark.parametrize("is_closed_at", ["once", "when it loads"])
def test_a_forkserver_without_an_agent_ends_without_a_word(tmp_path: Path, is_closed_at: str) -> None:
    """An agent that ends while its forkserver loads the script closes their connection."""
    control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = tmp_path / "script.py"
    script.write_text("import pathlib, time\npathlib.Path(__file__).with_name('loads').touch()\ntime.sleep(0.5)\n")
    origin = ScriptOrigin(os.getpid(), [], list(sys.path), {}, None, str(script), -1, ())
    command = [sys.executable, "-m", "punctual.elastic_training.forkserver", str(other_end.fileno())]
    with subprocess.Popen(command, pass_fds=[other_end.fileno()], stderr=subprocess.PIPE) as process:
        other_end.close()
        if is_closed_at != "once":
            (tmp_path / "origin").write_bytes(pickle.dumps(origin))
            with (tmp_path / "origin").open("rb") as file:
                socket.send_fds(control, [b"{}"], [file.fileno()])
            wait_until((tmp_path / "loads").exists, bool)
        control.close()
        _, complaints = process.communicate(timeout=PATIENCE_S)
    assert complaints == b""


def test_a_process_that_the_script_has_started_is_no_worker(
    forks: TalkingForkserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts, worker = (os.spawnlp(os.P_NOWAIT, name, name) for name in ("false", "true"))
    for pid in (scripts, worker):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(os, "fork", lambda: worker)
    mine, workers = socket.socketpair()
    with mine, workers:
        forks.fork(0, workers)
        assert forks.said() == {"said": "forked", "pid": worker, "slot": 0}
    assert forks.said() == {"said": "ended", "slot": 0, "code": 0}
    assert os.waitstatus_to_exitcode(os.waitpid(scripts, 0)[1]) == 1
    assert not select.select([forks.control], [], [], 0)[0]


def test_a_fork_that_fails_is_told_and_the_next_one_is_tried(
    forks: TalkingForkserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    mine, workers = socket.socketpair()
    monkeypatch.setattr(os, "fork", fork)
    for slot in (3, 4):
        forks.fork(slot, workers)
        cause = "[Errno 11] Resource temporarily unavailable"
        assert forks.said() == {"said": "not forked", "slot": slot, "cause": cause}
    workers.close()
    with mine:
        assert not mine.recv(1), "nobody else has the worker's end"


def test_without_a_newcomer_that_cannot_be_forked_training_goes_on(page: SharedBlock, training: Begin) -> None:
    with training(2) as made:
        made.begin(0, 1)
        page.send_worker_target(WorkerTarget(2, 3))
        wait_until(lambda: 2 in made.spawner.workers)
        made.spawner.say(said="not forked", slot=2, cause="no memory")
        status = wait_until(page.worker_status, lambda status: status.request == 2)
        assert (status.n_workers, status.cause) == (2, "no process can be forked: no memory")
        assert made.goes_on


def test_without_a_first_worker_that_cannot_be_forked_training_begins_with_the_others(training: Begin) -> None:
    with training(3) as made:
        wait_until(lambda: 2 in made.spawner.workers)
        made.spawner.say(said="not forked", slot=2, cause="no memory")
        for i_slot in (0, 1):
            made.spawner.begin(i_slot)
        places = [made.spawner.hear_as(i_slot)["membership"] for i_slot in (0, 1)]
        assert [(place["rank"], place["n_workers"]) for place in places] == [(0, 2), (1, 2)]
        assert made.goes_on


def test_the_instant_of_the_last_step_is_not_that_of_the_last_sign_of_life(board: HeartbeatBoard) -> None:
    for stamp_ns, n_steps in ((10, 5), (20, 5), (30, 6), (40, 6)):
        board.show(0, n_steps, False, stamp_ns)
    assert (board.heartbeat(0).stamp_ns, board.heartbeat(0).stepped_ns) == (40, 30)
    board.wipe(0)
    board.show(0, 0, False, 50)
    assert board.heartbeat(0).stepped_ns == 50


def test_devices_are_shared_only_where_there_are_too_few() -> None:
    pool, here = WorkerPool(), node_of()
    for devices in ((0,), (2,)):
        pool.admit(here, len(pool.workers), 0, devices=devices)
    assert pool.unused_devices(here, range(4), 1) == (1,)
    assert pool.unused_devices(here, range(4), 2) == (1, 3)
    assert pool.unused_devices(here, (0, 2), 1) == (0,)
    assert pool.unused_devices(here, range(4), 0) == ()


@pytest.mark.parametrize(
    ("variable", "n_devices"), [(None, N_DEVICES_MAX), ("", 0), ("3", 1), ("GPU-1a2b,GPU-3c4d", 2)]
)
def test_what_the_job_is_shown_is_counted(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, n_devices: int
) -> None:
    monkeypatch.delenv(node_workers.DEVICES_VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(node_workers.DEVICES_VARIABLE, variable)
    monkeypatch.setattr(node_workers, "WorkerSpawner", lambda _train, board_fd: PlayedSpawner(board_fd))
    here = LocalWorkers(print, select.poll(), ElasticStats(print, 42))
    assert list(here.visible_devices) == list(range(n_devices))
    here.close()
