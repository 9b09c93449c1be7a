"""A training on a Ray node that is cut off from its service, by network namespaces."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.append(str(Path(__file__).parents[1]))  # the cluster and the service are those of the tests

from tests.cli.programs import Terminal
from tests.plants.ray_machines import RayMachine, namespaces
from tests.plants.ray_service import Service, end_agents, ray_environment


@dataclass(kw_only=True)
class Cut:
    """Course of a training while its node was cut off, and after it."""

    lasted_s: float
    steps_meanwhile: int
    told_again_s: float
    n_processes: int


def cut(folder: Path, lasts_s: float) -> Cut:
    terminal = Terminal(folder)
    os.environ |= ray_environment(terminal.home, folder / "token")
    with (
        TemporaryDirectory(prefix="pr-", dir="/tmp", ignore_cleanup_errors=True) as ray_folder,
        namespaces(2) as network,
    ):
        address = f"{network.address(0)}:6379"
        machines = [
            RayMachine(
                head_address=address, address=network.address(i), folder=Path(ray_folder), prefix=network.prefix(i), n_cpus=i
            )
            for i in range(2)
        ]  # fmt: skip
        try:
            for machine in machines:
                machine.start()
            service = Service(terminal, folder, address, network.prefix(0))
            network.cut(1)
            before = service.steps
            time.sleep(lasts_s)
            meanwhile = service.steps - before
            network.mend(1)
            mended_at = time.monotonic()
            service.await_steered()
            told_s = time.monotonic() - mended_at
            found = Cut(lasted_s=lasts_s, steps_meanwhile=meanwhile, told_again_s=told_s, n_processes=len(service.pids))
            service.end()
        finally:
            terminal.punctual("down", "--jobs", "stop")
            terminal.close()
            for machine in reversed(machines):
                machine.kill()
            end_agents(terminal.home)
    return found
