"""The node agent as a detached process, reached over a Unix socket of mode 0600."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.daemon.control_socket import ControlFailed, ControlSilent, ControlSocket, ask, listener_pid
from punctual.daemon.detached import log_bounded, start_detached
from punctual.daemon.logs import log_to_stderr
from punctual.daemon.machine_notice import MachineNotice
from punctual.daemon.node_agent import AgentOptions, NodeAgent, lock_file
from punctual.daemon.paths import HOME_VARIABLE, agent_roots, refused_if_unwritable
from punctual.daemon.run_folder import RunFolder, agent_run
from punctual.executors.cluster.channel import Answer, ChannelLost, Request
from punctual.request.words import visible


class AgentProcess:
    """Channel to the agent of a given name on this machine; starts the agent if it does not run, and replaces one that hangs."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._run = agent_run(options.name)
        self._lock = threading.Lock()
        #: Instant since which the agent that runs has not answered; None: it has.
        self._silent_at: float | None = None
        home = os.environ.get(HOME_VARIABLE)
        self._home = {HOME_VARIABLE: home} if home else {}

    @property
    def log(self) -> Path:
        """Path of the log of the agent's process."""
        return _log_of(self._run)

    def pid(self) -> int | None:
        """Process id of the agent; None: it does not run."""
        return listener_pid(self._run.socket)

    def call(self, request: Request, limit_s: float) -> Answer:
        """Return the agent's answer; raises `ChannelLost` if none comes within about `limit_s` seconds."""
        try:
            answer = ask(self._run.socket, request, limit_s)
        except ControlFailed as error:
            # The second: it has left so many without an answer that there is no room for more.
            if isinstance(error, ControlSilent) or isinstance(error.__cause__, BlockingIOError):
                self._note_silence()
            else:
                self._silent_at = None
                if self.pid() is None:
                    self.start()
            raise ChannelLost(str(error)) from error
        self._silent_at = None
        return answer

    def _note_silence(self) -> None:
        """Kill an agent that hangs: the next request has another one take over its jobs."""
        now = time.monotonic()
        self._silent_at = now if self._silent_at is None else self._silent_at
        # Long enough for a busy machine, and long before the node counts as lost.
        if now > self._silent_at + self._options.lost_after_s / 3:
            self._silent_at = None
            with suppress(OSError, ValueError):  # it has just ended
                os.kill(int(lock_file(self._run).read_text(encoding="ascii")), signal.SIGKILL)

    def start(self) -> None:
        """Start the process if it does not run; returns once it answers, has ended, or the time limit has passed."""
        with self._lock:
            if self.pid() is not None:
                return
            for folder in (self._run.runtime_dir, self._run.state_dir):  # one that was needed no more has removed them
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            command = [sys.executable, "-P", "-m", "punctual.daemon.agent_process", json.dumps(asdict(self._options))]
            # Without what is Ray's: its variables are not for jobs.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
            environment |= self._home
            starter = start_detached(command, self.log, environment)
            # Seconds that an agent may take to answer after its start: all cores may be busy, and it may take over jobs.
            with suppress(subprocess.TimeoutExpired):
                starter.wait(60.0)


def drain_here(in_s: float | None) -> dict[str, Any]:
    """Have the agents of this machine, of which each service has one, tell that it goes away in `in_s` seconds; None: it stays.

    Raises `InvalidSpec`: there is none, or it cannot be written down for them.
    """
    live, _ = agent_roots()
    names = [folder.name for folder in sorted(live.iterdir()) if listener_pid(folder / "control.sock") is not None]
    if not names:
        raise InvalidSpec(
            "this machine must be a node of a cluster on which you have a service",
            "no agent of yours",
            "this machine",
            "Give the command as the user of the service, on the node; or name the node where the service is.",
        )
    with refused_if_unwritable(live):
        MachineNotice().record(None if in_s is None else time.monotonic() + in_s)
    return {"node": agent_run(names[0]).facts().get("node", names[0])}


def _log_of(run: RunFolder) -> Path:
    return run.state_dir / "agent.log"


def main(text: str) -> int:
    """Start an agent as a detached process and return the exit status.

    Ray ends the children of its workers when these end or their raylet does, but not the children's children. The
    status is 0 once the agent answers, and that of the agent if it has ended before.
    """
    answers, answering = os.pipe()
    agent = os.fork()
    if not agent:
        os.close(answers)
        return run(AgentOptions(**json.loads(text)), lambda: os.write(answering, b"."))
    os.close(answering)
    if os.read(answers, 1):
        return 0
    _, status = os.waitpid(agent, 0)
    return os.waitstatus_to_exitcode(status)


def run(options: AgentOptions, on_answering: Callable[[], object]) -> int:
    """Run the agent until SIGTERM or until it is idle, and return the exit status; its jobs outlive it."""
    ends = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ends.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log_to_stderr("%(asctime)s %(levelname)s %(message)s")
    try:
        agent = NodeAgent(options)
    except InvalidSpec as error:
        sys.stderr.write(f"error: {visible(str(error))}\n")
        return 2
    try:
        run = agent_run(options.name)
        with log_bounded(_log_of(run)), ControlSocket(run.socket, agent.answer):
            on_answering()
            # Seconds between two checks whether the agent is still needed.
            while not ends.wait(1.0) and not agent.is_idle:
                pass
    finally:
        agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
