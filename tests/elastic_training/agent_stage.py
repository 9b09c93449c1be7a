"""A script under an agent in a process of its own, and Punctual's side of its page."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _processes import children
from tests.elastic_training.forked_script import run_script
from tests.elastic_training.stage import forkserver
from tests.waiting import PATIENCE_S, wait_until

from punctual.channel import BLOCK_VARIABLE, Directives, SharedBlock, WorkerStatus, WorkerTarget
from punctual.journal.owner import start_ticks


class Stage:
    """A script under an agent, and Punctual's side of its page."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "page"
        self._output = folder / "output"
        self.page = SharedBlock.create(str(self._path))
        self.n_devices_each = 0
        self.spans_nodes = False
        self._n_requests = 0
        self._process: Any = None

    def start(self, *argv: str, n_workers: int = 1, n_servers: int = 0, **environment: str) -> None:
        self.send_target(n_workers, n_servers)
        environment = {**os.environ, BLOCK_VARIABLE: str(self._path), "OMP_NUM_THREADS": "3", **environment}
        self._output.write_bytes(b"")
        self._process = forkserver.Process(target=run_script, args=(argv, environment, str(self._output)))
        self._process.start()

    def send_target(self, n_workers: int, n_servers: int = 0, devices: tuple[int, ...] = ()) -> int:
        self._n_requests += 1
        target = WorkerTarget(self._n_requests, n_workers, self.n_devices_each, n_servers, devices, self.spans_nodes)
        self.page.send_worker_target(target)
        return self._n_requests

    def resize(self, n_workers: int, n_servers: int = 0, devices: tuple[int, ...] = ()) -> WorkerStatus:
        request = self.send_target(n_workers, n_servers, devices)
        return self.await_status(lambda status: status.request == request)

    def await_status(self, holds: Callable[[WorkerStatus], bool]) -> WorkerStatus:
        def look() -> WorkerStatus:
            assert self._process.exitcode is None, self.output()
            return self.page.worker_status()

        return wait_until(look, holds, pause_s=0.005)

    def await_step(self, n_steps: int) -> None:
        """Wait until so many steps are done."""
        wait_until(lambda: self.page.progress().n_steps, lambda n_done: n_done >= n_steps, pause_s=0.005)

    def leave(self) -> None:
        """Ask it to make room."""
        self.page.send(Directives(leave=True))

    def forget_directives(self) -> None:
        """Before it is started again."""
        self.page.send(Directives())

    def exit_code(self) -> int:
        self._process.join(PATIENCE_S)
        code: int | None = self._process.exitcode
        assert code is not None, self.output()
        return code

    def is_running(self) -> bool:
        return self._process.exitcode is None

    def output(self) -> str:
        return self._output.read_text()

    @property
    def agent_pid(self) -> int:
        pid: int = self._process.pid
        return pid

    def workers(self) -> list[int]:
        """Process ids in order of their start."""
        pids = [pid for parent in children(self.agent_pid) for pid in children(parent)]
        return sorted(pids, key=lambda pid: (start_ticks(pid) or 0, pid))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self.page.close()
