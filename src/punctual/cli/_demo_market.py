"""`punctual demo --market`: an elastic training lands on time on machines that come and go, as a published trace tells."""

import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from punctual.cli._streams import write_line
from punctual.core.bill import Bill
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    JobFinished,
    JobSubmitted,
    MachinesAsked,
    Message,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    PoolOffered,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.lifecycle import end_state
from punctual.core.units import HOUR_S, span
from punctual.daemon.control_client import capacity_for_jobs, leave, policy, stop, submit
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import start_daemon
from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.polling import poll
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.daemon.runs import find_job, open_jobs
from punctual.distribution import check_extras
from punctual.executors.local.output import ProcessSettings
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of
from punctual.testing import market_machine

_TRACE = Path(__file__).with_name("_demo_market.json")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A training on a market.

    * `program`: command of the training; the steps, the seconds of a step on one machine, and the folder of its
      checkpoints are added.
    * `trace`: file with the spot machines, and the prices of both markets.
    * `speed`: seconds of the trace that pass in a second: its six hours take two minutes.
    * `start_s`: second of the trace at which the job is submitted; the hours before have been seen.
    * `work_h`, `n_steps`: machine-hours of the training, and its steps.
    * `startup_s`, `notice_s`: seconds here that a machine takes to start, and that are enough to leave it.
    """

    program: Sequence[str] = (sys.executable, "-m", "punctual.cli._demo_market_training")
    trace: Path = _TRACE
    speed: float = 180.0
    start_s: float = 62 * 600.0
    deadline_s: float = 6 * HOUR_S
    n_most: int = 3
    work_h: float = 6.6
    n_steps: int = 220
    startup_s: float = 12.0
    notice_s: float = 5.0

    @cached_property
    def about(self) -> dict[str, Any]:
        """Facts about the trace."""
        about: dict[str, Any] = json.loads(self.trace.read_text(encoding="utf-8"))["metadata"]
        return about

    @property
    def work_s(self) -> float:
        """Seconds here that one machine takes for the training."""
        return self.work_h * HOUR_S / self.speed

    @property
    def step_s(self) -> float:
        """Seconds here of a step on one machine."""
        return self.work_s / self.n_steps

    def cluster(self) -> str:
        """Return the file of the market."""
        startup_s = self.startup_s * self.speed
        return f"""
[machines]
provider = "market"
options = {{ speed = {self.speed} }}

[[pool]]
name = "spot"
market = "spot"
cores = 1.0
most = {self.n_most}
trace = "{self.trace}"
trace_start_s = {self.start_s}
startup_s = {startup_s}
notice_s = {self.notice_s * self.speed}

