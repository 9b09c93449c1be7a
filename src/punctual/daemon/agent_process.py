"""An agent as a process of its own, which outlives whoever started it; it is talked to over a Unix socket of mode 0600."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.daemon.control_socket import ControlFailed, ControlSocket, ask, listener_pid
from punctual.daemon.detached import log_bounded, start_detached
from punctual.daemon.logs import log_to_stderr
from punctual.daemon.node_agent import AgentOptions, NodeAgent
from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.run_folder import RunFolder, agent_run
from punctual.executors.cluster.channel import Answer, ChannelLost, Request
from punctual.request.words import visible

#: How long an agent may take to answer, on a machine whose cores are all in use; it may have jobs to take over.
_START_S_MAX = 60.0
#: Between two looks whether anybody needs the agent.
_IDLE_LOOK_S = 1.0


class AgentProcess:
    """The channel to the agent of a name on this machine, which is started if it is not there."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._run = agent_run(options.name)
        self._lock = threading.Lock()
        home = os.environ.get(HOME_VARIABLE)
        self._home = {HOME_VARIABLE: home} if home else {}

    @property
    def log(self) -> Path:
        """What the process itself has written."""
        return _log_of(self._run)

    def pid(self) -> int | None:
        """The process; None: it is not there."""
        return listener_pid(self._run.socket)

    def call(self, request: Request, limit_s: float) -> Answer:
        """The agent's answer; raises `ChannelLost` if there is none in `limit_s` seconds or so."""
        try:
            return ask(self._run.socket, request, limit_s)
        except ControlFailed as error:
            if self.pid() is None:
                self.start()
            raise ChannelLost(str(error)) from error

    def start(self) -> None:
        """Start the process if it is not there; returns when it answers, or has ended, or after a while."""
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
            try:
                starter.wait(_START_S_MAX)
            except subprocess.TimeoutExpired:
                threading.Thread(
                    target=starter.wait, name="punctual-agent-start", daemon=True
                ).start()  # leaves no zombie


def _log_of(run: RunFolder) -> Path:
    return run.state_dir / "agent.log"


def main(text: str) -> int:
    """Start an agent that is no child of whoever started this process; the exit status.

    Ray ends the children of its workers when these end or their raylet does, but not the children's children. It is 0 once the
    agent answers, and that of the agent if it has ended before.
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
    """Be an agent, until SIGTERM or until nobody needs it; its jobs outlive it. The exit status."""
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
            while not ends.wait(_IDLE_LOOK_S) and not agent.is_idle:
                pass
    finally:
        agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