[[pool]]
name = "on-demand"
market = "on-demand"
cores = 1.0
most = {self.n_most}
price_usd_h = {self.about["on_demand_price"]}
startup_s = {startup_s}
"""

    def parameters(self) -> dict[str, float]:
        """Return the parameters of the policy, which looks at prices as often as they change, and learns from as many hours."""
        return {"look_s": 300.0 / self.speed, "hour_s": HOUR_S / self.speed}


_JOB = JobId("demo")


def market_demo() -> int:
    """Show it; return 0 only if the training landed on time."""
    check_extras("the demo of a market", "torch", "ray")
    scene = Scene()
    about = scene.about
    write_line(
        f"{scene.work_h:g} machine-hours of training in {scene.deadline_s / HOUR_S:g} hours, on up to {scene.n_most} machines. Spot ones cost "
        f"${about['spot_price']:.2f} an hour and come and go as those of {about['zone']} did in October 2025 "
        f"({about['instance_type']}); on-demand ones cost ${about['on_demand_price']:.2f}."
    )
    write_line(
        f"An hour takes {span(HOUR_S / scene.speed)} here; a machine is a Ray node of this computer, and needs about "
        f"{scene.startup_s * scene.speed / 60:.0f} minutes of that time to start. "
        "#: it is there, +: it starts, .: it could be had."
    )
    write_line("Starting Ray, and a daemon that uses it.")
    course = Course(scene)
    with Stage(scene) as stage:
        next_line_at = 0.0
        for message in stage.played():
            if message is not None and (text := course.take(message)):
                write_line(text)
            if time.monotonic() >= next_line_at:
                next_line_at = time.monotonic() + 1200.0 / scene.speed
                write_line(course.line(time.monotonic()))
        if not isinstance(course.end, JobFinished):
            write_line(stage.output()[-2000:])
    return course.conclude()


class Stage:
    """A Ray cluster and a daemon of its own, in a folder that is removed at the end."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.folder = Path(tempfile.mkdtemp(prefix="market-"))
        self._before = dict(os.environ)
        self._run: RunFolder | None = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with _signals_wait():
            if self._run is not None:
                self._end_daemon(self._run)
            for name in market_machine.running(self.folder):
                market_machine.end(self.folder, name)
            os.environ.clear()
            os.environ.update(self._before)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self) -> None:
        port, token = _free_port(), self.folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        os.environ |= {
            HOME_VARIABLE: str(self.folder / "home"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        head = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--head",
            "--block",
            f"--port={port}",
            "--num-cpus=0",
            "--include-dashboard=false",
            f"--ray-client-server-port={_free_port()}",
            f"--temp-dir={self.folder / 'ray'}",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
        ]
        market_machine.start(self.folder, "head", head)
        _await_port(port, self.folder / "head.log")
        cluster = self.folder / "market.toml"
        cluster.write_text(self._scene.cluster())
        options = HostOptions(
            actuator="pacing",
            policy="least-cost",
            shared=True,
            engine="ray",
            address=f"127.0.0.1:{port}",
            cluster=str(cluster),
        )
        options.check()
        self._run = run_named(start_daemon(DaemonRequest(options=options)).run)
        policy(self._run, "least-cost", self._scene.parameters())

    @property
    def run(self) -> RunFolder:
        """Run of the daemon."""
        assert self._run is not None
        return self._run

    def played(self) -> Iterator[Message | None]:
        """Train, and yield the messages up to the end of the training as they come; None: none has come for a while."""
        scene = self._scene
        told = JobOptions(
            program=[*scene.program, str(scene.n_steps), str(scene.step_s), str(self.folder / "checkpoints")],
            name=_JOB,
            workers=f"1..{self._scene.n_most}",
            cores_per_worker="1",
            steps=self._scene.n_steps,
            work=f"{self._scene.work_s}s",
            deadline=f"{self._scene.deadline_s / self._scene.speed}s",
        )
        submit(self.run, [submission_of(told, time.monotonic(), *capacity_for_jobs(self.run))], ProcessSettings())
        sequence, is_over = 1, False
        while not is_over:
            time.sleep(0.25)
            with self.run.read_journal() as journal:
                for number, message in journal.read_from(sequence):
                    sequence = number + 1
                    is_over = is_over or end_state(message) is not None
                    yield message
            yield None

    def output(self) -> str:
        """Return what the training has written."""
        return self.run.log(_JOB).read_text(errors="replace")

    def facts(self) -> dict[str, Any]:
        """Return the facts of the training's end."""
        return self.run.end_facts(_JOB)

    def kill(self, node: NodeId) -> None:
        """Take a machine away without notice."""
        market_machine.end(self.run.state_dir / "machines" / str(self.run.facts()["machines"]), node)

    def _end_daemon(self, run: RunFolder) -> None:
        """End the daemon with its job and its machines."""
        with suppress(InvalidSpec):
            stop(find_job(_JOB, open_jobs()))
        poll(partial(_has_left, run), 60.0)


def _has_left(run: RunFolder) -> bool:
    """Ask a daemon without jobs to leave; return whether it is gone."""
    if run.is_live() and not run.open_jobs():
        with suppress(InvalidSpec):
            leave(run)
    return not run.is_live()


@dataclass
class Course:
    """The run so far, by its messages."""

    scene: Scene = field(default_factory=Scene)
    bill: Bill = field(default_factory=Bill)
    begun_at: float = 0.0
    now_at: float = 0.0
    obtainable: dict[str, int] = field(default_factory=dict)
    starting: dict[NodeId, str] = field(default_factory=dict)
    there: dict[NodeId, str] = field(default_factory=dict)
    n_asked: int = 0
    steps_done: float = 0.0
    end: Message | None = None

    def take(self, message: Message) -> str:
        """Take the next message into account; return a line about it, or nothing."""
        self.bill.add(message)
        self.now_at = max(self.now_at, message.at)
        match message:
            case JobSubmitted(at=at):
                self.begun_at = at
            case PoolOffered(pool=pool, obtainable=n):
                self.obtainable[pool.name] = n
            case MachinesAsked(pool=pool, nodes=nodes):
                self.starting |= dict.fromkeys(nodes, pool)
                self.n_asked += len(nodes)
            case NodeJoined(node=node) if node in self.starting:
                self.there[node] = self.starting.pop(node)
            case NodeLost(node=node):
                self.starting.pop(node, None)
                self.there.pop(node, None)
            case ProgressReported(steps_done=steps_done):
                self.steps_done = max(steps_done, self.steps_done)  # it is 0 while the job moves
            case NodeNoticed(at=at, node=node, ends_at=ends_at) if ends_at is not None:
                return f"{self._clock(at)}  {node} is to be taken away: its worker leaves between two steps"
            case _ if end_state(message) is not None:
                self.end = message
        return ""

    def line(self, at: float) -> str:
        """Return a line about the present, instant `at`."""
        self.bill.settle(at)
        pools = "   ".join(f"{name} {self._machines(name)}" for name in self.obtainable)
        return f"{self._clock(at)}  {pools}   {self.steps_done / self.scene.n_steps:4.0%} done   ${self.bill.total_usd:.0f}"

    @property
    def left_s(self) -> float:
        """Seconds of the trace from the landing to the deadline."""
        assert isinstance(self.end, JobFinished)
        return self.scene.deadline_s - (self.end.landed_at - self.begun_at) * self.scene.speed

    def conclude(self) -> int:
        """Tell how it ended; return the exit status."""
        self.bill.close()
        if not isinstance(self.end, JobFinished):
            write_line(f"The training has not finished: {self.end}")
            return 1
        left_s, about = self.left_s, self.scene.about
        bill, prices = self.bill, {"spot": about["spot_price"], "on-demand": about["on_demand_price"]}
        hours = {name: usd / prices[name] for name, usd in bill.by_pool.items()}
        parts = " and ".join(f"{n:.1f} machine-hours of {name}" for name, n in hours.items() if n > 0.05)
        write_line(f"It landed {span(left_s)} {'before' if left_s >= 0 else 'AFTER'} its deadline.")
        write_line(f"It cost ${bill.total_usd:.0f}: {parts}, on {self.n_asked} machines.")
        at_least_usd = self.scene.work_h * about["on_demand_price"]
        write_line(
            f"On demand its {self.scene.work_h:g} machine-hours of work alone, without starts, cost ${at_least_usd:.0f}."
        )
        return 0 if left_s >= 0 else 1

    def _machines(self, pool: str) -> str:
        """Draw the machines of a pool: there, starting, and others that can be had."""
        n_there = sum(name == pool for name in self.there.values())
        n_starting = sum(name == pool for name in self.starting.values())
        n_more = max(0, min(self.obtainable[pool], self.scene.n_most) - n_there - n_starting)
        return f"{'#' * n_there}{'+' * n_starting}{'.' * n_more}".ljust(self.scene.n_most)

    def _clock(self, at: float) -> str:
        minutes = max(0, round((at - self.begun_at) * self.scene.speed / 60))
        return f"{minutes // 60:2} h {minutes % 60:02}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _await_port(port: int, log: Path) -> None:
    """Wait until Ray listens."""
    if not poll(partial(_listens, port), 60.0):
        raise InvalidSpec(
            "Ray must start within a minute",
            (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1],
            "this computer",
            "Try `ray start --head` by hand.",
        )


def _listens(port: int) -> bool:
    """Whether a process of this machine listens at `port`."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        return True
    return False


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Have Ctrl-C wait: machines that are left would run on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
